//! Where a kept run can continue, and what to do if it cannot.

use super::{Curves, Quantity, RunEnd, RunEntry, RunStore, RunsError};
use crate::train::{TrainError, checkpoint_end};
use std::path::Path;

/// Where a kept run continues.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePoint {
    pub id: String,
    /// The step of its checkpoint, and the running time until then in milliseconds.
    pub step: u64,
    pub ms: f64,
}

impl RunStore {
    /// The point from which a run continues, and its curves up to there.
    ///
    /// # Errors
    /// If it has no checkpoint, its files cannot be read, or the checkpoint belongs to another run, for which the curve
    /// would be cut.
    pub fn resume_point(&self, id: &str) -> Result<(ResumePoint, Curves), TrainError> {
        let path = self.checkpoint(id);
        let (step, loss) = checkpoint_end(&path)?;
        let unread = |e: RunsError| TrainError::file(&self.path(id), e.to_string(), "restore a copy of the run");
        let mut curves = self.curves(id).map_err(unread)?;
        let is_reached = curves.last_step() >= step;
        curves.go_back(step);
        // A step whose values were lost when a program was killed has none.
        let last = curves.values(Quantity::Loss).last().copied().filter(|loss| is_reached && loss.is_finite());
        if let Some((found, loss)) = last.zip(loss).filter(|(found, loss)| found.to_bits() != loss.to_bits()) {
            let message = format!(
                "is not a checkpoint of this run: its loss at step {step} is {loss}, and the run's curve has {found}"
            );
            return Err(TrainError::file(&path, message, "restore the run's own checkpoint, or train it again"));
        }
        let ms = curves.len().checked_sub(1).map_or(0.0, |last| curves.ms(last));
        Ok((ResumePoint { id: id.to_owned(), step, ms }, curves))
    }
}

/// Why a run without a checkpoint cannot continue, and what to do.
const NO_CHECKPOINT: &str = "it ended before its first checkpoint, which is written a few seconds after the first step";

impl RunEntry {
    /// How an interrupted run can continue, or why it cannot and what to do; `number` formats steps. `None` if it was
    /// not interrupted, or is damaged.
    #[must_use]
    pub fn how_to_continue(&self, number: impl Fn(u64) -> String) -> Option<String> {
        if self.record.state == RunEnd::Interrupted && !self.has_weights {
            return Some(format!("{NO_CHECKPOINT}, so it has no weights and cannot continue: train it again"));
        }
        let from = self.checkpoint_step?;
        Some(match from < self.record.steps {
            true => format!("it can continue from step {}, its last checkpoint", number(from)),
            false => "it can continue from its last checkpoint".to_owned(),
        })
    }
}

/// What to do if the checkpoint at `path` does not exist, and the folder is that of a kept run; `None` for any other
/// path.
#[must_use]
pub fn missing_checkpoint(path: &Path) -> Option<String> {
    let folder = if path.is_dir() { path } else { path.parent().filter(|_| !path.exists())? };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if !folder.join("run.json").is_file() {
        return None;
    }
    let id = folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
    let name = RunStore::at(folder.parent()?).checkpoint(&id);
    let name = name.file_name()?.to_string_lossy();
    Some(if folder.join(&*name).is_file() {
        format!("the checkpoint of the kept run {id} is the file {name} in that folder; give its path")
    } else {
        format!(
            "the kept run {id} has no checkpoint, and nothing to continue from: {NO_CHECKPOINT}, or its files were \
             removed; train it again (stepgraph runs preset {id} prints its preset)"
        )
    })
}
