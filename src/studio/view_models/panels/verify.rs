//! What the Verify tab shows.

use crate::studio::view_models::proofs::{Estimate, Proved};
use crate::studio::view_models::readiness::Readiness;
use crate::train::Proof;

/// What the Verify tab shows.
#[derive(Clone, Copy, Debug)]
pub struct VerifyView<'a> {
    pub readiness: Readiness,
    pub can_prove: bool,
    /// The document's revision.
    pub revision: u64,
    pub proved: &'a [Proved],
    pub is_running: bool,
    /// The check that runs now, and the time since it began in seconds.
    pub current: Option<(Proof, &'static str)>,
    pub seconds: f64,
    pub problem: Option<&'a str>,
    /// How often the step is replayed, if the user chose it.
    pub replays: Option<u64>,
    pub estimate: Option<Estimate>,
    pub is_estimating: bool,
}
