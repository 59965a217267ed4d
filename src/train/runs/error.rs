//! Errors of kept runs, and whether the user made a mistake.

use crate::tensor::write_advice;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Errors of the runs on disk.
#[derive(Debug, Error)]
pub enum RunsError {
    #[error("{path} cannot be {what}: {cause}; {}", write_advice(.cause))]
    File { path: PathBuf, what: &'static str, cause: io::Error },
    #[error(
        "{path} is damaged: {why}; restore the file from a backup, or delete the run (what else of it is sound can \
         be exported)"
    )]
    Damaged { path: PathBuf, why: String },
    #[error("no run is called {0}; `stepgraph runs` lists them")]
    Unknown(String),
    #[error("no run is called {given}; did you mean \"{near}\"? `stepgraph runs` lists them")]
    Misspelt { given: String, near: String },
    #[error("no run in the trash is called {0}; `stepgraph runs trash` lists them")]
    NotInTrash(String),
    #[error("{0} names several runs: {1}; give more letters of one")]
    Ambiguous(String, String),
    #[error("{0:?} holds control characters; give a name of one line")]
    Name(String),
    #[error("{0:?} names another run already: `last` is the newest, and an id its own run; give another name")]
    Taken(String),
    #[error("run {0} is being written; stop it first")]
    Busy(String),
    #[error(
        "run {0} is over, and a window still holds it; reset it on the Train tab there or close that window, and try \
         again"
    )]
    Held(String),
    #[error(
        "no run has a readable record, so it is not known which is the last; name one by its id (`stepgraph runs`)"
    )]
    NoLast,
    #[error("there is no data folder on this system; name one with STEPGRAPH_RUNS")]
    NoFolder,
}

impl RunsError {
    /// True if the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub const fn is_user(&self) -> bool {
        match self {
            Self::Unknown(_)
            | Self::Misspelt { .. }
            | Self::NotInTrash(_)
            | Self::Ambiguous(..)
            | Self::Name(_)
            | Self::Taken(_)
            | Self::Busy(_)
            | Self::Held(_)
            | Self::NoLast => true,
            Self::File { .. } | Self::Damaged { .. } | Self::NoFolder => false,
        }
    }
}
