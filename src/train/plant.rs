//! Injects faults into the sessions that a thread makes, for tests: `verify` must find each of them.
//!
//! A fault exists while a [`Planted`] is alive, for its own thread, and nowhere else. Faults in kernels and plans of a
//! CPU's step are in `exec::cpu::plant`.

use super::{DataFeed, FeedPosition, StepReport, TrainError};
use crate::exec::cpu::plant::Planted;
use crate::exec::{MemoryOf, Step};
use crate::model::{Model, ParamId};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// A fault in a session.
#[derive(Clone, Copy)]
pub enum Plant {
    /// In the feed, once it was made.
    Feed(fn(&mut DataFeed)),
    /// In the report of a step.
    Report(fn(&mut StepReport)),
    /// In the samples of an evaluation; the second argument is the size of a batch.
    HeldOut(fn(&mut Vec<u32>, usize)),
    /// In the number of samples that an evaluation divides by; the second argument is the size of a batch.
    Divisor(fn(usize, usize) -> usize),
    /// The evaluation uses the parameters from when it was made.
    StaleEvaluation,
    /// The evaluation runs the path of this step of a run.
    EvaluationPath(u64),
    /// Every step that differs from the first one uses the recording of the first.
    OtherRecording,
    /// A recording that was dropped is found again as that of another kind of step.
    OtherAfterEviction,
    /// A checkpoint lacks the values whose names begin so, and nobody misses them.
    Forgets(&'static str),
    /// A resumed run starts with the first batch.
    ForgetsPosition,
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

impl Plant {
    /// Injects the fault for as long as the result lives.
    #[must_use]
    pub fn planted(self) -> Planted<Self> {
        Planted::new(&PLANTED, self)
    }
}

/// Changes the feed of a new session.
pub(super) fn change_feed(feed: &mut DataFeed) {
    if let Some(Plant::Feed(change)) = PLANTED.get() {
        change(feed);
    }
}

/// The change of the reports of a new session.
pub(super) fn report_change() -> Option<fn(&mut StepReport)> {
    match PLANTED.get() {
        Some(Plant::Report(change)) => Some(change),
        _ => None,
    }
}

/// The samples of an evaluation in batches of `batch`.
pub(super) fn held_out(indices: &[u32], batch: usize) -> Cow<'_, [u32]> {
    let Some(Plant::HeldOut(change)) = PLANTED.get() else { return Cow::Borrowed(indices) };
    let mut changed = indices.to_vec();
    change(&mut changed, batch);
    Cow::Owned(changed)
}

/// The number of samples that an evaluation divides by.
pub(super) fn divisor(samples: usize, batch: usize) -> usize {
    match PLANTED.get() {
        Some(Plant::Divisor(change)) => change(samples, batch),
        _ => samples,
    }
}

/// A copy of the step whose parameters an evaluation would share.
pub(super) fn stale_owner(owner: &Step) -> Result<Option<Step>, TrainError> {
    let (Some(Plant::StaleEvaluation), MemoryOf::Host) = (PLANTED.get(), owner.capabilities().memory) else {
        return Ok(None);
    };
    let mut copy = Step::new(Arc::clone(owner.compiled()), 1)?;
    for index in 0..owner.compiled().model.params.len() {
        let id = ParamId(index as u32);
        copy.set_param(id, &owner.param::<f32>(id)?)?;
    }
    Ok(Some(copy))
}

/// The network that an evaluation runs.
pub(super) fn evaluated(model: &Model) -> Cow<'_, Model> {
    match PLANTED.get() {
        Some(Plant::EvaluationPath(step)) => Cow::Owned(model.along(&model.path_at(step, 0))),
        _ => Cow::Borrowed(model),
    }
}

/// Whether all steps use the recording of the first one.
pub(super) fn takes_other_recording() -> bool {
    matches!(PLANTED.get(), Some(Plant::OtherRecording))
}

/// Whether a recording that was dropped is found again as another one.
pub(super) fn takes_other_after_eviction() -> bool {
    matches!(PLANTED.get(), Some(Plant::OtherAfterEviction))
}

/// Whether a checkpoint leaves a value out.
pub(super) fn forgets(name: &str) -> bool {
    matches!(PLANTED.get(), Some(Plant::Forgets(start)) if name.starts_with(start))
}

/// Where a resumed run continues.
pub(super) fn resumed_at(position: FeedPosition) -> FeedPosition {
    match (PLANTED.get(), position) {
        (Some(Plant::ForgetsPosition), FeedPosition::Data(_)) => FeedPosition::Data(crate::data::Position::default()),
        (Some(Plant::ForgetsPosition), FeedPosition::Batches(_)) => FeedPosition::Batches(0),
        _ => position,
    }
}
