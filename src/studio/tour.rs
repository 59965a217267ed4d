//! The tour of the first start: three steps, each of which a person does, and each of which says what it showed.

use super::commands::{Command, Tab};
use super::selection::Selection;

/// What a person does with the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TourMove {
    Start,
    Next,
    Dismiss,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TourStep {
    Train,
    Memory,
    Edit,
}

impl TourStep {
    pub const ALL: [Self; 3] = [Self::Train, Self::Memory, Self::Edit];

    /// From 1.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize + 1
    }

    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Train => "Train it",
            Self::Memory => "See where the memory went",
            Self::Edit => "Change it and watch the plan",
        }
    }

    /// What to do and what it shows.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Train => {
                "Train records this network's training step once and replays it, over and over; the curves follow while it learns."
            }
            Self::Memory => {
                "Every buffer of the step is a rectangle: operations run to the right, bytes stack upwards. Open the map, click the largest buffer, and the inspector names the layer that owns it."
            }
            Self::Edit => {
                "Change a number on a layer's card, its units for example. The step is planned anew at once, and the status line at the bottom says the difference; click it to see what came and went."
            }
        }
    }

    /// What is said once it is done.
    #[must_use]
    pub const fn praise(self) -> &'static str {
        match self {
            Self::Train => "It learns. The curves are on the Train tab, and the run continues while you look around.",
            Self::Memory => "That is the buffer, and its layer is in the inspector. Alt and arrow left goes back.",
            Self::Edit => "Planned anew. Undo (Ctrl+Z) takes the edit back; nothing is ever lost.",
        }
    }

    /// A command that does the step, or begins it, with the name of its button.
    #[must_use]
    pub const fn offer(self) -> Option<(&'static str, Command)> {
        match self {
            Self::Train => Some(("Train now", Command::Train)),
            Self::Memory => Some(("Open the arena", Command::ShowTab(Tab::Arena))),
            Self::Edit => None,
        }
    }
}

/// Where the tour stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    step: Option<TourStep>,
    done: bool,
    /// The plan's revision when the present step began.
    since: u64,
}

impl Tour {
    /// The step that is shown, and whether it is done.
    #[must_use]
    pub const fn shown(&self) -> Option<(TourStep, bool)> {
        match self.step {
            Some(step) => Some((step, self.done)),
            None => None,
        }
    }

    /// Begins with the first step.
    pub fn start(&mut self) {
        *self = Self { step: Some(TourStep::Train), ..Self::default() };
    }

    /// Goes to the next step; false where there is none and the tour is over.
    pub fn next(&mut self, revision: u64) -> bool {
        let next = self.step.and_then(|s| TourStep::ALL.get(s as usize + 1).copied());
        *self = Self { step: next, done: false, since: revision };
        next.is_some()
    }

    /// Ends it.
    pub fn dismiss(&mut self) {
        *self = Self::default();
    }

    /// Notices what a person did: `trained` steps of the run, what is selected, and the revision of the plan.
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
    fn each_step_is_done_by_doing_it() {
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
