//! A private copy of a run for reading values: the first operations of a step run in separate memory, and any buffer
//! can be read.
//!
//! The run itself is never changed. A copy starts from a [`Snapshot`]: the initial weights, or the state of the run
//! before its next step, with the position in the data; so the copy makes exactly the step that the run will make.

use super::summary::Summary;
use super::{FeedPosition, PlanKey, Purpose, Session, SessionSpec, TrainError};
use crate::compile::Compiled;
use crate::exec::cpu::{Ceilings, Floor};
use crate::exec::{ExecError, Executor};
use crate::lower::LValueId;
use crate::ops::Dir;
use crate::plan::{BindingPlan, BufferId};
use crate::select::{Choice, Isa, Kernels};
use crate::tensor::DType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Everything that the next step of a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number of steps made before it.
    pub step: u64,
    plan: PlanKey,
    bytes: Vec<u8>,
    position: FeedPosition,
}

impl Session {
    /// A copy of everything that the next step depends on.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot(&mut self) -> Result<Snapshot, TrainError> {
        let (step, position) = (self.done, self.feed.position());
        Ok(Snapshot { step, plan: self.plan_key(), bytes: self.train.snapshot()?, position })
    }
}

impl Snapshot {
    /// True if the snapshot belongs to a step with the same values in the same places.
    #[must_use]
    fn belongs_to(&self, plan: PlanKey) -> bool {
        self.plan == plan
    }
}

/// The contents of a buffer after some operations of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A value, and the operation that wrote it last; `None` if it existed before the step.
    Value(LValueId, Option<usize>),
    /// Nothing was written to it yet.
    Unwritten,
    /// It is no longer alive: its bytes may hold something else.
    Freed { last: usize },
    /// Scratch memory, which holds no value of the network.
    Scratch,
}

/// The contents of buffer `id` once the first `ops` operations are done.
#[must_use]
pub fn held(plan: &BindingPlan, id: BufferId, ops: usize) -> Held {
    let Some(b) = plan.buffers.get(id.0 as usize) else { return Held::Unwritten };
    let Some(&first) = b.values.first() else { return Held::Scratch };
    if !b.persistent && ops > b.live[1] {
        return Held::Freed { last: b.live[1].saturating_sub(1) };
    }
    let lies_here = |v: LValueId| plan.place(v).is_some_and(|p| p.buffer == id);
    let written = b.writers.iter().rev().filter(|w| **w < ops).find_map(|&w| {
        let op = plan.program.ops.get(w)?;
        let value = op.bound(Dir::Out).map(|(_, v)| v).find(|v| lies_here(*v))?;
        Some((value, w))
    });
    match written {
        // An optimizer writes slices of a flat vector one by one; the user views the whole vector.
        Some((_, w)) if !b.parts.is_empty() => Held::Value(first, Some(w)),
        Some((value, w)) => Held::Value(value, Some(w)),
        None if b.persistent => Held::Value(first, None),
        None => Held::Unwritten,
    }
}

/// The contents of a part of a flat vector once the first `ops` operations are done, like [`held`] for a whole buffer.
#[must_use]
pub fn held_part(plan: &BindingPlan, id: BufferId, part: usize, ops: usize) -> Held {
    let whole = held(plan, id, ops);
    let Some((buffer, own)) = plan.buffers.get(id.0 as usize).and_then(|b| Some((b, b.parts.get(part)?))) else {
        return whole;
    };
    let written = plan.ops_of_part(id, part, Dir::Out).into_iter().rfind(|w| *w < ops);
    match whole {
        Held::Value(..) if written.is_none() && !buffer.persistent => Held::Unwritten,
        Held::Value(..) => Held::Value(own.value, written),
        other => other,
    }
}

/// The first operation of a step whose result is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstBad {
    /// `None` if the batch itself or a value that existed before the step is not finite.
    pub op: Option<usize>,
    pub value: LValueId,
    pub name: String,
    pub buffer: BufferId,
}

/// A private copy of a step.
pub struct Probe {
    session: Session,
    start: Snapshot,
    initial: Snapshot,
    done_ops: usize,
}

impl Probe {
    /// A copy of the run that `spec` describes, before its first step.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn new(spec: &SessionSpec) -> Result<Self, TrainError> {
        let mut session = Session::prepare(&SessionSpec { purpose: Purpose::Inspect, ..spec.clone() })?;
        let initial = session.snapshot()?;
        let mut out = Self { session, start: initial.clone(), initial, done_ops: 0 };
        out.rewind()?;
        Ok(out)
    }

    /// The results of the compiler for the step.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        self.session.compiled()
    }

    /// Starts from another snapshot, or from the initial weights. Returns false if the snapshot belongs to another
    /// plan; then nothing changes.
    ///
    /// # Errors
    /// If the device fails.
    pub fn start_from(&mut self, snapshot: Option<&Snapshot>) -> Result<bool, TrainError> {
        let snapshot = snapshot.unwrap_or(&self.initial);
        if !snapshot.belongs_to(self.session.plan_key()) {
            return Ok(false);
        }
        self.start = snapshot.clone();
        self.rewind()?;
        Ok(true)
    }

    /// The number of steps that the run had made at the copy's start.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.start.step
    }

    /// Returns to the copy's start; if several batches make one step, to its last batch.
    fn rewind(&mut self) -> Result<(), TrainError> {
        let Session { train, feed, pool, .. } = &mut self.session;
        train.restore(&self.start.bytes)?;
        feed.resume(self.start.position)?;
        for number in 0..train.batches() - 1 {
            feed.next(train)?;
            train.run_batch(number, Executor::Replay, pool)?;
        }
        feed.next(train)?;
        self.done_ops = 0;
        Ok(())
    }

    /// Runs operations until exactly the first `ops` are done; starts again if more were done before.
    ///
    /// # Errors
    /// If a kernel is missing.
    pub fn advance_to(&mut self, ops: usize) -> Result<(), TrainError> {
        let ops = ops.min(self.compiled().plan.program.ops.len());
        if ops < self.done_ops {
            self.rewind()?;
        }
        self.session.train.run_ops(self.done_ops, ops, &mut self.session.pool)?;
        self.session.train.synchronize()?;
        self.done_ops = ops;
        Ok(())
    }

    /// Reads a value from memory, and summarises it with the pictures of one slice.
    ///
    /// # Errors
    /// If the plan gives the value no memory.
    pub fn look(&self, value: LValueId, slice: usize) -> Result<Summary, TrainError> {
        Ok(Summary::of(&self.session.train.tensor(value)?, slice))
    }

    /// Makes the whole step op by op and returns the first value that is not finite; afterwards the copy is at that
    /// operation.
    ///
    /// # Errors
    /// If a kernel is missing.
    pub fn first_bad(&mut self) -> Result<Option<FirstBad>, TrainError> {
        self.rewind()?;
        let compiled = Arc::clone(self.compiled());
        let plan = &compiled.plan;
        let found = |op: Option<usize>, value: LValueId| {
            let place = plan.place(value)?;
            Some(FirstBad { op, value, name: plan.program.value(value).name.clone(), buffer: place.buffer })
        };
        let before = plan.buffers.iter().filter(|b| b.persistent).filter_map(|b| b.values.first());
        for &value in before {
            if !self.is_finite(value)? {
                return Ok(found(None, value));
            }
        }
        for (index, op) in plan.program.ops.iter().enumerate() {
            self.advance_to(index + 1)?;
            for (_, value) in op.bound(Dir::Out) {
                if !self.is_finite(value)? {
                    return Ok(found(Some(index), value));
                }
            }
        }
        Ok(None)
    }

    fn is_finite(&self, value: LValueId) -> Result<bool, ExecError> {
        let kind = self.compiled().plan.program.value(value).dtype;
        if !matches!(kind, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
            || self.compiled().plan.place(value).is_none()
        {
            return Ok(true);
        }
        let tensor = self.session.train.tensor(value)?;
        Ok(tensor.to_f64().is_none_or(|v| v.iter().all(|x| x.is_finite())))
    }
}

/// The measured and the least times of a step's operations.
#[derive(Clone, Debug)]
pub struct OpTimes {
    /// The median of each operation, timed separately, in microseconds, in the order of the plan.
    pub op_us: Vec<f64>,
    /// The same with kernels that are compiled for its sizes, if those of the plan work for any size.
    pub own_sizes_us: Option<Vec<f64>>,
    /// The least time of each operation: a lower bound by the machine's highest rates (roofline model).
    pub floors: Vec<Floor>,
    /// The median of a whole replay, in microseconds.
    pub replay_us: f64,
    /// The measured highest rates of a CPU; `None` on a GPU.
    pub ceilings: Option<Ceilings>,
    /// The number of times that each operation was run.
    pub rounds: usize,
}

/// The total time for timing the operations, in microseconds.
const TIMED_US: f64 = 300_000.0;

/// Times every operation of the step that `spec` describes, on a batch that stays in memory, and measures the machine's
/// highest rates; those in `known` are used if they are higher. If its kernels work for any size, those for its sizes
/// are compiled and timed too, if that is possible. Takes about two seconds, and longer if kernels must be compiled.
///
/// # Errors
/// As [`Session::prepare`].
pub fn measure_ops(spec: &SessionSpec, known: Option<Ceilings>) -> Result<OpTimes, TrainError> {
    let mut session = Session::prepare(&SessionSpec { purpose: Purpose::Time, ..spec.clone() })?;
    let compiled = Arc::clone(session.compiled());
    let start = session.train.snapshot()?;
    let (step, pool) = session.step_mut();
    let mut replays = Vec::new();
    let began = Instant::now();
    while replays.len() < 5 || (began.elapsed().as_secs_f64() * 1e6 < TIMED_US / 3.0 && replays.len() < 400) {
        let started = Instant::now();
        step.replay(pool)?;
        step.synchronize()?;
        replays.push(started.elapsed().as_secs_f64() * 1e6);
    }
    replays.sort_by(f64::total_cmp);
    let replay_us = replays[replays.len() / 2];
    step.restore(&start)?;
    let rounds = (TIMED_US / replay_us.max(1.0)).clamp(3.0, 200.0) as usize;
    let isa: Option<Isa> = compiled.selection.target.as_cpu().map(|c| c.isa);
    // Measured before and after: a busy machine is probably not busy both times.
    let before = isa.map(|isa| Ceilings::measure(isa, pool));
    let op_us = step.time_calls(rounds, pool)?;
    let after = isa.map(|isa| Ceilings::measure(isa, pool));
    let measured = [before, known].into_iter().flatten();
    let ceilings = after.map(|after| measured.fold(after, |best, one| best.or_better(&one)));
    let choices = &compiled.selection.choices;
    let floors = match (step.floors()?, &ceilings) {
        (Some(floors), _) => floors,
        (None, Some(c)) => {
            // The rates are the best of a few rounds. An operation that is faster has shown a higher one.
            let of = |(k, us): (&Choice, &f64)| c.floor(k.least_flops, k.bytes).at_most(*us);
            choices.iter().zip(&op_us).map(of).collect()
        }
        (None, None) => Vec::new(),
    };
    drop(session);
    let own_sizes_us = with_own_sizes(spec, &compiled, rounds).unwrap_or_else(|error| {
        log::warn!("operations were not timed with kernels for their sizes: {error}");
        None
    });
    Ok(OpTimes { op_us, own_sizes_us, floors, replay_us, ceilings, rounds })
}

/// Times the operations of the same plan with kernels that are compiled for its sizes, if its kernels work for any.
fn with_own_sizes(spec: &SessionSpec, compiled: &Compiled, rounds: usize) -> Result<Option<Vec<f64>>, TrainError> {
    let target = &compiled.selection.target;
    if target.as_cuda().is_none() || !target.kernels.are_general() {
        return Ok(None);
    }
    let machine = Some(target.clone().with_kernels(Kernels::Interchangeable));
    let mut session = Session::prepare(&SessionSpec { purpose: Purpose::Time, machine, ..spec.clone() })?;
    let (step, pool) = session.step_mut();
    step.replay(pool)?;
    step.synchronize()?;
    Ok(Some(step.time_calls(rounds, pool)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BUNDLED, read_preset};
    use crate::train::DataChoice;

    fn spec() -> SessionSpec {
        let text = BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text;
        SessionSpec { threads: 1, ..SessionSpec::new(read_preset(text).unwrap(), ".".into()) }
    }

    #[test]
    fn the_copy_makes_the_same_step_as_the_run() {
        let mut run = Session::prepare(&spec()).unwrap();
        for _ in 0..3 {
            run.step().unwrap();
        }
        let snapshot = run.snapshot().unwrap();
        let report = run.step().unwrap().unwrap();
        let mut probe = Probe::new(&spec()).unwrap();
        let loss = probe.session.train.find("loss").unwrap();
        let ops = probe.compiled().plan.program.ops.len();
        assert!(probe.start_from(Some(&snapshot)).unwrap());
        probe.advance_to(ops).unwrap();
        assert_eq!(probe.look(loss, 0).unwrap().statistics.mean, f64::from(report.loss));
        assert_eq!(probe.step(), 3);
        // Running backwards and forwards again gives the same result.
        probe.advance_to(1).unwrap();
        probe.advance_to(ops).unwrap();
        assert_eq!(probe.look(loss, 0).unwrap().statistics.mean, f64::from(report.loss));
        assert_eq!(probe.first_bad().unwrap(), None);
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_found_with_its_op() {
        let mut probe = Probe::new(&spec()).unwrap();
        let bias = probe.session.train.find("layers.2.bias").unwrap();
        let len = probe.session.train.stored::<f32>(bias).unwrap().len();
        // A weight large enough that the logits overflow, although it is finite.
        probe.session.train.write(bias, &vec![f32::MAX; len]).unwrap();
        let weight = probe.session.train.find("layers.2.weight").unwrap();
        let len = probe.session.train.stored::<f32>(weight).unwrap().len();
        probe.session.train.write(weight, &vec![f32::MAX; len]).unwrap();
        probe.start = probe.session.snapshot().unwrap();
        probe.start.position = probe.initial.position;
        let bad = probe.first_bad().unwrap().expect("an overflow");
        let op = bad.op.expect("an operation made it");
        assert_eq!(probe.compiled().owner(op), "L2:Dense");
        probe.advance_to(op + 1).unwrap();
        assert!(probe.look(bad.value, 0).unwrap().first_bad.is_some());
    }

    #[test]
    fn a_buffer_holds_what_was_written_last() {
        let probe = Probe::new(&spec()).unwrap();
        let plan = &probe.compiled().plan;
        let ops = plan.program.ops.len();
        for (id, b) in (0u32..).map(BufferId).zip(&plan.buffers) {
            match held(plan, id, ops) {
                Held::Value(_, Some(w)) => assert!(b.writers.contains(&w), "{}", b.name),
                Held::Value(_, None) => assert!(b.persistent && b.writers.is_empty(), "{}", b.name),
                Held::Freed { last } => assert!(!b.persistent && last < ops, "{}", b.name),
                Held::Scratch => assert!(b.values.is_empty()),
                Held::Unwritten => panic!("{} is never written", b.name),
            }
            if !b.persistent && b.live[0] > 0 && !b.values.is_empty() {
                assert_eq!(held(plan, id, 0), Held::Unwritten, "{}", b.name);
            }
        }
    }

    #[test]
    fn a_part_of_a_flat_vector_names_the_operation_that_wrote_it() {
        let probe = Probe::new(&spec()).unwrap();
        let plan = &probe.compiled().plan;
        let ops = plan.program.ops.len();
        let flat = (0u32..).map(BufferId).zip(&plan.buffers).filter(|(_, b)| b.parts.len() > 1);
        let mut gradients = 0;
        for (id, b) in flat {
            let end = if b.persistent { ops } else { b.live[1] };
            for (index, part) in b.parts.iter().enumerate() {
                let Held::Value(value, Some(writer)) = held_part(plan, id, index, end) else { continue };
                assert_eq!(value, part.value);
                assert!(b.writers.contains(&writer));
                if b.role == crate::ir::Role::Grad {
                    let op = &plan.program.ops[writer];
                    assert_eq!(op.layer, part.layer, "{} by {}", part.name, op.kind.name());
                    gradients += 1;
                }
                let before = held_part(plan, id, index, 0);
                assert_eq!(before, if b.persistent { Held::Value(part.value, None) } else { Held::Unwritten });
                // Its neighbours may be written before it.
                if b.role == crate::ir::Role::Grad {
                    assert_eq!(held_part(plan, id, index, writer), Held::Unwritten, "{}", part.name);
                }
            }
        }
        assert!(gradients >= 4, "{gradients}");
    }

    #[test]
    fn every_operation_is_timed_and_has_a_floor() {
        let times = measure_ops(&SessionSpec { data: DataChoice::Resident, ..spec() }, None).unwrap();
        assert_eq!(times.op_us.len(), times.floors.len());
        assert!(times.op_us.iter().all(|t| *t >= 0.0) && times.replay_us > 0.0 && times.ceilings.is_some());
        let pairs = || times.op_us.iter().zip(&times.floors);
        assert!(pairs().all(|(us, floor)| floor.us > 0.0 && floor.us <= *us), "{times:?}");
        // Few operations, if any, reach their floor, which follows from the highest measured rates.
        let reached = pairs().filter(|(us, floor)| floor.us == **us).count();
        assert!(reached * 4 < times.op_us.len(), "{reached} of {:?}", times.floors);
    }
}
