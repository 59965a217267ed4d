//! A thread for answers that take a while, of which only the newest counts.
//!
//! One request may wait; a newer one takes its place. Neither side ever waits for the other longer than a channel's hand-over, and an answer to
//! anything but the newest request is dropped.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::thread::Builder;

/// A thread that answers requests of type `Q` with `A`. Dropping it ends the thread behind its present answer, without waiting for it.
pub struct Newest<Q, A> {
    requests: Sender<(u64, Q)>,
    answers: Receiver<(u64, A)>,
    waiting: Option<(u64, Q)>,
    asked: u64,
    answered: u64,
}

impl<Q: Send + 'static, A: Send + 'static> Newest<Q, A> {
    /// Starts the thread; `wake` is called when there is an answer.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn spawn(
        name: &str,
        mut work: impl FnMut(Q) -> A + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (requests, inbox) = bounded::<(u64, Q)>(1);
        let (outbox, answers) = bounded(2);
        let serve = move || {
            while let Ok(mut request) = inbox.recv() {
                if let Ok(newer) = inbox.try_recv() {
                    request = newer;
                }
                if outbox.send((request.0, work(request.1))).is_err() {
                    return;
                }
                wake();
            }
        };
        Builder::new().name(name.into()).spawn(serve)?;
        Ok(Self { requests, answers, waiting: None, asked: 0, answered: 0 })
    }

    /// Asks, in place of whatever was asked before.
    pub fn ask(&mut self, request: Q) {
        self.asked += 1;
        self.waiting = Some((self.asked, request));
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if let Some(request) = self.waiting.take()
            && let Err(TrySendError::Full(request)) = self.requests.try_send(request)
        {
            self.waiting = Some(request);
        }
    }

    /// The answer to the newest request, once.
    pub fn poll(&mut self) -> Option<A> {
        let newest = self.answers.try_iter().last();
        self.hand_over();
        let (number, answer) = newest?;
        self.answered = number;
        (number == self.asked).then_some(answer)
    }

    /// True while the newest request has no answer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.asked != self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_newest_request_is_answered() {
        let (sender, bell) = bounded(64);
        let work = |n: u32| {
            std::thread::sleep(Duration::from_millis(2));
            n * 2
        };
        let wake = move || {
            let _ = sender.try_send(());
        };
        let mut helper = Newest::spawn("test-newest", work, wake).unwrap();
        (1..=40).for_each(|n| helper.ask(n));
        let answer = loop {
            bell.recv_timeout(Duration::from_secs(20)).unwrap();
            if let Some(answer) = helper.poll() {
                break answer;
            }
        };
        assert_eq!(answer, 80);
        assert!(!helper.is_busy() && helper.poll().is_none());
    }
}
