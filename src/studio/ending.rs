//! The end of a run that the window lets go: what it still has to report is kept, away from the thread that draws.

use super::runs::Keeping;
use crate::train::{Command, Event, Worker};
use std::time::Duration;

/// Drops a worker on a thread of its own: its last step may take a while, and a window does not wait.
pub fn let_go(worker: Option<Worker>) {
    if let Some(worker) = worker {
        // Where no thread is to be had, the closure is dropped here, and the worker with it.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || drop(worker)));
    }
}

/// A run that is let go.
pub struct End {
    pub worker: Option<Worker>,
    pub keeping: Keeping,
    pub is_running: bool,
    /// Steps made.
    pub done: u64,
}

impl End {
    /// Keeps what the run still has to report, and a checkpoint after its last step. Takes as long as a step and a disk
    /// do.
    pub fn carry_out(mut self) {
        /// For one step, and for a checkpoint on a slow disk.
        const PATIENCE: Duration = Duration::from_secs(120);
        let lacks = self.is_running || self.keeping.lacks_checkpoint(self.done);
        if let Some(worker) = self.worker.filter(|_| lacks && self.keeping.is_recording()) {
            self.keeping.settle();
            // No step follows the checkpoint: the curve and it end together.
            let mut rests = !self.is_running;
            let path = self.keeping.checkpoint().filter(|_| rests || worker.send(Command::Pause));
            let asked = path.is_some_and(|path| worker.send(Command::SaveCheckpoint(path)));
            while asked && let Some(event) = worker.wait_event(PATIENCE) {
                rests |= matches!(event, Event::State(_));
                if self.keeping.hear(&event) && rests {
                    break;
                }
            }
        }
        self.keeping.finish();
    }
}
