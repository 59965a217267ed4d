//! What is shown of the values in a buffer.

use crate::plan::BufferId;
use crate::studio::commands::Weights;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::values::ShownValues;
use crate::train::FirstBad;

/// The values of what is selected.
#[derive(Clone, Copy, Debug)]
pub struct ValuesView<'a> {
    /// True where the user wants to see them.
    pub is_on: bool,
    pub is_looking: bool,
    /// True where the plan is that of the network before its problems.
    pub is_outdated: bool,
    pub plan: Option<&'a PlanView>,
    /// The buffer that is looked at, and which part of a flat vector.
    pub buffer: Option<BufferId>,
    pub part: usize,
    pub weights: Weights,
    /// True where the run has weights to look at.
    pub can_use_run: bool,
    /// Steps that the run had made when its weights were taken.
    pub snapshot_step: Option<u64>,
    pub values: Option<&'a ShownValues>,
    pub problem: Option<&'a str>,
    /// What the search for the first value that is not finite found in this plan.
    pub first_bad: Option<Option<&'a FirstBad>>,
    pub can_search: bool,
}
