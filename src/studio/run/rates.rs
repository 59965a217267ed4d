//! How fast a run is: its rate, its median and its slowest steps over the recent past, from what it reports.

use crate::studio::view_models::curves::Histogram;
use crate::train::StepReport;
use std::time::{Duration, Instant};

/// Steps over which medians are taken.
const RECENT: usize = 4096;
/// Time over which rates are taken.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// The shortest time that a rate is taken over: reports come in bursts, and a burst is no rate.
const LEAST_WINDOW: Duration = Duration::from_millis(200);

/// Rates and times of the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    pub steps_per_s: f64,
    pub median_us: f32,
    pub p99_us: f32,
}

/// How fast a run is.
#[derive(Default)]
pub struct Rates {
    pub statistics: Statistics,
    /// Step times of the recent past.
    pub times: Histogram,
    /// While running: steps and the time at which they were known, over the last second.
    arrivals: Vec<(Instant, u64)>,
    /// While running: steps since the start, and the time that they took by the host's clock, in microseconds.
    busy: (u64, f64),
    measured: Option<Instant>,
}

impl Rates {
    /// Begins with a run that continues after so many steps, or ends with it; its last rate stays.
    pub fn change(&mut self, running: Option<u64>) {
        self.take_rate();
        self.arrivals.clear();
        self.busy = (0, 0.0);
        self.arrivals.extend(running.map(|done| (Instant::now(), done)));
        // The last numbers of a run are not left for a later frame: none may come.
        self.measured = None;
    }

    /// Receives reports of a run that is running, which has `done` so many steps with them.
    pub fn steps(&mut self, reports: &[StepReport], done: u64) {
        let now = Instant::now();
        self.arrivals.push((now, done));
        // The oldest of the window stays, however slow the steps are.
        while self.arrivals.len() > 2 && now - self.arrivals[1].0 >= RATE_WINDOW {
            self.arrivals.remove(0);
        }
        self.busy.0 += reports.len() as u64;
        self.busy.1 += reports.iter().map(|r| f64::from(r.step_us) + f64::from(r.feed_us)).sum::<f64>();
    }

    /// Steps over the time that they took: over the last second, or by the host's clock where less is known.
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

    /// Makes the numbers anew of the times of all steps, in microseconds, a few times a second.
    pub fn measure(&mut self, step_us: &[f32]) {
        const EVERY: Duration = Duration::from_millis(250);
        if self.measured.is_some_and(|t| t.elapsed() < EVERY) {
            return;
        }
        self.measured = Some(Instant::now());
        self.take_rate();
        // Steps of before a restart have no times.
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
    fn a_burst_of_reports_is_no_rate() {
        let mut rates = Rates::default();
        rates.change(Some(0));
        for done in [100, 200] {
            rates.steps(&reports(100), done);
        }
        rates.change(None);
        // Ten microseconds a step, however fast the reports came.
        assert!((rates.statistics.steps_per_s - 1e5).abs() < 1.0, "{}", rates.statistics.steps_per_s);
        // Single steps are no run and have no rate of their own.
        rates.change(None);
        assert!((rates.statistics.steps_per_s - 1e5).abs() < 1.0);
    }

    #[test]
    fn steps_without_a_time_are_in_no_quantile() {
        let mut rates = Rates::default();
        // A kept run that is continued has steps of which no time is known; a hundred and one others take 1 to 101
        // microseconds.
        let times: Vec<f32> = (1..=101).flat_map(|us| [us as f32, f32::NAN]).collect();
        rates.measure(&times);
        assert_eq!((rates.statistics.median_us, rates.statistics.p99_us), (51.0, 100.0));
        assert_eq!((rates.times.count, rates.times.shares.iter().all(|s| s.is_finite())), (101, true));
        // Where none is known, nothing is made up.
        let mut unknown = Rates::default();
        unknown.measure(&[f32::NAN; 9]);
        assert_eq!((unknown.statistics.median_us, unknown.statistics.p99_us), (0.0, 0.0));
    }
}
