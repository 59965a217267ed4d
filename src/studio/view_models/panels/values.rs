//! The shown values of a buffer.

use crate::plan::BufferId;
use crate::studio::commands::Weights;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::values::ShownValues;
use crate::train::FirstBad;

/// The values of the selection.
#[derive(Clone, Copy, Debug)]
pub struct ValuesView<'a> {
    /// True if the user wants to see them.
    pub is_on: bool,
    pub is_looking: bool,
    /// True if the plan is that of the network before its mistakes.
    pub is_outdated: bool,
    /// Whether the document can be trained, otherwise the reason.
    pub readiness: Readiness,
    pub plan: Option<&'a PlanView>,
    /// The buffer that is shown, and the part of a flat vector.
    pub buffer: Option<BufferId>,
    pub part: usize,
    pub weights: Weights,
    /// True if the run has weights to show.
    pub can_use_run: bool,
    /// The number of steps that the run had made when its weights were copied.
    pub snapshot_step: Option<u64>,
    pub values: Option<&'a ShownValues>,
    pub problem: Option<&'a str>,
    /// The result of the search for the first value that is not finite in this plan.
    pub first_bad: Option<Option<&'a FirstBad>>,
    pub can_search: bool,
}
