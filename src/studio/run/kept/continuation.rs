//! Where a kept run continues, and what is known of it until there.

use crate::studio::view_models::curves::History;
use crate::train::runs::{ResumePoint, RunStore};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where a kept run continues, and what is known of it until there.
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
    /// If it has none, or its files cannot be read, in words.
    pub fn read(store: &RunStore, id: &str) -> Result<Self, String> {
        if !is_released(store, id) {
            return Err("it is being written by another program; stop it there, then continue it here".to_owned());
        }
        let (point, curves) = store.resume_point(id).map_err(|e| e.to_string())?;
        Ok(Self { point, history: History::of(&curves), checkpoint: store.checkpoint(id) })
    }
}

/// Waits for a run that this window dropped just now, as long as its last checkpoint may take; false where it is still
/// being written.
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
