//! What the inspector shows.

use crate::studio::view_models::inspector_page::InspectorView;
use crate::studio::view_models::panels::plan::PlanOnScreen;
use crate::studio::view_models::panels::values::ValuesView;

/// What the inspector shows.
#[derive(Clone, Copy, Debug)]
pub struct InspectorPanelView<'a> {
    pub page: &'a InspectorView,
    pub shown: PlanOnScreen<'a>,
    pub values: ValuesView<'a>,
    pub can_go_back: bool,
    pub can_go_forward: bool,
}
