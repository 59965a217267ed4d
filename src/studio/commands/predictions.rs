//! The commands of the Predictions tab.

use crate::studio::commands::info::Info;
use crate::studio::theme::icons;
use crate::train::Generation;

/// A page of the Predictions tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswersPage {
    /// The loss of each token of a sample.
    Tokens,
    /// A text that the network writes.
    Writing,
    /// The attention of a layer.
    Attention,
    /// The states of a recurrent layer.
    States,
    /// Forecasts and actual values.
    Forecasts,
    Plane,
    Fit,
    Confusion,
    Samples,
    Filters,
}

impl AnswersPage {
    /// Every page in the order in which they are offered: the first page that is available for a network is shown
    /// first.
    pub const ALL: [Self; 10] = [
        Self::Tokens,
        Self::Writing,
        Self::Forecasts,
        Self::Plane,
        Self::Fit,
        Self::Confusion,
        Self::Samples,
        Self::Attention,
        Self::States,
        Self::Filters,
    ];

    /// The name on its button.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Tokens => "Tokens",
            Self::Writing => "Writing",
            Self::Attention => "Attention",
            Self::States => "States",
            Self::Forecasts => "Forecasts",
            Self::Plane => "Decision boundary",
            Self::Fit => "Predicted against true",
            Self::Confusion => "Confusion matrix",
            Self::Samples => "Samples",
            Self::Filters => "Filters",
        }
    }

    /// What it shows.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Tokens => "Which tokens of a sample are hard: the loss of each",
            Self::Writing => "The network continues a text of yours, while it trains or after it",
            Self::Attention => "Which positions of a sample each position looks at, by layer and head",
            Self::States => "The states that a recurrent layer passes through as it reads a sample",
            Self::Forecasts => "What the network forecasts for a stretch of the series, beside what came",
            Self::Plane => "The class that the network gives each point of the plane",
            Self::Fit => "Every value against what it should be",
            Self::Confusion => "Which classes are mistaken for which",
            Self::Samples => "Samples with their answers, the worst first",
            Self::Filters => "The weights of the first layer as pictures",
        }
    }

    /// Whether it needs the inside of the network for a single sample.
    #[must_use]
    pub const fn looks_inside(self) -> bool {
        matches!(self, Self::Tokens | Self::Attention | Self::States)
    }
}

/// A command of the Predictions tab.
#[derive(Clone, Debug, PartialEq)]
pub enum PredictionsCommand {
    Show(AnswersPage),
    /// The sample that is shown, by its index among those that are evaluated.
    LookAt(usize),
    /// The head whose attention is shown.
    ShowHead(usize),
    /// Makes the run write a text.
    Write(Box<Generation>),
    StopWriting,
}

impl PredictionsCommand {
    /// The command's appearance.
    #[must_use]
    pub const fn info(&self) -> Info {
        match self {
            Self::Show(page) => Info::new(page.title(), icons::PREDICTIONS, None, page.about()),
            Self::LookAt(_) => {
                Info::new("Look at sample", icons::SEARCH, None, "Shows what is inside the network for this sample")
            }
            Self::ShowHead(_) => Info::new("Show head", icons::SEARCH, None, "Another head of the same attention"),
            Self::Write(_) => Info::new(
                "Write",
                icons::PLAY,
                None,
                "Continues the prompt with the current weights, token by token, while training continues",
            ),
            Self::StopWriting => Info::new("Stop writing", icons::STOP, None, "Ends the text that is being written"),
        }
    }
}
