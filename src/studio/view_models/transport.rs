//! The possible commands for a run, and the effect of pressing Train.

/// The possible commands for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    pub train: bool,
    pub pause: bool,
    pub step: bool,
    pub stop: bool,
    pub reset: bool,
}

/// The effect of pressing Train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Starts the first run, or continues after a pause.
    Train,
    /// Makes the finished run longer by this many steps.
    TrainOn(u64),
    /// Starts another run from new weights; the curves of the last one are dropped.
    TrainAnew,
}

impl Next {
    /// The button's name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Train => "Train",
            Self::TrainOn(_) => "Train on",
            Self::TrainAnew => "Train from scratch",
        }
    }
}
