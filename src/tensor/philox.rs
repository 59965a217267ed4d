//! Random numbers by counter: a function only of seed, stream, step and position, without a state.
//!
//! They depend neither on the number of threads nor on the order of work, and a continued run draws what it would have
//! drawn: Philox4x32-10 (Salmon and others, *Parallel random numbers: as easy as 1, 2, 3*, 2011).

/// Ten rounds of Philox4x32.
#[inline(always)]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let even = u64::from(counter[0]) * 0xd251_1f53;
        let odd = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [
            (odd >> 32) as u32 ^ counter[1] ^ key[0],
            odd as u32,
            (even >> 32) as u32 ^ counter[3] ^ key[1],
            even as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// Four random words: block number `block` of a stream in a step.
#[inline(always)]
#[must_use]
pub fn random_words(seed: i64, stream: u32, step: i64, block: u32) -> [u32; 4] {
    philox([block, stream, step as u32, (step >> 32) as u32], [seed as u32, (seed >> 32) as u32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_its_published_values() {
        // The known answers that are published with the authors' library (Random123, kat_vectors).
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits_of_pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let expected = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(digits_of_pi, [0xa409_3822, 0x299f_31d0]), expected);
    }
}
