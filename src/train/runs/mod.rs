//! Runs kept on disk: what was trained, how it went, and what came of it.
//!
//! A [`Recorder`] writes one run from a thread of its own while it lasts; a [`RunStore`] reads all of them.

mod curve;
mod digest;
mod recorder;
mod store;
#[cfg(test)]
mod tests;

pub use curve::{Curves, EvaluationPoint, Quantity};
pub use digest::PlanDigest;
pub use recorder::Recorder;
pub use store::{Label, RunEnd, RunEntry, RunRecord, RunStore, RunsError, calendar, now_ms};
