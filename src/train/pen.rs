//! Writes a text between the steps of a run, and reports it.

use super::{GenerateError, Generation, GenerationEnd, Pace, Session, Writing};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The state of a text that is written while a run trains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WritingEvent {
    /// The network has read the prompt, of which this is the text; at most this many tokens follow.
    Began {
        prompt: String,
        notes: Vec<String>,
        most: usize,
    },
    /// What was written since the last report, the number of tokens drawn so far, and the number of steps when the last
    /// was drawn.
    Wrote {
        text: String,
        tokens: usize,
        step: u64,
    },
    Ended(GenerationEnd),
    /// Why it cannot be written, or cannot continue.
    Failed(String),
}

/// The longest time that is spent writing in one go while the run trains, and while it does not.
const BURST: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// The text that a run is writing, if there is one.
#[derive(Default)]
pub(super) struct Pen {
    writing: Option<Writing>,
    /// Text that was written and not reported yet.
    text: String,
    pace: Pace,
}

impl Pen {
    /// Starts a text, which replaces one that is being written.
    pub(super) fn begin(&mut self, session: &mut Session, asked: &Generation) -> WritingEvent {
        self.text.clear();
        let begun = session.vocabulary().and_then(|vocabulary| Writing::begin(session, vocabulary, asked));
        match begun {
            Ok(writing) => {
                let (prompt, notes) = (writing.prompt().to_owned(), writing.notes().to_vec());
                let most = self.writing.insert(writing).most();
                WritingEvent::Began { prompt, notes, most }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &GenerateError) -> WritingEvent {
        self.writing = None;
        WritingEvent::Failed(error.to_string())
    }

    /// Ends the text; returns the text that was not reported yet, and the end.
    pub(super) fn stop(&mut self, session: &Session) -> Vec<WritingEvent> {
        let Some(writing) = self.writing.take() else { return Vec::new() };
        let rest = report(&mut self.text, &writing, session);
        rest.into_iter().chain([WritingEvent::Ended(GenerationEnd::Cancelled)]).collect()
    }

    /// Whether there is something to write.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Draws tokens for a short time, if the run's steps leave some, and returns what to report.
    pub(super) fn write(&mut self, session: &mut Session, is_training: bool) -> Vec<WritingEvent> {
        let Some(mut writing) = self.writing.take() else { return Vec::new() };
        let started = Instant::now();
        if is_training && !self.pace.allows(started) {
            self.writing = Some(writing);
            return Vec::new();
        }
        let [training, resting] = BURST;
        let limit = if is_training { training } else { resting };
        let end = loop {
            match writing.next(session) {
                Ok((piece, end)) => {
                    self.text.push_str(&piece);
                    if end.is_some() || started.elapsed() >= limit {
                        break Ok(end);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let ended = Instant::now();
        self.pace.spent(ended, ended - started);
        let mut events: Vec<WritingEvent> = report(&mut self.text, &writing, session).into_iter().collect();
        match end {
            Ok(None) => self.writing = Some(writing),
            Ok(Some(end)) => events.push(WritingEvent::Ended(end)),
            Err(error) => events.push(self.fail(&error)),
        }
        events
    }
}

/// What was written since the last report.
fn report(text: &mut String, writing: &Writing, session: &Session) -> Option<WritingEvent> {
    let text = std::mem::take(text);
    let event = WritingEvent::Wrote { text, tokens: writing.drawn(), step: session.done() };
    (writing.drawn() > 0).then_some(event)
}
