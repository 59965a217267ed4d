//! What the tour's card shows.

use crate::studio::view_models::tour::TourStep;

/// The current step of the tour.
#[derive(Clone, Debug)]
pub struct TourView {
    pub step: TourStep,
    pub is_done: bool,
    /// True if the command that the step offers is possible now.
    pub can_offer: bool,
    /// The largest buffer, if there is a plan.
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
