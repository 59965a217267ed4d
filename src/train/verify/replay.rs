//! Replay: against eager, against itself, against the ledger, over many steps.

use super::options::{VerifyOptions, session_spec};
use super::{Check, Compared, Culprit, names};
use crate::compile::Compiled;
use crate::exec::{ExecError, Executor, Fault, MemoryOf, RecordedAs, Step, StepImage};
use crate::model::{Model, Preset};
use crate::plan::{BufferId, referee};
use crate::tensor::counted;
use crate::train::{DataFeed, Session, TrainError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps that are made eagerly and replayed.
pub(super) const STEPS: u64 = 3;
/// The time that the replays of the endurance check may take where no number is given; they are made twice.
const STRESS: Duration = Duration::from_secs(6);
/// The check's name.
pub(super) const ENDURANCE: &str = names::ENDURANCE;
/// What is wrong with a run that leaves the numbers of its type.
pub(super) const NOT_FINITE: &str = "updates are not finite";
/// The least and the largest number of them then.
const REPLAYS: (u64, u64) = (20, 10_000);

/// The number of replays that the endurance check makes twice, and the reason for it: `asked` for, or `affordable` in
/// the time that they may take.
fn replays(asked: Option<u64>, affordable: u64) -> (u64, String) {
    let seconds = STRESS.as_secs();
    match (asked, affordable) {
        (Some(count), _) => (count, "the given number".into()),
        (None, count) if count >= REPLAYS.1 => (REPLAYS.1, "the most without --replays".into()),
        (None, count) if count <= REPLAYS.0 => (REPLAYS.0, format!("the least, though they take {seconds} s or more")),
        (None, count) => (count, format!("as many as take {seconds} s; --replays sets another number")),
    }
}

/// Seconds that the endurance check takes where a step takes `step_us`: about, where a number of replays is given, and
/// at most, where none is.
pub(super) fn endurance_cost(asked: Option<u64>, step_us: f64) -> f64 {
    let twice = |replays: u64| 2.0 * replays as f64 * step_us * 1e-6;
    asked.map_or_else(|| twice(REPLAYS.0).max(2.0 * STRESS.as_secs_f64()), twice)
}

/// Faults that were tried, one at a time.
#[derive(Default)]
pub(super) struct Trials {
    pub(super) tried: usize,
    /// Operations in which there was no place for a fault.
    pub(super) unreadable: usize,
    /// Why a fault could not be made, where one could not.
    pub(super) refused: Option<String>,
    pub(super) missed: Vec<(String, Option<Culprit>)>,
    /// What was tried, in words.
    pub(super) about: String,
}

impl Trials {
    /// Notes a fault in an argument of `op`, which must be named with its layer.
    pub(super) fn named(&mut self, compiled: &Compiled, op: usize, outcome: Result<(), ExecError>, place: &str) {
        let bound = &compiled.plan.program.ops[op];
        let wanted = bound.layer.map(|l| compiled.model.layer(l).label());
        let is_named = matches!(&outcome, Err(ExecError::Ledger { op: named, layer, .. })
            if *named == op && wanted.as_ref().is_none_or(|w| w == layer));
        self.tried += 1;
        if !is_named {
            let found =
                outcome.map_or_else(|error| format!("the ledger says: {error}"), |()| "nothing was found".into());
            let text = format!("an argument of op {op} {} was moved {place}, and {found}", bound.kind.name());
            self.missed.push((text, Some(Culprit::Op(op))));
        }
    }

    /// Notes a fault that was found, or was not.
    pub(super) fn found(&mut self, is_found: bool, what: &str, culprit: Option<Culprit>) {
        self.tried += 1;
        if !is_found {
            self.missed.push((format!("{what} was not found"), culprit));
        }
    }
}

/// A prepared run that every check starts from.
pub(super) struct ReplayHarness<'a> {
    pub(super) session: Session,
    pub(super) start: Vec<u8>,
    /// Ends the checks where it is set.
    pub(super) cancel: &'a AtomicBool,
}

impl<'a> ReplayHarness<'a> {
    pub(super) fn new(
        preset: &Preset,
        model: &Model,
        options: &VerifyOptions,
        cancel: &'a AtomicBool,
    ) -> Result<Self, TrainError> {
        debug_assert_eq!(model.name, preset.name, "the model was checked from this preset");
        let mut session = Session::prepare(&session_spec(preset, options))?;
        let start = session.train.snapshot()?;
        Ok(Self { session, start, cancel })
    }

    /// The recording that the checks replay.
    pub(super) fn step_mut(&mut self) -> &mut Step {
        &mut self.session.train
    }

    /// The check by that name, which has failed without a recording: what is called a replay runs op by op then, and
    /// would be held against itself.
    pub(super) fn recorded(
        &mut self,
        name: &str,
        check: impl FnOnce(&mut Self) -> Result<Check, TrainError>,
    ) -> Result<Check, TrainError> {
        match self.session.recording().why_eager {
            Some(why) => Ok(Check::new(name, false, "there is no recording".into()).detail(vec![(why, None)])),
            None => check(self),
        }
    }

    pub(super) fn rewind(&mut self) -> Result<(), TrainError> {
        self.session.train.restore(&self.start)?;
        let first = match self.session.feed {
            DataFeed::Data { .. } => super::super::FeedPosition::Data(crate::data::Position::default()),
            _ => super::super::FeedPosition::Batches(0),
        };
        self.session.feed.resume(first)
    }

    /// Runs `count` steps and gives the state after them with the update magnitudes on the way. Given batches start
    /// over at their end.
    pub(super) fn steps(&mut self, executor: Executor, count: u64) -> Result<(Vec<u8>, Vec<f32>), TrainError> {
        self.rewind()?;
        let Session { train, pool, feed, .. } = &mut self.session;
        let program = &train.compiled().plan.program;
        let magnitude = program.find("update_max");
        let mut magnitudes = Vec::with_capacity(count.min(1 << 20) as usize);
        for _ in 0..count {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TrainError::Cancelled);
            }
            for number in 0..train.batches() {
                if !feed.next(train)? {
                    feed.resume(super::super::FeedPosition::Batches(0))?;
                    feed.next(train)?;
                }
                train.run_batch(number, executor, pool)?;
            }
            if let Some(id) = magnitude {
                magnitudes.push(train.stored::<f32>(id)?[0]);
            }
        }
        Ok((train.snapshot()?, magnitudes))
    }

    /// Warming up must change nothing that survives a step.
    pub(super) fn warm_up(&mut self) -> Result<Check, TrainError> {
        self.rewind()?;
        let Session { train, feed, pool, .. } = &mut self.session;
        feed.next(train)?;
        let before = train.snapshot()?;
        train.warm_up(pool)?;
        let same = train.snapshot()? == before;
        Ok(Check::new(
            names::WARM_UP,
            same,
            format!("{} of parameters, state and seeds compared", counted(before.len() as u64, "byte")),
        ))
    }

    /// Some steps eagerly and as many replayed, from the same state: every buffer must be equal, bit for bit, and the
    /// same kernels must have run.
    pub(super) fn eager_against_replay(&mut self) -> Result<Check, TrainError> {
        let mut traces = Vec::new();
        let mut traced = |harness: &mut Self, executor: Executor| -> Result<(), TrainError> {
            harness.session.train.set_trace(true);
            harness.steps(executor, STEPS)?;
            traces.push(harness.session.train.trace());
            harness.session.train.set_trace(false);
            Ok(())
        };
        traced(self, Executor::Eager)?;
        let eager = self.session.train.image()?;
        traced(self, Executor::Replay)?;
        let replayed = self.session.train.image()?;
        let made = [(eager, traces.swap_remove(0)), (replayed, traces.swap_remove(0))];
        Ok(compared(self.session.compiled(), STEPS, &made))
    }

    /// One thread and several must give the same bits.
    pub(super) fn threads(&mut self, model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
        const NAME: &str = names::THREADS;
        if self.session.train.capabilities().memory == MemoryOf::Device {
            return Ok(Check::skipped(NAME, "a GPU's step does not depend on the host's threads"));
        }
        if options.threads < 2 {
            return Ok(Check::skipped(NAME, "only one thread"));
        }
        let (many, _) = self.steps(Executor::Replay, 5)?;
        let compiled = std::sync::Arc::clone(self.session.compiled());
        let mut pool = crate::exec::cpu::Pool::new(1)?;
        std::mem::swap(&mut pool, &mut self.session.pool);
        let alone = self.steps(Executor::Replay, 5);
        std::mem::swap(&mut pool, &mut self.session.pool);
        let same = alone?.0 == many;
        let figures = format!(
            "5 steps of {} on {} threads and on one: {}",
            counted(compiled.plan.program.ops.len() as u64, "operation"),
            options.threads,
            if same { "bit-equal" } else { "different" }
        );
        debug_assert_eq!(compiled.model.name, model.name, "the harness runs this model");
        Ok(Check::new(NAME, same, figures))
    }

    /// The ledger must be silent on the recording as it is.
    pub(super) fn ledger(&mut self) -> Result<Check, TrainError> {
        self.rewind()?;
        let Session { train, feed, pool, .. } = &mut self.session;
        feed.next(train)?;
        train.replay(pool)?;
        Ok(held(train))
    }

    /// Recorded addresses are moved, one at a time: the ledger must name call and layer, nothing may run, and once the
    /// fault is taken back the steps must be those of a run that never had one.
    pub(super) fn injected_faults(&mut self) -> Result<Check, TrainError> {
        const STEPS: u64 = 3;
        let (expected, _) = self.steps(Executor::Replay, STEPS)?;
        self.rewind()?;
        let before = self.session.train.snapshot()?;
        let Trials { tried, missed, about, .. } = match self.session.train.capabilities().record {
            RecordedAs::Calls => self.call_faults()?,
            RecordedAs::Graphs => self.graph_faults()?,
        };
        let untouched = self.session.train.snapshot()? == before;
        let restored = self.steps(Executor::Replay, STEPS)?.0 == expected;
        let figures = format!(
            "{} of {tried} {about}, parameters untouched: {untouched}, \
             {STEPS} steps after them bit-equal: {restored}",
            tried - missed.len()
        );
        let passed = missed.is_empty() && tried > 0 && untouched && restored;
        Ok(Check::new(names::FAULT, passed, figures).detail(missed))
    }

    /// Every recorded address of every call of a CPU's step in turn, moved in the call: a replay must name operation
    /// and layer.
    fn call_faults(&mut self) -> Result<Trials, TrainError> {
        let Session { train, pool, .. } = &mut self.session;
        let train: &mut Step = train;
        let compiled = std::sync::Arc::clone(train.compiled());
        let mut trials = Trials::default();
        for (op, bound) in compiled.plan.program.ops.iter().enumerate() {
            for slot in (0..bound.kind.slots().len()).filter(|slot| compiled.plan.argument(op, *slot).is_some()) {
                let Some(undo) = train.inject(Fault::Argument { graph: 0, op, slot })? else { continue };
                let outcome = train.replay(pool);
                train.undo(undo)?;
                trials.named(&compiled, op, outcome, "in its call");
            }
        }
        trials.about = "moved addresses named with op and layer".into();
        Ok(trials)
    }

    /// Many replays, twice: bit-equal, finite, and without the alternating magnitudes of a reused buffer.
    pub(super) fn endurance(&mut self, asked: Option<u64>) -> Result<Check, TrainError> {
        let started = Instant::now();
        self.steps(Executor::Replay, 20)?;
        let one = started.elapsed() / 20;
        let affordable = (STRESS.as_nanos() / one.as_nanos().max(1)) as u64;
        let (count, why) = replays(asked, affordable);
        let (first, magnitudes) = self.steps(Executor::Replay, count)?;
        let (second, _) = self.steps(Executor::Replay, count)?;
        let same = first == second;
        let finite = magnitudes.iter().all(|m| m.is_finite());
        // Updates that alternate when they are made op by op too are the network's own, not those of a reused buffer.
        let alternating = alternates(&magnitudes) && self.steps(Executor::Eager, count)?.0 != first;
        let (least, most) = magnitudes.iter().fold((f32::INFINITY, 0f32), |(a, b), &m| (a.min(m), b.max(m)));
        let span = if magnitudes.is_empty() { "none".to_owned() } else { format!("{least:.1e} to {most:.1e}") };
        let figures = format!(
            "{} ({why}) twice, {}; update magnitudes {span}, finite: {finite}, alternating: {alternating}",
            counted(count, "replay"),
            if same { "bit-equal" } else { "different" },
        );
        self.rewind()?;
        let wrong = [(!same, "two runs differ"), (!finite, NOT_FINITE), (alternating, "updates alternate")];
        let detail = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, what)| (what.to_owned(), None));
        Ok(Check::new(ENDURANCE, same && finite && !alternating, figures).detail(detail.collect()))
    }
}

/// A check that the ledger stopped has failed: a spoilt recording belongs in the report, with the call that the ledger
/// names, and is no error.
pub(super) fn or_failed(name: &str, outcome: Result<Check, TrainError>) -> Result<Check, TrainError> {
    match outcome {
        Err(TrainError::Exec(
            error @ (ExecError::Ledger { .. } | ExecError::ArenaMoved { .. } | ExecError::Graph { .. }),
        )) => {
            let culprit = if let ExecError::Ledger { op, .. } = &error { Some(Culprit::Op(*op)) } else { None };
            let lines = vec![(error.to_string(), culprit)];
            Ok(Check::new(name, false, "the recording is not the planned one".into()).detail(lines))
        }
        other => other,
    }
}

/// The check of a ledger that was silent: what it holds against the plan.
pub(super) fn held(step: &Step) -> Check {
    const NAME: &str = names::LEDGER;
    // What was recorded is what was planned: so the plan itself must be right, that of each recording for itself.
    if let Err(error) = referee::check(&step.compiled().plan) {
        let lines = vec![(error.to_string(), None)];
        return Check::new(NAME, false, "the plan that was recorded lets values be overwritten".into()).detail(lines);
    }
    let recording = step.recording();
    let figures = match step.capabilities().record {
        RecordedAs::Calls => format!(
            "{} of {} equal the plan's, compared at every replay",
            counted(recording.held_arguments as u64, "recorded address"),
            counted(recording.calls as u64, "call")
        ),
        RecordedAs::Graphs => format!(
            "at every replay: the base address of the memory, the graph's identity and the addresses of {} scalars \
             that it reads; {} addresses of one step were read from its nodes at capture",
            recording.live_constants, recording.held_arguments
        ),
    };
    Check::new(NAME, true, figures)
}

/// The check of `steps` steps that were made eagerly and replayed: what was in memory behind them, and which kernels
/// ran.
pub(super) fn compared(compiled: &Compiled, steps: u64, made: &[(StepImage, Vec<String>); 2]) -> Check {
    let [(eager, eager_trace), (replayed, replayed_trace)] = made;
    let same_kernels = eager_trace == replayed_trace;
    let plan = &compiled.plan;
    // Workspace is left out: what is there after a kernel is nobody's value.
    let kept = (0u32..).zip(&plan.buffers).filter(|(_, b)| b.role != crate::ir::Role::Workspace);
    let compared: Vec<Compared> = kept
        .filter(|(_, b)| still_there(plan, b))
        .map(|(id, b)| {
            let bytes = plan.value_bytes(BufferId(id));
            let pairs = eager.buffer(id as usize, bytes).iter().zip(replayed.buffer(id as usize, bytes));
            let different = pairs.filter(|(a, b)| a != b).count() as u64;
            Compared { buffer: BufferId(id), name: b.name.clone(), bytes, different }
        })
        .collect();
    let mut wrong: Vec<&Compared> = compared.iter().filter(|c| c.different > 0).collect();
    wrong.sort_by_key(|c| plan.buffer(c.buffer).writers.first().copied());
    let line = |c: &&Compared| {
        let writer = plan.buffer(c.buffer).writers.first().copied();
        let op = writer.map_or_else(
            || "no op".to_owned(),
            |o| format!("op {o} {} of {}", compiled.selection.choices[o].kernel, compiled.owner(o)),
        );
        let text = format!("{} differs in {} of {} bytes; first written by {op}", c.name, c.different, c.bytes);
        (text, writer.map(Culprit::Op))
    };
    let detail: Vec<(String, Option<Culprit>)> = wrong.iter().take(8).map(line).collect();
    let figures = format!(
        "{}, {} bit-equal: {}, kernel traces equal: {same_kernels} ({})",
        counted(steps, "step"),
        counted(compared.len() as u64, "buffer"),
        wrong.is_empty(),
        counted(eager_trace.len() as u64, "call")
    );
    let passed = wrong.is_empty() && same_kernels;
    Check { compared, ..Check::new(names::EAGER_AGAINST_REPLAY, passed, figures).detail(detail) }
}

/// Whether a buffer's bytes are still its own at the end of the step: nobody who lives later overlaps it.
pub(super) fn still_there(plan: &crate::plan::BindingPlan, b: &crate::plan::Buffer) -> bool {
    let overlaps = |o: &crate::plan::Buffer| o.offset < b.offset + b.bytes && b.offset < o.offset + o.bytes;
    b.persistent || !plan.buffers.iter().any(|o| o.live[0] >= b.live[1] && overlaps(o))
}

/// True where every second magnitude is at least ten times its neighbours over most of the run: an output that was
/// allocated while recording and reused.
fn alternates(magnitudes: &[f32]) -> bool {
    if magnitudes.len() < 8 {
        return false;
    }
    let jump = |w: &[f32]| w[1] > 10.0 * w[0] && w[1] > 10.0 * w[2];
    let jumps = magnitudes.windows(3).filter(|w| jump(w)).count();
    jumps * 4 > magnitudes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_replays_is_that_of_their_number_or_of_the_time_they_are_given() {
        assert_eq!((endurance_cost(Some(1_000_000), 20.0), endurance_cost(None, 20.0)), (40.0, 12.0));
        // However long a step is, some are made.
        assert_eq!(endurance_cost(None, 1e6), 40.0);
    }

    #[test]
    fn the_number_of_replays_has_a_reason() {
        let of = |asked: Option<u64>, affordable: u64| replays(asked, affordable);
        assert_eq!(of(Some(7), 61), (7, "the given number".to_owned()));
        assert_eq!(of(None, 1 << 20), (10_000, "the most without --replays".to_owned()));
        assert_eq!(of(None, 61), (61, "as many as take 6 s; --replays sets another number".to_owned()));
        assert_eq!(of(None, 3), (20, "the least, though they take 6 s or more".to_owned()));
    }

    #[test]
    fn alternating_magnitudes_are_recognised() {
        let bad: Vec<f32> = (0..40).map(|i| if i % 2 == 0 { 6e-2 } else { 1e-4 }).collect();
        let good: Vec<f32> = (0..40).map(|i| 1e-3 / (1.0 + i as f32)).collect();
        assert!(alternates(&bad) && !alternates(&good) && !alternates(&bad[..5]));
    }
}
