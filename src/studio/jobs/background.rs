//! Work on a separate thread, of which only the newest result is needed.
//!
//! One query may wait; a newer one replaces it, and answers to older ones are dropped. Neither side waits for the
//! other. A thread that is dropped during long work ends when that is done, without anybody waiting for it. Work that
//! reports its progress ends soon after it is cancelled; for other work the answer is dropped.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::Builder;

/// State shared by a piece of work and its requester.
pub struct Watch {
    /// The query that is being answered.
    current: AtomicU64,
    /// Queries up to this one need no answer any more.
    cancelled: AtomicU64,
    /// The share of the work that is done, in thousandths.
    share: AtomicU32,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Watch {
    /// Reports the share of the work that is done, from 0 to 1; returns false if the work must end.
    pub fn report(&self, share: f32) -> bool {
        self.share.store((share.clamp(0.0, 1.0) * 1000.0) as u32, Ordering::Relaxed);
        (self.wake)();
        self.current.load(Ordering::Relaxed) > self.cancelled.load(Ordering::Relaxed)
    }
}

/// A thread that answers queries `Q` with answers `A`.
pub struct Background<Q, A> {
    questions: Sender<(u64, Q)>,
    answers: Receiver<(u64, A)>,
    /// The newest query, while the channel is full.
    waiting: Option<(u64, Q)>,
    asked: u64,
    answered: u64,
    watch: Arc<Watch>,
}

impl<Q: Send + 'static, A: Send + 'static> Background<Q, A> {
    /// Starts the thread; `wake` is called for each answer.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(
        name: &str,
        wake: Arc<dyn Fn() + Send + Sync>,
        mut work: impl FnMut(Q) -> A + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::spawn_watched(name, wake, move |question, _| work(question))
    }

    /// Like [`Self::spawn`], for work that reports its progress and can be cancelled.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn_watched(
        name: &str,
        wake: Arc<dyn Fn() + Send + Sync>,
        mut work: impl FnMut(Q, &Watch) -> A + Send + 'static,
    ) -> std::io::Result<Self> {
        let (current, cancelled, share) = Default::default();
        let watch = Arc::new(Watch { current, cancelled, share, wake: Arc::clone(&wake) });
        let own = Arc::clone(&watch);
        let (questions, inbox) = bounded::<(u64, Q)>(1);
        let (outbox, answers) = bounded(1);
        let serve = move || {
            while let Ok(mut question) = inbox.recv() {
                if let Ok(newer) = inbox.try_recv() {
                    question = newer;
                }
                let (id, question) = question;
                own.share.store(0, Ordering::Relaxed);
                own.current.store(id, Ordering::Relaxed);
                if id <= own.cancelled.load(Ordering::Relaxed) {
                    continue;
                }
                let answer = work(question, &own);
                wake();
                if outbox.send((id, answer)).is_err() {
                    return;
                }
                wake();
            }
        };
        Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { questions, answers, waiting: None, asked: 0, answered: 0, watch })
    }

    /// Sends a query, which replaces a waiting one.
    pub fn ask(&mut self, question: Q) {
        self.asked += 1;
        self.waiting = Some((self.asked, question));
        self.hand_over();
    }

    /// Cancels all queries.
    pub fn cancel(&mut self) {
        self.waiting = None;
        self.watch.cancelled.store(self.asked, Ordering::Relaxed);
        self.asked += 1;
        self.answered = self.asked;
    }

    /// The share of the newest query's work that is done, from 0 to 1; `None` if no work is running or it does not
    /// report.
    #[must_use]
    pub fn progress(&self) -> Option<f32> {
        let is_current = self.is_busy() && self.watch.current.load(Ordering::Relaxed) == self.asked;
        let share = self.watch.share.load(Ordering::Relaxed);
        (is_current && share > 0).then(|| share as f32 / 1000.0)
    }

    fn hand_over(&mut self) {
        if let Some(question) = self.waiting.take()
            && let Err(TrySendError::Full(question)) = self.questions.try_send(question)
        {
            self.waiting = Some(question);
        }
    }

    /// The answer to the newest query; returned once.
    pub fn poll(&mut self) -> Option<A> {
        self.hand_over();
        let (id, answer) = self.answers.try_iter().last()?;
        self.hand_over();
        self.answered = self.answered.max(id);
        (id == self.asked).then_some(answer)
    }

    /// True while the newest question has no answer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.asked != self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn only_the_newest_query_is_answered() {
        let work = |n: u32| {
            std::thread::sleep(Duration::from_millis(2));
            n * 2
        };
        let mut twice = Background::spawn("stepgraph-twice", Arc::new(|| {}), work).unwrap();
        for n in 1..=30 {
            twice.ask(n);
        }
        let started = Instant::now();
        let answer = loop {
            if let Some(answer) = twice.poll() {
                break answer;
            }
            assert!(twice.is_busy() && started.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        };
        assert_eq!(answer, 60);
        assert!(!twice.is_busy() && twice.poll().is_none());
    }

    #[test]
    fn cancelled_work_ends_and_the_next_query_is_answered() {
        fn wait(twice: &mut Background<u32, u32>, done: impl Fn(&mut Background<u32, u32>) -> bool) {
            let started = Instant::now();
            while !done(twice) {
                assert!(started.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let work = |n: u32, watch: &Watch| {
            // While the requester waits; the second query is answered at once.
            while n == 1 && watch.report(0.25) {
                std::thread::sleep(Duration::from_millis(1));
            }
            n * 2
        };
        let mut twice = Background::spawn_watched("stepgraph-twice", Arc::new(|| {}), work).unwrap();
        twice.ask(1);
        wait(&mut twice, |t| t.progress() == Some(0.25));
        twice.cancel();
        assert!(!twice.is_busy() && twice.progress().is_none() && twice.poll().is_none());
        twice.ask(2);
        assert!(twice.is_busy());
        wait(&mut twice, |t| t.poll() == Some(4));
        assert!(!twice.is_busy());
    }
}
