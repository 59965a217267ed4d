//! Convolutions over images `[n, h, w, c]` with weights `[kh, kw, c / groups, f]`: forward, gradient of the input,
//! gradient of the weight.
//!
//! All three are matrix products whose left operand is never built: the rows of `a` are addresses in an image that
//! includes its padding, and the reduction runs over the filter's positions (see [`crate::select::cpu_conv`]). The
//! innermost kernel is that of the matrix products.

mod correlate;
mod pad;
mod weight;

use super::gemm::machine::{Machine, for_machine};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind};
use crate::select::Isa;
use crate::select::cpu_conv::{Correlation, is_parallel};

/// The kernel of a convolution for an instruction set; `None` for other operations.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let (table, phases) = match op {
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } => (correlate::table(&Correlation::of(op)?), 2),
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) => (weight::table(geometry), weight::phases(geometry)),
        _ => return None,
    };
    let run = for_machine!(isa, run);
    Some(KernelImpl { run, phases, table, parallel: threads > 1 && is_parallel(op, isa) })
}

/// Runs one part of a convolution.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn), and the instruction set is available.
#[inline(always)]
unsafe fn run<M: Machine>(call: &Call, part: Part) {
    // SAFETY: the caller's contract.
    unsafe {
        match &call.op {
            OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => {
                correlate::run::<M>(geometry, epilogue, false, call, part)
            }
            OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => {
                correlate::run::<M>(geometry, epilogue, true, call, part)
            }
            OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate }) => {
                weight::run::<M>(geometry, *accumulate, call, part)
            }
            _ => {}
        }
    }
}
