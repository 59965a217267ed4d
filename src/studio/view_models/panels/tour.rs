//! What the tour's card shows.

use crate::studio::view_models::tour::TourStep;

/// The step of the tour that is shown.
#[derive(Clone, Debug)]
pub struct TourView {
    pub step: TourStep,
    pub is_done: bool,
    /// True where the command that the step offers would do something now.
    pub can_offer: bool,
    /// The largest buffer, where there is a plan.
    pub largest: Option<LargestBuffer>,
}

/// The largest buffer of the arena.
#[derive(Clone, Debug)]
pub struct LargestBuffer {
    pub name: String,
    pub bytes: u64,
    /// Of the arena.
    pub share: f64,
}
