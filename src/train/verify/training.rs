//! A run as it trains: the batches that its steps see and what its log says, against steps that are run op by op on
//! batches that the host finds from data, seed and number of the step.

use super::each_recording::{Shapes, other_recording};
use super::options::VerifyOptions;
use super::replay::{ReplayHarness, still_there};
use super::{Check, Culprit};
use crate::data::{SHUFFLE_STREAM, Samples, Shuffle, Target};
use crate::exec::cpu::Pool;
use crate::exec::{ExecError, Executor, Step};
use crate::ir::Share;
use crate::lower::LValueId;
use crate::model::{ParamId, Preset};
use crate::tensor::{DType, counted};
use crate::train::batch_file::Labels;
use crate::train::data_feed::{rows_of, write_samples};
use crate::train::dispatch::Dispatch;
use crate::train::step_cases::Case;
use crate::train::training_step::BatchMeans;
use crate::train::{DataFeed, Session, StepReport, TrainError};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(super) const NAME: &str = super::names::RUN;

/// What the run, and the steps op by op that it is compared with, may take each.
const BUDGET: Duration = Duration::from_secs(2);
/// The least number of steps, and the most.
const STEPS: (u64, u64) = (4, 400);
/// The first steps are made one by one, so that their batches can be looked at.
const LOOKED_AT: u64 = 3;
/// Longer than a run of these checks takes.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// Seconds that the checks of a run take where a step takes `step_us`, roughly.
pub(super) fn seconds(step_us: f64) -> f64 {
    // Beside the run there are steps for the evaluation, and before and after a checkpoint.
    (2.0 * BUDGET.as_secs_f64()).min((2 * STEPS.1) as f64 * step_us * 1e-6) + 40.0 * step_us * 1e-6 + 1.0
}

/// Makes some steps, so that moments, running statistics and counters are not those of the beginning: a kernel that
/// mixes them up or forgets them is right as long as they are zero. A step that diverges at once is put
/// back to its start.
pub(super) fn leave_start(step: &mut Step, pool: &mut Pool) -> Result<(), TrainError> {
    const STEPS: usize = 2;
    const WILD: f32 = 1e15;
    let compiled = std::sync::Arc::clone(step.compiled());
    let before = step.snapshot()?;
    for _ in 0..STEPS {
        step.run_ops(0, compiled.plan.program.ops.len(), pool)?;
    }
    let ids = (0..compiled.model.params.len()).map(|index| ParamId(index as u32));
    let params: Vec<Vec<f32>> = ids.map(|p| step.param::<f32>(p)).collect::<Result<_, _>>()?;
    // A NaN is not below anything.
    if !params.iter().flatten().all(|v| v.abs() < WILD) {
        step.restore(&before)?;
    }
    Ok(())
}

/// What a step reports, as bits: a NaN is equal to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Logged {
    step: u64,
    values: [u32; FIELDS.len()],
    /// The number of its path among the names of its session; steps that were read have 0.
    path: u32,
}

const FIELDS: [&str; 6] = ["loss", "accuracy", "update magnitude", "gradient norm", "learning rate", "loss scale"];
/// The values of a step that they are read from.
const READ: [&str; FIELDS.len()] = ["loss", "accuracy", "update_max", "grad_norm", "hyper", "loss_scale"];

impl Logged {
    pub(super) fn of(report: &StepReport) -> Self {
        let StepReport { step, loss, accuracy, update_max, grad_norm, lr, loss_scale, path, .. } = *report;
        Self { step, path, values: [loss, accuracy, update_max, grad_norm, lr, loss_scale].map(bits) }
    }

    /// What the host reads of the step that ran last.
    fn read(step: &Step, number: u64) -> Result<Self, ExecError> {
        let mut values = [0; FIELDS.len()];
        for (value, name) in values.iter_mut().zip(READ) {
            let absent = if matches!(name, "accuracy" | "loss_scale") { f32::NAN } else { 0.0 };
            // A schedule makes the rate of the step from the base rate.
            let name = if name == "hyper" && step.find("rates").is_ok() { "rates" } else { name };
            *value = bits(match step.find(name) {
                Ok(id) => step.stored::<f32>(id)?[0],
                Err(_) => absent,
            });
        }
        Ok(Self { step: number, values, path: 0 })
    }

    /// With the loss and the accuracy of all batches of the step.
    fn with(mut self, means: &BatchMeans) -> Self {
        [self.values[0], self.values[1]] = [means.loss(), means.accuracy()].map(bits);
        self
    }

    fn is_finite(&self) -> bool {
        [0, 2, 3].iter().all(|at| f32::from_bits(self.values[*at]).is_finite())
    }

    /// What is different, where anything is.
    pub(super) fn difference(&self, expected: &Self) -> Option<String> {
        if self.step != expected.step {
            return Some(format!("step {} is reported as step {}", expected.step, self.step));
        }
        let at = (0..FIELDS.len()).find(|at| self.values[*at] != expected.values[*at])?;
        let [found, wanted] = [self, expected].map(|l| f32::from_bits(l.values[at]));
        Some(format!("step {}: {} {found:e} was reported, the step found {wanted:e}", self.step, FIELDS[at]))
    }
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

/// Makes up to `count` steps as a run does, adds what they report to `logged`, and gives why they ended where a value
/// that is not finite ended them.
///
/// # Errors
/// Where a step fails in another way.
pub(super) fn make(session: &mut Session, count: u64, logged: &mut Vec<Logged>) -> Result<Option<String>, TrainError> {
    match session.steps(count, NEVER, |report| logged.push(Logged::of(report))) {
        Ok(_) => Ok(None),
        Err(TrainError::Exec(error @ ExecError::NonFinite { .. })) => Ok(Some(error.to_string())),
        Err(other) => Err(other),
    }
}

/// A batch as a step has it in memory.
struct Batch {
    /// The values of all inputs of numbers.
    x: Vec<f32>,
    /// The bytes of everything else: tokens, then targets.
    y: Vec<u8>,
}

impl Batch {
    fn read(step: &Step) -> Result<Self, ExecError> {
        let program = &step.compiled().plan.program;
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for id in program.all_samples() {
            if program.value(id).dtype == DType::I32 {
                y.extend_from_slice(step.tensor(id)?.bytes());
            } else {
                x.extend_from_slice(&step.stored::<f32>(id)?);
            }
        }
        if let Some(targets) = program.targets() {
            y.extend_from_slice(step.tensor(targets)?.bytes());
        }
        Ok(Self { x, y })
    }
}

/// Whether the batch is still in its place when the step is over.
fn batch_stays(step: &Step) -> bool {
    let plan = &step.compiled().plan;
    let stays = |id| plan.place(id).is_none_or(|place| still_there(plan, plan.buffer(place.buffer)));
    plan.program.all_samples().chain(plan.program.targets()).all(stays)
}

/// Writes the batch, counted from 0, that the host finds from data, seed and that number, for the step that was chosen.
/// Gives the number of its samples where the step takes another number; nothing is written then.
///
/// # Errors
/// Never for a step of the session's network.
fn write_batch(session: &mut Session, number: u64) -> Result<Option<usize>, TrainError> {
    let (batch, seed) = (session.model.batch, session.seed());
    let Session { train, feed, .. } = session;
    let train = train.chosen_mut();
    let y = train.compiled().plan.program.targets();
    match feed {
        DataFeed::Data { set, split, batches, .. } => {
            let rows = split.train.len();
            // The last batch of an epoch has what is left, or is left out.
            let of_epoch = if batches.short_last().is_some() { rows.div_ceil(batch) } else { rows / batch };
            let (epoch, first) = (number / of_epoch as u64, number as usize % of_epoch * batch);
            let shuffle = Shuffle::new(rows as u32, seed, SHUFFLE_STREAM.wrapping_add(epoch));
            let samples: Vec<u32> =
                (first..(first + batch).min(rows)).map(|at| split.train[shuffle.at(at as u32) as usize]).collect();
            // The feed does not pass to the next batch by itself.
            batches.next();
            if samples.len() != train.compiled().model.batch {
                return Ok(Some(samples.len()));
            }
            write_samples(train, &rows_of(set, &samples)?)?;
            match (&set.target, y) {
                (Target::Classes { .. } | Target::Windows(_), Some(y)) => {
                    train.write(y, &set.target.labels(&samples)?)?;
                }
                (Target::Values { values, shape }, Some(y)) => {
                    let width = shape.len();
                    let of = |i: &u32| values[*i as usize * width..][..width].to_vec();
                    train.write(y, &samples.iter().flat_map(of).collect::<Vec<f32>>())?;
                }
                (_, None) => {}
            }
        }
        DataFeed::Batches { x, y: labels, count, .. } => {
            let part = |len: usize| number as usize * (len / *count)..(number as usize + 1) * (len / *count);
            let inputs: Vec<LValueId> = train.compiled().plan.program.all_samples().collect();
            for (id, samples) in inputs.into_iter().zip(x) {
                match samples {
                    Samples::Real(v) => train.write(id, &v[part(v.len())])?,
                    Samples::Tokens(v) => train.write(id, &v[part(v.len())])?,
                    // A file of batches holds its samples whole.
                    Samples::Windows(_) => {}
                }
            }
            match (labels, y) {
                (Labels::Classes(v), Some(y)) => train.write(y, &v[part(v.len())])?,
                (Labels::Values(v), Some(y)) => train.write(y, &v[part(v.len())])?,
                (_, None) => {}
            }
        }
        DataFeed::Resident => {}
    }
    Ok(None)
}

/// Steps that were made op by op.
struct Expected {
    logged: Vec<Logged>,
    /// Those of the first steps.
    batches: Vec<Batch>,
    state: Vec<u8>,
    /// The numbers of their paths, where paths differ.
    paths: Vec<u32>,
    /// What was wrong with the recordings that were chosen.
    others: Vec<String>,
}

/// Steps that were made as a run makes them.
struct Trained {
    logged: Vec<Logged>,
    /// Those of the first steps that have another batch, where batches stay in their place.
    other_batches: Vec<u64>,
    looked_at: usize,
    state: Vec<u8>,
    /// Why it ended early.
    ended: Option<String>,
}

impl ReplayHarness<'_> {
    /// Puts everything back to where a run begins.
    pub(super) fn begin_run(&mut self) -> Result<(), TrainError> {
        self.rewind()?;
        self.session.done = 0;
        self.session.total = self.limit().unwrap_or(u64::MAX);
        self.session.state_changed()
    }

    /// The steps that there are batches for, where these are given.
    pub(super) fn limit(&self) -> Option<u64> {
        self.session.feed.limit(self.session.model.accumulate).map(|limit| limit as u64)
    }

    /// How long a step takes that is made op by op.
    pub(super) fn one_step(&mut self) -> Result<Duration, TrainError> {
        self.steps(Executor::Eager, 1)?;
        let started = Instant::now();
        self.steps(Executor::Eager, 1)?;
        Ok(started.elapsed())
    }

    /// The steps to make: past the end of an epoch, and on a GPU more than its log keeps and in launches of every
    /// size, as far as that can be waited for.
    fn wanted(&mut self) -> Result<u64, TrainError> {
        let one = self.one_step()?;
        let affordable = (BUDGET.as_nanos() / one.as_nanos().max(1)) as u64;
        let epoch = self.session.feed.epoch_len().map_or(0, |len| (len / self.session.model.batch) as u64);
        let epoch = epoch.div_ceil(self.session.model.accumulate as u64);
        let launches = match self.session.recording().steps_a_launch as u64 {
            0 => 0,
            most => 5 * most + most / 8 + 1,
        };
        let wanted = (LOOKED_AT + epoch + 2).max(launches).clamp(STEPS.0 + LOOKED_AT, STEPS.1);
        let limit = self.limit().unwrap_or(u64::MAX);
        Ok(wanted.min(affordable).max(STEPS.0).min(limit))
    }

    /// Steps op by op on batches that the host finds, each on its own path where the session's steps differ.
    fn expected(&mut self, count: u64) -> Result<Expected, TrainError> {
        self.begin_run()?;
        let (mut logged, mut batches, mut paths, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TrainError::Cancelled);
            }
            let (mut means, count) = (BatchMeans::default(), self.session.train.batches());
            for batch in 0..count {
                let Session { train, feed, .. } = &mut self.session;
                let shape = train.choose(number + 1, batch, feed)?;
                if let Some(shape) = shape {
                    let case = Case { shape, code: 0, share: Share::of(batch, count) };
                    others.extend(other_recording(&self.session, case, number + 1)?);
                }
                if let Some(rows) = write_batch(&mut self.session, number * count as u64 + batch as u64)? {
                    let found = self.session.train.chosen().compiled().model.batch;
                    others.push(format!("step {} has {rows} samples and runs with {found}", number + 1));
                    let state = self.session.train.snapshot()?;
                    return Ok(Expected { logged, batches, state, paths, others });
                }
                let Session { train, pool, .. } = &mut self.session;
                // The last one is what a run leaves.
                if number < LOOKED_AT && batch + 1 == count {
                    batches.push(Batch::read(train.chosen())?);
                }
                train.run_chosen(Executor::Eager, pool)?;
                let (step, ids) = train.reports();
                means.add(step, ids.loss, ids.accuracy)?;
            }
            logged.push(Logged::read(self.session.train.chosen(), number + 1)?.with(&means));
            paths.push(self.path_number(number + 1));
        }
        Ok(Expected { logged, batches, state: self.session.train.snapshot()?, paths, others })
    }

    /// Steps as a run makes them: its own batches, several in a launch where the device can, and its own reports.
    fn trained(&mut self, count: u64, batches: &[Batch]) -> Result<Trained, TrainError> {
        self.begin_run()?;
        let (mut logged, mut other_batches, mut ended) = (Vec::new(), Vec::new(), None);
        let mut looked_at = 0;
        let session = &mut self.session;
        for (number, batch) in (1..).zip(batches) {
            ended = make(session, 1, &mut logged)?;
            if ended.is_some() {
                break;
            }
            if batch_stays(session.train.chosen()) {
                looked_at += 1;
                let found = Batch::read(session.train.chosen())?;
                let same = found.y == batch.y && found.x.iter().zip(&batch.x).all(|(a, b)| bits(*a) == bits(*b));
                if !same {
                    other_batches.push(number);
                }
            }
        }
        if ended.is_none() && count > batches.len() as u64 {
            ended = make(session, count - batches.len() as u64, &mut logged)?;
        }
        let state = session.train.snapshot()?;
        Ok(Trained { logged, other_batches, looked_at, state, ended })
    }

    /// The number by which a report names the path of a step; 0 where paths do not differ.
    fn path_number(&self, step: u64) -> u32 {
        let Session { train, model, .. } = &self.session;
        let names = train.dispatch().filter(|dispatch| dispatch.planner().paths().vary()).map(Dispatch::names);
        names.map_or(0, |names| names.number_of(&model.path_at(step, self.session.seed()).to_string()))
    }

    /// A run and the same steps op by op, on batches that the host finds: batches, reports and the state after them
    /// must be equal, bit for bit. Where the last batch of an epoch is a short one, it is so here too.
    pub(super) fn logged_steps(&mut self, preset: &Preset, options: &VerifyOptions) -> Result<Check, TrainError> {
        let is_drawn = |feed: &DataFeed| {
            matches!(feed, DataFeed::Data { lengths: None, split, batches, .. }
            if split.train.len() >= batches.batch())
        };
        match self.session_of_shapes(preset, options)? {
            Shapes::Own(mut own) if is_drawn(&own.feed) => {
                let start = own.train.snapshot()?;
                let before = (std::mem::replace(&mut self.session, *own), std::mem::replace(&mut self.start, start));
                let outcome = self.logged_as_they_are();
                (self.session, self.start) = before;
                outcome
            }
            _ => self.logged_as_they_are(),
        }
    }

    /// As [`Self::logged_steps`], with the batches of the harness.
    fn logged_as_they_are(&mut self) -> Result<Check, TrainError> {
        if matches!(self.session.feed, DataFeed::Resident) {
            return Ok(Check::skipped(NAME, "the network has no data of its own, and no batches were given"));
        }
        let count = self.wanted()?;
        let expected = self.expected(count)?;
        if !expected.others.is_empty() {
            let lines = expected.others.into_iter().take(4).map(|text| (text, None)).collect();
            return Ok(Check::new(NAME, false, "steps do not run their own recordings".into()).detail(lines));
        }
        let trained = self.trained(count, &expected.batches)?;
        self.rewind()?;
        let mut wrong: Vec<(String, Option<Culprit>)> = Vec::new();
        for number in &trained.other_batches {
            wrong.push((format!("step {number} saw another batch than data, seed and its number give"), None));
        }
        let paths = trained.logged.iter().zip(&expected.paths).filter(|(found, path)| found.path != **path);
        wrong
            .extend(paths.take(4).map(|(found, _)| (format!("step {} is reported on another path", found.step), None)));
        let pairs = trained.logged.iter().zip(&expected.logged);
        let differences: Vec<String> = pairs.filter_map(|(found, wanted)| found.difference(wanted)).collect();
        let different = differences.len();
        wrong.extend(differences.into_iter().take(4).map(|text| (text, None)));
        let made = trained.logged.len();
        let mut figures = format!(
            "{}{} in the way of a run and op by op, {} compared, reports that differ: {different}",
            counted(made as u64, "step"),
            self.paths_taken(made as u64),
            counted(trained.looked_at as u64, "batch")
        );
        match &trained.ended {
            // Where values stop being finite, they must do so op by op too.
            Some(why) if expected.logged.get(made).is_some_and(Logged::is_finite) => wrong.push((why.clone(), None)),
            Some(_) => figures += "; both diverge after them",
            None if made as u64 != count => wrong.push((format!("{made} of {count} steps were reported"), None)),
            None => {
                let bytes = trained.state.iter().zip(&expected.state).filter(|(a, b)| a != b).count();
                figures += &format!(", {bytes} of {} bytes of the state differ", expected.state.len());
                if bytes > 0 {
                    wrong.push((self.first_difference(&trained.state, &expected.state), None));
                }
            }
        }
        Ok(Check::new(NAME, wrong.is_empty(), figures).detail(wrong))
    }

    /// How many paths the first steps of the run took, in words; nothing where there is one.
    pub(super) fn paths_taken(&self, steps: u64) -> String {
        let Some(dispatch) = self.session.train.dispatch() else { return String::new() };
        let paths = dispatch.planner().paths();
        let codes: HashSet<u64> = (1..=steps).map(|step| paths.code_at(step)).collect();
        if paths.vary() { format!(" on {}", counted(codes.len() as u64, "path")) } else { String::new() }
    }

    /// The first value in which two states differ, in words.
    pub(super) fn first_difference(&self, found: &[u8], expected: &[u8]) -> String {
        let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0) as u64;
        let buffers = &self.session.compiled().plan.buffers;
        let holds = |from: u64, bytes: u64| (from..from + bytes).contains(&at);
        let buffer = buffers.iter().find(|b| b.persistent && !b.is_external() && holds(b.offset, b.bytes));
        let Some(buffer) = buffer else { return format!("byte {at} of the state differs") };
        let part = buffer.parts.iter().find(|p| holds(buffer.offset + p.start, p.bytes));
        format!(
            "{} differs after the last step, first at byte {at} of the state",
            part.map_or(&buffer.name, |p| &p.name)
        )
    }
}
