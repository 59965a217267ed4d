//! The results of checks of a step.

use crate::train::{Check, Price, Proof};

/// The state of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    pub proof: Proof,
    pub check: Check,
    /// The revision of the document that was checked; `None` if another device was chosen since.
    pub revision: Option<u64>,
    /// Its name.
    pub document: String,
    /// Duration of the check, in seconds.
    pub seconds: f64,
}

/// The estimated cost of all checks of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The document's revision.
    pub revision: u64,
    /// The number of replays that was given.
    pub replays: Option<u64>,
    pub price: Price,
    /// Memory that was free then, in bytes, if the system reports it.
    pub free: Option<u64>,
}
