//! The generator behind initial weights, shuffles and synthetic data.
//!
//! It is written here, and not taken from a library, because a seed must give the same network on every machine and in
//! every later version: libraries guarantee that at most for the generator, but not for the distributions. The
//! generator is xoshiro256++ seeded by SplitMix64 (Blackman and Vigna, <https://prng.di.unimi.it>).

use serde::{Deserialize, Serialize};

/// A seeded generator whose state can be saved and restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`; `stream` separates uses of one seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut s = seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
        let mut next = || {
            s = s.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = s;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`.
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Standard normal, by the method of Box and Muller, with the same result on every machine.
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform();
        let v = self.uniform();
        (-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v)
    }

    /// Uniform in `0..n`; `n` is above 0.
    pub fn below(&mut self, n: usize) -> usize {
        // Multiply-shift: the bias is below n / 2^64.
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut rng = Rng::new(0, 0);
        // SplitMix64 of 0 starts with 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC.
        assert_eq!(
            rng.state,
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F, 0xF88B_B8A8_724C_81EC]
        );
        let first = rng.next_u64();
        assert_eq!(first, rng_reference());
        assert_ne!(Rng::new(0, 1), Rng::new(0, 0));
    }

    fn rng_reference() -> u64 {
        let (a, d): (u64, u64) = (0xE220_A839_7B1D_CDAF, 0xF88B_B8A8_724C_81EC);
        a.wrapping_add(d).rotate_left(23).wrapping_add(a)
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = Rng::new(7, 3);
        let n = 20_000;
        let normal: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let mean = normal.iter().sum::<f64>() / n as f64;
        let var = normal.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
        let mut seen = [0usize; 7];
        (0..7000).for_each(|_| seen[rng.below(7)] += 1);
        assert!(seen.iter().all(|&c| (850..1150).contains(&c)), "{seen:?}");
    }
}
