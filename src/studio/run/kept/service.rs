//! The thread that reads, changes and exports kept runs, separate from the one that draws.

use crate::studio::document::job_queue::JobQueue;
use crate::studio::run::kept::continuation::{Continuation, is_released};
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::train::capsule::{Capsule, CapsuleReport};
use crate::train::export::{ExportError, Format, PlotOptions, Replace, Subject, plot_svg, write_picture};
use crate::train::runs::{Curves, Label, RunEntry, RunStore, RunsError};
use crate::train::{SessionSpec, TrainError};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What to export, and to which path.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportOrder {
    pub ids: Vec<String>,
    pub format: Format,
    pub path: PathBuf,
    pub options: PlotOptions,
    /// The user agreed to replace existing files.
    pub replace: bool,
}

/// A job for kept runs.
pub enum RunJob {
    List,
    Load(String),
    /// Reads what a run needs to continue.
    Continue(String),
    SetLabel(String, Label),
    Delete(Vec<String>),
    Restore(Vec<String>),
    ListTrash,
    /// Deletes these from the trash permanently.
    Remove(Vec<String>),
    Export(ExportOrder),
}

impl RunJob {
    /// True for jobs that may take long.
    const fn is_long(&self) -> bool {
        matches!(self, Self::Export(_) | Self::Continue(_))
    }
}

/// The result of a job.
pub enum RunServiceEvent {
    Listed(Result<Vec<RunEntry>, String>),
    Loaded(Arc<LoadedRun>),
    /// A run can be continued.
    Continuable(Box<Continuation>),
    /// The run that should be continued has been deleted.
    Gone,
    Deleted(Vec<String>),
    Restored(Vec<String>),
    TrashListed(Result<Vec<RunEntry>, String>),
    Removed(Vec<String>),
    Exported(Vec<PathBuf>),
    /// The file already exists; nothing was written.
    Exists(ExportOrder),
    Capsule(CapsuleEvent),
    Failed(String),
}

/// The result for a capsule.
pub enum CapsuleEvent {
    /// The capsule already exists; nothing was written.
    Exists(PathBuf),
    /// The file and its size in bytes.
    Made(PathBuf, u64),
    /// Making it was cancelled; nothing was written to this path.
    Cancelled(PathBuf),
    Replayed(PathBuf, Box<CapsuleReport>),
}

/// The largest number of waiting jobs and of events.
const BOUND: usize = 64;

/// The thread that works on kept runs.
pub struct RunService {
    queue: JobQueue<RunJob, RunServiceEvent>,
    /// The number of steps of the capsule that is being made or replayed, and whether it must stop.
    pub progress: Arc<AtomicU64>,
    cancel: Arc<AtomicBool>,
    is_busy: Arc<AtomicBool>,
}

impl RunService {
    /// Starts the thread; `wake` is called for each event.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(store: RunStore, wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let work = move |job| Some(carry_out(&store, job));
        let queue = JobQueue::spawn("stepgraph-runs", BOUND, wake, RunJob::is_long, work)?;
        Ok(Self { queue, progress: Arc::default(), cancel: Arc::default(), is_busy: Arc::default() })
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<RunServiceEvent> {
        self.queue.poll()
    }

    /// Passes a job to the thread; returns false if too many are waiting.
    #[must_use]
    pub fn give(&self, job: RunJob) -> bool {
        self.queue.give(job)
    }

    /// True while a run is exported, or read to be continued.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.queue.is_busy()
    }

    /// True while a capsule is made or replayed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// Stops making or replaying a capsule after its current step.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Performs a long job on a separate thread, unless another one is running; `work` receives a function to call
    /// after every step.
    fn at_length(&self, work: impl FnOnce(&dyn Fn(u64) -> bool) -> RunServiceEvent + Send + 'static) -> bool {
        if self.is_busy.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.cancel.store(false, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
        let (out, busy) = (self.queue.outbox(), Arc::clone(&self.is_busy));
        let (progress, cancel) = (Arc::clone(&self.progress), Arc::clone(&self.cancel));
        let task = move || {
            let event = work(&|step| {
                progress.store(step, Ordering::Relaxed);
                if step.is_multiple_of(64) {
                    out.wake();
                }
                !cancel.load(Ordering::Relaxed)
            });
            busy.store(false, Ordering::Relaxed);
            // The window may be closed by now; then nobody needs the answer.
            out.send(event);
        };
        let started = std::thread::Builder::new().name("stepgraph-capsule".into()).spawn(task).is_ok();
        if !started {
            self.is_busy.store(false, Ordering::Relaxed);
        }
        started
    }

    /// Makes a capsule; the answer is an event. Returns false if another one is being made or replayed.
    #[must_use]
    pub fn make_capsule(&self, spec: SessionSpec, steps: u64, path: PathBuf, replace: bool) -> bool {
        self.at_length(move |watch| {
            if path.exists() && !replace {
                return RunServiceEvent::Capsule(CapsuleEvent::Exists(path));
            }
            let mut made = 0;
            let capsule = Capsule::make(&spec, steps, |step| {
                made = step;
                watch(step)
            });
            // The last check for cancellation: a capsule that is no longer needed is not written.
            let wanted = capsule.and_then(|capsule| if watch(made) { Ok(capsule) } else { Err(TrainError::Cancelled) });
            match wanted.and_then(|capsule| capsule.write(&path)) {
                Ok(()) => {
                    let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
                    RunServiceEvent::Capsule(CapsuleEvent::Made(path, bytes))
                }
                Err(TrainError::Cancelled) => RunServiceEvent::Capsule(CapsuleEvent::Cancelled(path)),
                Err(error) => RunServiceEvent::Failed(format!("The capsule was not made: {error}")),
            }
        })
    }

    /// Replays a capsule; the answer is an event. Returns false if another one is being made or replayed.
    #[must_use]
    pub fn replay_capsule(&self, path: PathBuf, tuning: Option<Arc<crate::select::Tuning>>) -> bool {
        self.at_length(move |watch| {
            let base = path.parent().map(PathBuf::from).unwrap_or_default();
            match Capsule::read(&path).and_then(|c| c.replay(c.base(base), None, tuning, watch)) {
                Ok(report) => RunServiceEvent::Capsule(CapsuleEvent::Replayed(path, Box::new(report))),
                Err(error) => RunServiceEvent::Failed(format!("The capsule was not replayed: {error}")),
            }
        })
    }
}

fn carry_out(store: &RunStore, job: RunJob) -> RunServiceEvent {
    let list = || {
        let list = store.list().and_then(|list| {
            if list.is_empty() {
                store.check_place()?;
            }
            Ok(list)
        });
        RunServiceEvent::Listed(list.map_err(|e| e.to_string()))
    };
    let all = |ids: Vec<String>,
               what: &dyn Fn(&str) -> Result<(), RunsError>,
               done: fn(Vec<String>) -> RunServiceEvent| match ids.iter().try_for_each(|id| what(id)) {
        Ok(()) => done(ids),
        Err(error) => RunServiceEvent::Failed(error.to_string()),
    };
    match job {
        RunJob::List => list(),
        RunJob::Load(id) => match store.entry(&id).and_then(|entry| Ok((store.curves(&id)?, entry))) {
            Ok((curves, entry)) => RunServiceEvent::Loaded(Arc::new(LoadedRun::new(&entry, curves))),
            // It has been deleted, as the list will show.
            Err(RunsError::Unknown(_)) => list(),
            Err(error) => RunServiceEvent::Failed(error.to_string()),
        },
        RunJob::Continue(id) if !store.path(&id).is_dir() => RunServiceEvent::Gone,
        RunJob::Continue(id) => match Continuation::read(store, &id) {
            Ok(found) => RunServiceEvent::Continuable(Box::new(found)),
            Err(why) => RunServiceEvent::Failed(format!("The run cannot be continued: {why}")),
        },
        RunJob::SetLabel(id, label) => match store.set_label(&id, &label) {
            Ok(()) => list(),
            Err(error) => RunServiceEvent::Failed(error.to_string()),
        },
        RunJob::Delete(ids) => {
            // The store reports that a run is still being written.
            let delete = |id: &str| {
                is_released(store, id);
                store.delete(id)
            };
            all(ids, &delete, RunServiceEvent::Deleted)
        }
        RunJob::Restore(ids) => all(ids, &|id| store.restore(id), RunServiceEvent::Restored),
        RunJob::ListTrash => RunServiceEvent::TrashListed(store.trash().list().map_err(|e| e.to_string())),
        RunJob::Remove(ids) => all(ids, &|id| store.remove_from_trash(id), RunServiceEvent::Removed),
        RunJob::Export(order) => match export(store, &order) {
            Ok(files) => RunServiceEvent::Exported(files),
            Err(ExportError::Exists(_)) => RunServiceEvent::Exists(order),
            Err(error) => RunServiceEvent::Failed(format!("Not exported: {error}")),
        },
    }
}

fn export(store: &RunStore, order: &ExportOrder) -> Result<Vec<PathBuf>, ExportError> {
    let is_picture = matches!(order.format, Format::Svg | Format::Png);
    if let (true, true) = (is_picture, order.ids.len() > 1) {
        if order.path.exists() && !order.replace {
            return Err(ExportError::Exists(order.path.clone()));
        }
        let read = |id: &String| {
            let (entry, mut curves) = (store.find(id)?, store.curves(id)?);
            curves.maybe_trained = entry.record.maybe_trained;
            Ok((entry.name().to_owned(), curves))
        };
        let runs = order.ids.iter().map(read).collect::<Result<Vec<_>, RunsError>>()?;
        let runs: Vec<(&str, &Curves)> = runs.iter().map(|(name, curves)| (name.as_str(), curves)).collect();
        write_picture(order.format, &order.path, &plot_svg(&runs, order.options))?;
        return Ok(vec![order.path.clone()]);
    }
    let Some(id) = order.ids.first() else { return Ok(Vec::new()) };
    let entry = store.find(id)?;
    let replace = if order.replace { Replace::Anything } else { Replace::Nothing };
    Subject::of_run(store, &entry, order.format)?.write(order.format, &order.path, order.options, replace)
}
