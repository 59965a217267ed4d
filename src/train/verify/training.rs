//! A run as it trains: the batches that its steps see and what its log says, against steps that are run op by op on
//! batches that the host finds from data, seed and number of the step.

use super::each_recording::{Shapes, other_recording};
use super::host_batches::{Batch, BatchRule, batch_stays};
use super::options::VerifyOptions;
use super::replay::ReplayHarness;
use super::{Check, Culprit};
use crate::exec::cpu::Pool;
use crate::exec::{ExecError, Executor, Step};
use crate::ir::Share;
use crate::model::{ParamId, Preset};
use crate::tensor::counted;
use crate::train::batch_shape::BatchShape;
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
/// Recordings that are made again at most, and steps that are made with them.
const MADE_AGAIN: u64 = 64;
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
    /// The samples and positions that its batches used; 0 where steps do not differ in that.
    used: [u32; USED.len()],
}

const FIELDS: [&str; 6] = ["loss", "accuracy", "update magnitude", "gradient norm", "learning rate", "loss scale"];
const USED: [&str; 2] = ["samples", "positions"];
/// The values of a step that they are read from.
const READ: [&str; FIELDS.len()] = ["loss", "accuracy", "update_max", "grad_norm", "hyper", "loss_scale"];

impl Logged {
    pub(super) fn of(report: &StepReport) -> Self {
        let StepReport { step, loss, accuracy, update_max, grad_norm, lr, loss_scale, path, rows, length, .. } =
            *report;
        let values = [loss, accuracy, update_max, grad_norm, lr, loss_scale].map(bits);
        Self { step, path, values, used: [rows, length] }
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
        Ok(Self { step: number, values, path: 0, used: [0; USED.len()] })
    }

    /// With the loss and the accuracy of all batches of the step, and what they used.
    fn with(mut self, means: &BatchMeans, used: [u32; USED.len()]) -> Self {
        [self.values[0], self.values[1]] = [means.loss(), means.accuracy()].map(bits);
        self.used = used;
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
        if let Some(at) = (0..USED.len()).find(|at| self.used[*at] != expected.used[*at]) {
            let (step, what, [found, wanted]) = (self.step, USED[at], [self, expected].map(|l| l.used[at]));
            return Some(format!("step {step}: {found} {what} were reported, and it used {wanted}"));
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

    /// How long a step takes that is made op by op. Its batches are the first one repeatedly: later ones may be short.
    pub(super) fn one_step(&mut self) -> Result<Duration, TrainError> {
        self.rewind()?;
        let Session { train, pool, feed, .. } = &mut self.session;
        feed.next(train)?;
        train.run(Executor::Eager, pool)?;
        let started = Instant::now();
        train.run(Executor::Eager, pool)?;
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
    fn expected(&mut self, count: u64, rule: BatchRule) -> Result<Expected, TrainError> {
        self.begin_run()?;
        let (mut logged, mut batches, mut paths, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TrainError::Cancelled);
            }
            let (mut means, mut used) = (BatchMeans::default(), [0; USED.len()]);
            let count = self.session.train.batches();
            for batch in 0..count {
                let Session { train, feed, .. } = &mut self.session;
                let shape = train.choose(number + 1, batch, feed)?;
                if let Some(shape) = shape {
                    let case = Case { shape, code: 0, share: Share::of(batch, count) };
                    others.extend(other_recording(&self.session, case, number + 1)?);
                }
                match rule.write(&mut self.session, number * count as u64 + batch as u64)? {
                    Ok(shape) => self.add_used(&mut used, shape),
                    Err(why) => {
                        others.push(format!("step {} {why}", number + 1));
                        let state = self.session.train.snapshot()?;
                        return Ok(Expected { logged, batches, state, paths, others });
                    }
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
            logged.push(Logged::read(self.session.train.chosen(), number + 1)?.with(&means, used));
            paths.push(self.path_number(number + 1));
        }
        Ok(Expected { logged, batches, state: self.session.train.snapshot()?, paths, others })
    }

    /// Adds what a batch uses to what a step reports of its batches: the sum of their samples, where steps differ in
    /// them, and the most positions.
    fn add_used(&self, used: &mut [u32; USED.len()], shape: BatchShape) {
        if self.session.train.dispatch().is_some_and(Dispatch::varies_in_rows) {
            used[0] += shape.rows as u32;
        }
        used[1] = used[1].max(shape.length.unwrap_or(0) as u32);
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
                if !Batch::read(session.train.chosen())?.is_same(batch) {
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
    /// must be equal, bit for bit. Where the batches of a run differ in their samples and positions, they do so here
    /// too.
    pub(super) fn logged_steps(&mut self, preset: &Preset, options: &VerifyOptions) -> Result<Check, TrainError> {
        // The times that the check is planned by are those of whole batches.
        let has_whole = |feed: &DataFeed| match feed {
            DataFeed::Data { split, batches, .. } => split.train.len() >= batches.batch(),
            DataFeed::Batches { .. } | DataFeed::Resident => true,
        };
        let of_whole = if options.anyway { BatchRule::AsDescribed } else { BatchRule::Whole };
        match self.session_of_shapes(preset, options)? {
            Shapes::Own(mut own) if has_whole(&own.feed) => {
                let start = own.train.snapshot()?;
                let before = (std::mem::replace(&mut self.session, *own), std::mem::replace(&mut self.start, start));
                let outcome = self.logged_as_they_are(BatchRule::AsDescribed);
                (self.session, self.start) = before;
                outcome
            }
            Shapes::LeftOut(why) => {
                let mut check = self.logged_as_they_are(of_whole)?;
                check.figures += &format!("; batches are whole: {why}");
                Ok(check)
            }
            Shapes::Own(_) | Shapes::Alike => self.logged_as_they_are(of_whole),
        }
    }

    /// As [`Self::logged_steps`], with the batches of the harness.
    fn logged_as_they_are(&mut self, rule: BatchRule) -> Result<Check, TrainError> {
        if matches!(self.session.feed, DataFeed::Resident) {
            return Ok(Check::skipped(NAME, "the network has no data of its own, and no batches were given"));
        }
        let count = self.wanted()?;
        let expected = self.expected(count, rule)?;
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
        if wrong.is_empty() {
            figures += &self.made_again(&expected, &mut wrong)?;
        }
        Ok(Check::new(NAME, wrong.is_empty(), figures).detail(wrong))
    }

    /// Makes the first steps of the run once more: some of them, and the others when the recordings of all kinds of
    /// steps were dropped, the memory that they share was overwritten, and they were made again. Gives the figures;
    /// nothing where steps do not differ.
    fn made_again(
        &mut self,
        expected: &Expected,
        wrong: &mut Vec<(String, Option<Culprit>)>,
    ) -> Result<String, TrainError> {
        let count = (expected.logged.len() as u64).min(MADE_AGAIN);
        let before = count.min(LOOKED_AT);
        let mut logged = Vec::new();
        if self.session.train.dispatch().is_none() {
            return Ok(String::new());
        }
        self.begin_run()?;
        let mut ended = make(&mut self.session, before, &mut logged)?;
        // Numbers that are finite in every type: what is multiplied by zero must not matter.
        self.session.train.lent_arena().overwrite(0x3F)?;
        let made = self.session.train.dispatch_mut().map(|dispatch| dispatch.record_again(MADE_AGAIN as usize));
        let made = made.transpose()?.unwrap_or(0);
        if ended.is_none() {
            ended = make(&mut self.session, count - before, &mut logged)?;
        }
        self.rewind()?;
        let pairs = logged.iter().zip(&expected.logged);
        let differences: Vec<String> = pairs.filter_map(|(found, wanted)| found.difference(wanted)).collect();
        let text = |what: String| (format!("with recordings that were made again: {what}"), None);
        wrong.extend(differences.iter().take(4).cloned().map(text));
        if let Some(why) = ended.filter(|_| expected.logged.get(logged.len()).is_some_and(Logged::is_finite)) {
            wrong.push(text(why));
        }
        Ok(format!("; {made} recordings dropped and made again, {} reports differ", differences.len()))
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
