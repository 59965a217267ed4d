//! The progress of the tokenization of a large text: a bar on a terminal, otherwise a line from time to time.

use super::output;
use super::progress::LINE_EVERY;
use crate::data::tokenized_share;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two checks of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Texts that take less time than this are not reported.
const SHORT: Duration = Duration::from_secs(1);

/// Reports the progress of a text until it is dropped.
pub struct TextProgress {
    /// Dropping it ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TextProgress {
    /// Starts the reports. If the system refuses a thread, there are none.
    #[must_use]
    pub fn start() -> Self {
        let (end, ended) = channel();
        let mut shown = Shown::default();
        let watch = move || {
            while matches!(ended.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout)) {
                shown.look(tokenized_share(), Instant::now());
            }
            shown.look(None, Instant::now());
        };
        Self { end: Some(end), thread: thread::Builder::new().name("stepgraph-progress".into()).spawn(watch).ok() }
    }
}

impl Drop for TextProgress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread only draws.
            let _ = thread.join();
        }
    }
}

/// What was reported about a text.
#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    began: Option<Instant>,
    said: Option<Instant>,
}

impl Shown {
    /// Shows the share that is done; removes the bar if no text is being read.
    fn look(&mut self, share: Option<f32>, now: Instant) {
        let Some(share) = share else {
            self.bar.take().iter().for_each(ProgressBar::finish_and_clear);
            (self.began, self.said) = (None, None);
            return;
        };
        let began = *self.began.get_or_insert(now);
        if now.duration_since(began) < SHORT {
            return;
        }
        if output::is_terminal() {
            let bar = self.bar.get_or_insert_with(|| {
                let style = ProgressStyle::with_template("{bar:28} {percent} % of the text is tokenized, {eta} left");
                ProgressBar::new(10_000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            });
            bar.set_position((share * 10_000.0) as u64);
        } else if let Some(line) = self.line(share, now) {
            output::note(&line);
        }
    }

    /// The line that is due.
    fn line(&mut self, share: f32, now: Instant) -> Option<String> {
        let is_due = self.said.is_none_or(|said| now.duration_since(said) >= LINE_EVERY);
        is_due.then(|| {
            self.said = Some(now);
            format!("{:.0} % of the text is tokenized", 100.0 * share)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_from_time_to_time() {
        let (mut shown, began) = (Shown::default(), Instant::now());
        let lines = (0..200).filter_map(|i| shown.line(i as f32 / 200.0, began + LOOK_EVERY * i)).collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                "0 % of the text is tokenized",
                "25 % of the text is tokenized",
                "50 % of the text is tokenized",
                "75 % of the text is tokenized"
            ]
        );
        // Another text starts again at zero.
        shown.look(None, began);
        assert_eq!((shown.began, shown.said), (None, None));
    }
}
