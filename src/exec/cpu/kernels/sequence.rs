//! Sequences: rows of a table by token and their gradient, fixed positions, and the selection of one position.
//!
//! The gradient of a table needs no atomics: a thread owns a range of columns, or of rows if there are few columns,
//! loops over all tokens and sums the contributions to its range. Every element is the sum of the same numbers in the
//! order of the tokens, independently of how the table is divided.

use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let run = match op {
        OpKind::Embedding(_) => for_isa!(isa, embedding),
        OpKind::EmbeddingBwd(_) => for_isa!(isa, embedding_bwd),
        OpKind::AddSinusoids(_) => for_isa!(isa, add_sinusoids),
        OpKind::Take(_) => for_isa!(isa, take),
        OpKind::TakeBwd(_) => for_isa!(isa, take_bwd),
        _ => return None,
    };
    Some(KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)))
}

/// Runs `$body` for every group of up to 16 of `$from..$to`: `$at` is its first element, `$n` its number of elements.
macro_rules! stretches {
    ($from:expr, $to:expr, |$at:ident, $n:ident| $body:expr) => {{
        let (mut $at, to): (usize, usize) = ($from, $to);
        while $at + LANES <= to {
            let $n = LANES;
            $body;
            $at += LANES;
        }
        if $at < to {
            let $n = to - $at;
            $body;
        }
    }};
}

/// Copies `len` numbers.
///
/// # Safety
/// They can be read at `from` and written at `to`, which do not overlap.
#[inline(always)]
unsafe fn copy<V: Lanes>(from: *const f32, to: *mut f32, len: usize) {
    // SAFETY: promised by the caller.
    stretches!(0, len, |at, n| unsafe { V::load_n(from.add(at), n).store_n(to.add(at), n) });
}

/// Writes `len` equal numbers.
///
/// # Safety
/// They can be written at `to`.
#[inline(always)]
unsafe fn fill<V: Lanes>(to: *mut f32, len: usize, value: f32) {
    // SAFETY: promised by the caller.
    stretches!(0, len, |at, n| unsafe { V::splat(value).store_n(to.add(at), n) });
}

/// Slots: tokens, weight, y.
#[inline(always)]
unsafe fn embedding<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::embedding as slot;
    let OpKind::Embedding(ops::Embedding { rows, vocab, units, .. }) = call.op else { return };
    let (tokens, weight, y) = (call.arg::<i32>(slot::TOKENS), call.arg::<f32>(slot::WEIGHT), call.arg::<f32>(slot::Y));
    let (from, to) = part.range(rows, 1);
    for row in from..to {
        // SAFETY: the row of the output exists, and that of the table where the token names one.
        unsafe {
            let y = y.add(row * units);
            match usize::try_from(*tokens.add(row)) {
                Ok(token) if token < vocab => copy::<V>(weight.add(token * units), y, units),
                _ => fill::<V>(y, units, f32::NAN),
            }
        }
    }
}

/// The part of a table `[vocab, units]` that a thread owns: first and one past the last row and column. Columns are
/// shared as long as each thread gets full lanes; the remaining threads share rows.
fn owned(vocab: usize, units: usize, part: Part) -> [(usize, usize); 2] {
    let across = units.div_ceil(LANES).clamp(1, part.count);
    let down = part.count / across;
    if part.index >= across * down {
        return [(0, 0), (0, 0)];
    }
    let share = |index, count| Part { index, count, phase: 0 };
    let rows = share(part.index / across, down).range(vocab, 1);
    [rows, share(part.index % across, across).range(units, LANES)]
}

/// Slots: tokens, dy, dweight_prev (at the address of dweight), dweight.
#[inline(always)]
unsafe fn embedding_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::embedding_bwd as slot;
    let OpKind::EmbeddingBwd(ops::EmbeddingBwd { rows, vocab, units, accumulate }) = call.op else { return };
    let (tokens, dy, dweight) =
        (call.arg::<i32>(slot::TOKENS), call.arg::<f32>(slot::DY), call.arg::<f32>(slot::DWEIGHT));
    let [(first, last), (left, right)] = owned(vocab, units, part);
    // SAFETY: rows and columns are in the table, and the tokens' rows in `dy`.
    unsafe {
        if !accumulate {
            for row in first..last {
                fill::<V>(dweight.add(row * units + left), right - left, 0.0);
            }
        }
        for i in 0..rows {
            let Ok(token) = usize::try_from(*tokens.add(i)) else { continue };
            if token < first || token >= last {
                continue;
            }
            let (from, to) = (dy.add(i * units), dweight.add(token * units));
            stretches!(left, right, |at, n| {
                (V::load_n(to.add(at), n) + V::load_n(from.add(at), n)).store_n(to.add(at), n)
            });
        }
    }
}

/// At these intervals the angle is computed from its definition, and between them it is rotated step by step. Work is
/// divided only there, so that results do not depend on the number of threads.
const TURNS: usize = 64;
/// Pairs of columns that are rotated together.
const PAIRS: usize = LANES / 2;

/// Slots: x, y (may share the memory of `x`).
#[inline(always)]
unsafe fn add_sinusoids<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::add_sinusoids as slot;
    let OpKind::AddSinusoids(op) = call.op else { return };
    let ops::AddSinusoids { n, positions, cols } = op;
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    let blocks = cols.div_ceil(LANES);
    let (from, to) = part.range(positions.div_ceil(TURNS) * blocks, 1);
    for unit in from..to {
        let (start, col) = (unit / blocks * TURNS, unit % blocks * LANES);
        let width = (cols - col).min(LANES);
        let mut turn = Turn::new(&op, start, col / 2);
        for position in start..(start + TURNS).min(positions) {
            let value = V::from_array(turn.values());
            for sample in 0..n {
                let at = (sample * positions + position) * cols + col;
                // SAFETY: the stretch is in a row of the sample.
                unsafe { (V::load_n(x.add(at), width) + value).store_n(y.add(at), width) };
            }
            turn.next();
        }
    }
}

/// Sines and cosines of pairs of columns at one position, in `f64`, so that the rotations add no error that is visible
/// in `f32`.
struct Turn {
    sin: [f64; PAIRS],
    cos: [f64; PAIRS],
    /// Sine and cosine of the angle to the next position.
    by: [[f64; PAIRS]; 2],
}

impl Turn {
    fn new(op: &ops::AddSinusoids, position: usize, pair: usize) -> Self {
        let angles: [f64; PAIRS] = std::array::from_fn(|i| op.angle(pair + i));
        let here = angles.map(|angle| position as f64 * angle);
        Self { sin: here.map(f64::sin), cos: here.map(f64::cos), by: [angles.map(f64::sin), angles.map(f64::cos)] }
    }

    #[inline(always)]
    fn values(&self) -> [f32; LANES] {
        std::array::from_fn(|i| if i % 2 == 0 { self.sin[i / 2] as f32 } else { self.cos[i / 2] as f32 })
    }

    #[inline(always)]
    fn next(&mut self) {
        let [by_sin, by_cos] = &self.by;
        for i in 0..PAIRS {
            let (sin, cos) = (self.sin[i], self.cos[i]);
            self.sin[i] = sin * by_cos[i] + cos * by_sin[i];
            self.cos[i] = cos * by_cos[i] - sin * by_sin[i];
        }
    }
}

/// Slots: x, y.
#[inline(always)]
unsafe fn take<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::take as slot;
    let OpKind::Take(ops::Take { n, positions, cols, at }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    let (from, to) = part.range(n, 1);
    for sample in from..to {
        // SAFETY: the position is in the sample, and the sample's row in the output.
        unsafe { copy::<V>(x.add((sample * positions + at) * cols), y.add(sample * cols), cols) };
    }
}

/// Slots: dy, dx.
#[inline(always)]
unsafe fn take_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::take_bwd as slot;
    let OpKind::TakeBwd(ops::TakeBwd { n, positions, cols, at }) = call.op else { return };
    let (dy, dx) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::DX));
    let (from, to) = part.range(n * positions, 1);
    for row in from..to {
        // SAFETY: the rows exist.
        unsafe {
            let dx = dx.add(row * cols);
            if row % positions == at {
                copy::<V>(dy.add(row / positions * cols), dx, cols);
            } else {
                fill::<V>(dx, cols, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of a table has one owner, for any number of threads.
    #[test]
    fn every_element_of_a_table_has_one_owner() {
        for (vocab, units) in [(1, 1), (5, 7), (11, 16), (3, 33), (40, 100)] {
            for count in 1..9 {
                let mut owners = vec![0; vocab * units];
                for index in 0..count {
                    let [(first, last), (left, right)] = owned(vocab, units, Part { index, count, phase: 0 });
                    (first..last).for_each(|row| (left..right).for_each(|col| owners[row * units + col] += 1));
                }
                assert!(owners.iter().all(|o| *o == 1), "{vocab} {units} {count}");
            }
        }
    }
}
