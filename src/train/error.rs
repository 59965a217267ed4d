//! Errors that stop a training run.

use super::memory_needs::Shortage;
use crate::compile::CompileError;
use crate::data::DataError;
use crate::exec::ExecError;
use crate::model::{Diagnostic, Preset};
use crate::tensor::{is_wrong_place, write_advice};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A failure of training. [`TrainError::is_user`] distinguishes mistakes of the user from failures of the program or
/// machine.
#[derive(Debug, Error)]
pub enum TrainError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Preset(Vec<Diagnostic>),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("the preset names no data; add a \"data\" field to it, or give a file of batches")]
    NoData,
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("{path}: {message}; {help}")]
    File { path: PathBuf, message: String, help: String },
    #[error("{path} cannot be written: {cause}; {}", write_advice(.cause))]
    Write { path: PathBuf, cause: io::Error },
    /// The run's state is not finite, so that nothing could be continued from it.
    #[error(
        "{path} is not written: {name} holds NaN or infinite values, so no run could start from it; lower the learning \
         rate or look at the data"
    )]
    Diverged { path: PathBuf, name: String },
    #[error("the run's last snapshot is lost: {0}; free some space in the user's cache folder")]
    Kept(io::Error),
    #[error(transparent)]
    Shortage(#[from] Shortage),
    #[error(
        "step {step} would run op by op, as there is no recording of {key}: {why}; give recordings more room, or train \
         without --strict"
    )]
    OpByOp { step: u64, key: String, why: String },
    #[error("the kernels for the sizes of the run could not be prepared: {0}")]
    NoKernels(String),
    #[error("no step of the run used a recording with the number {0}")]
    NoRecording(u32),
    #[error("cancelled")]
    Cancelled,
    #[error("the worker thread could not be started: {0}")]
    Thread(io::Error),
}

impl TrainError {
    /// True if the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match self {
            Self::Preset(_) | Self::Data(_) | Self::NoData | Self::File { .. } => true,
            Self::Write { cause, .. } => is_wrong_place(cause),
            Self::Compile(error) => error.is_user(),
            Self::Exec(_)
            | Self::Kept(_)
            | Self::Shortage(_)
            | Self::Diverged { .. }
            | Self::OpByOp { .. }
            | Self::NoKernels(_)
            | Self::NoRecording(_)
            | Self::Cancelled
            | Self::Thread(_) => false,
        }
    }

    /// The mistakes in the preset that caused it, each at the field to change; empty if the preset did not cause it.
    #[must_use]
    pub fn mistakes(&self, preset: &Preset) -> Vec<Diagnostic> {
        match self {
            Self::Preset(mistakes) => mistakes.clone(),
            Self::Data(error) => vec![error.mistake(preset)],
            _ => Vec::new(),
        }
    }

    pub(super) fn file(path: &std::path::Path, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), message: message.into(), help: help.into() }
    }
}
