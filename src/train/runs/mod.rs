//! Runs kept on disk: the preset, the curves, the weights and how the run ended.
//!
//! A [`Recorder`] writes one run on a separate thread while it trains; a [`RunStore`] reads all of them.

mod chunks;
mod continuing;
mod curve;
mod differences;
mod digest;
mod error;
mod layers;
mod outline;
mod record;
mod recorder;
mod run_writer;
mod store;
#[cfg(test)]
mod tests;

pub use continuing::{ResumePoint, missing_checkpoint};
pub use curve::{Curves, EvaluationPoint, Quantity, mean_of_last};
pub use differences::{FieldDifference, change, preset_differences};
pub use digest::PlanDigest;
pub use error::RunsError;
pub use layers::{LayerCurves, Stretch};
pub use outline::Outline;
pub use record::{Label, RunEnd, RunEntry, RunRecord, RunSpan, calendar, now_ms};
pub use recorder::{FIRST_SAVE, Recorder, SAVE_EVERY, SAVE_SHARE};
pub use store::RunStore;
