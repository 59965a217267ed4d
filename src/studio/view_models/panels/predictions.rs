//! What the Predictions tab shows.

use crate::studio::commands::AnswersPage;
use crate::studio::view_models::predictions::PredictionsView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::sequences::inside::InsideView;
use crate::studio::view_models::sequences::writing::WritingView;
use crate::studio::view_models::sequences::{LookedLayer, SequenceFacts};
use crate::train::RunState;

/// What the Predictions tab shows.
#[derive(Clone, Copy, Debug)]
pub struct PredictionsPanelView<'a> {
    pub readiness: Readiness,
    /// The pages that are available for the trained network.
    pub facts: &'a SequenceFacts,
    /// The page on screen; `None` before a network is known.
    pub page: Option<AnswersPage>,
    pub answers: Option<&'a PredictionsView>,
    /// What was found inside the network for one sample.
    pub inside: Option<&'a InsideView>,
    /// The sample whose inside is shown: its index among the possible ones, their number, and its own number.
    pub sample: Option<(usize, usize, u32)>,
    /// The part of the data that they belong to: `held-out` or `training`.
    pub part: &'a str,
    /// The layer whose inside is shown, and the head of its attention.
    pub layer: Option<&'a LookedLayer>,
    pub head: usize,
    pub writing: &'a WritingView,
    /// Whether there is a run that can write a text.
    pub can_write: bool,
    /// Increases with every view of the predictions.
    pub generation: u64,
    pub state: Option<&'a RunState>,
    pub is_running: bool,
    /// True if the run trains another network than the one on screen.
    pub is_stale: bool,
    /// False if the run has no data.
    pub has_data: bool,
    pub can_step: bool,
}
