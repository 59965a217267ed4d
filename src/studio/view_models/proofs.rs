//! What was proved of a step.

use crate::train::{Check, Price, Proof};

/// How far a check is.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    pub proof: Proof,
    pub check: Check,
    /// Revision and name of the document that was checked.
    pub revision: u64,
    pub document: String,
    /// Time that the check took, in seconds.
    pub seconds: f64,
}

/// What all proofs of a document take, roughly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The document's revision.
    pub revision: u64,
    /// The number of replays that was given.
    pub replays: Option<u64>,
    pub price: Price,
    /// Memory that was free then, in bytes, where the system reports it.
    pub free: Option<u64>,
}
