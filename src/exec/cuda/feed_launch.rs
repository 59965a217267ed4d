//! The launches of the data feed, which gathers the batches of steps and keeps their records.

use super::arguments::MAX_ARGS;
use super::bound_call::launch_phase;
use super::error::CudaError;
use super::kernel_store::Kernel;
use crate::exec::cuda::gpu::Gpu;
use std::sync::Arc;

/// The data feed's arguments, by place; watched values follow.
pub(super) const FEED_ARGS: [&str; 7] =
    ["samples", "targets", "places", "the step counter", "records", "the batch's x", "the batch's y"];

/// Where the feed's arguments hold the places of batches, the step counter, and records.
pub(super) const PLACES: usize = 2;
pub(super) const COUNTER: usize = 3;
pub(super) const RECORDS: usize = 4;

/// A launch of the data feed; the metrics of the step in front may be computed in it.
pub(super) struct FeedLaunch {
    pub(super) kernel: Arc<Kernel>,
    pub(super) args: Vec<u64>,
    /// What a general member reads of sizes, in front of the flags.
    pub(super) numbers: Vec<u64>,
    /// The operation whose arguments stand behind the feed's own.
    pub(super) metrics: Option<usize>,
}

/// The launches of the data feed: in front of the first step, between two steps, and behind the last.
pub(super) struct FeedLaunches {
    pub(super) first: FeedLaunch,
    pub(super) next: FeedLaunch,
    pub(super) last: FeedLaunch,
}

impl FeedLaunches {
    /// Those of a graph of so many steps, in order.
    pub(super) fn of(&self, steps: usize) -> Vec<&FeedLaunch> {
        let between = std::iter::repeat_n(&self.next, steps.saturating_sub(1));
        std::iter::once(&self.first).chain(between).chain([&self.last]).collect()
    }

    /// The feed's own arguments, which are the same in each.
    pub(super) fn row(&self) -> &[u64] {
        &self.first.args
    }
}

impl FeedLaunch {
    pub(super) fn put(&self, gpu: &Gpu) -> Result<(), CudaError> {
        launch_phase(gpu, self.kernel.phases[0], self.kernel.threads, &self.args)
    }

    /// The words behind the feed's own that belong to an operation with so many slots.
    pub(super) fn metrics_words(slots: usize) -> std::ops::Range<usize> {
        MAX_ARGS..MAX_ARGS + slots
    }
}
