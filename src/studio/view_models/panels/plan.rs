//! A plan on screen: whether it is that of the document, and the selection in it.

use crate::studio::commands::Selection;
use crate::studio::view_models::measured::Measured;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::related::Related;
use crate::train::KernelChange;

/// A recording that was chosen to be viewed.
#[derive(Clone, Copy, Debug)]
pub struct RecordingOnScreen<'a> {
    /// How it differs from the other recordings of the run.
    pub name: &'a str,
    /// Why it has no plan.
    pub problem: Option<&'a str>,
    pub is_planning: bool,
}

/// A plan on screen with the selection.
#[derive(Clone, Copy, Debug)]
pub struct PlanOnScreen<'a> {
    pub plan: Option<&'a PlanView>,
    /// Whether the document can be trained, otherwise the reason.
    pub readiness: Readiness,
    /// A number that differs for each plan.
    pub revision: u64,
    /// The recording of the run whose plan this is, or will be.
    pub recording: Option<RecordingOnScreen<'a>>,
    /// True if the document was edited since.
    pub is_stale: bool,
    /// True if it is that of the network before its mistakes.
    pub is_outdated: bool,
    pub selection: &'a Selection,
    pub related: &'a Related,
    /// How far the run of this network is with the change to kernels for its sizes.
    pub kernel_change: KernelChange,
    /// Measured times of its operations.
    pub measured: Option<&'a Measured>,
    pub is_measuring: bool,
    pub can_measure: bool,
}
