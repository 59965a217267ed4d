//! What the steps of a run take whose recordings differ: each alone, all in turn, op by op, and where a recording is
//! not there.

use super::step_cases::Case;
use super::training_step::TrainingStep;
use super::{DataFeed, Session, TrainError};
use crate::exec::cpu::Pool;
use crate::exec::{Executor, GraphKey};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Kinds of steps that are measured; the first ones of a run.
const MOST: usize = 64;
/// The fewest runs of each.
const FEWEST: usize = 3;
/// How often the finding of a recording is timed.
const FINDS: u64 = 10_000;
/// Times that planning is measured at most.
const PLANNED: usize = 8;

/// The times of a step in each way of running it, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WayTimes {
    /// Replayed again and again.
    pub alone_us: f64,
    /// Op by op.
    pub eager_us: f64,
    /// Planned, bound and run op by op: a step whose recording is not there. Absent where that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_us: Option<f64>,
}

/// The times of one kind of step; medians.
#[derive(Clone, Debug, Serialize)]
pub struct KindTimes {
    pub key: GraphKey,
    #[serde(flatten)]
    pub times: WayTimes,
}

/// The times of steps that differ, in microseconds. Means over all kinds, each as often as the others.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingTimes {
    pub kinds: Vec<KindTimes>,
    /// A step of a turn through all kinds, whose recordings are there: finding each, and replaying it.
    pub cycle_us: f64,
    /// Steps of the same kinds; of those that are not there, the ones that were measured.
    #[serde(flatten)]
    pub times: WayTimes,
    /// Finding the recording of a step that differs from the one before, in nanoseconds.
    pub find_ns: f64,
}

/// Steps under measurement, with the state that each measurement starts from.
struct Measured<'a> {
    train: &'a mut TrainingStep,
    pool: &'a mut Pool,
    start: Vec<u8>,
    until: Instant,
}

impl Measured<'_> {
    /// Runs the step that was chosen, and gives the microseconds.
    fn run(&mut self, executor: Executor) -> Result<f64, TrainError> {
        let started = Instant::now();
        self.train.run_chosen(executor, self.pool)?;
        self.train.chosen().synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }

    /// The median time of the step that was chosen.
    fn median(&mut self, executor: Executor, time: Duration) -> Result<f64, TrainError> {
        let mut times = Vec::new();
        self.train.restore(&self.start)?;
        self.run(executor)?;
        let end = Instant::now() + time;
        while times.len() < FEWEST || Instant::now() < end {
            times.push(self.run(executor)?);
        }
        Ok(median(&mut times))
    }

    /// The mean time of a step over all cases in turn.
    fn turns(&mut self, cases: &[(Case, u64)]) -> Result<f64, TrainError> {
        let mut turns = Vec::new();
        self.train.restore(&self.start)?;
        while turns.len() < FEWEST || Instant::now() < self.until {
            let started = Instant::now();
            for (case, step) in cases {
                self.train.choose_case(*case, *step)?;
                self.train.run_chosen(Executor::Replay, self.pool)?;
                self.train.chosen().synchronize()?;
            }
            turns.push(started.elapsed().as_secs_f64() * 1e6 / cases.len() as f64);
        }
        Ok(median(&mut turns))
    }

    /// The mean time to find a recording, over all cases in turn, in nanoseconds.
    fn finds(&mut self, cases: &[(Case, u64)]) -> Result<f64, TrainError> {
        let started = Instant::now();
        let mut found = 0;
        while found < FINDS {
            for (case, step) in cases {
                self.train.choose_case(*case, *step)?;
                found += 1;
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e9 / found as f64)
    }

    /// A step of a case that is planned first, and run op by op.
    fn miss(&mut self, case: Case, step: u64) -> Result<f64, TrainError> {
        let started = Instant::now();
        let Some(dispatch) = self.train.dispatch() else { return Ok(f64::NAN) };
        let mut planned = dispatch.planned_now(case, step)?;
        planned.run(Executor::Eager, self.pool)?;
        planned.synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

impl Session {
    /// Times the kinds of steps that the run has, for about `seconds`, on random batches; nothing where all steps are
    /// alike. The state is as it was.
    ///
    /// # Errors
    /// What went wrong on the device, and where a recording is not there and cannot be made.
    pub fn time_recordings(&mut self, seconds: f64) -> Result<Option<RecordingTimes>, TrainError> {
        let seed = self.seed();
        let Self { train, pool, .. } = self;
        let mut cases = train.dispatch().map(|dispatch| dispatch.cases()).unwrap_or_default();
        cases.truncate(MOST);
        if cases.len() < 2 {
            return Ok(None);
        }
        let start = train.snapshot()?;
        let each = Duration::from_secs_f64(seconds / 3.0 / cases.len() as f64);
        let mut measured = Measured { train, pool, start, until: Instant::now() };
        let mut kinds = Vec::new();
        for (number, (case, step)) in cases.iter().enumerate() {
            measured.train.choose_case(*case, *step)?;
            let model = measured.train.chosen().compiled().model.clone();
            DataFeed::resident(measured.train.chosen_mut(), &model, seed)?;
            let alone_us = measured.median(Executor::Replay, each)?;
            let eager_us = measured.median(Executor::Eager, each)?;
            let miss_us = (number < PLANNED).then(|| measured.miss(*case, *step)).transpose()?;
            let Some(dispatch) = measured.train.dispatch_mut() else { return Ok(None) };
            let times = WayTimes { alone_us, eager_us, miss_us };
            kinds.push(KindTimes { key: dispatch.key(*case, *step)?, times });
        }
        measured.until = Instant::now() + Duration::from_secs_f64(seconds / 3.0);
        let cycle_us = measured.turns(&cases)?;
        let find_ns = measured.finds(&cases)?;
        measured.train.restore(&measured.start)?;
        let of = |time: fn(&KindTimes) -> f64| mean(kinds.iter().map(time)).unwrap_or(f64::NAN);
        let (alone_us, eager_us) = (of(|kind| kind.times.alone_us), of(|kind| kind.times.eager_us));
        let miss_us = mean(kinds.iter().filter_map(|kind| kind.times.miss_us));
        let times = WayTimes { alone_us, eager_us, miss_us };
        Ok(Some(RecordingTimes { kinds, cycle_us, times, find_ns }))
    }
}
