//! Dropout.
//!
//! Random numbers are a function of (seed, stream, step, element), so they depend neither on the number of threads nor
//! on the order of work. A block of four words serves four elements that are 16 apart, so that sixteen blocks fill the
//! lanes of 64 neighbouring elements.

use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind, dropout_threshold as threshold};
use crate::select::{Isa, cpu_rest};
use crate::tensor::random_words;

/// Elements that sixteen blocks of random words serve.
const GROUP: usize = 64;

/// Work is divided between threads at multiples of this number of elements: whole groups, and whole bytes of the mask.
const GRAIN: usize = 1_024;

/// The block of words for the elements `64 g + l + {0, 16, 32, 48}`, with `block = 16 g + l`.
#[inline(always)]
pub(super) fn words(seed: i64, stream: u32, step: i64, block: u32) -> [u32; 4] {
    random_words(seed, stream, step, block)
}

/// The random number of element `index`.
#[must_use]
pub fn random(seed: i64, stream: u32, step: i64, index: usize) -> u32 {
    let (group, place) = (index / GROUP, index % GROUP);
    words(seed, stream, step, (group * LANES + place % LANES) as u32)[place / LANES]
}

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let run = match op {
        OpKind::Dropout { .. } => for_isa!(isa, dropout),
        OpKind::DropoutBwd { .. } => for_isa!(isa, dropout_bwd),
        _ => return None,
    };
    Some(KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)))
}

/// Slots: x, counter (seed, step), y, mask (one bit for each element, the lowest first; unused bits of the last byte
/// are zero).
#[inline(always)]
unsafe fn dropout<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::dropout as slot;
    let OpKind::Dropout(ops::Dropout { len, rate, stream }) = call.op else { return };
    let (x, counter, y, mask) = (
        call.arg::<f32>(slot::X),
        call.arg::<i64>(slot::COUNTER),
        call.arg::<f32>(slot::Y),
        call.arg::<u8>(slot::MASK),
    );
    let scale = V::splat((1.0 / (1.0 - rate.get())) as f32);
    let threshold = threshold(rate.get());
    // SAFETY: the counter holds two numbers.
    let (seed, step) = unsafe { (*counter, *counter.add(1)) };
    let (from, to) = part.range(len, GRAIN);
    for group in (from..to).step_by(GROUP) {
        let mut keep = [[0u16; LANES]; 4];
        let [first, second, third, fourth] = &mut keep;
        for lane in 0..LANES {
            let words = words(seed, stream, step, (group / GROUP * LANES + lane) as u32);
            let bits = words.map(|word| u16::from(word >= threshold) << lane);
            [first[lane], second[lane], third[lane], fourth[lane]] = bits;
        }
        for (i, keep) in keep.iter().enumerate() {
            let at = group + i * LANES;
            if at >= to {
                break;
            }
            let n = (to - at).min(LANES);
            let valid = ((1u32 << n) - 1) as u16;
            let bits = keep.iter().fold(0, |bits, bit| bits | bit) & valid;
            // SAFETY: the stretch is within `len`; its mask begins at the start of a byte and ends with the last byte
            // that it has bits in.
            unsafe {
                let value = V::select(V::mask(bits), V::load_n(x.add(at), n) * scale, V::zero());
                value.store_n(y.add(at), n);
                let [low, high] = bits.to_le_bytes();
                *mask.add(at / 8) = low;
                if n > 8 {
                    *mask.add(at / 8 + 1) = high;
                }
            }
        }
    }
}

/// Slots: dy, mask, dx. `dx` may share the memory of `dy`.
#[inline(always)]
unsafe fn dropout_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::dropout_bwd as slot;
    let OpKind::DropoutBwd(ops::DropoutBwd { len, rate }) = call.op else { return };
    let (dy, mask, dx) = (call.arg::<f32>(slot::DY), call.arg::<u8>(slot::MASK), call.arg::<f32>(slot::DX));
    let scale = V::splat((1.0 / (1.0 - rate.get())) as f32);
    let (from, to) = part.range(len, GRAIN);
    for at in (from..to).step_by(LANES) {
        let n = (to - at).min(LANES);
        // SAFETY: the stretch is within `len`; the second byte is read only where the stretch has bits in it.
        unsafe {
            let high = if n > 8 { *mask.add(at / 8 + 1) } else { 0 };
            let bits = u16::from_le_bytes([*mask.add(at / 8), high]);
            let value = V::select(V::mask(bits), V::load_n(dy.add(at), n) * scale, V::zero());
            value.store_n(dx.add(at), n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_exact() {
        assert_eq!([0.0, 0.5, 0.25].map(threshold), [0, 1 << 31, 1 << 30]);
        assert_eq!(threshold(1.0 - 1e-12), u32::MAX);
        assert_eq!(threshold(1e-12), 1);
    }

    #[test]
    fn the_share_of_kept_elements_agrees_with_the_rate() {
        let kept = (0..100_000).filter(|&i| random(7, 3, 11, i) >= threshold(0.3)).count();
        assert!((kept as f64 / 100_000.0 - 0.7).abs() < 0.005, "{kept}");
        let same = (0..10_000).filter(|&i| random(7, 3, 11, i) == random(7, 3, 12, i)).count();
        assert!(same < 3);
    }
}
