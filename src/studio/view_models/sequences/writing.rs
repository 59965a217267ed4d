//! A text that the network of a run writes.

use crate::studio::view_models::format;
use crate::train::{GenerationEnd, WritingEvent};
use std::time::{Duration, Instant};

/// The state of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WritingState {
    #[default]
    Nothing,
    /// The run was requested to write it.
    Asked,
    Writing,
    Ended(GenerationEnd),
    /// Why it cannot be written.
    Failed(String),
}

/// A text that the network of a run writes.
#[derive(Clone, Debug, Default)]
pub struct WritingView {
    pub state: WritingState,
    /// The prompt as the network received it.
    pub prompt: String,
    /// The text after the prompt.
    pub text: String,
    pub notes: Vec<String>,
    /// The number of tokens drawn, and the largest number.
    pub tokens: usize,
    pub most: usize,
    /// The numbers of steps made when the first and the last token were drawn.
    pub steps: Option<[u64; 2]>,
    began: Option<Instant>,
    took: Duration,
}

impl WritingView {
    /// A new text was requested, which replaces the previous one.
    pub fn ask(&mut self) {
        *self = Self { state: WritingState::Asked, ..Self::default() };
    }

    /// True if a text is being written, or is about to be.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.state, WritingState::Asked | WritingState::Writing)
    }

    /// Receives reports of the run.
    pub fn take(&mut self, event: WritingEvent) {
        match event {
            WritingEvent::Began { prompt, notes, most } => {
                let (state, began) = (WritingState::Writing, Some(Instant::now()));
                *self = Self { state, prompt, notes, most, began, ..Self::default() };
            }
            WritingEvent::Wrote { text, tokens, step } => {
                self.text.push_str(&text);
                self.tokens = tokens;
                self.steps = Some([self.steps.map_or(step, |[first, _]| first), step]);
                self.took = self.began.map_or(Duration::ZERO, |began| began.elapsed());
            }
            WritingEvent::Ended(end) => self.state = WritingState::Ended(end),
            WritingEvent::Failed(why) => self.state = WritingState::Failed(why),
        }
    }

    /// The progress, as text; empty if there is no text.
    #[must_use]
    pub fn status(&self) -> String {
        let tokens = format::plain_count(self.tokens, "token");
        let end = match &self.state {
            WritingState::Nothing | WritingState::Failed(_) => return String::new(),
            WritingState::Asked => return "asking the run…".to_owned(),
            WritingState::Writing => format!("{} of {}", self.tokens, format::plain_count(self.most, "token")),
            WritingState::Ended(GenerationEnd::Tokens) => format!("{tokens}, as many as were asked for"),
            WritingState::Ended(GenerationEnd::Stop) => format!("{tokens}, ended by the stop text"),
            WritingState::Ended(GenerationEnd::Line) => format!("{tokens}; the samples are as long"),
            WritingState::Ended(GenerationEnd::Cancelled) => format!("{tokens}, then stopped"),
        };
        let steps = self.steps.map(|[first, last]| match first == last {
            true => format!(" · at step {}", format::exact(last)),
            false => format!(" · from step {} to {}", format::exact(first), format::exact(last)),
        });
        let seconds = self.took.as_secs_f64();
        let rate = (seconds > 0.05).then(|| format!(" · {} tokens/s", format::count(self.tokens as f64 / seconds)));
        format!("{end}{}{}", rate.unwrap_or_default(), steps.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_arrives_in_pieces_and_a_new_one_replaces_it() {
        let mut view = WritingView::default();
        assert_eq!((view.status(), view.is_busy()), (String::new(), false));
        view.ask();
        assert!(view.is_busy() && view.status().starts_with("asking"));
        // Later reports about an older text are ignored once the new one begins.
        view.take(WritingEvent::Wrote { text: "old".into(), tokens: 3, step: 4 });
        view.take(WritingEvent::Began { prompt: "1+1=".into(), notes: vec!["n".into()], most: 2 });
        view.take(WritingEvent::Wrote { text: " ".into(), tokens: 1, step: 7 });
        view.take(WritingEvent::Wrote { text: "2".into(), tokens: 2, step: 1007 });
        assert_eq!((&*view.text, view.prompt.as_str(), view.is_busy()), (" 2", "1+1=", true));
        let message = view.status();
        assert!(message.contains("2 of 2 tokens") && message.contains("from step 7 to 1\u{2009}007"), "{message}");
        view.take(WritingEvent::Ended(GenerationEnd::Line));
        let message = view.status();
        assert!(!view.is_busy() && message.starts_with("2 tokens; the samples are as long"), "{message}");
        view.take(WritingEvent::Failed("no".into()));
        assert_eq!((view.state.clone(), view.status()), (WritingState::Failed("no".into()), String::new()));
    }
}
