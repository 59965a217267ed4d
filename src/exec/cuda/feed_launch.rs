//! The launches of the data feed, which gathers the batches of steps and stores their records.

use super::arguments::MAX_ARGS;
use super::bound_call::launch_phase;
use super::error::CudaError;
use super::kernel_store::Kernel;
use crate::exec::cuda::gpu::Gpu;
use std::sync::Arc;

/// Indices of the data feed's arguments; watched values follow.
pub(super) const FEED_ARGS: [&str; 7] =
    ["samples", "targets", "places", "the step counter", "records", "the batch's x", "the batch's y"];

/// The indices of the places of batches, the step counter, and the records.
pub(super) const PLACES: usize = 2;
pub(super) const COUNTER: usize = 3;
pub(super) const RECORDS: usize = 4;

/// A launch of the data feed, which may also compute the metrics of the preceding step.
pub(super) struct FeedLaunch {
    pub(super) kernel: Arc<Kernel>,
    pub(super) args: Vec<u64>,
    /// The sizes that a general member reads, before the flags.
    pub(super) numbers: Vec<u64>,
    /// The operation whose arguments follow the feed's own.
    pub(super) metrics: Option<usize>,
}

/// The launches of the data feed: before the first step, between two steps, and after the last.
pub(super) struct FeedLaunches {
    pub(super) first: FeedLaunch,
    pub(super) next: FeedLaunch,
    pub(super) last: FeedLaunch,
}

impl FeedLaunches {
    /// The launches for a graph of this many steps, in order.
    pub(super) fn of(&self, steps: usize) -> Vec<&FeedLaunch> {
        let between = std::iter::repeat_n(&self.next, steps.saturating_sub(1));
        std::iter::once(&self.first).chain(between).chain([&self.last]).collect()
    }

    /// The feed's own arguments, which are the same in each launch.
    pub(super) fn row(&self) -> &[u64] {
        &self.first.args
    }
}

impl FeedLaunch {
    pub(super) fn put(&self, gpu: &Gpu) -> Result<(), CudaError> {
        launch_phase(gpu, self.kernel.phases[0], self.kernel.threads, &self.args)
    }

    /// The words after the feed's own that belong to an operation with this number of slots.
    pub(super) fn metrics_words(slots: usize) -> std::ops::Range<usize> {
        MAX_ARGS..MAX_ARGS + slots
    }
}
