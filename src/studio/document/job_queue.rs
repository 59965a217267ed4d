//! A thread that performs jobs in order and answers with events.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

/// The sender of events. The window is woken for each.
pub struct Outbox<E> {
    events: Sender<E>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl<E> Clone for Outbox<E> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<E> Outbox<E> {
    /// Sends an event; waits if too many are waiting; returns false if there is no receiver any more.
    pub fn send(&self, event: E) -> bool {
        let is_sent = self.events.send(event).is_ok();
        if is_sent {
            self.wake();
        }
        is_sent
    }

    /// Sends an event if there is space for it.
    pub fn offer(&self, event: E) {
        drop(self.events.try_send(event));
    }

    /// Requests a frame.
    pub fn wake(&self) {
        (self.wake)();
    }
}

/// A thread that performs jobs `J` in order and answers with events `E`.
pub struct JobQueue<J, E> {
    jobs: Sender<J>,
    events: Receiver<E>,
    outbox: Outbox<E>,
    /// Whether a job counts as long.
    is_long: fn(&J) -> bool,
    /// The number of long jobs that wait or run.
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static, E: Send + 'static> JobQueue<J, E> {
    /// Starts the thread, for which at most `bound` jobs and as many events may wait; `wake` is called for each event.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(
        name: &str,
        bound: usize,
        wake: Arc<dyn Fn() + Send + Sync>,
        is_long: fn(&J) -> bool,
        mut carry_out: impl FnMut(J) -> Option<E> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = bounded::<J>(bound);
        let (sender, events) = bounded(bound);
        let outbox = Outbox { events: sender, wake };
        let waiting: Arc<AtomicUsize> = Arc::default();
        let (out, done) = (outbox.clone(), Arc::clone(&waiting));
        let work = move || {
            for job in inbox {
                let counts = is_long(&job);
                let event = carry_out(job);
                if counts {
                    done.fetch_sub(1, Ordering::Relaxed);
                }
                if event.is_some_and(|event| !out.send(event)) {
                    return;
                }
            }
        };
        let thread = Builder::new().name(name.into()).spawn(work)?;
        Ok(Self { jobs, events, outbox, is_long, waiting, thread: Some(thread) })
    }

    /// Passes a job to the thread; returns false if too many are waiting.
    #[must_use]
    pub fn give(&self, job: J) -> bool {
        let counts = usize::from((self.is_long)(&job));
        self.waiting.fetch_add(counts, Ordering::Relaxed);
        let is_taken = self.jobs.try_send(job).is_ok();
        if !is_taken {
            self.waiting.fetch_sub(counts, Ordering::Relaxed);
        }
        is_taken
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<E> {
        self.events.try_recv().ok()
    }

    /// True while a long job waits or runs.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A sender with which other threads send events of the same kind.
    #[must_use]
    pub fn outbox(&self) -> Outbox<E> {
        self.outbox.clone()
    }

    /// Ends the thread once its jobs are done, and waits for that.
    pub fn finish(&mut self) {
        let (closed, _) = bounded(0);
        self.jobs = closed;
        self.events = crossbeam_channel::never();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
