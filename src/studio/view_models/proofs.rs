//! What was proved of a step.

use crate::train::{Check, Proof};

/// Where a check stands.
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
