//! A run that is written to a checkpoint and resumed by another session must continue as if it had never stopped.

use super::Check;
use super::options::{VerifyOptions, session_spec};
use super::replay::ReplayHarness;
use super::training::{Logged, make};
use crate::exec::ExecError;
use crate::model::Preset;
use crate::tensor::Bytes;
use crate::train::{Purpose, Session, SessionSpec, TrainError};
use std::path::Path;
use std::time::Duration;

pub(super) const NAME: &str = "a resumed run";

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
    logged: Vec<Logged>,
    state: Vec<u8>,
}

impl ReplayHarness<'_> {
    /// Steps, a checkpoint, and more steps in this session and in a new one that resumes: reports and state must be
    /// equal, bit for bit.
    pub(super) fn resumed_run(&mut self, preset: &Preset, options: &VerifyOptions) -> Result<Check, TrainError> {
        let folder = tempfile::tempdir().map_err(|cause| TrainError::Write { path: std::env::temp_dir(), cause })?;
        let path = folder.path().join("resumed.safetensors");
        let expected = match self.uninterrupted(preset, &path)? {
            Ok(expected) => expected,
            Err(why) => return Ok(Check::skipped(NAME, &why)),
        };
        let spec = SessionSpec { resume: Some(path), purpose: Purpose::Train, ..session_spec(preset, options) };
        let resumed = match Session::prepare(&spec) {
            Ok(session) => session,
            Err(error @ (TrainError::Shortage(_) | TrainError::Exec(ExecError::OutOfMemory { .. }))) => {
                return Ok(Check::skipped(NAME, &format!("there is no room for a second session: {error}")));
            }
            Err(TrainError::Cancelled) => return Err(TrainError::Cancelled),
            Err(error) => {
                let lines = vec![(error.to_string(), None)];
                return Ok(Check::new(NAME, false, "the checkpoint cannot be resumed".into()).detail(lines));
            }
        };
        self.compared_with(resumed, &expected)
    }

    /// Makes steps, writes a checkpoint at `path`, and makes as many steps more. The inner error says why there is
    /// nothing to compare.
    fn uninterrupted(&mut self, preset: &Preset, path: &Path) -> Result<Result<Uninterrupted, String>, TrainError> {
        let bytes = self.session.compiled().plan.persistent_bytes;
        if bytes > MOST_BYTES {
            return Ok(Err(format!("a checkpoint takes about {}", Bytes(bytes))));
        }
        let mut count = if self.one_step()? * 3 * STEPS as u32 > BUDGET { FEW } else { STEPS };
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
        // A person may change the rate: it must be kept too.
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
        let state = self.session.train.snapshot()?;
        self.rewind()?;
        Ok(match ended {
            Some(why) => Err(format!("the run diverges after its checkpoint: {why}")),
            None => Ok(Uninterrupted { count, logged, state }),
        })
    }

    /// Has a resumed session make the same steps, and compares them.
    fn compared_with(&self, mut resumed: Session, expected: &Uninterrupted) -> Result<Check, TrainError> {
        let Uninterrupted { count, logged: expected, state } = expected;
        resumed.total = self.session.total;
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
            wrong.push((format!("{} steps were made instead of {}{why}", found.len(), expected.len()), None));
        }
        let after = resumed.train.snapshot()?;
        let different = after.iter().zip(state).filter(|(a, b)| a != b).count();
        if different > 0 && found.len() == expected.len() {
            wrong.push((self.first_difference(&after, state), None));
        }
        let figures = format!(
            "{count} steps, a checkpoint, {count} steps more without a stop and in a new session: \
             {different} of {} bytes of the state differ",
            state.len()
        );
        Ok(Check::new(NAME, wrong.is_empty(), figures).detail(wrong))
    }
}
