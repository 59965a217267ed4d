//! The order of an epoch as a function: which sample stands at a place is computed from the place alone, by the host and by a GPU alike, so that neither keeps
//! or sends an order.
//!
//! A network of Feistel's (Luby and Rackoff 1988) permutes the numbers of a few bits; what falls outside the samples is permuted again until it falls inside
//! (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). As a shuffle for GPUs: Mitchell, Stokes, Frank and Holmes 2021,
//! "Bandwidth-Optimal Random Shuffling for GPUs".

use crate::model::Rng;

/// Rounds, each with its key. From four on, a network with random rounds cannot be told from a random permutation; this one's rounds are plain hashes.
pub const ROUNDS: usize = 8;

/// A permutation of `0..len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    len: u32,
    /// Bits of the lower half; the upper half has as many, or one less.
    low: u32,
    high: u32,
    keys: [u32; ROUNDS],
}

impl Shuffle {
    /// The permutation of `len` numbers that a stream of a seed's generator gives.
    #[must_use]
    pub fn new(len: u32, seed: u64, stream: u64) -> Self {
        let mut rng = Rng::new(seed, stream);
        let bits = (u32::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let high = bits / 2;
        Self { len, low: bits - high, high, keys: [(); ROUNDS].map(|()| (rng.next_u64() >> 32) as u32) }
    }

    /// What tells it from other permutations of as many numbers.
    #[must_use]
    pub const fn keys(&self) -> [u32; ROUNDS] {
        self.keys
    }

    /// The number at `place`, both below `len`.
    #[must_use]
    pub fn at(&self, place: u32) -> u32 {
        let mut number = self.once(place);
        while number >= self.len {
            number = self.once(number);
        }
        number
    }

    /// Fills `out` `[len]` with the elements of `from` `[len]` in this order.
    pub fn fill(&self, from: &[u32], out: &mut [u32]) {
        // Without a branch, the first pass of all places is done several at once.
        for (place, out) in (0u32..).zip(out.iter_mut()) {
            *out = self.once(place);
        }
        for out in out {
            while *out >= self.len {
                *out = self.once(*out);
            }
            *out = from[*out as usize];
        }
    }

    /// One pass through the network, over all numbers of its bits.
    #[inline]
    fn once(&self, number: u32) -> u32 {
        let (low_mask, high_mask) = ((1 << self.low) - 1, (1 << self.high) - 1);
        let (mut high, mut low) = (number >> self.low, number & low_mask);
        for keys in self.keys.chunks_exact(2) {
            low ^= hash(high, keys[0]) & low_mask;
            high ^= hash(low, keys[1]) & high_mask;
        }
        high << self.low | low
    }
}

/// 16 bits that depend on all bits of both.
#[inline]
const fn hash(value: u32, key: u32) -> u32 {
    let mixed = (value ^ key).wrapping_mul(0x9E37_79B1);
    let mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85EB_CA6B);
    mixed >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for len in (0..70).chain([255, 256, 257, 1437, 65_537, 100_000]) {
            let shuffle = Shuffle::new(len, 3, u64::from(len));
            let mut seen: Vec<u32> = (0..len).map(|place| shuffle.at(place)).collect();
            let mut filled = vec![0; len as usize];
            shuffle.fill(&(0..len).collect::<Vec<_>>(), &mut filled);
            assert_eq!(seen, filled, "{len}");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn the_largest_sets_have_a_shuffle_too() {
        for len in [1 << 31, u32::MAX] {
            let shuffle = Shuffle::new(len, 1, 2);
            let mut seen: Vec<u32> = (0..1000).map(|place| shuffle.at(len - 1 - place)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.len() == 1000 && seen.iter().all(|n| *n < len));
        }
    }

    /// Chi squared of counts that should be equal, over its degrees of freedom: about 1, with a deviation of `sqrt(2 / n)`.
    fn chi_squared(counts: &[u32]) -> f64 {
        let mean = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        counts.iter().map(|c| (f64::from(*c) - mean).powi(2) / mean).sum::<f64>() / (counts.len() - 1) as f64
    }

    #[test]
    fn epochs_are_as_different_as_chance_has_them() {
        for len in [10u32, 64, 100, 1437] {
            let n = len as usize;
            let (mut places, mut neighbours, mut fixed) = (vec![0; n * 16], vec![0; n], 0u32);
            let epochs = 4000;
            for epoch in 0..epochs {
                let shuffle = Shuffle::new(len, 7, epoch);
                let order: Vec<u32> = (0..len).map(|place| shuffle.at(place)).collect();
                // Which sixteenth a sample stands in, and how far apart neighbours were.
                for (place, number) in order.iter().enumerate() {
                    places[*number as usize * 16 + place * 16 / n] += 1;
                    fixed += u32::from(place == *number as usize);
                }
                for pair in order.windows(2) {
                    neighbours[((pair[1] + len - pair[0]) % len) as usize] += 1;
                }
            }
            if n.is_multiple_of(16) || n > 1000 {
                let found = chi_squared(&places);
                assert!((found - 1.0).abs() < 0.1, "{len}: sixteenths {found}");
            }
            let found = chi_squared(&neighbours[1..]);
            assert!((found - 1.0).abs() < 6.0 * (2.0 / (n - 2) as f64).sqrt(), "{len}: neighbours {found}");
            // A permutation leaves one number in its place, on the average.
            let fixed = f64::from(fixed) / epochs as f64;
            assert!((fixed - 1.0).abs() < 0.08, "{len}: {fixed} in their places");
        }
    }
}
