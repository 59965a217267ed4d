//! Checks of every recording of a run whose steps differ: of its paths, and of what its batches use.

use super::options::{VerifyOptions, is_shortage, no_room, session_spec};
use super::over_paths::{LONG, MOST, joined, over_each};
use super::replay::{ReplayHarness, STEPS, compared, held, or_failed};
use super::{Check, names};
use crate::exec::{Executor, GraphKey, StepImage};
use crate::ir::Share;
use crate::model::{DataSpec, Model, Preset};
use crate::train::step_cases::Case;
use crate::train::{DataFeed, Purpose, Session, SessionSpec, TrainError};
use std::sync::atomic::Ordering;

/// A check of the recording that a harness keeps.
type OfWhole = fn(&mut ReplayHarness<'_>) -> Result<Check, TrainError>;
/// A check of the recording that was chosen, from a state with a batch for it.
type OfChosen = fn(&mut ReplayHarness<'_>, &[u8]) -> Result<Check, TrainError>;

/// What is checked of the recording that updates the whole network, and of each of the others.
pub(super) struct OfEach {
    pub(super) name: &'static str,
    whole: OfWhole,
    chosen: OfChosen,
}

impl OfEach {
    /// Replays must leave the bits of eager execution.
    pub(super) const EAGER_AGAINST_REPLAY: Self = Self {
        name: names::EAGER_AGAINST_REPLAY,
        whole: |harness| harness.eager_against_replay(),
        chosen: |harness, start| harness.chosen_against_replay(start),
    };
    /// The ledger must be silent.
    pub(super) const LEDGER: Self = Self {
        name: names::LEDGER,
        whole: |harness| harness.ledger(),
        chosen: |harness, start| harness.ledger_of_chosen(start),
    };
}

impl ReplayHarness<'_> {
    /// A check of every recording of the run: of the whole network, and of the paths and shapes that its steps take
    /// first.
    pub(super) fn each_recording(
        &mut self,
        of: &OfEach,
        preset: &Preset,
        options: &VerifyOptions,
    ) -> Result<Check, TrainError> {
        let whole = self.recorded(of.name, of.whole)?;
        match self.session_of_shapes(preset, options)? {
            Shapes::Alike => self.others(whole, of, options.seed, None),
            Shapes::LeftOut(why) => self.others(whole, of, options.seed, Some(&why)),
            Shapes::Own(mut own) => {
                let start = own.train.snapshot()?;
                let before = (std::mem::replace(&mut self.session, *own), std::mem::replace(&mut self.start, start));
                let outcome = self.others(whole, of, options.seed, None);
                (self.session, self.start) = before;
                outcome
            }
        }
    }

    /// A session whose batches differ as those of a run do: checks use whole batches otherwise.
    pub(super) fn session_of_shapes(&self, preset: &Preset, options: &VerifyOptions) -> Result<Shapes, TrainError> {
        let may_differ = options.batches.is_some() || preset.data.as_ref().is_some_and(DataSpec::has_varied_steps);
        if !may_differ || options.anyway {
            return Ok(Shapes::Alike);
        }
        // A feed that has forgotten the lengths must be found.
        let has_buckets =
            options.batches.is_none() && preset.data.as_ref().is_some_and(|data| !data.buckets.is_empty());
        match Session::prepare(&SessionSpec { purpose: Purpose::Train, ..session_spec(preset, options) }) {
            Ok(own) if own.feed.varies() || has_buckets => Ok(Shapes::Own(Box::new(own))),
            Ok(_) => Ok(Shapes::Alike),
            Err(error) if is_shortage(&error) => Ok(Shapes::LeftOut(no_room(&error))),
            Err(error) => Err(error),
        }
    }

    /// The check of the whole network's recording together with those of the others.
    fn others(&mut self, whole: Check, of: &OfEach, seed: u64, left_out: Option<&str>) -> Result<Check, TrainError> {
        let Some(dispatch) = self.session.train.dispatch() else { return Ok(whole) };
        let planner = std::sync::Arc::clone(dispatch.planner());
        let mut cases = dispatch.cases();
        let are_all = dispatch.knows_all() && cases.len() <= MOST;
        cases.truncate(MOST);
        let buffers = whole.compared.clone();
        let mut whole = Some(whole);
        let mut check = over_each(&cases, are_all, "recording", LONG, |(case, step)| {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TrainError::Cancelled);
            }
            let key = planner.key(*case, *step)?;
            let name = name_of(&key, case, planner.model());
            // What the session keeps for itself was checked before.
            let check = match whole.take_if(|_| planner.is_whole(&key)) {
                Some(whole) => whole,
                None if planner.is_whole(&key) => Check::skipped(of.name, "it is checked with the whole step"),
                None => self.of_case(of, (*case, *step), seed)?,
            };
            Ok((name, check))
        })?;
        if let Some(whole) = whole {
            // No step of the run takes the path of evaluations.
            let checks = vec![("the whole step".to_owned(), whole), ("a run".to_owned(), check)];
            check = joined("the whole step and those of a run", checks);
        }
        check.compared = buffers;
        if let Some(why) = left_out {
            check.figures += &format!("; recordings of other shapes were left out: {why}");
        }
        self.rewind()?;
        Ok(check)
    }

    /// The check of the recording of a case, which is made where it is not there.
    fn of_case(&mut self, of: &OfEach, (case, step): (Case, u64), seed: u64) -> Result<Check, TrainError> {
        let Self { session, start, .. } = self;
        session.train.restore(start)?;
        let made = session.train.dispatch_mut().map(|dispatch| dispatch.record(case, step)).transpose()?;
        if let Some(Err(why)) = made {
            return Ok(Check::new(of.name, false, "there is no recording".into()).detail(vec![(why, None)]));
        }
        session.train.choose_case(case, step)?;
        if let Some(why) = session.train.chosen().recording().why_eager {
            return Ok(Check::new(of.name, false, "there is no recording".into()).detail(vec![(why, None)]));
        }
        if let Some(other) = other_recording(session, case, step)? {
            return Ok(Check::new(of.name, false, "another recording was found".into()).detail(vec![(other, None)]));
        }
        let model = session.train.chosen().compiled().model.clone();
        DataFeed::resident(session.train.chosen_mut(), &model, seed)?;
        let start = session.train.snapshot()?;
        or_failed(of.name, (of.chosen)(self, &start))
    }

    /// As [`Self::eager_against_replay`], of the recording that was chosen, on a batch that stays.
    fn chosen_against_replay(&mut self, start: &[u8]) -> Result<Check, TrainError> {
        let mut made = |executor: Executor| -> Result<(StepImage, Vec<String>), TrainError> {
            let Session { train, pool, .. } = &mut self.session;
            train.restore(start)?;
            train.chosen_mut().set_trace(true);
            (0..STEPS).try_for_each(|_| train.run_chosen(executor, pool))?;
            let made = (train.chosen().image()?, train.chosen().trace());
            train.chosen_mut().set_trace(false);
            Ok(made)
        };
        let made = [made(Executor::Eager)?, made(Executor::Replay)?];
        Ok(compared(self.session.train.chosen().compiled(), STEPS, &made))
    }

    /// As [`Self::ledger`], of the recording that was chosen.
    fn ledger_of_chosen(&mut self, start: &[u8]) -> Result<Check, TrainError> {
        let Session { train, pool, .. } = &mut self.session;
        train.restore(start)?;
        train.run_chosen(Executor::Replay, pool)?;
        train.chosen().synchronize()?;
        Ok(held(train.chosen()))
    }
}

/// What the recording that was chosen for a case is, where it is not that of the case.
///
/// # Errors
/// Where the network does not suit the case's shape.
pub(super) fn other_recording(session: &Session, case: Case, step: u64) -> Result<Option<String>, TrainError> {
    let chosen = GraphKey::of(session.train.chosen().compiled());
    let (model, shape) = (&session.model, case.shape.of(&session.model)?);
    let path = model.path_at(step, session.seed()).to_string();
    let sizes = shape.inputs.iter().map(|input| input.shape.batched(shape.batch));
    let is_same = chosen.path() == path
        && sizes.eq(chosen.signature().inputs.iter().take(shape.inputs.len()).map(|i| i.shape.clone()));
    Ok((!is_same).then(|| format!("step {step} is of path {path} with {} samples, and ran {chosen}", shape.batch)))
}

/// What the batches of a run use of their samples and positions.
pub(super) enum Shapes {
    /// All of them.
    Alike,
    /// They differ, in this session.
    Own(Box<Session>),
    /// They may differ, and there is no room for a session in which they do.
    LeftOut(String),
}

/// What tells a recording of a run from the others.
fn name_of(key: &GraphKey, case: &Case, whole: &Model) -> String {
    let mut parts = vec![key.path().to_owned()];
    parts.extend((case.shape.rows != whole.batch).then(|| format!("{} rows", case.shape.rows)));
    parts.extend(case.shape.length.map(|length| format!("length {length}")));
    parts.extend((case.share != Share::Last).then(|| format!("{} batch", case.share.name())));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Fault;
    use crate::model::{BUNDLED, check, read_preset};
    use std::sync::atomic::AtomicBool;

    fn preset(name: &str) -> Preset {
        let bundled = BUNDLED.iter().find(|b| b.name == name).unwrap();
        read_preset(bundled.text).unwrap()
    }

    #[test]
    fn the_recording_of_each_path_and_shape_is_checked() {
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let cancel = AtomicBool::new(false);
        for (name, expected) in [("early-exit", "all 2 recordings"), ("short-batches", "all 2 recordings")] {
            let preset = preset(name);
            let model = check(&preset).model.unwrap();
            let mut harness = ReplayHarness::new(&preset, &model, &options, &cancel).unwrap();
            for of in [OfEach::EAGER_AGAINST_REPLAY, OfEach::LEDGER] {
                let found = harness.each_recording(&of, &preset, &options).unwrap();
                assert!(found.passed == Some(true) && found.figures.starts_with(expected), "{name}: {found:#?}");
            }
        }
    }

    #[test]
    fn a_spoilt_recording_of_one_path_fails_and_is_named() {
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let (preset, cancel) = (preset("early-exit"), AtomicBool::new(false));
        let model = check(&preset).model.unwrap();
        let mut harness = ReplayHarness::new(&preset, &model, &options, &cancel).unwrap();
        let train = &mut harness.session.train;
        let dispatch = train.dispatch_mut().unwrap();
        let planner = std::sync::Arc::clone(dispatch.planner());
        let other = |(case, step): &(Case, u64)| !planner.is_whole(&planner.key(*case, *step).unwrap());
        let (case, step) = dispatch.cases().into_iter().find(other).unwrap();
        dispatch.record(case, step).unwrap().unwrap();
        train.choose_case(case, step).unwrap();
        assert!(train.chosen_mut().inject(Fault::Argument { graph: 0, op: 0, slot: 0 }).unwrap().is_some());
        for of in [OfEach::EAGER_AGAINST_REPLAY, OfEach::LEDGER] {
            let found = harness.each_recording(&of, &preset, &options).unwrap();
            let text = found.detail.join("\n");
            assert!(found.passed == Some(false) && text.starts_with("L1=1: "), "{found:#?}");
            assert!(text.contains("nothing was run"), "{text}");
        }
    }
}
