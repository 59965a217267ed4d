//! The plain-loop form of every operation: what the fast kernels are compared with.
//!
//! They run on one thread, in one phase, with loops in the order of the definition and transcendental functions in f64.
//! Everything is generic over [`Real`], so the same loops serve as the f32 reference and as the f64 kernels of gradient
//! checks. There every real-valued buffer holds f64; labels stay `i32`, counters `i64`, masks and indices `u8` or
//! `u16`.

pub mod bounded;
mod conv;
mod elementwise;
mod gemm;
mod loss;
mod norm;
mod optimizer;
mod pool;
pub mod real;

use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{Epilogue, OpKind};
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
    let args = Args { call };
    let is_done = families::<T>().into_iter().any(|run| run(args, &call.op));
    assert!(is_done, "{} has no plain loops", call.op.name());
}

/// Runs an operation where its family knows it, and says whether it does.
type Family = fn(Args<'_>, &OpKind) -> bool;

/// Every family of operations with plain loops.
fn families<T: Real>() -> [Family; 7] {
    [
        elementwise::run::<T>,
        gemm::run::<T>,
        conv::run::<T>,
        norm::run::<T>,
        pool::run::<T>,
        loss::run::<T>,
        optimizer::run::<T>,
    ]
}

/// The arguments of the call that is running. Made by [`run`] alone, whose contract vouches for every pointer in it.
#[derive(Clone, Copy)]
struct Args<'a> {
    call: &'a Call,
}

impl Args<'_> {
    /// The buffer in slot `slot`. Elements are reached through [`Buf::get`] and [`Buf::set`], at indices within the
    /// operation's dimensions.
    fn buf<E: Copy>(self, slot: usize) -> Buf<E> {
        Buf(self.call.arg(slot))
    }
}

/// A bound buffer, or none. Read and written element by element, so that an output may lie on an input.
#[derive(Clone, Copy)]
struct Buf<E>(*mut E);

impl<E: Copy> Buf<E> {
    /// Whether the slot is used.
    fn is_bound(self) -> bool {
        !self.0.is_null()
    }

    /// This buffer, or `other` where the slot is unused.
    fn or(self, other: Self) -> Self {
        if self.is_bound() { self } else { other }
    }

    fn get(self, index: usize) -> E {
        debug_assert!(self.is_bound());
        // SAFETY: `run`'s caller promises valid pointers for the operation's dimensions, and the loops stay within
        // them.
        unsafe { self.0.add(index).read() }
    }

    fn set(self, index: usize, value: E) {
        debug_assert!(self.is_bound());
        // SAFETY: as for `get`.
        unsafe { self.0.add(index).write(value) }
    }
}

impl<T: Real> Buf<T> {
    /// The element, or `default` where the slot is unused.
    fn get_or(self, index: usize, default: T) -> T {
        if self.is_bound() { self.get(index) } else { default }
    }

    /// Writes the element where the slot is used.
    fn put(self, index: usize, value: T) {
        if self.is_bound() {
            self.set(index, value);
        }
    }

    /// Writes `value`, or adds it to what is there.
    fn store(self, index: usize, value: T, accumulate: bool) {
        if self.is_bound() {
            self.set(index, if accumulate { self.get(index) + value } else { value });
        }
    }
}

/// The tail of a product or convolution: slots `bias [n]`, `saved [m, n]`, `c [m, n]`, `z [m, n]`.
#[derive(Clone, Copy)]
struct Tail<T> {
    bias: Buf<T>,
    saved: Buf<T>,
    c: Buf<T>,
    z: Buf<T>,
    accumulate: bool,
    epilogue: Epilogue,
}

impl<T: Real> Tail<T> {
    fn new(args: Args, accumulate: bool, epilogue: Epilogue) -> Self {
        use crate::ops::slot::product as slot;
        Self {
            bias: args.buf(slot::BIAS),
            saved: args.buf(slot::SAVED),
            c: args.buf(slot::C),
            z: args.buf(slot::Z),
            accumulate,
            epilogue,
        }
    }

    /// Finishes and stores element `index`, of column `col`, from its sum of products.
    fn store(self, index: usize, col: usize, sum: T) {
        let mut value = if self.accumulate { self.c.get(index) + sum } else { sum };
        if self.epilogue.bias {
            value = value + self.bias.get(col);
        }
        if self.epilogue.save_z {
            self.z.put(index, value);
        }
        if let Some(func) = self.epilogue.act {
            value = value.act(func);
        }
        if let Some(func) = self.epilogue.act_grad {
            value = value * self.saved.get(index).act_grad(func);
        }
        self.c.set(index, value);
    }
}
