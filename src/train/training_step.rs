//! A training step in memory: one recording, or one for each kind of batch if several batches make one step.

use super::batch_shape::BatchShape;
use super::dispatch::{Chosen, Dispatch};
use super::step_cases::Case;
use super::watched::Reported;
use super::{DataFeed, TrainError};
use crate::compile::Compiled;
use crate::exec::cpu::Pool;
use crate::exec::{ExecError, Executor, GraphKey, LentStep, Step};
use crate::ir::Share;
use crate::lower::LValueId;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The recordings of a training step over one store. The memory that the host writes and reads is the same for all of
/// them, and is found through the recording that updates the parameters.
pub struct TrainingStep {
    /// The recording for the batch after which the parameters are updated.
    last: LentStep,
    /// Those for the batches before it: the first one, and the others.
    earlier: Vec<LentStep>,
    /// The number of batches in a step.
    batches: usize,
    /// The recordings of other cases, if the steps of a run differ.
    dispatch: Option<Box<Dispatch>>,
    /// What the current batch runs with.
    chosen: Chosen,
    /// The place of the whole step's metrics.
    reported: Reported,
}

impl TrainingStep {
    /// The step that ends with `last`, with the compiled steps of the batches before it.
    ///
    /// # Errors
    /// If one of these cannot be recorded.
    pub(super) fn new(last: LentStep, earlier: &[Arc<Compiled>], batches: usize) -> Result<Self, TrainError> {
        let mut recorded = Vec::with_capacity(earlier.len());
        if let Some(pool) = last.pool() {
            for compiled in earlier {
                let key = GraphKey::of(compiled);
                recorded.push(pool.lend(&key, || Ok::<_, TrainError>(Arc::clone(compiled)))?);
                pool.pin(&key, true);
            }
        }
        let (chosen, reported) = (Chosen::Whole(Share::of(0, batches)), Reported::of(&last));
        Ok(Self { last, earlier: recorded, batches, dispatch: None, chosen, reported })
    }

    /// Lets the steps differ, each with its own recording.
    pub(super) fn vary(&mut self, dispatch: Option<Dispatch>) {
        self.dispatch = dispatch.map(Box::new);
    }

    /// Like [`Self::dispatch`], mutable.
    pub(super) fn dispatch_mut(&mut self) -> Option<&mut Dispatch> {
        self.dispatch.as_deref_mut()
    }

    /// Chooses the recording of a case; returns false if steps do not differ.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub(super) fn choose_case(&mut self, case: Case, step: u64) -> Result<bool, TrainError> {
        let Some(dispatch) = &mut self.dispatch else { return Ok(false) };
        self.chosen = dispatch.choose(step, case)?;
        Ok(true)
    }

    /// The recordings of steps that differ, if they do.
    pub(super) fn dispatch(&self) -> Option<&Dispatch> {
        self.dispatch.as_deref()
    }

    /// Chooses what batch `number`, from 0, of `step`, from 1, runs with: the recording for what the feed's next batch
    /// uses, on the path of the step. Returns what it uses, if steps differ.
    ///
    /// # Errors
    /// If there is no recording and the step must not run op by op, or it cannot be planned.
    pub(super) fn choose(
        &mut self,
        step: u64,
        number: usize,
        feed: &mut DataFeed,
    ) -> Result<Option<BatchShape>, TrainError> {
        let share = Share::of(number, self.batches);
        let Some(dispatch) = &mut self.dispatch else {
            self.chosen = Chosen::Whole(share);
            return Ok(None);
        };
        let (model, paths) = (dispatch.planner().model(), dispatch.planner().paths());
        let shape = feed.shape_of_next().unwrap_or(BatchShape::whole(model));
        let case = Case { shape, code: paths.code_at(step), share };
        self.chosen = dispatch.choose(step, case)?;
        if number == 0 {
            dispatch.look_ahead(step, feed)?;
        }
        Ok(Some(shape))
    }

    /// The step of the current batch.
    pub(super) fn chosen(&self) -> &Step {
        match self.dispatch.as_ref().and_then(|dispatch| dispatch.step(self.chosen)) {
            Some(step) => step,
            None => self.whole(),
        }
    }

    /// Like [`Self::chosen`], for writing its batch.
    pub(super) fn chosen_mut(&mut self) -> &mut Step {
        let Self { last, earlier, dispatch, chosen, .. } = self;
        if let Some(step) = dispatch.as_mut().and_then(|dispatch| dispatch.step_mut(*chosen)) {
            return step;
        }
        match chosen {
            Chosen::Whole(Share::First) => &mut earlier[0],
            Chosen::Whole(Share::Middle) => &mut earlier[1],
            _ => last,
        }
    }

    fn whole(&self) -> &Step {
        match self.chosen {
            Chosen::Whole(Share::First) => &self.earlier[0],
            Chosen::Whole(Share::Middle) => &self.earlier[1],
            _ => &self.last,
        }
    }

    /// The place of the current batch's metrics, in the step that was chosen for it; those of the whole network are
    /// found through the recording that updates the parameters.
    pub(super) fn reports(&self) -> (&Step, Reported) {
        let own = self.dispatch.as_ref().and_then(|dispatch| dispatch.reported(self.chosen));
        own.map_or((&self.last, self.reported), |own| (self.chosen(), own))
    }

    /// Runs the current batch on what the host wrote.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub(super) fn run_chosen(&mut self, executor: Executor, pool: &mut Pool) -> Result<(), ExecError> {
        let executor = if matches!(self.chosen, Chosen::Apart(_)) { Executor::Eager } else { executor };
        self.chosen_mut().run(executor, pool)
    }

    /// The recording that updates the parameters, with the cache that it comes from.
    pub(super) const fn last(&self) -> &LentStep {
        &self.last
    }

    /// The recordings that the session owns: the last one, then those of the batches before it.
    pub(super) fn owned(&self) -> impl Iterator<Item = &LentStep> {
        std::iter::once(&self.last).chain(&self.earlier)
    }

    /// Takes over the recordings that were made to replace those in use; returns the number of them.
    pub(super) fn take_renewals(&mut self) -> usize {
        let Self { last, earlier, dispatch, .. } = self;
        let owned = std::iter::once(last).chain(earlier).filter_map(|step| step.take_renewal().then_some(())).count();
        owned + usize::from(dispatch.as_mut().is_some_and(|dispatch| dispatch.takes_renewal()))
    }

    /// The number of batches in a step.
    #[must_use]
    pub const fn batches(&self) -> usize {
        self.batches
    }

    /// The recording of batch `number` of a step, from 0.
    pub(super) fn of_batch(&mut self, number: usize) -> &mut Step {
        match Share::of(number, self.batches) {
            Share::First => &mut self.earlier[0],
            Share::Middle => &mut self.earlier[1],
            Share::Last => &mut self.last,
        }
    }

    /// The number of batches of a step that are neither its first nor its last.
    const fn between(&self) -> usize {
        self.batches.saturating_sub(2)
    }

    /// Every recording, with the number of batches of a step that use it.
    pub fn recordings(&self) -> impl Iterator<Item = (&Step, usize)> {
        let earlier = self.earlier.iter().zip([1, self.between()]).map(|(step, count)| (&**step, count));
        earlier.chain([(&*self.last, 1)])
    }

    /// Like [`Self::recordings`], mutable.
    pub fn recordings_mut(&mut self) -> impl Iterator<Item = (&mut Step, usize)> {
        let between = self.between();
        let earlier = self.earlier.iter_mut().zip([1, between]).map(|(step, count)| (&mut **step, count));
        earlier.chain([(&mut *self.last, 1)])
    }

    /// Runs batch `number` of a step, from 0, on what the host wrote.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub(super) fn run_batch(&mut self, number: usize, executor: Executor, pool: &mut Pool) -> Result<(), ExecError> {
        self.of_batch(number).run(executor, pool)
    }

    /// Runs the whole step once; if several batches make it, repeatedly on one batch.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn run(&mut self, executor: Executor, pool: &mut Pool) -> Result<(), ExecError> {
        (0..self.batches).try_for_each(|number| self.run_batch(number, executor, pool))
    }

    /// Like [`Self::run`], replayed.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        self.run(Executor::Replay, pool)
    }

    /// Like [`Self::replay`], `count` times; a GPU runs several steps in one launch.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn replay_many(&mut self, count: usize, pool: &mut Pool) -> Result<(), ExecError> {
        match self.batches {
            1 => self.last.replay_many(count, pool),
            _ => (0..count).try_for_each(|_| self.replay(pool)),
        }
    }

    /// Runs the step once eagerly and once as a replay and restores everything that survives a step.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn warm_up(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        let saved = self.snapshot()?;
        self.run(Executor::Eager, pool)?;
        self.replay(pool)?;
        self.rewind(&saved)
    }

    /// Starts or stops recording the ids of executed kernels.
    pub fn set_trace(&mut self, on: bool) {
        self.recordings_mut().for_each(|(step, _)| step.set_trace(on));
    }

    /// The ids of the kernels executed since tracing began, those of each recording together.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.recordings().flat_map(|(step, _)| step.trace()).collect()
    }
}

impl Deref for TrainingStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        &self.last
    }
}

impl DerefMut for TrainingStep {
    fn deref_mut(&mut self) -> &mut Step {
        &mut self.last
    }
}

/// The mean of the reports of a step's batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchMeans {
    loss: f64,
    accuracy: f64,
    batches: usize,
}

impl BatchMeans {
    /// Adds the results of the batch that just ran; a network without accuracy has NaN.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn add(
        &mut self,
        step: &Step,
        loss: Option<LValueId>,
        accuracy: Option<LValueId>,
    ) -> Result<(), ExecError> {
        let first = |id: LValueId| step.stored::<f32>(id).map(|v| f64::from(v[0]));
        self.loss += loss.map_or(Ok(f64::NAN), first)?;
        self.accuracy += accuracy.map_or(Ok(f64::NAN), first)?;
        self.batches += 1;
        Ok(())
    }

    pub(super) fn loss(&self) -> f32 {
        (self.loss / self.batches as f64) as f32
    }

    pub(super) fn accuracy(&self) -> f32 {
        let mean = (self.accuracy / self.batches as f64) as f32;
        if mean.is_nan() { f32::NAN } else { mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{Model, check, read_preset, write_preset};
    use crate::select::Target;
    use crate::tensor::Fnv;
    use crate::tensor::temporary::temporary_file;
    use crate::train::{Recipe, Session, SessionSpec, Start, StepReport};

    /// A network with statistics and dropout, whose step consists of `accumulate` batches of at most 24 samples.
    fn text(batch: usize, accumulate: usize, layers: &str) -> String {
        format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": {batch}}},
            "layers": [{{"type": "dense", "units": 20}}, {layers} {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}},
            "optimizer": {{"type": "adam", "lr": 0.01, "clip_norm": 1, "schedule": {{"type": "cosine", "warmup": 2}}}},
            "data": {{"type": "digits"}}, "train": {{"steps": 9, "seed": 3, "accumulate": {accumulate}}}}}"#
        )
    }

    const RANDOM: &str = r#"{"type": "batch_norm"}, {"type": "activation", "function": "relu"},
        {"type": "dropout", "rate": 0.3}, {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 20}]},"#;

    fn spec(text: &str, executor: Executor, threads: usize) -> SessionSpec {
        SessionSpec { executor, threads, ..SessionSpec::new(read_preset(text).unwrap(), ".".into()) }
    }

    fn bits(report: &StepReport) -> [u32; 5] {
        let StepReport { loss, accuracy, update_max, grad_norm, lr, .. } = report;
        [loss, accuracy, update_max, grad_norm, lr].map(|v| v.to_bits())
    }

    /// Reports of all steps, and a checksum of everything that survived.
    fn whole_run(spec: &SessionSpec) -> (Vec<[u32; 5]>, u64) {
        let mut session = Session::prepare(spec).unwrap();
        let mut reports = Vec::new();
        while let Some(report) = session.step().unwrap() {
            reports.push(bits(&report));
        }
        let mut sum = Fnv::new();
        sum.add(&session.train.snapshot().unwrap());
        (reports, sum.sum())
    }

    #[test]
    fn replay_equals_eager_on_any_number_of_threads() {
        for accumulate in [2, 3, 5] {
            let text = text(24, accumulate, RANDOM);
            let replayed = whole_run(&spec(&text, Executor::Replay, 1));
            assert_eq!(replayed.0.len(), 9);
            for (executor, threads) in [(Executor::Eager, 1), (Executor::Replay, 2), (Executor::Eager, 3)] {
                assert_eq!(whole_run(&spec(&text, executor, threads)), replayed, "{accumulate} {executor:?} {threads}");
            }
        }
    }

    #[test]
    fn several_batches_in_a_step_equal_one_of_all_their_samples() {
        let run = |batch, accumulate| {
            let mut session = Session::prepare(&spec(&text(batch, accumulate, ""), Executor::Replay, 1)).unwrap();
            let mut reports = Vec::new();
            while let Some(report) = session.step().unwrap() {
                reports.push(report);
            }
            reports
        };
        let whole = run(96, 1);
        for (accumulate, batch) in [(2, 48), (4, 24), (96, 1)] {
            for (parts, whole) in run(batch, accumulate).iter().zip(&whole) {
                let pairs = [
                    (parts.loss, whole.loss),
                    (parts.accuracy, whole.accuracy),
                    (parts.grad_norm, whole.grad_norm),
                    (parts.update_max, whole.update_max),
                ];
                for (part, all) in pairs {
                    assert!((part - all).abs() <= 2e-3 * all.abs() + 1e-6, "{accumulate}: {part} and {all}");
                }
                assert_eq!(parts.lr.to_bits(), whole.lr.to_bits());
            }
        }
    }

    #[test]
    fn each_batch_of_a_step_has_its_own_random_numbers_and_statistics() {
        let text = text(24, 3, RANDOM);
        let mut session = Session::prepare(&spec(&text, Executor::Replay, 1)).unwrap();
        let counters = |session: &Session| {
            ["counter", "batches"]
                .map(|name| session.train.stored::<i64>(session.train.find(name).unwrap()).unwrap()[1])
        };
        assert_eq!(counters(&session), [0, 0]);
        for step in 1..=4 {
            session.step().unwrap();
            assert_eq!(counters(&session), [step, 3 * step]);
        }
        // The same batch three times: masks differ, so that losses do.
        let loss = session.train.find("loss").unwrap();
        let mut losses = Vec::new();
        for number in 0..3 {
            let Session { train, pool, .. } = &mut session;
            train.run_batch(number, Executor::Replay, pool).unwrap();
            losses.push(train.stored::<f32>(loss).unwrap()[0].to_bits());
        }
        assert!(losses[0] != losses[1] && losses[1] != losses[2] && losses[0] != losses[2], "{losses:?}");
    }

    #[test]
    fn a_checkpoint_continues_with_the_same_bits() {
        let (_folder, path) = temporary_file("c.safetensors");
        let spec = spec(&text(24, 3, RANDOM), Executor::Replay, 1);
        let mut session = Session::prepare(&spec).unwrap();
        for _ in 0..4 {
            session.step().unwrap();
        }
        session.save_checkpoint(&path, &spec.preset).unwrap();
        let rest = |session: &mut Session| -> Vec<_> {
            std::iter::from_fn(|| session.step().unwrap()).map(|report| (report.step, bits(&report))).collect()
        };
        let expected = rest(&mut session);
        assert_eq!((expected.len(), expected[0].0), (5, 5));
        let resume = SessionSpec { start: Start::from_checkpoint(path.clone()), ..spec.clone() };
        assert_eq!(rest(&mut Session::prepare(&resume).unwrap()), expected);
        // Another number of batches is refused.
        let mut other = resume;
        other.preset.train.as_mut().unwrap().accumulate = 2;
        let error = Session::prepare(&other).err().unwrap().to_string();
        assert!(error.contains("train.accumulate is 3 there and 2 here"), "{error}");
    }

    fn model(accumulate: usize) -> Model {
        check(&read_preset(&text(24, accumulate, RANDOM)).unwrap()).model.unwrap()
    }

    #[test]
    fn each_share_has_its_own_recording_over_one_store_and_arena() {
        let cases = [(1, &[1][..]), (2, &[1, 1]), (3, &[1, 1, 1]), (7, &[1, 5, 1])];
        for (accumulate, expected) in cases {
            let text = text(24, accumulate, RANDOM);
            let mut session = Session::prepare(&spec(&text, Executor::Replay, 1)).unwrap();
            let found: Vec<usize> = session.train.recordings_mut().map(|(_, count)| count).collect();
            assert_eq!(found, expected);
            let counts = session.recordings().counts;
            // Digits have a held-out part, and its evaluation is a recording too.
            assert_eq!((counts.recordings, counts.misses as usize), (found.len() + 1, found.len() + 1));
            let (store, arena) = (Arc::clone(session.train.store()), Arc::clone(session.train.lent_arena()));
            let all = session.train.recordings_mut();
            all.for_each(|(step, _)| {
                assert!(Arc::ptr_eq(step.store(), &store) && Arc::ptr_eq(step.lent_arena(), &arena))
            });
        }
    }

    #[test]
    fn the_field_is_read_written_checked_and_part_of_the_recipe() {
        let preset = read_preset(&text(24, 3, "")).unwrap();
        assert_eq!(read_preset(&write_preset(&preset)).unwrap(), preset);
        let mut one = preset.clone();
        one.train.as_mut().unwrap().accumulate = 1;
        assert!(!write_preset(&one).contains("accumulate") && !preset.trains_as(&one));
        let changes = Recipe::of(&preset, 3, true).changes(&Recipe::of(&one, 3, true));
        assert_eq!(changes.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), ["train.accumulate"]);
        one.train.as_mut().unwrap().accumulate = 0;
        let found = check(&one).diagnostics;
        assert!(found.len() == 1 && found[0].path == "train.accumulate", "{found:?}");
    }

    #[test]
    fn every_kind_of_batch_is_planned_for_a_gpu() {
        for share in [Share::First, Share::Middle, Share::Last] {
            let compiled = compile(&model(3), &Options { share, ..Options::train(Target::h200()) }).unwrap();
            let names: Vec<&str> = compiled.plan.program.ops.iter().map(|op| op.kind.name()).collect();
            // The update divides the sum of the gradients; its metrics are those of the mean.
            let of_last = ["grad_norms", "update_rates", "update_metrics"];
            assert_eq!(of_last.map(|name| names.contains(&name)), [share == Share::Last; 3], "{share:?}: {names:?}");
        }
    }
}
