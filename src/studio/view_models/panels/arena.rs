//! What the Arena tab shows.

use crate::studio::view_models::changes::PlanChanges;
use crate::studio::view_models::compare::Comparison;
use crate::studio::view_models::panels::plan::PlanOnScreen;
use crate::studio::view_models::panels::values::ValuesView;

/// What the Arena tab shows.
#[derive(Clone, Copy, Debug)]
pub struct ArenaPanelView<'a> {
    pub shown: PlanOnScreen<'a>,
    pub values: ValuesView<'a>,
    /// The operation that the scrubber is at.
    pub scrub: Option<usize>,
    /// The items that the last edit added and removed.
    pub changes: Option<&'a PlanChanges>,
    /// True if animations are off.
    pub is_still: bool,
    /// Planners and precisions side by side.
    pub comparison: Option<&'a Comparison>,
    pub is_comparing: bool,
    pub can_compare: bool,
}
