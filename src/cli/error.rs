//! Exit statuses: 2 for a mistake of the user, 1 for any other failure.

use crate::compile::CompileError;
use crate::tensor::is_wrong_place;
use crate::train::export::ExportError;
use crate::train::runs::RunsError;
use crate::train::{GenerateError, NotReplaced, TrainError};
use std::error::Error as StdError;
use std::io;
use std::process::ExitCode;
use thiserror::Error;

/// A mistake in what the user gave: exit status 2.
#[derive(Debug, Error)]
#[error("{0}")]
struct Wrong(pub String);

/// An error that the user can fix.
#[must_use]
pub fn wrong(message: impl Into<String>) -> anyhow::Error {
    Wrong(message.into()).into()
}

/// A file that cannot be written: the user's mistake if another location would work, but not if the disk is full.
#[derive(Debug, Error)]
#[error("{message}")]
struct Unwritable {
    message: String,
    cause: io::Error,
}

/// An error of a file that cannot be written because of `cause`, which the message includes.
#[must_use]
pub fn unwritable(cause: io::Error, message: impl Into<String>) -> anyhow::Error {
    Unwritable { message: message.into(), cause }.into()
}

/// Whether the user made the mistake, if this type of error knows it.
fn verdict(error: &(dyn StdError + 'static)) -> Option<bool> {
    let is_wrong = || error.downcast_ref::<Wrong>().map(|_| true);
    let of_place = || error.downcast_ref::<Unwritable>().map(|e| is_wrong_place(&e.cause));
    let of_older = || error.downcast_ref::<NotReplaced>().map(NotReplaced::is_user);
    let of_training = || error.downcast_ref::<TrainError>().map(TrainError::is_user);
    let of_generating = || error.downcast_ref::<GenerateError>().map(GenerateError::is_user);
    let of_export = || error.downcast_ref::<ExportError>().map(ExportError::is_user);
    let of_runs = || error.downcast_ref::<RunsError>().map(RunsError::is_user);
    let of_compiling = || error.downcast_ref::<CompileError>().map(CompileError::is_user);
    let of_any = is_wrong().or_else(of_place).or_else(of_older).or_else(of_training).or_else(of_export);
    of_any.or_else(of_runs).or_else(of_compiling).or_else(of_generating)
}

/// Whether the user made the mistake: the one place that decides between exit status 2 and 1.
fn is_user(error: &anyhow::Error) -> bool {
    error.chain().find_map(verdict).unwrap_or(false)
}

/// Standard output was closed by its reader, as `| head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// An error with its causes, each reported once: some messages hold those of their causes.
fn text(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") })
}

/// Reports an error on standard error and returns its exit status.
#[must_use]
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    super::notes::note(&format!("error: {}", text(error)));
    if is_user(error) { ExitCode::from(2) } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Shape;
    use std::path::PathBuf;

    #[test]
    fn the_type_of_an_error_decides_the_status() {
        use io::ErrorKind::{FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let path = || PathBuf::from("a");
        let of_writing = |kind: io::ErrorKind| -> [anyhow::Error; 4] {
            let written = |kind| TrainError::Write { path: path(), cause: kind };
            [
                written(kind.into()).into(),
                ExportError::Train(written(kind.into())).into(),
                ExportError::Write { path: path(), cause: kind.into() }.into(),
                unwritable(kind.into(), "a cannot be written"),
            ]
        };
        for kind in [NotFound, PermissionDenied, ReadOnlyFilesystem] {
            assert!(of_writing(kind).iter().all(is_user), "{kind}");
        }
        for kind in [StorageFull, QuotaExceeded, FileTooLarge, io::ErrorKind::Other] {
            assert!(!of_writing(kind).iter().any(is_user), "{kind}");
        }
        let shape = || Shape::from([1]);
        let wrong_shape = ExportError::WrongShape { name: "w".into(), found: shape(), expected: shape() };
        let mistakes: [anyhow::Error; 4] =
            [wrong("a"), TrainError::NoData.into(), wrong_shape.into(), RunsError::NoLast.into()];
        for mistake in mistakes {
            assert!(is_user(&mistake) && is_user(&mistake.context("while something was done")));
        }
        assert!(!is_user(&anyhow::anyhow!("a defect")) && !is_user(&TrainError::Cancelled.into()));
    }
}
