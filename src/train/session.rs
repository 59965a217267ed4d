//! A training run: one network, its data and its memory. The owner calls it for each step.

use super::change_over::ChangeOver;
use super::checkpoint::{Compared, Resumed};
use super::coming_evaluation::{ComingEvaluation, evaluation_of};
use super::evaluate::Evaluator;
use super::moved::of_all_parameters;
use super::nan_guard::{Guard, parameters_are_finite};
use super::plant;
use super::preparation::{BroughtUp, bring_up};
use super::recipe::Recipe;
use super::stopwatch::Stopwatch;
use super::trained_on::TrainedOn;
use super::training_step::{BatchMeans, TrainingStep};
use super::used::Used;
use super::watched::Watched;
use super::weights::{export, import, open_tensors};
use super::{DataFeed, Origin, PlanKey, Purpose, SessionSpec, StepReport, Stretches, TrainError};
use crate::compile::Compiled;
use crate::data::{self, BatchPlace, Dataset};
use crate::exec::ExecError;
use crate::exec::cpu::Pool;
use crate::exec::{Executor, GraphKey, ReadyStage, ReadyTimes, Recording, Step, StepRecord};
use crate::lower::LValueId;
use crate::model::{Model, Preset, check};
use crate::tensor::HostTensor;
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A training run.
pub struct Session {
    pub(super) model: Model,
    /// The preset as it was given, without the seed and steps of the run.
    pub(super) preset: Preset,
    /// The checksum of the samples, computed when it is first needed.
    pub(super) data_digest: OnceLock<String>,
    pub(super) train: TrainingStep,
    /// The key of its plan, computed when it is first needed.
    plan_key: OnceLock<PlanKey>,
    pub(super) evaluator: Option<Evaluator>,
    /// The evaluation while it is recorded beside the first steps.
    pub(super) coming: Option<ComingEvaluation>,
    /// The evaluation of a single sample, made when it is first needed, if a batch has more.
    pub(super) alone: Option<Evaluator>,
    pub(super) pool: Pool,
    pub(super) feed: DataFeed,
    /// The recipe of the run, without its number of steps.
    pub(super) recipe: Recipe,
    /// What was applied of the checkpoint that it continues from.
    pub(super) resumed: Option<Resumed>,
    /// Other samples that its parameters were trained on before.
    pub(super) past: Vec<TrainedOn>,
    pub(super) guard: Guard,
    pub(super) executor: Executor,
    pub(super) watched: Watched,
    /// Whether steps gather their batches on the device, several steps in a launch.
    pub(super) streams: bool,
    /// The positions of the batches of one launch.
    pub(super) places: Vec<BatchPlace>,
    /// The reports of the steps of one launch.
    pub(super) records: Vec<StepRecord>,
    /// The update magnitudes of parameters, if they are collected.
    pub(super) moved: Option<Stretches>,
    pub(super) done: u64,
    /// The number of steps that this session made itself.
    pub(super) made: u64,
    /// The loss of the last step, if it is known.
    pub(super) last_loss: Option<f32>,
    pub(super) total: u64,
    seed: u64,
    notes: Vec<String>,
    ready_times: ReadyTimes,
    pub(super) change_over: ChangeOver,
    /// Changes of reports by a test; `None` in every other session.
    pub(super) report_change: Option<fn(&mut StepReport)>,
}

impl Session {
    /// Checks, compiles, loads and records: everything before the first step.
    ///
    /// # Errors
    /// Every mistake in the preset, its data or the given files, and requirements that the machine does not meet.
    pub fn prepare(spec: &SessionSpec) -> Result<Self, TrainError> {
        let checked = check(&spec.preset);
        let model = checked.model.ok_or(TrainError::Preset(checked.diagnostics))?;
        let (seed, machine) = (spec.seed(), spec.trains_on());
        let mut watch = Stopwatch::start();
        let pool = Pool::new(spec.shared_by())?;
        let BroughtUp { mut train, mut feed, mut notes, compared, kept, evaluation } =
            bring_up(spec, &model, &machine, seed, &mut watch)?;
        plant::change_feed(&mut feed);
        let origin =
            spec.start.init.as_deref().map(|path| given_parameters(&mut train, &model, path)).transpose()?.flatten();
        let watched = Watched::new(&train)?;
        let total = total_of(spec, &model, &feed)?;
        watched.write_start(&mut train, &model, seed, total)?;
        let guard = Guard::new(&mut train, &feed, kept)?;
        watch.report(ReadyStage::Snapshot);
        Watched::choose_first(&mut train, &mut feed)?;
        notes.extend(eager_note(spec.executor, &train));
        refuse_eager(spec, &train)?;
        watch.report(ReadyStage::FirstRecording);
        let (evaluator, coming) = evaluation_of(spec, &feed, &model, train.last(), evaluation)?;
        notes.extend(evaluator.as_ref().and_then(Evaluator::eager_note));
        watch.report(ReadyStage::Evaluation);
        let streams = can_stream(spec, &train) && watched.hold(&mut train, &feed)?;
        watch.report(ReadyStage::DataFeed);
        let mut session = Self {
            preset: spec.preset.clone(),
            data_digest: OnceLock::new(),
            plan_key: OnceLock::new(),
            recipe: Recipe::of(&spec.preset, seed, matches!(feed, DataFeed::Data { .. })),
            resumed: None,
            past: Vec::new(),
            model,
            change_over: ChangeOver::new(spec, &train),
            train,
            evaluator,
            coming,
            alone: None,
            pool,
            feed,
            guard,
            executor: spec.executor,
            watched,
            streams,
            places: Vec::new(),
            records: Vec::new(),
            moved: None,
            done: 0,
            made: 0,
            last_loss: None,
            total,
            seed,
            notes,
            ready_times: ReadyTimes::default(),
            report_change: plant::report_change(),
        };
        session.begin(spec, origin.as_ref(), compared)?;
        session.ready_times = watch.stop();
        Ok(session)
    }

    /// Records the origin of the given parameters, or continues from the checkpoint.
    fn begin(
        &mut self,
        spec: &SessionSpec,
        origin: Option<&Origin>,
        compared: Option<Compared>,
    ) -> Result<(), TrainError> {
        if let Some(path) = &spec.start.init {
            self.began_from(path, origin);
        }
        match &spec.start.resume {
            Some(path) => self.load_compared(path, compared),
            None => Ok(()),
        }
    }

    /// Records what given parameters of this `origin` were trained on.
    fn began_from(&mut self, path: &Path, origin: Option<&Origin>) {
        self.past = self.past_of(origin);
        self.notes.extend(self.is_maybe_trained().then(|| {
            let path = path.display();
            format!("data: {path} was trained on other samples; those that are held out now may be among them")
        }));
    }

    /// The network.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The key of the training step's plan.
    #[must_use]
    pub fn plan_key(&self) -> PlanKey {
        *self.plan_key.get_or_init(|| PlanKey::of(self.compiled()))
    }

    /// The compiled training step.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        self.train.compiled()
    }

    /// How the training step was recorded.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.train.recording()
    }

    /// How long it took until its first step could run.
    #[must_use]
    pub const fn ready_times(&self) -> &ReadyTimes {
        &self.ready_times
    }

    /// The training step in memory.
    pub fn step_mut(&mut self) -> (&mut TrainingStep, &mut Pool) {
        (&mut self.train, &mut self.pool)
    }

    /// Steps made so far.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// The loss of the last step, as reported; `None` before the first step, and after a checkpoint without it.
    #[must_use]
    pub const fn last_loss(&self) -> Option<f32> {
        self.last_loss
    }

    /// Steps of the whole run.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Makes the run longer or shorter; given batches limit it. A schedule that depends on the end is adapted from the
    /// next step on.
    ///
    /// # Errors
    /// Never for a training step.
    pub fn set_total(&mut self, steps: u64) -> Result<(), TrainError> {
        self.total = self.feed.limit(self.model.accumulate).map_or(steps, |limit| steps.min(limit as u64));
        if self.watched.steps.is_none() {
            return Ok(());
        }
        self.watched.write_steps(&mut self.train, self.total)?;
        self.guard.renew(&mut self.train, &self.feed, self.done, true)
    }

    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Notes about the data, and about a step that was not captured.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What was used of the checkpoint that the run was resumed from, if it was resumed.
    #[must_use]
    pub const fn resumed(&self) -> Option<&Resumed> {
        self.resumed.as_ref()
    }

    /// The data set with its split, if there is one.
    #[must_use]
    pub fn dataset(&self) -> Option<(&Arc<Dataset>, &Arc<data::Split>)> {
        match &self.feed {
            DataFeed::Data { set, split, .. } => Some((set, split)),
            _ => None,
        }
    }

    /// The learning rate that the next step reads; if there is a schedule, the base rate.
    ///
    /// # Errors
    /// Never for a training step.
    pub fn lr(&self) -> Result<f32, TrainError> {
        Ok(self.train.stored::<f32>(self.watched.hyper)?[0])
    }

    /// Changes the learning rate from the next step on; the recording stays as it is.
    ///
    /// # Errors
    /// Never for a training step.
    pub fn set_lr(&mut self, lr: f32) -> Result<(), TrainError> {
        let mut rates = self.train.stored::<f32>(self.watched.hyper)?.to_vec();
        rates[0] = lr;
        self.train.write(self.watched.hyper, &rates)?;
        self.guard.renew(&mut self.train, &self.feed, self.done, true)
    }

    /// Runs one step; `None` at the end of the run. Allocates nothing.
    ///
    /// # Errors
    /// If the ledger finds a wrong address, or the loss or gradient is no longer finite: then the message names the
    /// operation, and the run is in its state before that step.
    pub fn step(&mut self) -> Result<Option<StepReport>, TrainError> {
        if self.done >= self.total {
            return Ok(None);
        }
        self.guard.renew(&mut self.train, &self.feed, self.done, false)?;
        self.change_over();
        let Some((means, used, [feed_us, step_us])) = self.batches()? else { return Ok(None) };
        let (step, ids) = self.train.reports();
        let first = |id: Option<LValueId>, or: f32| match id {
            Some(id) => step.stored::<f32>(id).map(|v| v[0]),
            None => Ok(or),
        };
        let mut report = StepReport {
            step: self.done + 1,
            loss: means.loss(),
            update_max: first(ids.update_max, 0.0)?,
            grad_norm: first(ids.grad_norm, 0.0)?,
            accuracy: means.accuracy(),
            lr: first(ids.rate, 0.0)?,
            loss_scale: first(ids.loss_scale, f32::NAN)?,
            step_us,
            feed_us,
            ..used.report()
        };
        if !self.accept(&mut report)? {
            return Err(self.explain(report.loss)?.into());
        }
        Ok(Some(report))
    }

    /// Feeds and runs the batches of a step; returns their report, what they used, and the microseconds of both; `None`
    /// if there are no more batches.
    fn batches(&mut self) -> Result<Option<(BatchMeans, Used, [f32; 2])>, TrainError> {
        let position = self.feed.position();
        let (mut means, mut used, mut us) = (BatchMeans::default(), Used::default(), [0.0; 2]);
        for number in 0..self.train.batches() {
            let started = Instant::now();
            let shape = self.train.choose(self.done + 1, number, &mut self.feed)?;
            if !self.feed.next(self.train.chosen_mut())? {
                self.feed.resume(position)?;
                return Ok(None);
            }
            let fed = Instant::now();
            if let Err(error) = self.train.run_chosen(self.executor, &mut self.pool) {
                // The batch was not used: the next step uses it.
                self.feed.resume(position)?;
                return Err(error.into());
            }
            self.train.chosen().synchronize()?;
            us[0] += (fed - started).as_secs_f32() * 1e6;
            us[1] += fed.elapsed().as_secs_f32() * 1e6;
            let (step, ids) = self.train.reports();
            means.add(step, ids.loss, ids.accuracy)?;
            used.add(shape, self.train.dispatch());
        }
        Ok(Some((means, used, us)))
    }

    /// Counts a step, if the run can continue after it: loss and parameters are finite. The metrics of the update need
    /// not be finite, because they may overflow `f32`; but if the largest change is finite, so are the parameters.
    pub(super) fn accept(&mut self, report: &mut StepReport) -> Result<bool, TrainError> {
        if let Some(change) = self.report_change {
            change(report);
        }
        let is_sound =
            report.loss.is_finite() && (report.update_max.is_finite() || parameters_are_finite(&self.train)?);
        if is_sound {
            self.done += 1;
            self.made += 1;
            self.last_loss = Some(report.loss);
            report.kernels = self.change_over.made(report.step, report.step_us + report.feed_us);
            if self.done >= self.total {
                self.change_over.end();
            }
        }
        Ok(is_sound)
    }

    #[cold]
    pub(super) fn explain(&mut self, loss: f32) -> Result<ExecError, TrainError> {
        let step = self.done + 1;
        let origin = self.guard.explain(&mut self.train, &mut self.feed, &mut self.pool, step)?;
        Ok(ExecError::NonFinite { step, loss: f64::from(loss), origin })
    }

    /// The largest change of each trained parameter in the last step, in order of the parameters; empty if it is not
    /// measured.
    ///
    /// # Errors
    /// Never for a training step.
    pub fn layer_updates(&self) -> Result<Cow<'_, [f32]>, TrainError> {
        let (step, ids) = self.train.reports();
        match ids.update_max_seg {
            Some(id) => Ok(of_all_parameters(&step.compiled().plan.program, step.stored::<f32>(id)?)),
            None => Ok(Cow::Borrowed(&[])),
        }
    }

    /// The parameters and running statistics, in logical shapes.
    ///
    /// # Errors
    /// Never for a training step.
    pub fn weights(&self) -> Result<Vec<(String, HostTensor)>, TrainError> {
        export(&self.train, &self.model)
    }

    /// Renews the guard's snapshot after the state was changed from outside.
    pub(super) fn state_changed(&mut self) -> Result<(), TrainError> {
        self.guard.renew(&mut self.train, &self.feed, self.done, true)
    }
}

/// Whether steps may gather their batches on the device. Steps of several batches may not.
fn can_stream(spec: &SessionSpec, train: &TrainingStep) -> bool {
    spec.executor == Executor::Replay && train.batches() == 1 && train.dispatch().is_none()
}

/// A note about a step that could not be captured.
fn eager_note(executor: Executor, train: &Step) -> Option<String> {
    let why = train.recording().why_eager.filter(|_| executor == Executor::Replay)?;
    Some(format!("the step could not be captured and runs op by op, which gives the same results and is slower: {why}"))
}

/// Refuses a step that could not be captured, if no step may run op by op.
fn refuse_eager(spec: &SessionSpec, train: &TrainingStep) -> Result<(), TrainError> {
    let why = train.recording().why_eager.filter(|_| spec.recordings.is_strict && spec.executor == Executor::Replay);
    let key = || GraphKey::of(train.compiled()).to_string();
    why.map_or(Ok(()), |why| Err(TrainError::OpByOp { step: 1, key: key(), why }))
}

/// Reads the parameters of a file, and returns their records.
fn given_parameters(train: &mut Step, model: &Model, path: &Path) -> Result<Option<Origin>, TrainError> {
    let file = open_tensors(path)?;
    import(train, model, &file, path)?;
    Origin::of_metadata(&file.metadata, path)
}

/// The number of steps of the run, which must be larger than the warm-up of a schedule.
fn total_of(spec: &SessionSpec, model: &Model, feed: &DataFeed) -> Result<u64, TrainError> {
    let total = spec.total(feed.limit(model.accumulate));
    match model.update.schedule.beyond(total).filter(|_| spec.purpose == Purpose::Train) {
        Some(mistake) => Err(TrainError::Preset(vec![mistake])),
        None => Ok(total),
    }
}
