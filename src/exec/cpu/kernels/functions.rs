//! Evaluates single functions with the kernels of a step, to measure how exact they are.

use super::elementwise::for_flat;
use super::lanes::{LANES, Lanes, for_isa};
use super::{math, resolve};
use crate::exec::cpu::call::{Call, KernelImpl, MAX_ARGS, Part};
use crate::exec::function::Function;
use crate::model::Activation;
use crate::ops::{
    self, OpKind,
    slot::{act, act_bwd},
};
use crate::select::{Isa, Variant};

/// The size of a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// Floats that start at a cache line, as kernels require.
pub struct Numbers {
    lines: Vec<Line>,
    len: usize,
}

impl Numbers {
    /// `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { lines: vec![Line([0.0; LANES]); len.div_ceil(LANES)], len }
    }

    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: lines are floats without gaps, at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Slots: x, y; the length is that of the operation.
#[inline(always)]
unsafe fn exponential<V: Lanes>(call: &Call, part: Part) {
    let OpKind::Act(ops::Act { len, .. }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(act::X), call.arg::<f32>(act::Y));
    // SAFETY: both buffers hold `len` floats, and stretches stay below `len`.
    for_flat!(part, len, |at, n| { unsafe { V::load_n(x.add(at), n).map(math::exp).store_n(y.add(at), n) } });
}

/// As [`exponential`].
#[inline(always)]
unsafe fn logarithm<V: Lanes>(call: &Call, part: Part) {
    let OpKind::Act(ops::Act { len, .. }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(act::X), call.arg::<f32>(act::Y));
    // SAFETY: both buffers hold `len` floats, and stretches stay below `len`.
    for_flat!(part, len, |at, n| { unsafe { V::load_n(x.add(at), n).map(math::ln).store_n(y.add(at), n) } });
}

/// Applies the function to every number, with the kernel of a step that is compiled for `isa`, which this processor
/// must support.
///
/// # Panics
/// If the lengths of `x` and `y` differ.
pub fn evaluate(function: Function, isa: Isa, x: &Numbers, y: &mut Numbers) {
    assert_eq!(x.len, y.len, "every input has one result");
    let len = x.len;
    // If there is no function, only the length matters.
    let unary = OpKind::Act(ops::Act { func: Activation::Relu, len });
    let (op, kernel) = match function {
        Function::Exp => (unary, Some(KernelImpl::simple(for_isa!(isa, exponential), false))),
        Function::Ln => (unary, Some(KernelImpl::simple(for_isa!(isa, logarithm), false))),
        Function::Activation(func) => {
            let op = OpKind::Act(ops::Act { func, len });
            let kernel = resolve(&op, Variant::Fast(isa), 1);
            (op, kernel)
        }
        Function::Derivative(func) => {
            let op = OpKind::ActBwd(ops::ActBwd { func, len });
            let kernel = resolve(&op, Variant::Fast(isa), 1);
            (op, kernel)
        }
    };
    let Some(kernel) = kernel else { return };
    let mut ptr = [std::ptr::null_mut(); MAX_ARGS];
    let out: *mut u8 = y.lines.as_mut_ptr().cast();
    let from: *mut u8 = x.lines.as_ptr().cast_mut().cast();
    if matches!(op, OpKind::ActBwd { .. }) {
        // The derivative is multiplied by the gradient, whose memory receives the result.
        y.as_mut_slice().fill(1.0);
        (ptr[act_bwd::DY], ptr[act_bwd::SAVED], ptr[act_bwd::DX]) = (out, from, out);
    } else {
        (ptr[act::X], ptr[act::Y]) = (from, out);
    }
    let call = Call { run: kernel.run, op, ptr, table: kernel.table, phases: 1, parallel: false, around: None };
    // SAFETY: the buffers hold as many floats as the operation says and begin with a line of the cache; a result may be
    // in place of the first argument, and nothing is written to `x`.
    unsafe { (call.run)(&call, Part::WHOLE) };
}
