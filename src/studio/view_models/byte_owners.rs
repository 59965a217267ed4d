//! The owners of a byte, one after the other; and parsing of sizes that the user types.

use crate::plan::BufferId;
use crate::studio::view_models::arena::{ArenaView, BufferRect};

/// The owners of a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteOwners {
    pub byte: u64,
    /// Buffers that contain the byte, by the start of their live range.
    pub buffers: Vec<BufferId>,
}

/// The writes and reads of a byte around an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The owner at that operation.
    pub owner: Option<BufferId>,
    /// The last operation, at or before it, that writes the owner.
    pub last_writer: Option<usize>,
    /// The next operation after it that reads the owner.
    pub next_reader: Option<usize>,
}

fn holds(r: &BufferRect, byte: u64) -> bool {
    r.offset <= byte && byte < r.offset + r.bytes
}

impl ByteOwners {
    /// The owners of `byte`.
    #[must_use]
    pub fn of(view: &ArenaView, byte: u64) -> Self {
        let mut owners: Vec<&BufferRect> = view.rects.iter().filter(|r| holds(r, byte)).collect();
        owners.sort_by_key(|r| r.live);
        Self { byte, buffers: owners.into_iter().map(|r| r.id).collect() }
    }

    /// The writes and reads of the byte around operation `op`.
    #[must_use]
    pub fn around(&self, view: &ArenaView, op: usize) -> Around {
        let rects = self.buffers.iter().filter_map(|id| view.rect(*id));
        let Some(owner) = rects.into_iter().find(|r| r.live[0] <= op && op < r.live[1]) else {
            return Around::default();
        };
        Around {
            owner: Some(owner.id),
            last_writer: owner.writers.iter().rev().find(|w| **w <= op).copied(),
            next_reader: owner.readers.iter().find(|r| **r > op).copied(),
        }
    }
}

/// A typed number of bytes: `4096`, `0x1000`, `4 KiB`, `1.5 MiB`.
#[must_use]
pub fn read_bytes(text: &str) -> Option<u64> {
    let text = text.trim().replace(['\u{2009}', '_'], "");
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex.trim(), 16).ok();
    }
    let cut = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(cut);
    let scale = match unit.trim().to_lowercase().as_str() {
        "" | "b" | "bytes" => 1u64,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => number.parse::<f64>().ok().filter(|v| *v >= 0.0).map(|v| (v * scale as f64) as u64),
    }
}

/// One byte, or a range `from..to` or `from-to`, as typed: `[from, to)`.
#[must_use]
pub fn read_range(text: &str) -> Option<[u64; 2]> {
    let ends = text.split_once("..").or_else(|| text.split_once('-')).or_else(|| text.split_once('–'));
    match ends {
        Some((from, to)) => {
            let (from, to) = (read_bytes(from)?, read_bytes(to)?);
            (from < to).then_some([from, to])
        }
        None => read_bytes(text).and_then(|b| Some([b, b.checked_add(1)?])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::check;
    use crate::select::{Isa, Target};

    #[test]
    fn typed_sizes_are_parsed() {
        assert_eq!(read_bytes("0x1200"), Some(0x1200));
        assert_eq!(read_bytes(" 4 KiB"), Some(4096));
        assert_eq!(read_bytes("1.5MiB"), Some(3 << 19));
        assert_eq!(read_bytes("12 apples"), None);
        assert_eq!(read_range("0x100..0x200"), Some([256, 512]));
        assert_eq!(read_range("4 KiB - 8 KiB"), Some([4096, 8192]));
        assert_eq!(read_range("7"), Some([7, 8]));
        assert_eq!(read_range("9..3"), None);
        assert_eq!(read_range(""), None);
    }

    #[test]
    fn a_byte_has_one_owner_at_a_time() {
        let preset = crate::model::BUNDLED.iter().find(|b| b.name == "digits-cnn").unwrap();
        let model = check(&crate::model::read_preset(preset.text).unwrap()).model.unwrap();
        let compiled = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap();
        let view = ArenaView::new(&compiled);
        let mut shared = 0;
        for r in &view.rects {
            let t = ByteOwners::of(&view, r.offset);
            assert!(t.buffers.contains(&r.id));
            let lives: Vec<[usize; 2]> = t.buffers.iter().map(|id| view.rect(*id).unwrap().live).collect();
            assert!(lives.windows(2).all(|w| w[0][1] <= w[1][0]), "{}: {lives:?}", r.name);
            shared += usize::from(t.buffers.len() > 1);
            let around = t.around(&view, r.live[0]);
            assert_eq!(around.owner, Some(r.id));
            assert!(around.last_writer.is_none_or(|w| w <= r.live[0] && r.writers.contains(&w)));
            assert!(around.next_reader.is_none_or(|n| n > r.live[0] && r.readers.contains(&n)));
        }
        assert!(shared > 0);
        assert_eq!(ByteOwners::of(&view, view.arena_bytes).buffers, []);
    }
}
