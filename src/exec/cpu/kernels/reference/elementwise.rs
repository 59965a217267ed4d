//! Operations on each element separately, column sums, and dropout.

use crate::exec::cpu::kernels::dropout::random;
use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::model::Activation;
use crate::ops::{self, OpKind, dropout_threshold as threshold};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Fill(ops::Fill { len }) => fill::<T>(args, *len),
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => transpose::<T>(args, *n, *rows, *cols),
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) => bias_add::<T>(args, *rows, *cols),
        OpKind::Act(ops::Act { func, len }) => act::<T>(args, *func, *len),
        OpKind::ActBwd(ops::ActBwd { func, len }) => act_bwd::<T>(args, *func, *len),
        OpKind::BiasGrad(op) => bias_grad::<T>(args, op),
        OpKind::Add(ops::Add { len }) => add::<T>(args, *len),
        OpKind::Multiply(ops::Multiply { len }) => multiply::<T>(args, *len),
        OpKind::Scale(ops::Scale { len, factor }) => scale::<T>(args, *len, factor.get()),
        OpKind::Concat(op) => concat::<T>(args, op),
        OpKind::Slice(op) => slice::<T>(args, *op),
        OpKind::Dropout(ops::Dropout { len, rate, stream }) => dropout::<T>(args, *len, rate.get(), *stream),
        OpKind::SignBits(ops::SignBits { len }) => sign_bits::<T>(args, *len),
        OpKind::DropoutBwd(ops::DropoutBwd { len, rate }) => dropout_bwd::<T>(args, *len, rate.get()),
        _ => return false,
    }
    true
}

fn fill<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::fill as slot;
    let y: Buf<T> = args.buf(slot::Y);
    for i in 0..len {
        y.set(i, T::ZERO);
    }
}

/// `x [n, rows, cols]`, `y [n, cols, rows]`.
fn transpose<T: Real>(args: Args, n: usize, rows: usize, cols: usize) {
    use crate::ops::slot::transpose as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for sample in 0..n {
        for row in 0..rows {
            for col in 0..cols {
                y.set((sample * cols + col) * rows + row, x.get((sample * rows + row) * cols + col));
            }
        }
    }
}

/// `x`, `y [rows, cols]`, `bias [cols]`.
fn bias_add<T: Real>(args: Args, rows: usize, cols: usize) {
    use crate::ops::slot::bias_add as slot;
    let (x, bias, y): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::BIAS), args.buf(slot::Y));
    for i in 0..rows * cols {
        y.set(i, x.get(i) + bias.get(i % cols));
    }
}

fn act<T: Real>(args: Args, func: Activation, len: usize) {
    use crate::ops::slot::act as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for i in 0..len {
        y.set(i, x.get(i).act(func));
    }
}

fn act_bwd<T: Real>(args: Args, func: Activation, len: usize) {
    use crate::ops::slot::act_bwd as slot;
    let (dy, saved, dx): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::SAVED), args.buf(slot::DX));
    for i in 0..len {
        dx.set(i, dy.get(i) * saved.get(i).act_grad(func));
    }
}

/// `dy [rows, cols]`, `db [cols]`.
fn bias_grad<T: Real>(args: Args, op: &ops::BiasGrad) {
    use crate::ops::slot::bias_grad as slot;
    let (dy, db): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::DB));
    for col in 0..op.cols {
        let rows = if op.is_zero(col) { 0 } else { op.rows };
        let sum = (0..rows).fold(T::ZERO, |sum, row| sum + dy.get(row * op.cols + col));
        db.store(col, sum, op.accumulate);
    }
}

fn add<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::add as slot;
    let (a, b, y): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::A), args.buf(slot::B), args.buf(slot::Y));
    for i in 0..len {
        y.set(i, a.get(i) + b.get(i));
    }
}

fn multiply<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::multiply as slot;
    let (a, b, y): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::A), args.buf(slot::B), args.buf(slot::Y));
    for i in 0..len {
        y.set(i, a.get(i) * b.get(i));
    }
}

fn scale<T: Real>(args: Args, len: usize, factor: f64) {
    use crate::ops::slot::scale as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    let factor = T::of(factor);
    for i in 0..len {
        y.set(i, x.get(i) * factor);
    }
}

/// Concatenates the sources `[rows, widths[i]]` to `y [rows, cols]`.
fn concat<T: Real>(args: Args, op: &ops::Concat) {
    use crate::ops::slot::concat as slot;
    let (y, cols): (Buf<T>, usize) = (args.buf(slot::Y), op.cols());
    for row in 0..op.rows {
        let mut at = row * cols;
        for (&source, &width) in ops::Concat::SOURCES.iter().zip(&op.widths) {
            let x: Buf<T> = args.buf(source);
            for column in 0..width {
                y.set(at, x.get(row * width + column));
                at += 1;
            }
        }
    }
}

/// Columns of `x [rows, cols]` to `y [rows, width]`.
fn slice<T: Real>(args: Args, op: ops::Slice) {
    use crate::ops::slot::slice as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for row in 0..op.rows {
        for column in 0..op.width {
            y.set(row * op.width + column, x.get(row * op.cols + op.from + column));
        }
    }
}

/// Element `i` is kept if its random number is at least the threshold; this is bit `i % 8` of byte `i / 8` of the mask,
/// and the unused bits of the last byte are zero. Dropped elements are exactly zero.
fn dropout<T: Real>(args: Args, len: usize, rate: f64, stream: u32) {
    use crate::ops::slot::dropout as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    let (counter, mask): (Buf<i64>, Buf<u8>) = (args.buf(slot::COUNTER), args.buf(slot::MASK));
    let scale = T::of(1.0 / (1.0 - rate));
    for byte in 0..len.div_ceil(8) {
        let mut bits = 0;
        for i in byte * 8..len.min(byte * 8 + 8) {
            let keep = random(counter.get(0), stream, counter.get(1), i) >= threshold(rate);
            bits |= u8::from(keep) << (i % 8);
            y.set(i, if keep { x.get(i) * scale } else { T::ZERO });
        }
        mask.set(byte, bits);
    }
}

/// Bit `i % 8` of byte `i / 8` says whether element `i` is above zero.
fn sign_bits<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::sign_bits as slot;
    let (x, mask): (Buf<T>, Buf<u8>) = (args.buf(slot::X), args.buf(slot::MASK));
    for byte in 0..len.div_ceil(8) {
        let bit = |i: usize| u8::from(x.get(i) > T::ZERO) << (i % 8);
        mask.set(byte, (byte * 8..len.min(byte * 8 + 8)).map(bit).sum());
    }
}

fn dropout_bwd<T: Real>(args: Args, len: usize, rate: f64) {
    use crate::ops::slot::dropout_bwd as slot;
    let (dy, mask, dx): (Buf<T>, Buf<u8>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::MASK), args.buf(slot::DX));
    let scale = T::of(1.0 / (1.0 - rate));
    for i in 0..len {
        let keep = mask.get(i / 8) >> (i % 8) & 1 == 1;
        dx.set(i, if keep { dy.get(i) * scale } else { T::ZERO });
    }
}
