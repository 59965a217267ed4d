//! A checksum that is the same on every machine.

/// FNV-1a (Fowler, Noll and Vo, 64 bits), computed piece by piece. It detects damage; it does not protect against
/// attacks.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// The checksum of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub const fn sum(self) -> u64 {
        self.0
    }

    /// The checksum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        hash.add(bytes);
        hash.sum()
    }
}

impl Default for Fnv {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_equal_the_published_values() {
        assert_eq!(Fnv::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv::of(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
