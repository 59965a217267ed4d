//! The thread that reads, changes and exports kept runs, away from the one that draws.

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

/// What to export, and where to.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportOrder {
    pub ids: Vec<String>,
    pub format: Format,
    pub path: PathBuf,
    pub options: PlotOptions,
    /// The user was asked about what is there.
    pub replace: bool,
}

/// Something to do with kept runs.
pub enum RunJob {
    List,
    Load(String),
    /// Reads what a run needs to continue.
    Continue(String),
    SetLabel(String, Label),
    Delete(Vec<String>),
    Restore(Vec<String>),
    ListTrash,
    /// Removes these from the trash for good.
    Remove(Vec<String>),
    Export(ExportOrder),
}

impl RunJob {
    /// True for what may take the user's time.
    const fn is_long(&self) -> bool {
        matches!(self, Self::Export(_) | Self::Continue(_))
    }
}

/// What came of it.
pub enum RunServiceEvent {
    Listed(Result<Vec<RunEntry>, String>),
    Loaded(Arc<LoadedRun>),
    /// A run can be continued.
    Continuable(Box<Continuation>),
    /// The run to be continued has been deleted.
    Gone,
    Deleted(Vec<String>),
    Restored(Vec<String>),
    TrashListed(Result<Vec<RunEntry>, String>),
    Removed(Vec<String>),
    Exported(Vec<PathBuf>),
    /// A file is there already; nothing was written.
    Exists(ExportOrder),
    Capsule(CapsuleEvent),
    Failed(String),
}

/// What came of a capsule.
pub enum CapsuleEvent {
    /// A capsule is there already; nothing was written.
    Exists(PathBuf),
    /// The file and its size in bytes.
    Made(PathBuf, u64),
    /// The making was cancelled; nothing was written to this place.
    Cancelled(PathBuf),
    Replayed(PathBuf, Box<CapsuleReport>),
}

/// Jobs and events that may wait.
const BOUND: usize = 64;

/// The thread that works on kept runs.
pub struct RunService {
    queue: JobQueue<RunJob, RunServiceEvent>,
    /// Steps of the capsule that is being made or replayed, and whether it should end.
    pub progress: Arc<AtomicU64>,
    cancel: Arc<AtomicBool>,
    is_busy: Arc<AtomicBool>,
}

impl RunService {
    /// Starts the thread; `wake` is called when there is an event.
    ///
    /// # Errors
    /// If the system refuses a thread.
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

    /// Gives the thread something to do; false where too much is waiting.
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

    /// Ends the making or the replay of a capsule after its present step.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Does something long on a thread of its own, unless such a thing is under way; `work` is given what to call
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
            // The window may be gone by now; then nobody asks any more.
            out.send(event);
        };
        let started = std::thread::Builder::new().name("stepgraph-capsule".into()).spawn(task).is_ok();
        if !started {
            self.is_busy.store(false, Ordering::Relaxed);
        }
        started
    }

    /// Makes a capsule; the answer is an event. False where one is under way.
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
            // The last look at the wish to cancel: a capsule that is no longer needed is not written.
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

    /// Replays a capsule; the answer is an event. False where one is under way.
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
            // It has been deleted: the list shows it.
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
            // The store reports one that is still being written.
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
