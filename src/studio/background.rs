//! Work on a thread of its own, of which only the newest is wanted.
//!
//! One question may wait; a newer one takes its place, and answers to older ones are dropped. Neither side waits for the other. A thread that is let
//! go in the middle of long work ends when that is done, without anybody waiting for it.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::Arc;
use std::thread::Builder;

/// A thread that answers questions `Q` with answers `A`.
pub struct Background<Q, A> {
    questions: Sender<(u64, Q)>,
    answers: Receiver<(u64, A)>,
    /// The newest question, while the channel is full.
    waiting: Option<(u64, Q)>,
    asked: u64,
    answered: u64,
}

impl<Q: Send + 'static, A: Send + 'static> Background<Q, A> {
    /// Starts the thread; `wake` is called when there is an answer.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn spawn(
        name: &str,
        wake: Arc<dyn Fn() + Send + Sync>,
        mut work: impl FnMut(Q) -> A + Send + 'static,
    ) -> std::io::Result<Self> {
        let (questions, inbox) = bounded::<(u64, Q)>(1);
        let (outbox, answers) = bounded(1);
        let serve = move || {
            while let Ok(mut question) = inbox.recv() {
                if let Ok(newer) = inbox.try_recv() {
                    question = newer;
                }
                let (id, question) = question;
                let answer = work(question);
                wake();
                if outbox.send((id, answer)).is_err() {
                    return;
                }
                wake();
            }
        };
        Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { questions, answers, waiting: None, asked: 0, answered: 0 })
    }

    /// Asks, in place of whatever was asked before.
    pub fn ask(&mut self, question: Q) {
        self.asked += 1;
        self.waiting = Some((self.asked, question));
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if let Some(question) = self.waiting.take()
            && let Err(TrySendError::Full(question)) = self.questions.try_send(question)
        {
            self.waiting = Some(question);
        }
    }

    /// The answer to the newest question, once.
    pub fn poll(&mut self) -> Option<A> {
        self.hand_over();
        let (id, answer) = self.answers.try_iter().last()?;
        self.hand_over();
        self.answered = id;
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
    fn only_the_newest_question_is_answered() {
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
}
