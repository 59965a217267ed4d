//! Questions to the private copy of a step, and its answers.

use crate::studio::commands::choices::Weights;
use crate::studio::jobs::planned_network::PlannedNetwork;
use crate::studio::view_models::values::{Place, ShownValues};
use crate::train::{FirstBad, Moment};
use std::sync::Arc;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub revision: u64,
    /// Where the user looks, and which part of a flat vector they chose instead.
    pub place: Place,
    pub part: usize,
    pub slice: usize,
    pub weights: Weights,
    /// The snapshot's step, so that a newer one is looked at anew.
    pub step: u64,
}

/// What is to be done with the private copy.
pub(super) enum Task {
    Query(Point),
    FirstBad,
}

/// A question to the private copy.
pub(super) struct ValuesRequest {
    pub network: PlannedNetwork,
    pub snapshot: Option<Arc<Moment>>,
    pub task: Task,
}

/// What the private copy reported.
#[derive(Debug)]
pub(super) enum ValuesAnswer {
    Query(Point, Box<ShownValues>),
    FirstBad(u64, Result<Option<FirstBad>, String>),
    Failed(String),
}
