//! Rates and quantiles of a run, from what its worker tells.

use super::*;

fn report(step: u64, step_us: f32) -> StepReport {
    StepReport {
        step,
        loss: 1.0,
        update_max: 0.0,
        grad_norm: 0.0,
        accuracy: 0.5,
        lr: 1e-3,
        loss_scale: f32::NAN,
        step_us,
        feed_us: 2.0,
    }
}

#[test]
fn a_burst_of_reports_is_no_rate() {
    let mut training = Training::default();
    training.take(Event::State(RunState::Running));
    for first in [1, 101] {
        training.take(Event::Steps((first..first + 100).map(|step| report(step, 8.0)).collect()));
    }
    training.take(Event::State(RunState::Finished));
    // Ten microseconds a step, however fast the reports came.
    assert!((training.statistics.steps_per_s - 1e5).abs() < 1.0, "{}", training.statistics.steps_per_s);
    // Single steps are no run and have no rate of their own.
    training.take(Event::Steps(vec![report(201, 8.0)]));
    training.take(Event::State(RunState::Paused));
    assert!((training.statistics.steps_per_s - 1e5).abs() < 1.0);
}
#[test]
fn steps_without_a_time_are_in_no_quantile() {
    let mut training = Training::default();
    // A kept run that goes on has steps of which no time is known; a hundred and one others take 1 to 101 microseconds.
    let times = (1..=101).flat_map(|us| [us as f32, f32::NAN]);
    let reports: Vec<StepReport> = (1..).zip(times).map(|(step, us)| report(step, us)).collect();
    training.take(Event::Steps(reports));
    training.measure();
    assert_eq!((training.statistics.median_us, training.statistics.p99_us), (51.0, 100.0));
    assert_eq!((training.times.count, training.times.shares.iter().all(|s| s.is_finite())), (101, true));
    // Where none is known, nothing is made up.
    let mut unknown = Training::default();
    unknown.take(Event::Steps((1..9).map(|step| report(step, f32::NAN)).collect()));
    unknown.measure();
    assert_eq!((unknown.statistics.median_us, unknown.statistics.p99_us), (0.0, 0.0));
}
