//! Sequences: rows of a table by token, fixed positions, and the selection of one position.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, OpKind};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Embedding(op) => embedding::<T>(args, op),
        OpKind::EmbeddingBwd(op) => embedding_bwd::<T>(args, op),
        OpKind::AddSinusoids(op) => add_sinusoids::<T>(args, op),
        OpKind::Take(op) => take::<T>(args, op),
        OpKind::TakeBwd(op) => take_bwd::<T>(args, op),
        _ => return false,
    }
    true
}

/// The row of the table for a token, if it is valid.
fn row(token: i32, vocab: usize) -> Option<usize> {
    usize::try_from(token).ok().filter(|row| *row < vocab)
}

fn embedding<T: Real>(args: Args, op: &ops::Embedding) {
    use crate::ops::slot::embedding as slot;
    let (tokens, weight, y): (Buf<i32>, Buf<T>, Buf<T>) =
        (args.buf(slot::TOKENS), args.buf(slot::WEIGHT), args.buf(slot::Y));
    let position: Buf<T> = args.buf(slot::POSITION);
    for i in 0..op.rows {
        let row = row(tokens.get(i), op.vocab);
        for unit in 0..op.units {
            let found = row.map_or(T::of(f64::NAN), |row| weight.get(row * op.units + unit));
            let at = if op.positions > 0 { i % op.positions * op.units + unit } else { 0 };
            y.set(i * op.units + unit, if position.is_bound() { found + position.get(at) } else { found });
        }
    }
}

fn embedding_bwd<T: Real>(args: Args, op: &ops::EmbeddingBwd) {
    use crate::ops::slot::embedding_bwd as slot;
    let (tokens, dy, dweight): (Buf<i32>, Buf<T>, Buf<T>) =
        (args.buf(slot::TOKENS), args.buf(slot::DY), args.buf(slot::DWEIGHT));
    if !op.accumulate {
        (0..op.vocab * op.units).for_each(|i| dweight.set(i, T::ZERO));
    }
    for i in 0..op.rows {
        let Some(row) = row(tokens.get(i), op.vocab) else { continue };
        for unit in 0..op.units {
            dweight.store(row * op.units + unit, dy.get(i * op.units + unit), true);
        }
    }
}

fn add_sinusoids<T: Real>(args: Args, op: &ops::AddSinusoids) {
    use crate::ops::slot::add_sinusoids as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for i in 0..op.n * op.positions * op.cols {
        let (position, col) = (i / op.cols % op.positions, i % op.cols);
        let angle = position as f64 * op.angle(col / 2);
        let value = if col.is_multiple_of(2) { angle.sin() } else { angle.cos() };
        y.set(i, x.get(i) + T::of(value));
    }
}

fn take<T: Real>(args: Args, op: &ops::Take) {
    use crate::ops::slot::take as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for sample in 0..op.n {
        for col in 0..op.cols {
            y.set(sample * op.cols + col, x.get((sample * op.positions + op.at) * op.cols + col));
        }
    }
}

fn take_bwd<T: Real>(args: Args, op: &ops::TakeBwd) {
    use crate::ops::slot::take_bwd as slot;
    let (dy, dx): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::DX));
    for i in 0..op.n * op.positions * op.cols {
        let (sample, position, col) = (i / (op.positions * op.cols), i / op.cols % op.positions, i % op.cols);
        dx.set(i, if position == op.at { dy.get(sample * op.cols + col) } else { T::ZERO });
    }
}
