//! What the Predictions tab shows.

use crate::studio::view_models::predictions::PredictionsView;
use crate::train::RunState;

/// What the Predictions tab shows.
#[derive(Clone, Copy, Debug)]
pub struct PredictionsPanelView<'a> {
    pub answers: Option<&'a PredictionsView>,
    /// Rises with every view of the answers.
    pub generation: u64,
    pub state: Option<&'a RunState>,
    pub is_running: bool,
    /// True where the run trains another network than the one on screen.
    pub is_stale: bool,
    /// False where the run has no data.
    pub has_data: bool,
    pub can_step: bool,
}
