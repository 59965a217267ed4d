//! When a run in a window is evaluated: at multiples of a round number of steps, so that the points of different runs
//! are at the same steps.
//!
//! The number is chosen once, from the times of an evaluation and a step.

use std::time::Duration;

/// The largest share of a run's time for evaluations.
const SHARE: f64 = 0.03;
/// The total time that they may take in any case, even in a short run.
const ALLOWANCE: Duration = Duration::from_millis(200);
/// The approximate largest number of points of a run, if there is more than one in a second: more would show nothing
/// new.
const POINTS: f64 = 200.0;
/// The number of steps before the interval is chosen.
const TIMED: u64 = 10;

/// The interval between evaluations, once it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    every: Option<u64>,
    steps: u64,
    taken: Duration,
}

impl Schedule {
    /// Receives steps and their time.
    pub fn made(&mut self, steps: u64, taken: Duration) {
        if self.every.is_none() {
            self.steps += steps;
            self.taken += taken;
        }
    }

    /// True if the time of an evaluation is needed to choose the interval.
    pub const fn wants_cost(&self) -> bool {
        self.every.is_none() && self.steps >= TIMED
    }

    /// Chooses the interval of a run of `total` steps, given the time of an evaluation; returns it.
    pub fn choose(&mut self, evaluation: Duration, total: u64) -> u64 {
        let step_s = self.taken.as_secs_f64() / self.steps.max(1) as f64;
        let every = interval(step_s, evaluation.as_secs_f64(), total);
        self.every = Some(every);
        every
    }

    /// Steps until the next evaluation, or until the choice of the interval.
    pub fn room(&self, done: u64) -> u64 {
        self.every.map_or(TIMED.saturating_sub(self.steps).max(1), |every| every - done % every)
    }

    /// True if an evaluation is due after step `done`.
    pub fn is_due(&self, done: u64) -> bool {
        self.every.is_some_and(|every| done > 0 && done.is_multiple_of(every))
    }
}

/// The number of steps between evaluations: 1, 2 or 5 times a power of ten.
fn interval(step_s: f64, evaluation_s: f64, total: u64) -> u64 {
    let run_s = step_s * total as f64;
    let affordable = (SHARE * run_s).max(ALLOWANCE.as_secs_f64()) / evaluation_s.max(1e-9);
    let seen = (total as f64 / POINTS).min(1.0 / step_s.max(1e-9));
    let least = (total as f64 / affordable.max(1.0)).max(seen).clamp(1.0, 1e15);
    let power = 10f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|n| *n >= least * (1.0 - 1e-9));
    round.unwrap_or(least).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_round_and_evaluations_take_a_small_share() {
        // A short run is evaluated from time to time; an expensive evaluation runs seldom; a cheap one no more often
        // than can be seen.
        assert_eq!(interval(1e-3, 4e-3, 300), 10);
        assert_eq!(interval(1e-3, 1.0, 10_000), 10_000);
        assert_eq!(interval(1e-2, 1.0, 10_000), 5_000);
        assert_eq!(interval(1e-5, 1e-4, 100_000), 500);
        assert_eq!(interval(1e-3, 1e-9, 20), 1);
        for (step, evaluation, total) in [(1e-4, 2e-2, 1_000_000), (3e-3, 0.5, 50_000)] {
            let every = interval(step, evaluation, total);
            let share = evaluation / (every as f64 * step);
            assert!(share <= SHARE * 1.001, "{share}");
        }
    }

    #[test]
    fn evaluations_are_at_multiples_of_the_interval() {
        let mut s = Schedule::default();
        assert_eq!((s.room(0), s.is_due(10)), (10, false));
        s.made(10, Duration::from_millis(10));
        assert!(s.wants_cost());
        assert_eq!(s.choose(Duration::from_millis(4), 300), 10);
        assert!(!s.wants_cost() && s.is_due(20) && !s.is_due(15) && !s.is_due(0));
        assert_eq!((s.room(0), s.room(13), s.room(20)), (10, 7, 10));
    }
}
