//! Progress of a training run, on standard error: a bar on a terminal, otherwise about twenty lines, and more if steps
//! are slow.

use super::output;
use crate::tensor::figure;
use crate::train::StepReport;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Number of lines of a run whose output is not a terminal.
const LINES: u64 = 16;
/// The longest time that a command runs without a line of progress, if its output is not a terminal; longer if a single
/// step takes longer.
pub(super) const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time between two updates of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// The progress of one run.
pub struct Progress {
    bar: Option<ProgressBar>,
    batch: u64,
    first: u64,
    total: u64,
    started: Instant,
    drawn: Instant,
}

impl Progress {
    /// Progress from step `first` (the number of steps that were made before) to `total`.
    #[must_use]
    pub fn new(first: u64, total: u64, batch: usize) -> Self {
        let bar = output::is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{bar:28} {pos}/{len} steps, {eta} left, {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_position(first);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Self { bar, batch: batch as u64, first, total, started: now, drawn: now }
    }

    /// Records a step, and draws if an update is due.
    pub fn step(&mut self, report: &StepReport, now: Instant) {
        let made = report.step - self.first;
        if let Some(bar) = &self.bar {
            if now.duration_since(self.drawn) >= DRAW_EVERY || report.step == self.total {
                self.drawn = now;
                bar.set_message(self.figures(report, made, now));
                bar.set_position(report.step);
            }
            return;
        }
        if self.is_due(report.step, now) {
            self.drawn = now;
            output::note(&format!("step {}/{}: {}", report.step, self.total, self.figures(report, made, now)));
        }
    }

    /// Whether a line is due after this step, if there is no bar.
    fn is_due(&self, step: u64, now: Instant) -> bool {
        let made = step - self.first;
        let stride = (self.total - self.first).div_ceil(LINES).max(1);
        let in_turn = made == 1 || made.is_multiple_of(stride) || step == self.total;
        in_turn || now.duration_since(self.drawn) >= LINE_EVERY
    }

    fn figures(&self, report: &StepReport, made: u64, now: Instant) -> String {
        let seconds = now.duration_since(self.started).as_secs_f64().max(1e-9);
        let rate = (made * self.batch) as f64 / seconds;
        let accuracy =
            if report.accuracy.is_finite() { format!(", accuracy {:.3}", report.accuracy) } else { String::new() };
        let loss = figure(f64::from(report.loss), 4);
        format!("loss {loss}{accuracy}, {} samples/s", output::count(rate as u64))
    }

    /// Reports an evaluation during the run, as text.
    pub fn evaluated(&self, step: u64, found: &str) {
        self.say(&format!("step {step}: {found}"));
    }

    /// Prints one line without disturbing the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(line)),
            None => output::note(line),
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_in_time_and_short_runs_have_few() {
        let started = Instant::now();
        let of = |total| Progress { bar: None, batch: 1, first: 0, total, started, drawn: started };
        let lines = |total: u64, step_every: Duration, steps: u64| {
            let mut progress = of(total);
            let mut due = Vec::new();
            for step in 1..=steps {
                let now = started + step_every * step as u32;
                if progress.is_due(step, now) {
                    progress.drawn = now;
                    due.push(step);
                }
            }
            due
        };
        // A minute of a run that lasts for months: no pause is longer than ten seconds.
        let long = lines(1_000_000_000, Duration::from_millis(100), 600);
        assert!(long.windows(2).all(|w| w[1] - w[0] <= 100) && long.len() <= 14, "{long:?}");
        assert!(600 - long[long.len() - 1] <= 100, "{long:?}");
        let short = lines(1600, Duration::from_micros(100), 1600);
        assert!(short.len() as u64 <= LINES + 1 && short.last() == Some(&1600), "{short:?}");
    }
}
