//! A run that is written to a checkpoint and resumed by another session must continue as if it had never stopped.

use super::Check;
use super::options::{VerifyOptions, is_shortage, no_room, session_spec};
use super::replay::ReplayHarness;
use super::training::{Logged, make};
use crate::model::{DataSpec, Preset};
use crate::plan::StateKind;
use crate::tensor::{Bytes, counted};
use crate::train::{Purpose, Session, SessionSpec, Start, TrainError};
use std::path::Path;
use std::time::Duration;

pub(super) const NAME: &str = super::names::RESUMED;

/// Steps before the checkpoint and after it; fewer where a step is long.
const STEPS: u64 = 7;
const FEW: u64 = 2;
/// What those steps may take.
const BUDGET: Duration = Duration::from_secs(1);
/// A larger state is not written for a check.
const MOST_BYTES: u64 = 1 << 30;

/// What the session did that was not interrupted, after its checkpoint.
struct Uninterrupted {
    /// Steps before the checkpoint, and after it.
    count: u64,
    /// Steps of the whole run.
    total: u64,
    logged: Vec<Logged>,
    state: Vec<u8>,
}

impl ReplayHarness<'_> {
    /// Steps, a checkpoint, and more steps in this session and in a new one that resumes: reports and state must be
    /// equal, bit for bit.
    pub(super) fn resumed_run(&mut self, preset: &Preset, options: &VerifyOptions) -> Result<Check, TrainError> {
        let folder = tempfile::tempdir().map_err(|cause| TrainError::Write { path: std::env::temp_dir(), cause })?;
        let path = folder.path().join("resumed.safetensors");
        let expected = match self.uninterrupted_in_shapes(preset, options, &path)? {
            Ok(expected) => expected,
            Err(why) => return Ok(Check::skipped(NAME, &why)),
        };
        let spec = SessionSpec {
            start: Start::from_checkpoint(path),
            purpose: Purpose::Train,
            ..session_spec(preset, options)
        };
        let resumed = match Session::prepare(&spec) {
            Ok(session) => session,
            Err(error) if is_shortage(&error) => return Ok(Check::skipped(NAME, &no_room(&error))),
            Err(TrainError::Cancelled) => return Err(TrainError::Cancelled),
            Err(error) => {
                let lines = vec![(error.to_string(), None)];
                return Ok(Check::new(NAME, false, "the checkpoint cannot be resumed".into()).detail(lines));
            }
        };
        self.compared_with(resumed, &expected)
    }

    /// As [`Self::uninterrupted`]. The other checks use whole batches. If the batches of the run are not all whole, a
    /// separate session is trained with the run's own batch sizes, as the resumed session will be.
    fn uninterrupted_in_shapes(
        &mut self,
        preset: &Preset,
        options: &VerifyOptions,
        path: &Path,
    ) -> Result<Result<Uninterrupted, String>, TrainError> {
        let may_differ = options.batches.is_some() || preset.data.as_ref().is_some_and(DataSpec::has_varied_steps);
        // Before the sessions are exchanged: a step of whole batches is timed.
        let one = self.one_step()?;
        if !may_differ || options.anyway {
            return self.uninterrupted(preset, path, one);
        }
        let own = match Session::prepare(&SessionSpec { purpose: Purpose::Train, ..session_spec(preset, options) }) {
            Ok(session) if !session.feed.varies() => return self.uninterrupted(preset, path, one),
            Ok(session) => session,
            Err(error) if is_shortage(&error) => return Ok(Err(no_room(&error))),
            Err(error) => return Err(error),
        };
        let verified = std::mem::replace(&mut self.session, own);
        let outcome = self.uninterrupted(preset, path, one);
        self.session = verified;
        outcome
    }

    /// Makes steps, each of which takes about as long as `one`, writes a checkpoint at `path`, and makes as many steps
    /// more. The inner error says why there is nothing to compare.
    fn uninterrupted(
        &mut self,
        preset: &Preset,
        path: &Path,
        one: Duration,
    ) -> Result<Result<Uninterrupted, String>, TrainError> {
        let bytes = self.session.compiled().plan.persistent_bytes;
        if bytes > MOST_BYTES {
            let (size, most) = (Bytes(bytes), Bytes(MOST_BYTES));
            return Ok(Err(format!("a checkpoint takes about {size}, and this check writes at most {most}")));
        }
        let mut count = if one * 3 * STEPS as u32 > BUDGET { FEW } else { STEPS };
        if let Some(limit) = self.limit() {
            count = count.min(limit / 2);
        }
        if count == 0 {
            return Ok(Err("one batch is too few to stop and continue".into()));
        }
        self.begin_run()?;
        if let Some(why) = make(&mut self.session, count, &mut Vec::new())? {
            return Ok(Err(format!("the run diverges before its checkpoint: {why}")));
        }
        // The user may change the rate: it must be kept too.
        let lr = self.session.lr()?;
        self.session.set_lr(lr / 2.0)?;
        match self.session.save_checkpoint(path, preset) {
            Err(TrainError::Write { cause, .. }) => {
                return Ok(Err(format!("a checkpoint could not be written: {cause}")));
            }
            Err(error @ TrainError::Diverged { .. }) => {
                return Ok(Err(format!("the run diverges before its checkpoint: {error}")));
            }
            written => written?,
        }
        let mut logged = Vec::new();
        let ended = make(&mut self.session, count, &mut logged)?;
        let (total, state) = (self.session.total, self.session.train.snapshot()?);
        let state = self.compared_part(state, self.session.feed.varies());
        self.rewind()?;
        Ok(match ended {
            Some(why) => Err(format!("the run diverges after its checkpoint: {why}")),
            None => Ok(Uninterrupted { count, total, logged, state }),
        })
    }

    /// Has a resumed session make the same steps, and compares them.
    fn compared_with(&self, mut resumed: Session, expected: &Uninterrupted) -> Result<Check, TrainError> {
        let Uninterrupted { count, total, logged: expected, state } = expected;
        resumed.total = *total;
        let first = resumed.done + 1;
        let mut found = Vec::new();
        let ended = make(&mut resumed, *count, &mut found)?;
        let mut wrong = Vec::new();
        if first != count + 1 {
            wrong.push((format!("it continues with step {first} instead of {}", count + 1), None));
        }
        wrong.extend(found.iter().zip(expected).filter_map(|(f, e)| f.difference(e)).take(3).map(|text| (text, None)));
        if found.len() != expected.len() {
            let why = ended.map_or_else(String::new, |why| format!(": {why}"));
            wrong.push((
                format!("{} made instead of {}{why}", counted(found.len() as u64, "step"), expected.len()),
                None,
            ));
        }
        let after = self.compared_part(resumed.train.snapshot()?, resumed.feed.varies());
        let different = after.iter().zip(state).filter(|(a, b)| a != b).count();
        if different > 0 && found.len() == expected.len() {
            wrong.push((self.first_difference(&after, state), None));
        }
        let steps = counted(*count, "step");
        let figures = format!(
            "{steps}, a checkpoint, {steps} more{} without a stop and in a new session: \
             {different} of {} bytes of the state differ",
            self.paths_taken(2 * count),
            state.len()
        );
        Ok(Check::new(NAME, wrong.is_empty(), figures).detail(wrong))
    }

    /// The part of a state that must be equal. If steps differ (in their paths or, if the feed `varies`, in the samples
    /// and positions that they use), buffers that every step writes before reading are excluded: after a step of
    /// another kind they still hold stale values.
    fn compared_part(&self, mut state: Vec<u8>, varies: bool) -> Vec<u8> {
        if !varies && !self.session.model.chooses() {
            return state;
        }
        let plan = &self.session.compiled().plan;
        state.truncate(plan.persistent_bytes as usize);
        for buffer in plan.buffers.iter().filter(|b| b.persistent && !b.is_external()) {
            let is_made_anew = buffer.key.as_ref().is_some_and(|key| {
                use StateKind::{Batch, BiasCorrection, Gradient, Half, Metric};
                matches!(key.kind, Batch | BiasCorrection | Gradient | Half | Metric)
            });
            let bytes = buffer.offset as usize..(buffer.offset + buffer.bytes) as usize;
            if let Some(bytes) = state.get_mut(bytes).filter(|_| is_made_anew) {
                bytes.fill(0);
            }
        }
        state
    }
}
