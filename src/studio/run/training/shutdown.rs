//! The end of a run that the window drops: what it still has to report is kept, away from the thread that draws.

use crate::studio::run::kept::writer::RunWriter;
use crate::train::{Command, Event, Worker};
use std::time::Duration;

/// Drops a worker on a thread of its own: its last step may take a while, and a window does not wait.
pub fn drop_in_background(worker: Option<Worker>) {
    if let Some(worker) = worker {
        // Where no thread is to be had, the closure is dropped here, and the worker with it.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || drop(worker)));
    }
}

/// A run that the window drops.
pub struct Shutdown {
    pub worker: Option<Worker>,
    pub writer: RunWriter,
    pub is_running: bool,
    /// Steps made.
    pub done: u64,
}

impl Shutdown {
    /// Keeps what the run still has to report, and a checkpoint after its last step. Takes as long as a step and a disk
    /// do.
    pub fn finish(mut self) {
        /// For one step, and for a checkpoint on a slow disk.
        const PATIENCE: Duration = Duration::from_secs(120);
        let lacks = self.is_running || self.writer.lacks_checkpoint(self.done);
        if let Some(worker) = self.worker.filter(|_| lacks && self.writer.is_recording()) {
            self.writer.settle();
            // No step follows the checkpoint: the curve and it end together.
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
