//! Measured times as an input of selection.

use super::cuda;
use crate::select::tuning::Tuning;

/// Times that were measured on the machine before; they are used instead of estimates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// On a CPU.
    pub tuning: Option<&'a Tuning>,
    /// On a GPU.
    pub gpu_times: Option<&'a cuda::GpuTimes>,
    /// On a GPU: chooses the kernel with this rank of the estimates for every operation, so that it can be timed; the
    /// best one if an operation has fewer kernels.
    pub force: Option<usize>,
}
