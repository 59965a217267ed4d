//! The end of a run that the window drops: its last reports are kept, on a thread other than the one that draws.

use crate::studio::run::kept::writer::RunWriter;
use crate::train::{Command, Event, Worker};
use std::time::Duration;

/// Drops a worker on a separate thread: its last step may take some time, and the window must not wait.
pub fn drop_in_background(worker: Option<Worker>) {
    if let Some(worker) = worker {
        // If no thread can be started, the closure is dropped here, and the worker with it.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || drop(worker)));
    }
}

/// A run that the window drops.
pub struct Shutdown {
    pub worker: Option<Worker>,
    pub writer: RunWriter,
    pub is_running: bool,
    /// The number of steps that were made.
    pub done: u64,
}

impl Shutdown {
    /// Keeps the remaining reports of the run, and a checkpoint after its last step. Takes as long as a step and a disk
    /// do.
    pub fn finish(mut self) {
        /// For one step, and for a checkpoint on a slow disk.
        const PATIENCE: Duration = Duration::from_secs(120);
        let lacks = self.is_running || self.writer.lacks_checkpoint(self.done);
        if let Some(worker) = self.worker.filter(|_| lacks && self.writer.is_recording()) {
            self.writer.settle();
            // No step follows the checkpoint: the curve and the checkpoint end at the same step.
            let mut is_idle = !self.is_running;
            let path = self.writer.checkpoint().filter(|_| is_idle || worker.send(Command::Pause));
            let asked = path.is_some_and(|path| worker.send(Command::SaveCheckpoint(path)));
            while asked && let Some(event) = worker.wait_event(PATIENCE) {
                is_idle |= matches!(event, Event::State(_));
                if self.writer.hear(&event) && is_idle {
                    break;
                }
            }
        }
        self.writer.finish();
    }
}
