//! What a run needs before its first step, brought up side by side: the compiled step in memory, its first parameters, its data.

use super::session::DataChoice;
use super::stopwatch::Stopwatch;
use super::{Feed, Origin, SessionSpec, TrainError, gpu_times, read_tensors};
use crate::compile::{Compiled, Options, compile};
use crate::data::{self, Request};
use crate::exec::{Step, available_bytes, room, zero_bytes};
use crate::lower::Layout;
use crate::model::{Model, ParamId, init_into};
use crate::select::Target as Machine;
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

/// A step in memory with the first parameters of its seed, and where its batches come from.
pub(super) struct BroughtUp {
    pub(super) train: Step,
    pub(super) feed: Feed,
    /// What the user should know about the data.
    pub(super) notes: Vec<String>,
    /// Memory of a snapshot's size.
    pub(super) saved: Vec<u8>,
}

/// A feed, and what the user should know about its data.
type Fed = (Feed, Vec<String>);

/// Compiles the training step of `model` for `machine` and takes its memory. Data are loaded and parameters drawn meanwhile, each on a thread of its own, where
/// the host has room for all of it at once.
///
/// # Errors
/// Where the step cannot be compiled or has no room, where the data are missing, malformed, or do not fit the network.
pub(super) fn bring_up(
    spec: &SessionSpec,
    model: &Model,
    machine: &Machine,
    seed: u64,
    watch: &mut Stopwatch,
) -> Result<BroughtUp, TrainError> {
    let options = Options { metrics: spec.metrics, tuning: spec.tuning.clone(), ..Options::train(machine.clone()) };
    let gpu_times = gpu_times(model, &options)?;
    watch.told("kernel times");
    let compiled = Arc::new(compile(model, &Options { gpu_times, ..options })?);
    watch.told("compiling");
    if !Step::has_room(&compiled) {
        // Refuses, before anything is read.
        drop(Step::new(Arc::clone(&compiled), spec.threads)?);
    }
    let plan = &compiled.plan;
    let layout = plan.program.value(plan.program.x).layout;
    let kept = usize::try_from(plan.persistent_bytes).unwrap_or(usize::MAX);
    let at_once = has_room_for_all(model, machine, &compiled);
    thread::scope(|scope| {
        let loading = spawn(scope, "data", || load(spec, model, seed, layout))?;
        let (begin, begun) = mpsc::channel();
        // One parameter waits, and one is drawn.
        let (give, drawn) = mpsc::sync_channel(1);
        let drawing = spawn(scope, "parameters", move || {
            if begun.recv().is_err() {
                return;
            }
            let mut values = model.params.iter().enumerate().map(|(index, param)| {
                let mut values = room(param.shape.len());
                init_into(param, index, seed, &mut values);
                values
            });
            // Nobody waits for more where the step could not be had.
            let _ = values.try_for_each(|values| give.send(values));
        })?;
        // What the guard of the run keeps of it: getting so much memory takes longer than filling it.
        let touched = move || {
            let mut touched = room(kept);
            touched.resize(kept, 0);
            touched
        };
        let keeping = at_once.then(|| spawn(scope, "snapshot", touched)).transpose()?;
        if at_once {
            let _ = begin.send(());
        }
        let mut train = Step::new(Arc::clone(&compiled), spec.threads)?;
        watch.told("memory and recording");
        let _ = begin.send(());
        for (index, values) in drawn.iter().enumerate() {
            train.set_param(ParamId(index as u32), &values)?;
        }
        joined(drawing);
        watch.told("parameters");
        let (feed, notes) = match joined(loading)? {
            Some(fed) => fed,
            None => (Feed::resident(&mut train, model, seed)?, Vec::new()),
        };
        watch.told("data");
        let saved = keeping.map_or_else(|| zero_bytes(kept), joined);
        Ok(BroughtUp { train, feed, notes, saved })
    })
}

/// Whether the host has room for the step's memory (a device has its own), a snapshot of it and the two largest parameters, all at once.
fn has_room_for_all(model: &Model, machine: &Machine, compiled: &Compiled) -> bool {
    let own = if machine.as_cuda().is_some() { 0 } else { compiled.plan.arena_bytes };
    let largest = model.params.iter().map(|p| p.shape.len() as u64 * 4).max().unwrap_or(0);
    let needed = own.saturating_add(compiled.plan.persistent_bytes).saturating_add(2 * largest);
    available_bytes().is_none_or(|bytes| needed < bytes)
}

/// Starts a thread that ends with `scope`.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, TrainError> {
    thread::Builder::new().name(name.into()).spawn_scoped(scope, work).map_err(TrainError::Thread)
}

/// What a thread gave; its panic goes on here.
fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Loads the data that a spec asks for, in the layout that the step reads. Nothing for a batch that the step makes up.
fn load(spec: &SessionSpec, model: &Model, seed: u64, layout: Layout) -> Result<Option<Fed>, TrainError> {
    match &spec.data {
        DataChoice::Resident => Ok(None),
        DataChoice::Batches(path) => {
            let file = read_tensors(path)?;
            Ok(Some((Feed::batches(&file, path, model, layout)?, Vec::new())))
        }
        DataChoice::Preset => {
            let source = spec.preset.data.as_ref().ok_or(TrainError::NoData)?;
            let request = Request::of(model, seed);
            // A checkpoint that cannot be read is refused where its parameters are.
            let resumed = spec.resume.as_ref().map(|path| (path, Origin::read(path).ok().flatten()));
            let of_checkpoint = resumed.as_ref().and_then(|(_, origin)| origin.as_ref()?.preprocessing.as_ref());
            let set = match spec.preprocessing.as_ref().or(of_checkpoint) {
                Some(known) => data::load_as(source, &request, &spec.base, known)?,
                None => data::load(source, &request, &spec.base)?,
            };
            let split = data::split(set.len(), source, seed)?;
            let mut notes = set.notes.clone();
            notes.extend(resumed.and_then(|(path, origin)| {
                Origin::assumption(origin.as_ref(), &set.preprocessing, &path.display().to_string())
            }));
            Ok(Some((Feed::data(Arc::new(set), Arc::new(split), model, layout, seed)?, notes)))
        }
    }
}
