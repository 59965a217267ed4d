//! What may be done with a run now, and what pressing Train does.

/// What the transport allows now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    pub train: bool,
    pub pause: bool,
    pub step: bool,
    pub stop: bool,
    pub reset: bool,
}

/// What pressing Train does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begins the first run, or continues after a pause.
    Train,
    /// Makes the finished run longer by this many steps.
    TrainOn(u64),
    /// Begins another run from new weights; the curves of the last one go.
    TrainAnew,
}

impl Next {
    /// The button's name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Train => "Train",
            Self::TrainOn(_) => "Train on",
            Self::TrainAnew => "Train anew",
        }
    }
}
