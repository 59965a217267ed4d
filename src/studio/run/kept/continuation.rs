//! The point from which a kept run continues, and its history up to there.

use crate::studio::view_models::curves::History;
use crate::train::runs::{ResumePoint, RunStore};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The point from which a kept run continues, and its history up to there.
#[derive(Debug)]
pub struct Continuation {
    pub point: ResumePoint,
    pub history: History,
    pub checkpoint: PathBuf,
}

impl Continuation {
    /// Reads a run up to its checkpoint.
    ///
    /// # Errors
    /// If it has none, or its files cannot be read; the error is text.
    pub fn read(store: &RunStore, id: &str) -> Result<Self, String> {
        if !is_released(store, id) {
            return Err("it is being written by another program; stop it there, then continue it here".to_owned());
        }
        let (point, curves) = store.resume_point(id).map_err(|e| e.to_string())?;
        Ok(Self { point, history: History::of(&curves), checkpoint: store.checkpoint(id) })
    }
}

/// Waits for a run that this window has just dropped, for as long as writing its last checkpoint may take; returns
/// false if it is still being written.
pub(super) fn is_released(store: &RunStore, id: &str) -> bool {
    const PATIENCE: Duration = Duration::from_secs(10);
    let asked = Instant::now();
    while store.is_busy(id) {
        if asked.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
