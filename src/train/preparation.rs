//! Prepares what a run needs before its first step, in parallel: the compiled step in memory, its initial parameters,
//! its data.

use super::checkpoint::Compared;
use super::data_feed::input_layouts;
use super::dispatch::{Dispatch, Manner};
use super::evaluate::compiled_evaluation;
use super::kept_state::{KeptState, Place};
use super::memory_needs::{Parts, needs_of};
use super::outlook::Outlook;
use super::recipe::Recipe;
use super::step_cases::StepPlanner;
use super::stopwatch::Stopwatch;
use super::training_step::TrainingStep;
use super::{
    DataChoice, DataFeed, Origin, Purpose, SessionSpec, TrainError, gpu_times, loaded_data, lone_samples, read_tensors,
};
use crate::compile::{Compiled, Options, compile};
use crate::data::{self, Request};
use crate::exec::{LentStep, MemoryOf, ReadyStage, ReadyTimes, RecordingPool, Step};
use crate::ir::Share;
use crate::lower::Layout;
use crate::model::{DataSpec, LastBatch, Model, ParamId, init_into, init_over};
use crate::select::Target as Machine;
use crate::tensor::room;
use std::sync::{Arc, mpsc};
use std::thread;

/// The loss scale that an `f16` run starts with; PyTorch's.
pub(super) const FIRST_LOSS_SCALE: f32 = 65_536.0;

/// Sets the loss scale of a step that has one.
pub(super) fn start_loss_scale(step: &mut Step, scale: f32) -> Result<(), TrainError> {
    if let Ok(scaler) = step.find("scaler") {
        step.write(scaler, &[scale, 0.0, 1.0 / scale, 0.0, 0.0])?;
    }
    Ok(())
}

/// A step in memory with the initial parameters of its seed, and the source of its batches.
pub(super) struct BroughtUp {
    pub(super) train: TrainingStep,
    pub(super) feed: DataFeed,
    /// What the user should know about the data.
    pub(super) notes: Vec<String>,
    /// The differences from the checkpoint to continue from, if there is one.
    pub(super) compared: Option<Compared>,
    /// The place of a snapshot.
    pub(super) kept: KeptState,
    /// The evaluation's step, if it was compiled to estimate its memory.
    pub(super) evaluation: Option<Compiled>,
}

/// A feed, and notes from its preparation.
struct Fed {
    feed: DataFeed,
    /// What the user should know about its data.
    notes: Vec<String>,
    compared: Option<Compared>,
}

/// Compiles the training step of `model` for `machine` and allocates its memory, after everything that the session will
/// need was estimated. Data are loaded at the same time on a separate thread.
///
/// # Errors
/// If the step cannot be compiled or does not fit, or the data are missing, malformed, or do not fit the network.
pub(super) fn bring_up(
    spec: &SessionSpec,
    model: &Model,
    machine: &Machine,
    seed: u64,
    watch: &mut Stopwatch,
) -> Result<BroughtUp, TrainError> {
    let options = Options { metrics: spec.metrics, tuning: spec.tuning.clone(), ..Options::train(machine.clone()) };
    let gpu_times = gpu_times(model, &options)?;
    watch.report(ReadyStage::Time);
    let options = Options { gpu_times, ..options };
    let compiled = Arc::new(compile(model, &options)?);
    let earlier: Vec<Arc<Compiled>> = Share::before_last(model.accumulate)
        .iter()
        .map(|&share| compile(model, &Options { share, ..options.clone() }).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let mut compiling = ReadyTimes::default();
    earlier.iter().chain([&compiled]).for_each(|c| compiling.add_compilation(&c.times));
    watch.report_parts(&compiling);
    let here = Step::capabilities_for(&compiled).memory == MemoryOf::Host;
    let (place, evaluation) = counted(spec, model, machine, &compiled)?;
    let keeps_in_memory = place.is_memory();
    watch.report(ReadyStage::Count);
    let plan = &compiled.plan;
    let layouts = input_layouts(&plan.program);
    let bytes = usize::try_from(plan.persistent_bytes).unwrap_or(usize::MAX);
    thread::scope(|scope| {
        let loading = spawn(scope, "data", || load(spec, model, seed, &layouts))?;
        let keeping = keeps_in_memory.then(|| spawn(scope, "snapshot", move || touched(bytes))).transpose()?;
        let mut differing =
            Differing::new(spec, model, &options, seed, [&earlier[..], &[Arc::clone(&compiled)]].concat());
        // The differences between steps depend on the data, and the memory of all of them on these differences.
        let (fed, loading) = if differing.is_none() { (None, Some(loading)) } else { (joined(loading)?, None) };
        if let Some(differing) = &mut differing {
            differing.look(spec, fed.as_ref().map_or(&DataFeed::Resident, |fed| &fed.feed), &compiled)?;
        }
        let others: Vec<_> = earlier.iter().cloned().chain(differing.iter().flat_map(Differing::plans)).collect();
        let train = if here {
            on_host((&compiled, &others[..]), spec, model, seed, watch)?
        } else {
            on_device(scope, (&compiled, &others[..]), spec, model, seed, watch)?
        };
        watch.report(ReadyStage::Parameters);
        let mut train = TrainingStep::new(train, &earlier, model.accumulate)?;
        let fed = match loading {
            Some(loading) => joined(loading)?,
            None => fed,
        };
        let Fed { feed, notes, compared } = match fed {
            Some(fed) => fed,
            None => Fed { feed: DataFeed::resident(&mut train, model, seed)?, notes: Vec::new(), compared: None },
        };
        watch.report(ReadyStage::Data);
        if let Some(differing) = differing {
            differing.record(spec, &mut train)?;
        }
        let kept = place.take(bytes, keeping.map(joined));
        Ok(BroughtUp { train, feed, notes, compared, kept, evaluation })
    })
}

/// Memory of this size that was written once, because getting so much memory takes longer than filling it.
fn touched(bytes: usize) -> Vec<u8> {
    let mut touched = room(bytes);
    touched.resize(bytes, 0);
    touched
}

/// Allocates the memory of the training step, and draws its parameters in place.
fn on_host(
    (compiled, others): (&Arc<Compiled>, &[Arc<Compiled>]),
    spec: &SessionSpec,
    model: &Model,
    seed: u64,
    watch: &mut Stopwatch,
) -> Result<LentStep, TrainError> {
    let mut train = RecordingPool::begin(compiled, others, spec.shared_by(), spec.allowance())?;
    watch.report_parts(&train.ready_times());
    for (index, param) in model.params.iter().enumerate() {
        train.draw_param(ParamId(index as u32), |out| init_over(param, index, seed, out))?;
    }
    Ok(train)
}

/// The steps of a run that differ from one another, before they are recorded.
struct Differing {
    planner: StepPlanner,
    outlook: Option<Outlook>,
}

impl Differing {
    /// `None` if all steps of the session are the whole one.
    fn new(
        spec: &SessionSpec,
        model: &Model,
        options: &Options,
        seed: u64,
        wholes: Vec<Arc<Compiled>>,
    ) -> Option<Self> {
        let of_data = match &spec.data {
            DataChoice::Preset => spec.preset.data.as_ref().is_some_and(DataSpec::has_varied_steps),
            DataChoice::Batches(_) => true,
            DataChoice::Resident => false,
        };
        let may_differ = spec.takes_paths() && (of_data && spec.takes_shapes() || model.chooses());
        may_differ.then(|| Self { planner: StepPlanner::new(model, options.clone(), seed, &wholes), outlook: None })
    }

    /// Determines the cases that the run is expected to have, and plans them for the device of `whole`.
    fn look(&mut self, spec: &SessionSpec, feed: &DataFeed, whole: &Compiled) -> Result<(), TrainError> {
        if feed.varies() || self.planner.paths().are_chosen() {
            let waits = !Step::capabilities_for(whole).records_beside;
            let total = spec.total(feed.limit(self.planner.model().accumulate));
            self.outlook = Some(Outlook::new(&self.planner, feed, total, waits)?);
        }
        Ok(())
    }

    /// The plans.
    fn plans(&self) -> impl Iterator<Item = Arc<Compiled>> {
        self.outlook.iter().flat_map(Outlook::plans)
    }

    /// Records the plans.
    fn record(self, spec: &SessionSpec, train: &mut TrainingStep) -> Result<(), TrainError> {
        let Some(outlook) = self.outlook else { return Ok(()) };
        let manner = Manner { executor: spec.executor, is_strict: spec.recordings.is_strict };
        let dispatch = Dispatch::new(train.last(), self.planner, outlook, manner)?;
        train.vary(dispatch);
        Ok(())
    }
}

/// Fails if the run does not fit. Otherwise returns the place of its first state, and the step of its evaluation if it
/// was compiled for the estimate.
fn counted(
    spec: &SessionSpec,
    model: &Model,
    machine: &Machine,
    compiled: &Compiled,
) -> Result<(Place, Option<Compiled>), TrainError> {
    let here = Step::capabilities_for(compiled).memory == MemoryOf::Host;
    if !here {
        // Before anything is read: the step's arena and that of its evaluation, from the estimated plan. Its kernels
        // are timed when it is needed.
        let of_evaluation = || compile(model, &Options::eval(machine.clone())).map(|e| e.plan.arena_bytes);
        Step::check_room(compiled, if evaluates(spec) { of_evaluation()? } else { 0 })?;
    }
    let evaluation = (here && evaluates(spec)).then(|| compiled_evaluation(model, machine)).transpose()?;
    let fits = |keeps_in_memory| {
        let evaluation = evaluation.as_ref();
        needs_of(&Parts { spec, model, train: compiled, evaluation, keeps_in_memory }).check_here()
    };
    // The disk is used only if everything else fits.
    fits(false)?;
    let place = Place::of(compiled.plan.persistent_bytes, here);
    fits(place.is_memory())?;
    Ok((place, evaluation))
}

/// Whether there will be held-out samples, or answers to queries.
fn evaluates(spec: &SessionSpec) -> bool {
    let holds_out = spec.preset.data.as_ref().is_some_and(|d| d.held_out > 0.0);
    spec.purpose == Purpose::Predict || (spec.data == DataChoice::Preset && holds_out)
}

/// A step in a device's memory with the initial parameters of its seed, which are drawn here while the step is
/// compiled.
fn on_device<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    (compiled, others): (&Arc<Compiled>, &[Arc<Compiled>]),
    spec: &SessionSpec,
    model: &'scope Model,
    seed: u64,
    watch: &mut Stopwatch,
) -> Result<LentStep, TrainError> {
    // One parameter waits, and one is drawn.
    let (give, drawn) = mpsc::sync_channel(1);
    let drawing = spawn(scope, "parameters", move || {
        let mut values = model.params.iter().enumerate().map(|(index, param)| {
            let mut values = room(param.shape.len());
            init_into(param, index, seed, &mut values);
            values
        });
        // If the step could not be made, the other results are not awaited.
        let _ = values.try_for_each(|values| give.send(values));
    })?;
    let mut train = RecordingPool::begin(compiled, others, spec.shared_by(), spec.allowance())?;
    watch.report_parts(&train.ready_times());
    for (index, values) in drawn.iter().enumerate() {
        train.set_param(ParamId(index as u32), &values)?;
    }
    joined(drawing);
    Ok(train)
}

/// Starts a thread that ends with `scope`.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, TrainError> {
    thread::Builder::new().name(format!("stepgraph-{name}")).spawn_scoped(scope, work).map_err(TrainError::Thread)
}

/// The result of a thread; a panic is propagated.
fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Loads the data of a spec, in the layouts that the step reads; `None` for a random batch. The recipe of a checkpoint
/// is compared before data are prepared as it says.
fn load(spec: &SessionSpec, model: &Model, seed: u64, layouts: &[Layout]) -> Result<Option<Fed>, TrainError> {
    let compare = |limit: Option<usize>| {
        let own = Recipe::of(&spec.preset, seed, spec.data == DataChoice::Preset).of_steps(spec.total(limit));
        spec.start.resume.as_ref().map_or(Ok(None), |path| Compared::ahead(path, &own))
    };
    match &spec.data {
        DataChoice::Resident => Ok(None),
        DataChoice::Batches(path) => {
            let file = read_tensors(path)?;
            let mut feed = DataFeed::batches(&file, path, model, layouts)?;
            if !spec.takes_shapes() {
                feed.take_whole_batches();
            }
            let compared = compare(feed.limit(model.accumulate))?;
            Ok(Some(Fed { notes: feed.left_out(model.accumulate).into_iter().collect(), feed, compared }))
        }
        DataChoice::Preset => {
            let source = spec.preset.data.as_ref().ok_or(TrainError::NoData)?;
            let request = Request::of(model, seed);
            let compared = compare(None)?;
            // A checkpoint that cannot be read is refused when its parameters are read.
            let resumed = spec.start.resume.as_ref().map(|path| (path, Origin::read(path).ok().flatten()));
            let of_checkpoint = resumed.as_ref().and_then(|(_, origin)| origin.as_ref()?.preprocessing.as_ref());
            let known = spec.preprocessing.as_ref().or(of_checkpoint);
            let set = loaded_data::load(source, &request, &spec.base, known)?;
            let split = data::split(set.len(), source, seed)?;
            let mut notes = set.notes.clone();
            notes.extend(data::training_notes(&set, &split.train));
            notes.extend(resumed.and_then(|(path, origin)| {
                Origin::assumption(origin.as_ref(), &set.preprocessing, &path.display().to_string())
            }));
            if source.last_batch == LastBatch::Short && spec.trains() {
                lone_samples::refuse_last_batch(model, split.train.len())?;
            }
            let last_batch = if spec.takes_shapes() { source.last_batch } else { LastBatch::Drop };
            let mut feed = DataFeed::data(set, Arc::new(split), model, layouts, seed, last_batch)?;
            if spec.takes_shapes() {
                feed.vary(source, model, seed)?;
            }
            Ok(Some(Fed { feed, notes, compared }))
        }
    }
}
