//! The speed of a run: its rate, its median and its slowest steps over the recent past, from its reports.

use crate::studio::view_models::curves::Histogram;
use crate::train::StepReport;
use std::time::{Duration, Instant};

/// The number of steps for medians.
const RECENT: usize = 4096;
/// The time for rates.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// The shortest time for a rate: reports come in bursts, whose rate is not meaningful.
const LEAST_WINDOW: Duration = Duration::from_millis(200);

/// Rates and times of the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    pub steps_per_s: f64,
    pub median_us: f32,
    pub p99_us: f32,
}

/// The speed of a run.
#[derive(Default)]
pub struct Rates {
    pub statistics: Statistics,
    /// Step times of the recent past.
    pub times: Histogram,
    /// While running: steps and the time of their report, over the last second.
    arrivals: Vec<(Instant, u64)>,
    /// While running: steps since the start, and their time by the host's clock, in microseconds.
    busy: (u64, f64),
    measured: Option<Instant>,
}

impl Rates {
    /// Starts with a run that continues after this many steps, or ends with it; its last rate is kept.
    pub fn change(&mut self, running: Option<u64>) {
        self.take_rate();
        self.arrivals.clear();
        self.busy = (0, 0.0);
        self.arrivals.extend(running.map(|done| (Instant::now(), done)));
        // The last numbers of a run are computed immediately, because no later frame may follow.
        self.measured = None;
    }

    /// Receives reports of a running run, which has made `done` steps including these.
    pub fn steps(&mut self, reports: &[StepReport], done: u64) {
        let now = Instant::now();
        self.arrivals.push((now, done));
        // The oldest entry is kept, even if steps are slow.
        while self.arrivals.len() > 2 && now - self.arrivals[1].0 >= RATE_WINDOW {
            self.arrivals.remove(0);
        }
        self.busy.0 += reports.len() as u64;
        self.busy.1 += reports.iter().map(|r| f64::from(r.step_us) + f64::from(r.feed_us)).sum::<f64>();
    }

    /// Steps divided by their time: over the last second, or by the host's clock if less is known.
    fn take_rate(&mut self) {
        let (Some((t0, n0)), Some((t1, n1))) = (self.arrivals.first(), self.arrivals.last()) else { return };
        let window = *t1 - *t0;
        let (steps, busy_us) = self.busy;
        if window >= LEAST_WINDOW {
            self.statistics.steps_per_s = (n1 - n0) as f64 / window.as_secs_f64();
        } else if steps > 0 && busy_us > 0.0 {
            self.statistics.steps_per_s = steps as f64 / (busy_us * 1e-6);
        }
    }

    /// Computes the numbers again from the times of all steps, in microseconds, a few times a second.
    pub fn measure(&mut self, step_us: &[f32]) {
        const EVERY: Duration = Duration::from_millis(250);
        if self.measured.is_some_and(|t| t.elapsed() < EVERY) {
            return;
        }
        self.measured = Some(Instant::now());
        self.take_rate();
        // Steps before a restart have no times.
        let recent = step_us[step_us.len().saturating_sub(RECENT)..].iter().copied();
        let mut recent: Vec<f32> = recent.filter(|us| us.is_finite()).collect();
        if !recent.is_empty() {
            recent.sort_by(f32::total_cmp);
            self.times = Histogram::of_sorted(&recent);
            // The same numbers as beside the histogram.
            self.statistics.median_us = self.times.median_us as f32;
            self.statistics.p99_us = self.times.p99_us as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(count: usize) -> Vec<StepReport> {
        vec![StepReport { step: 1, step_us: 8.0, feed_us: 2.0, ..StepReport::default() }; count]
    }

    #[test]
    fn a_burst_of_reports_gives_no_rate() {
        let mut rates = Rates::default();
        rates.change(Some(0));
        for done in [100, 200] {
            rates.steps(&reports(100), done);
        }
        rates.change(None);
        // Ten microseconds for each step, independently of the speed of the reports.
        assert!((rates.statistics.steps_per_s - 1e5).abs() < 1.0, "{}", rates.statistics.steps_per_s);
        // Single steps are not a run and have no rate.
        rates.change(None);
        assert!((rates.statistics.steps_per_s - 1e5).abs() < 1.0);
    }

    #[test]
    fn steps_without_a_time_are_in_no_quantile() {
        let mut rates = Rates::default();
        // A kept run that is continued has steps whose times are not known; 101 others take 1 to 101 microseconds.
        let times: Vec<f32> = (1..=101).flat_map(|us| [us as f32, f32::NAN]).collect();
        rates.measure(&times);
        assert_eq!((rates.statistics.median_us, rates.statistics.p99_us), (51.0, 100.0));
        assert_eq!((rates.times.count, rates.times.shares.iter().all(|s| s.is_finite())), (101, true));
        // If no times are known, none are invented.
        let mut unknown = Rates::default();
        unknown.measure(&[f32::NAN; 9]);
        assert_eq!((unknown.statistics.median_us, unknown.statistics.p99_us), (0.0, 0.0));
    }
}
