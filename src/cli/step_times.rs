//! The times of a run's steps; for long runs, of a part of them.

use crate::train::StepReport;

/// At most this many step times are kept; longer runs keep every second, every third, and so on.
const MAX_TIMES: u64 = 1 << 20;

/// What is recorded during a run; the memory is allocated before the first step.
pub(super) struct Times {
    stride: u64,
    pub(super) step_us: Vec<f64>,
    pub(super) feed_us: Vec<f64>,
}

impl Times {
    pub(super) fn new(steps: u64) -> Self {
        // Most runs end long before this memory is full; for longer ones, times are dropped as the run continues.
        let room = steps.min(MAX_TIMES) as usize;
        Self { stride: 1, step_us: Vec::with_capacity(room), feed_us: Vec::with_capacity(room) }
    }

    pub(super) fn add(&mut self, report: &StepReport) {
        if !report.step.is_multiple_of(self.stride) {
            return;
        }
        if self.step_us.len() as u64 >= MAX_TIMES {
            // Every second time is dropped to make room for the rest of a long run.
            self.stride *= 2;
            for times in [&mut self.step_us, &mut self.feed_us] {
                let mut index = 0;
                times.retain(|_| {
                    index += 1;
                    index % 2 == 0
                });
            }
        }
        self.step_us.push(f64::from(report.step_us));
        self.feed_us.push(f64::from(report.feed_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_times_from_its_first_step_on() {
        let mut times = Times::new(u64::MAX);
        let report = |step: u64| StepReport { step, step_us: step as f32, ..StepReport::default() };
        (1..=3 * MAX_TIMES).for_each(|step| times.add(&report(step)));
        let kept = times.step_us.len() as u64;
        assert!(kept <= MAX_TIMES && kept > MAX_TIMES / 4, "{kept}");
        assert!(times.step_us.windows(2).all(|w| w[0] < w[1]) && times.feed_us.len() as u64 == kept);
        assert!(times.step_us[0] <= 4.0 && times.step_us[times.step_us.len() - 1] > 3e6);
    }
}
