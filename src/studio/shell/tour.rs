//! The tour at the first start: three steps that the user performs, each with an explanation.

use crate::studio::commands::Selection;
use crate::studio::view_models::tour::TourStep;

/// The state of the tour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    step: Option<TourStep>,
    done: bool,
    /// The plan's revision when the current step began.
    since: u64,
}

impl Tour {
    /// The current step, and whether it is done.
    #[must_use]
    pub const fn shown(&self) -> Option<(TourStep, bool)> {
        match self.step {
            Some(step) => Some((step, self.done)),
            None => None,
        }
    }

    /// Starts with the first step.
    pub fn start(&mut self) {
        *self = Self { step: Some(TourStep::Train), ..Self::default() };
    }

    /// Goes to the next step; returns false if there is none and the tour is over.
    pub fn next(&mut self, revision: u64) -> bool {
        let next = self.step.and_then(|s| TourStep::ALL.get(s as usize + 1).copied());
        *self = Self { step: next, done: false, since: revision };
        next.is_some()
    }

    /// Ends it.
    pub fn dismiss(&mut self) {
        *self = Self::default();
    }

    /// Checks the user's progress: `trained` steps of the run, the selection, and the revision of the plan.
    pub fn watch(&mut self, trained: u64, selected: &Selection, revision: u64) {
        self.done |= match self.step {
            Some(TourStep::Train) => trained > 0,
            Some(TourStep::Memory) => matches!(selected, Selection::Buffer(_) | Selection::Part(..)),
            // An edit made before this step does not count.
            Some(TourStep::Edit) => revision != self.since,
            None => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::BufferId;

    #[test]
    fn each_step_is_completed_by_its_action() {
        let mut tour = Tour::default();
        assert_eq!(tour.shown(), None);
        tour.start();
        tour.watch(0, &Selection::Nothing, 1);
        assert_eq!(tour.shown(), Some((TourStep::Train, false)));
        tour.watch(5, &Selection::Nothing, 1);
        assert_eq!(tour.shown(), Some((TourStep::Train, true)));
        assert!(tour.next(1));
        tour.watch(5, &Selection::Op(1), 1);
        assert_eq!(tour.shown(), Some((TourStep::Memory, false)));
        tour.watch(5, &Selection::Buffer(BufferId(3)), 1);
        assert!(tour.next(1));
        tour.watch(5, &Selection::Nothing, 2);
        assert_eq!(tour.shown(), Some((TourStep::Edit, true)));
        assert!(!tour.next(2));
        assert_eq!(tour.shown(), None);
    }
}
