//! The times of a run's steps whose recordings differ: each kind alone, alternating, op by op, and without a recording.

use super::step_cases::Case;
use super::training_step::TrainingStep;
use super::{DataFeed, Session, TrainError};
use crate::compile::Compiled;
use crate::exec::cpu::Pool;
use crate::exec::{Executor, GraphKey, Ways};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The largest number of kinds that are measured; the first ones of a run.
const MOST: usize = 64;
/// The least number of rounds of a measurement.
const ROUNDS: usize = 3;
/// Steps of a round, of a kind alone and alternating with the others.
const STEPS: usize = 16;
/// Steps of a round that run op by op.
const EAGER_STEPS: usize = STEPS / 4;
/// Warm-up steps before the timed ones, so that these do not depend on what another measurement left in the caches.
const BEFORE: usize = 2;
/// How often the look-up of a recording is timed.
const FINDS: u64 = 10_000;
/// The largest number of kinds whose planning and recording are measured, and how often each is recorded.
const PLANNED: usize = 8;
const RECORDED: usize = 5;

/// The times of one kind of step, in microseconds: medians over single steps, except `miss_us`, which is one
/// measurement.
#[derive(Clone, Debug, Serialize)]
pub struct KindTimes {
    pub key: GraphKey,
    /// Replayed repeatedly.
    pub alone_us: f64,
    /// Replayed, alternating with the other kinds: lookup of the recording, and replay.
    pub in_turn_us: f64,
    /// Op by op.
    pub eager_us: f64,
    /// Planned, bound and run op by op: a step without a recording. Absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_us: Option<f64>,
    /// Planned and recorded. Absent if that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_us: Option<f64>,
    /// Scalars of its operations that are frozen in the recording.
    pub frozen_constants: usize,
    /// Scalars of its operations that every replay reads from memory.
    pub live_constants: usize,
}

/// The times of steps that differ, in microseconds. Means over all kinds, with equal weights.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingTimes {
    pub kinds: Vec<KindTimes>,
    /// A step when all kinds alternate and their recordings exist: look-up and replay.
    pub cycle_us: f64,
    /// A step of the same kinds, each replayed repeatedly.
    pub alone_us: f64,
    /// `[cycle_us, alone_us]` with steps that are queued without waiting. Absent if steps cannot be queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_us: Option<[f64; 2]>,
    /// A step of the first kind, alternating between two recordings of it: the cost of changing the recording, because
    /// both run the same kernels.
    pub same_us: f64,
    pub eager_us: f64,
    /// The mean over the kinds for which it was measured.
    pub miss_us: Option<f64>,
    /// Planning and recording a step, of those that were measured.
    pub record_us: Option<f64>,
    /// Finding the recording of a step that differs from the one before, in nanoseconds.
    pub find_ns: f64,
}

/// The measurements of one kind: every step separately, in microseconds.
#[derive(Default)]
struct Samples {
    alone: Vec<f64>,
    turn: Vec<f64>,
    queued: Vec<f64>,
    eager: Vec<f64>,
}

/// Steps under measurement, with the state that each measurement starts from.
struct Measured<'a> {
    train: &'a mut TrainingStep,
    pool: &'a mut Pool,
    start: Vec<u8>,
    cases: &'a [(Case, u64)],
}

impl Measured<'_> {
    /// Chooses and runs a step of a case, and returns the microseconds. Steps that are replayed alone or alternating,
    /// and steps that run op by op, are timed by this function, so that the results differ only because of the
    /// preceding steps.
    fn timed(&mut self, case: usize, executor: Executor) -> Result<f64, TrainError> {
        let (case, step) = self.cases[case];
        let started = Instant::now();
        self.train.choose_case(case, step)?;
        self.train.run_chosen(executor, self.pool)?;
        self.train.chosen().synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }

    /// Times `count` consecutive steps of a case.
    fn repeated(&mut self, case: usize, executor: Executor, count: usize) -> Result<Vec<f64>, TrainError> {
        self.train.restore(&self.start)?;
        for _ in 0..BEFORE {
            self.timed(case, executor)?;
        }
        (0..count).map(|_| self.timed(case, executor)).collect()
    }

    /// The mean time of a step when these cases alternate for `count` rounds, without waiting for any step.
    fn queued(&mut self, cases: &[(Case, u64)], count: usize) -> Result<f64, TrainError> {
        self.train.restore(&self.start)?;
        let mut begun = Instant::now();
        for turn in 0..BEFORE + count {
            if turn == BEFORE {
                self.train.synchronize()?;
                begun = Instant::now();
            }
            for (case, step) in cases {
                self.train.choose_case(*case, *step)?;
                self.train.run_chosen(Executor::Replay, self.pool)?;
            }
        }
        self.train.synchronize()?;
        Ok(begun.elapsed().as_secs_f64() * 1e6 / (count * cases.len()) as f64)
    }

    /// One round of every measurement, so that changes of the machine's speed affect all of them.
    fn round(&mut self, samples: &mut [Samples], queued: &mut Vec<f64>) -> Result<(), TrainError> {
        let cases = self.cases;
        let queues = self.train.capabilities().queues_steps;
        for (case, samples) in samples.iter_mut().enumerate() {
            samples.alone.extend(self.repeated(case, Executor::Replay, STEPS)?);
            samples.eager.extend(self.repeated(case, Executor::Eager, EAGER_STEPS)?);
            if queues {
                samples.queued.push(self.queued(&cases[case..=case], STEPS)?);
            }
        }
        if queues {
            queued.push(self.queued(cases, STEPS)?);
        }
        self.train.restore(&self.start)?;
        for turn in 0..BEFORE + STEPS {
            for (case, samples) in samples.iter_mut().enumerate() {
                let us = self.timed(case, Executor::Replay)?;
                if turn >= BEFORE {
                    samples.turn.push(us);
                }
            }
        }
        Ok(())
    }

    /// The median time of a step of the first case that is replayed alternately by two recordings.
    fn same(&mut self) -> Result<f64, TrainError> {
        let Some(dispatch) = self.train.dispatch() else { return Ok(f64::NAN) };
        let mut other = dispatch.planned_now(self.cases[0].0, self.cases[0].1, Ways::All)?;
        let mut times = Vec::new();
        self.train.restore(&self.start)?;
        for turn in 0..BEFORE + ROUNDS * STEPS {
            let own = self.timed(0, Executor::Replay)?;
            let started = Instant::now();
            other.run(Executor::Replay, self.pool)?;
            other.synchronize()?;
            if turn >= BEFORE {
                times.extend([own, started.elapsed().as_secs_f64() * 1e6]);
            }
        }
        Ok(median(&mut times))
    }

    /// The mean time of the look-up of a recording, over all cases in turn, in nanoseconds.
    fn finds(&mut self) -> Result<f64, TrainError> {
        let started = Instant::now();
        let mut found = 0;
        while found < FINDS {
            for (case, step) in self.cases {
                self.train.choose_case(*case, *step)?;
                found += 1;
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e9 / found as f64)
    }

    /// A step of a case that is planned first, and run op by op.
    fn miss(&mut self, case: usize) -> Result<f64, TrainError> {
        let started = Instant::now();
        let Some(dispatch) = self.train.dispatch() else { return Ok(f64::NAN) };
        let mut planned = dispatch.planned_now(self.cases[case].0, self.cases[case].1, Ways::OpByOp)?;
        planned.run(Executor::Eager, self.pool)?;
        planned.synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    }

    /// The median time to plan and record a step of a case; it is dropped each time.
    fn record(&self, case: usize) -> Result<f64, TrainError> {
        let Some(dispatch) = self.train.dispatch() else { return Ok(f64::NAN) };
        let mut times = Vec::with_capacity(RECORDED);
        for _ in 0..RECORDED {
            let started = Instant::now();
            let recorded = dispatch.planned_now(self.cases[case].0, self.cases[case].1, Ways::All)?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
            drop(recorded);
        }
        Ok(median(&mut times))
    }

    /// All times of a case, from the measurements of each step; also measures `miss_us` and `record_us`.
    fn times(&mut self, case: usize, samples: &mut Samples) -> Result<Option<KindTimes>, TrainError> {
        let is_planned = case < PLANNED;
        let miss_us = is_planned.then(|| self.miss(case)).transpose()?;
        let record_us = is_planned.then(|| self.record(case)).transpose()?;
        let (of, step) = self.cases[case];
        self.train.choose_case(of, step)?;
        let [frozen_constants, live_constants] = constants(self.train.chosen().compiled());
        let Some(dispatch) = self.train.dispatch_mut() else { return Ok(None) };
        let key = dispatch.key(of, step)?;
        let [alone_us, in_turn_us, eager_us] =
            [&mut samples.alone, &mut samples.turn, &mut samples.eager].map(|times| median(times));
        let of_kind =
            KindTimes { key, alone_us, in_turn_us, eager_us, miss_us, record_us, frozen_constants, live_constants };
        Ok(Some(of_kind))
    }
}

/// The number of scalars of a step that are frozen in its recording, and of those that are read from memory.
fn constants(compiled: &Compiled) -> [usize; 2] {
    let all = compiled.plan.constants();
    let live = all.iter().filter(|constant| constant.live).count();
    [all.len() - live, live]
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
    /// Times the kinds of steps of the run, for about `seconds`, on random batches; `None` if all steps are alike. The
    /// state is restored.
    ///
    /// # Errors
    /// If the device fails, or if a recording does not exist and cannot be made.
    pub fn time_recordings(&mut self, seconds: f64) -> Result<Option<RecordingTimes>, TrainError> {
        let seed = self.seed();
        let Self { train, pool, .. } = self;
        let mut cases = train.dispatch().map(|dispatch| dispatch.cases()).unwrap_or_default();
        cases.truncate(MOST);
        if cases.len() < 2 {
            return Ok(None);
        }
        for (case, step) in &cases {
            train.choose_case(*case, *step)?;
            let model = train.chosen().compiled().model.clone();
            DataFeed::resident(train.chosen_mut(), &model, seed)?;
        }
        let start = train.snapshot()?;
        let mut measured = Measured { train, pool, start, cases: &cases };
        let mut samples: Vec<Samples> = cases.iter().map(|_| Samples::default()).collect();
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let (mut rounds, mut queued) = (0, Vec::new());
        while rounds < ROUNDS || Instant::now() < until {
            measured.round(&mut samples, &mut queued)?;
            rounds += 1;
        }
        let same_us = measured.same()?;
        let find_ns = measured.finds()?;
        let mut kinds = Vec::with_capacity(cases.len());
        for (number, samples) in samples.iter_mut().enumerate() {
            kinds.extend(measured.times(number, samples)?);
        }
        measured.train.restore(&measured.start)?;
        let of = |time: fn(&KindTimes) -> f64| mean(kinds.iter().map(time)).unwrap_or(f64::NAN);
        let [alone_us, cycle_us, eager_us] =
            [of(|kind| kind.alone_us), of(|kind| kind.in_turn_us), of(|kind| kind.eager_us)];
        let queued_alone_us = mean(samples.iter_mut().map(|samples| median(&mut samples.queued)));
        let queued_us = (!queued.is_empty()).then(|| [median(&mut queued), queued_alone_us.unwrap_or(f64::NAN)]);
        let miss_us = mean(kinds.iter().filter_map(|kind| kind.miss_us));
        let record_us = mean(kinds.iter().filter_map(|kind| kind.record_us));
        Ok(Some(RecordingTimes {
            kinds,
            cycle_us,
            alone_us,
            queued_us,
            same_us,
            eager_us,
            miss_us,
            record_us,
            find_ns,
        }))
    }
}
