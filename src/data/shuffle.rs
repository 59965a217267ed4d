//! The order of an epoch as a function: the host and a GPU compute the sample at a position directly, so that neither
//! stores nor transfers the order.
//!
//! A Feistel network (Luby and Rackoff 1988) permutes the numbers of a few bits; a result beyond the last sample is
//! permuted again until it is valid (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"). For its use as a
//! shuffle on GPUs see Mitchell, Stokes, Frank and Holmes 2021, "Bandwidth-Optimal Random Shuffling for GPUs".

use crate::model::Rng;

/// The number of rounds, each with its own key. Over 40,000 epochs of 10 to 1,437 samples, no preference of samples for
/// positions or neighbours can be distinguished from chance; with 8 rounds, neighbours among 10 to 64 samples show a
/// preference of 2 %, with 6 rounds one of 6 %.
pub const ROUNDS: usize = 12;

/// A permutation of `0..len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    len: u32,
    /// The number of bits of the lower half; the upper half has as many, or one less.
    low: u32,
    high: u32,
    keys: [u32; ROUNDS],
}

impl Shuffle {
    /// The permutation of `len` numbers that a stream of a seed's generator defines.
    #[must_use]
    pub fn new(len: u32, seed: u64, stream: u64) -> Self {
        let mut rng = Rng::new(seed, stream);
        Self::of(len, [(); ROUNDS].map(|()| (rng.next_u64() >> 32) as u32))
    }

    /// The permutation with these keys.
    #[must_use]
    pub fn of(len: u32, keys: [u32; ROUNDS]) -> Self {
        let bits = (u32::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let high = bits / 2;
        Self { len, low: bits - high, high, keys }
    }

    /// The keys, which determine the permutation.
    #[must_use]
    pub const fn keys(&self) -> [u32; ROUNDS] {
        self.keys
    }

    /// The number at position `place`, both below `len`.
    #[must_use]
    pub fn at(&self, place: u32) -> u32 {
        let mut number = [place];
        loop {
            self.pass(&mut number);
            if number[0] < self.len {
                return number[0];
            }
        }
    }

    /// Fills `out` `[len]` with the elements of `from` `[len]` in this order. Allocates nothing.
    pub fn fill(&self, from: &[u32], out: &mut [u32]) {
        /// The number of positions that are computed together.
        const BLOCK: usize = 256;
        let Some(last) = from.len().checked_sub(1) else { return };
        let (mut numbers, mut places) = ([0; BLOCK], [0u16; BLOCK]);
        for (block, out) in (0u32..).zip(out.chunks_mut(BLOCK)) {
            for (i, (number, place)) in numbers.iter_mut().zip(&mut places).enumerate() {
                (*number, *place) = (block * BLOCK as u32 + i as u32, i as u16);
            }
            let mut left = out.len();
            while left > 0 {
                self.pass(&mut numbers[..left]);
                let mut outside = 0;
                for i in 0..left {
                    let (number, place) = (numbers[i], places[i]);
                    // Numbers that are out of range are overwritten later; a condition would cost more.
                    out[usize::from(place)] = from[(number as usize).min(last)];
                    (numbers[outside], places[outside]) = (number, place);
                    outside += usize::from(number >= self.len);
                }
                left = outside;
            }
        }
    }

    /// Applies the network once to each number, over all numbers of its bits.
    #[inline]
    fn pass(&self, numbers: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if numbers.len() > 4 && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function needs.
            return unsafe { self.pass_avx2(numbers) };
        }
        self.pass_anywhere(numbers);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn pass_avx2(&self, numbers: &mut [u32]) {
        self.pass_anywhere(numbers);
    }

    #[inline(always)]
    fn pass_anywhere(&self, numbers: &mut [u32]) {
        let (low_mask, high_mask) = ((1 << self.low) - 1, (1 << self.high) - 1);
        for number in numbers {
            let (mut high, mut low) = (*number >> self.low, *number & low_mask);
            for keys in self.keys.chunks_exact(2) {
                low ^= hash(high, keys[0]) & low_mask;
                high ^= hash(low, keys[1]) & high_mask;
            }
            *number = high << self.low | low;
        }
    }
}

/// 16 bits that depend on all bits of both arguments.
#[inline(always)]
const fn hash(value: u32, key: u32) -> u32 {
    let mixed = (value ^ key).wrapping_mul(0x9E37_79B1);
    let mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85EB_CA6B);
    mixed >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_occurs_once() {
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

    /// Chi squared of counts that should be equal, divided by its degrees of freedom: about 1, with a deviation of
    /// `sqrt(2 / n)`.
    fn chi_squared(counts: &[u32]) -> f64 {
        let mean = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        counts.iter().map(|c| (f64::from(*c) - mean).powi(2) / mean).sum::<f64>() / (counts.len() - 1) as f64
    }

    #[test]
    fn epochs_differ_like_random_orders() {
        for len in [10u32, 20, 64, 100, 1437] {
            let n = len as usize;
            let (mut places, mut neighbours, mut fixed) = (vec![0; n * 16], vec![0; n], 0u32);
            let epochs = if n < 1000 { 20_000 } else { 4000 };
            for epoch in 0..epochs {
                let shuffle = Shuffle::new(len, 7, epoch);
                let order: Vec<u32> = (0..len).map(|place| shuffle.at(place)).collect();
                // Which sixteenth of the epoch a sample is in, and the distances of neighbours.
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
            assert!((found - 1.0).abs() < 4.0 * (2.0 / (n - 2) as f64).sqrt(), "{len}: neighbours {found}");
            // On average, a permutation leaves one number in its position.
            let fixed = f64::from(fixed) / epochs as f64;
            assert!((fixed - 1.0).abs() < 0.08, "{len}: {fixed} in their places");
        }
    }
}
