//! Hostile input for readers, without a fuzzer: mutated, truncated and random bytes from a fixed seed.

use crate::model::Rng;

/// Calls `reader` with `count` inputs derived from the samples; the test passes if `reader` returns each time.
pub(super) fn throw(samples: &[&[u8]], count: usize, reader: impl Fn(&[u8])) {
    let mut rng = Rng::new(0x5eed, 0x6d75_7461);
    for sample in samples {
        reader(sample);
        // Every header is cut at each of its first bytes.
        (0..sample.len().min(300)).for_each(|end| reader(&sample[..end]));
    }
    for i in 0..count {
        let mut bytes = samples[i % samples.len()].to_vec();
        match rng.below(8) {
            0 => bytes = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
            1 => bytes.truncate(rng.below(bytes.len() + 1)),
            2 => splice(&mut bytes, &mut rng),
            _ => {}
        }
        for _ in 0..rng.below(6) {
            mutate(&mut bytes, &mut rng);
        }
        reader(&bytes);
    }
}

/// Copies a piece of the input to another place, replacing a longer or shorter piece.
fn splice(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let start = rng.below(bytes.len());
    let piece = bytes[start..(start + rng.below(32)).min(bytes.len())].to_vec();
    let at = rng.below(bytes.len());
    let end = (at + rng.below(16)).min(bytes.len());
    bytes.splice(at..end, piece);
}

/// Changes one byte, or sets four bytes to an extreme number; headers are changed more often than data.
fn mutate(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let reach = if rng.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
    let at = rng.below(reach);
    match rng.below(4) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.next_u64() as u8,
        2 => bytes[at] = *b"\0\n\r,;\"'(){}[]:-+.eNnLl\xff0123456789".get(rng.below(34)).unwrap_or(&0),
        _ => bytes[at..].iter_mut().take(4).for_each(|b| *b = 0xff),
    }
}
