//! Sizes in bytes, with a text form.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A size in bytes; prints as `1.2 MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", UNITS[unit]))
    }
}

/// The smallest multiple of `align` (a power of two) that is at least `value`.
#[must_use]
pub const fn align_up(value: u64, align: u64) -> u64 {
    (value + align - 1) & !(align - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_with_binary_units() {
        let shown: Vec<String> = [0, 1023, 1024, 1_258_291, 1 << 30].map(|b| Bytes(b).to_string()).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.2 MiB", "1.0 GiB"]);
        assert_eq!(Bytes(1_048_575).to_string(), "1.0 MiB");
    }

    #[test]
    fn align_up_reaches_the_next_multiple() {
        assert_eq!([0, 1, 255, 256, 257].map(|v| align_up(v, 256)), [0, 256, 256, 256, 512]);
    }
}
