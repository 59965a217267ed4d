//! Why something is not exported, and what an export may replace.

use crate::tensor::{Bytes, Shape, TensorError, is_wrong_place, write_advice};
use crate::train::runs::RunsError;
use crate::train::{NotReplaced, TrainError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why something is not exported.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("{0} exists, and nothing is replaced unasked")]
    Exists(PathBuf),
    #[error(transparent)]
    Kept(#[from] NotReplaced),
    #[error("{path} cannot be written: {cause}; {}", write_advice(.cause))]
    Write { path: PathBuf, cause: io::Error },
    #[error("{0} is a preset without curves; export a run, or choose safetensors, pytorch or onnx")]
    NoCurves(String),
    #[error("{0} has made no step yet; train it first")]
    Empty(String),
    #[error("{0}")]
    Lost(String),
    #[error("{name} has no {what}; it has {there}")]
    NotMeasured { name: String, what: &'static str, there: String },
    #[error("no weights of {0} were kept; train it to its end, or stop it in the studio")]
    NoWeights(String),
    #[error("the weights lack {0}; give those of this network")]
    Missing(String),
    #[error("{name} has shape {found}, the network needs {expected}; give the weights of this network")]
    WrongShape { name: String, found: Shape, expected: Shape },
    #[error("the network's parameters take {needed}, and {what} allows {limit} a file; export safetensors or pytorch")]
    TooLarge { what: &'static str, needed: Bytes, limit: Bytes },
    #[error("the preset of {0} cannot be read by this version; export its curves or its weights")]
    Preset(String),
    #[error("the picture cannot be drawn; export SVG")]
    Picture,
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Runs(#[from] RunsError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl ExportError {
    /// True if the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match self {
            Self::Exists(_)
            | Self::NoCurves(_)
            | Self::Empty(_)
            | Self::Lost(_)
            | Self::NotMeasured { .. }
            | Self::NoWeights(_)
            | Self::Missing(_)
            | Self::WrongShape { .. }
            | Self::TooLarge { .. }
            | Self::Preset(_) => true,
            Self::Write { cause, .. } => is_wrong_place(cause),
            Self::Kept(error) => error.is_user(),
            Self::Train(error) => error.is_user(),
            Self::Runs(error) => error.is_user(),
            Self::Picture | Self::Tensor(_) => false,
        }
    }
}

/// What an export may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    Nothing,
    /// An older export in the same format, and no other file.
    Older,
    /// Any existing file: the user agreed to replace it.
    Anything,
}
