//! Exit statuses: who made the mistake decides.

use crate::train::TrainError;
use std::io;
use std::process::ExitCode;
use thiserror::Error;

/// A mistake in what the user gave: exit status 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Wrong(pub String);

/// An error that is the user's to mend.
#[must_use]
pub fn wrong(message: impl Into<String>) -> anyhow::Error {
    Wrong(message.into()).into()
}

/// Standard output was closed by its reader, as `| head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// An error with its causes, each told once: some messages hold those of their causes.
fn told(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |told, cause| if told.contains(&cause) { told } else { format!("{told}: {cause}") })
}

/// Tells an error on standard error and gives the exit status that belongs to it.
#[must_use]
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    super::output::note(&format!("error: {}", told(error)));
    let train = error.downcast_ref::<TrainError>();
    if error.is::<Wrong>() || train.is_some_and(TrainError::is_user) { ExitCode::from(2) } else { ExitCode::from(1) }
}
