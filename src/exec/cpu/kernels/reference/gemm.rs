//! Matrix products.

use crate::exec::cpu::kernels::reference::args::{Args, Buf, Tail};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{Gemm, OpKind, Trans};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Gemm(shape) => gemm::<T>(args, shape),
        _ => return false,
    }
    true
}

/// `c [m, n] = a b`, with `a` and `b` stored as `trans` says.
fn gemm<T: Real>(args: Args, shape: &Gemm) {
    use crate::ops::slot::product as slot;
    let Gemm { m, n, k, trans, accumulate, epilogue, .. } = *shape;
    let (a, b): (Buf<T>, Buf<T>) = (args.buf(slot::A), args.buf(slot::B));
    let tail = Tail::new(args, accumulate, epilogue);
    for row in 0..m {
        for col in 0..n {
            let mut sum = T::ZERO;
            for i in 0..k {
                sum = sum
                    + match trans {
                        Trans::Nn => a.get(row * k + i) * b.get(i * n + col),
                        Trans::Nt => a.get(row * k + i) * b.get(col * k + i),
                        Trans::Tn => a.get(i * m + row) * b.get(i * n + col),
                    };
            }
            tail.store(row * n + col, col, sum);
        }
    }
}
