//! Queries to the private copy of a step, and its answers.

use crate::studio::commands::choices::Weights;
use crate::studio::jobs::planned_network::PlannedNetwork;
use crate::studio::view_models::values::{Place, ShownValues};
use crate::train::{FirstBad, Moment};
use std::sync::Arc;

/// Which values are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub revision: u64,
    /// The buffer and the point of the step, and the part of a flat vector if the user chose one.
    pub place: Place,
    pub part: usize,
    pub slice: usize,
    pub weights: Weights,
    /// The snapshot's step, so that a newer one is requested again.
    pub step: u64,
}

/// What to do with the private copy.
pub(super) enum Task {
    Query(Point),
    FirstBad,
}

/// A query to the private copy.
pub(super) struct ValuesRequest {
    pub network: PlannedNetwork,
    pub snapshot: Option<Arc<Moment>>,
    pub task: Task,
}

/// The answer of the private copy.
#[derive(Debug)]
pub(super) enum ValuesAnswer {
    Query(Point, Box<ShownValues>),
    FirstBad(u64, Result<Option<FirstBad>, String>),
    Failed(String),
}
