//! Numbers that look random and are the same on every machine.

/// Distributes a number over 64 bits (the finalizer of SplitMix64, Steele et al. 2014).
pub(super) fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in `[0, 1)` for each seed.
pub(super) fn uniform(seed: u64) -> f64 {
    (scramble(seed) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let mut counts = [0u32; 10];
        for seed in 0..10_000 {
            counts[(uniform(seed) * 10.0) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
