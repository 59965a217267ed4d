//! Steps that fetch their own batches from a data set on the device; they are launched before the reports of earlier
//! ones are read.

use crate::data::BatchTargets;
use crate::lower::LValueId;
use std::any::Any;
use std::sync::Arc;

/// The largest number of values in a record.
pub(super) const MAX_WATCHED: usize = 8;

/// A data set that steps fetch their batches from.
#[derive(Clone, Copy, Debug)]
pub struct DataSet<'a> {
    /// `[n, sample]`, in the step's layout.
    pub samples: &'a [f32],
    pub targets: BatchTargets<'a>,
    /// The rows that shuffles permute, if samples do not come in order.
    pub rows: Option<&'a [u32]>,
    /// Scalars to be read after every step.
    pub watched: &'a [LValueId],
}

/// A data set in a device's memory, from which several steps may fetch their batches.
#[derive(Clone)]
pub struct HeldData(pub(super) Arc<dyn Any + Send + Sync>);

/// What a step that fetched its own batch reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// The step counter before it.
    pub counter: u64,
    /// From the start of gathering its batch to its end, by the device's clock, in microseconds.
    pub step_us: f32,
    /// The watched values, in the order in which they were requested.
    pub values: [f32; MAX_WATCHED],
}
