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
    /// On a GPU: uses the kernel with this index, in the order of estimates, for every operation, to time it; the best
    /// one if there are fewer.
    pub force: Option<usize>,
}
