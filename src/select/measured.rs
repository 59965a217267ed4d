//! What selection is given of measurements.

use super::cuda;
use crate::select::tuning::Tuning;

/// What was measured on the machine before, and goes before estimates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured<'a> {
    /// On a CPU.
    pub tuning: Option<&'a Tuning>,
    /// On a GPU.
    pub gpu_times: Option<&'a cuda::GpuTimes>,
    /// On a GPU: takes the kernel of this number for every operation, counted by estimate, to time it; the best where
    /// there are not so many.
    pub force: Option<usize>,
}
