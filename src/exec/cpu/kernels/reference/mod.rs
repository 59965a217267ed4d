//! The plain-loop form of every operation, which the fast kernels are compared with.
//!
//! They run on one thread, in one phase, with loops in the order of the definition and transcendental functions in f64.
//! Everything is generic over [`Real`], so the same loops serve as the f32 reference and as the f64 kernels of gradient
//! checks. In the latter, every real-valued buffer is f64; labels stay `i32`, counters `i64`, masks and indices `u8` or
//! `u16`.

mod args;
mod attention;
pub mod bounded;
mod classifier;
mod conv;
mod elementwise;
mod gemm;
mod loss;
mod norm;
mod optimizer;
mod point_loss;
mod pool;
pub mod real;
mod recurrence;
mod sequence;

use self::args::Args;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::OpKind;
pub use attention::attention_map;
pub use real::Real;

/// The reference kernel; the operation is looked up when it runs. Every operation has one.
#[must_use]
pub fn resolve<T: Real>() -> KernelImpl {
    KernelImpl::simple(run::<T>, false)
}

/// Runs a whole operation on the thread with index 0.
///
/// # Safety
/// As for [`crate::exec::cpu::call::KernelFn`], with reals of type `T`.
unsafe fn run<T: Real>(call: &Call, part: Part) {
    if part.index != 0 {
        return;
    }
    let args = Args::new(call);
    let is_done = families::<T>().into_iter().any(|run| run(args, &call.op));
    assert!(is_done, "{} has no plain loops", call.op.name());
}

/// Runs an operation if it belongs to the family, and returns whether it does.
type Family = fn(Args<'_>, &OpKind) -> bool;

/// Every family of operations with plain loops.
fn families<T: Real>() -> [Family; 12] {
    macro_rules! runs {
        ($($family:ident)*) => { [$($family::run::<T>),*] };
    }
    runs!(elementwise gemm conv norm attention pool recurrence sequence loss classifier point_loss optimizer)
}
