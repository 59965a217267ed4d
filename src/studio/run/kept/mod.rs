//! The window's state of kept runs: the list, the selection, the curves that were read, and the run that is being kept.

pub mod continuation;
pub mod service;
pub mod writer;

use crate::studio::commands::runs::Column;
use crate::studio::run::kept::service::{RunJob, RunService};
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::runs::{RunsOrder, RunsView};
use crate::train::capsule::CapsuleReport;
use crate::train::runs::{FieldDifference, RunEnd, RunEntry, RunStore, now_ms, preset_differences};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest number of runs whose curves are compared; each has a letter and a colour.
pub const MOST_COMPARED: usize = 8;

/// Time between two lists while a run is being written.
const LIST_EVERY: Duration = Duration::from_secs(2);

/// The run whose curves are drawn behind those of the current one.
#[derive(Default)]
pub struct Baseline {
    /// `None` until its curves were read.
    pub run: Option<Arc<LoadedRun>>,
    pub id: Option<String>,
    /// The deleted baseline: it becomes the baseline again if it is restored before another one is pinned.
    pub lost: Option<String>,
}

impl Baseline {
    /// The run that is pinned again at the next start of the window.
    #[must_use]
    pub fn remembered(&self) -> Option<String> {
        self.id.clone().or_else(|| self.lost.clone())
    }
}

/// The runs that were deleted.
#[derive(Default)]
pub struct Trash {
    /// The runs that were deleted last, which can be restored.
    pub last: Vec<String>,
    /// True if the tab lists deleted runs.
    pub is_shown: bool,
    /// All of them, the newest first; `None` until they were read.
    pub runs: Option<RunsView>,
}

impl Trash {
    /// The order of the list.
    const ORDER: RunsOrder = RunsOrder { column: Column::Started, is_reversed: false, shows_hidden: true };
}

/// The window's state of kept runs.
pub struct KeptRuns {
    /// `None` if the system has no folder for runs, or runs are not kept.
    pub service: Option<RunService>,
    pub store: Option<RunStore>,
    pub entries: Vec<RunEntry>,
    pub view: RunsView,
    /// Why there is no list.
    pub problem: Option<String>,
    /// Ids of the runs that are compared, in the order in which they were selected.
    pub selected: Vec<String>,
    pub order: RunsOrder,
    /// Whether curves are compared by time instead of by step.
    pub by_time: bool,
    pub loaded: HashMap<String, Arc<LoadedRun>>,
    pub baseline: Baseline,
    /// The differences between the presets of the selected runs.
    pub differences: Vec<FieldDifference>,
    /// The result of the last replay of a capsule.
    pub replayed: Option<(PathBuf, Box<CapsuleReport>)>,
    pub trash: Trash,
    /// True once there was a list.
    pub is_known: bool,
    asked_for: Vec<String>,
    listed: Option<Instant>,
    changes: Option<u64>,
    is_listing: bool,
    /// True while the table was shown in the last frame.
    was_shown: bool,
}

impl KeptRuns {
    /// The runs of a store; empty without a store.
    #[must_use]
    pub fn new(store: Option<RunStore>, wake: &Arc<dyn Fn() + Send + Sync>) -> Self {
        let service = store.clone().map(|s| RunService::spawn(s, Arc::clone(wake)));
        let problem = match &service {
            None => Some("This system has no data folder in which runs could be kept.".to_owned()),
            Some(Err(error)) => Some(format!("Kept runs cannot be read: {error}.")),
            Some(Ok(_)) => None,
        };
        Self {
            service: service.and_then(Result::ok),
            store,
            entries: Vec::new(),
            view: RunsView::default(),
            problem,
            selected: Vec::new(),
            order: RunsOrder::default(),
            by_time: false,
            loaded: HashMap::new(),
            baseline: Baseline::default(),
            differences: Vec::new(),
            replayed: None,
            trash: Trash::default(),
            is_known: false,
            asked_for: Vec::new(),
            listed: None,
            changes: None,
            is_listing: false,
            was_shown: false,
        }
    }

    /// The run with this id.
    #[must_use]
    pub fn entry(&self, id: &str) -> Option<&RunEntry> {
        self.entries.iter().find(|e| e.id == id)
    }

    /// The name of the run with this id.
    #[must_use]
    pub fn name(&self, id: &str) -> &str {
        self.entry(id).map_or("", RunEntry::name)
    }

    /// The name of a run in the trash.
    #[must_use]
    pub fn trashed_name(&self, id: &str) -> &str {
        let row = self.trash.runs.iter().flat_map(|t| &t.rows).find(|r| r.id == id);
        row.map_or("1 run", |r| r.name.as_str())
    }

    /// Draws the curves of this run behind those of the Train tab; `None` draws no other curves.
    pub fn set_baseline(&mut self, id: Option<String>) {
        self.baseline.run = id.as_ref().and_then(|id| self.loaded.get(id)).map(Arc::clone);
        (self.baseline.id, self.baseline.lost) = (id, None);
    }

    /// The first selected run.
    #[must_use]
    pub fn first(&self) -> Option<&RunEntry> {
        self.selected.first().and_then(|id| self.entry(id))
    }

    /// The letter of a selected run in the table and the plots.
    #[must_use]
    pub fn letter(&self, id: &str) -> Option<char> {
        let index = self.selected.iter().position(|s| s == id)?;
        char::from_u32('A' as u32 + index as u32)
    }

    /// Selects only one run, and reads its curves again.
    pub fn select(&mut self, id: String) {
        self.forget(&id);
        self.selected = vec![id];
        self.selection_changed();
    }

    /// Adds a run to the comparison, or removes it; returns false if there are too many.
    #[must_use]
    pub fn toggle(&mut self, id: String) -> bool {
        if let Some(at) = self.selected.iter().position(|s| *s == id) {
            self.selected.remove(at);
        } else if self.selected.len() < MOST_COMPARED {
            self.forget(&id);
            self.selected.push(id);
        } else {
            return false;
        }
        self.selection_changed();
        true
    }

    /// Removes every run from the comparison.
    pub fn clear_selection(&mut self) {
        self.selected.clear();
        self.selection_changed();
    }

    /// Sorts by a column; by the same column again in the opposite order.
    pub fn sort_by(&mut self, column: Column) {
        self.order.is_reversed = self.order.column == column && !self.order.is_reversed;
        self.order.column = column;
        self.make_view();
    }

    /// Passes a job to the thread; returns false if there is none or too many jobs are waiting.
    pub fn give(&self, job: RunJob) -> bool {
        self.service.as_ref().is_some_and(|d| d.give(job))
    }

    /// True while a run is being written, by this window or by a command.
    #[must_use]
    fn is_watching(&self) -> bool {
        self.entries.iter().any(|e| e.record.state == RunEnd::Running)
    }

    /// Requests a list if the last one is outdated, and curves that are needed; `changes` is `RunWriter::changes`.
    /// While the table is `shown`, and when it becomes visible, runs by other programs are looked for.
    pub fn tend(&mut self, changes: u64, shown: bool) {
        let opened = shown && !std::mem::replace(&mut self.was_shown, shown);
        self.was_shown = shown;
        if self.view.changes_at.is_some_and(|at| at <= now_ms()) {
            self.make_view();
        }
        let Some(service) = &self.service else { return };
        let old = self.listed.is_none_or(|t| t.elapsed() >= LIST_EVERY);
        let stale = self.changes != Some(changes) || opened || (old && (shown || self.is_watching()));
        if stale && !self.is_listing && service.give(RunJob::List) {
            (self.changes, self.is_listing, self.listed) = (Some(changes), true, Some(Instant::now()));
        }
        let wanted = self.selected.iter().chain(&self.baseline.id);
        for id in wanted {
            // The remembered baseline may not exist any more; the list shows that.
            let Some(steps) = self.entries.iter().find(|e| e.id == *id).map(|e| e.record.steps) else { continue };
            let is_fresh = self.loaded.get(id).is_some_and(|l| l.steps == steps);
            if !is_fresh && !self.asked_for.contains(id) && service.give(RunJob::Load(id.clone())) {
                self.asked_for.push(id.clone());
            }
        }
    }

    /// Builds the rows again.
    pub fn make_view(&mut self) {
        self.view = RunsView::new(&self.entries, self.order, now_ms());
    }

    /// Builds the comparison of presets again, and drops curves that are no longer needed.
    fn selection_changed(&mut self) {
        let presets: Vec<&str> =
            self.selected.iter().filter_map(|id| self.entry(id)).map(|e| e.record.preset.as_str()).collect();
        self.differences = if presets.len() > 1 { preset_differences(&presets) } else { Vec::new() };
        let (selected, baseline) = (&self.selected, &self.baseline.id);
        self.loaded.retain(|id, _| selected.contains(id) || baseline.as_ref() == Some(id));
    }

    /// Receives a list.
    pub fn take_list(&mut self, list: Result<Vec<RunEntry>, String>) {
        self.is_listing = false;
        self.listed = Some(Instant::now());
        match list {
            Ok(entries) => {
                self.problem = None;
                self.entries = entries;
                let entries = &self.entries;
                let is_there = |id: &String| entries.iter().any(|e| e.id == *id);
                self.selected.retain(is_there);
                self.asked_for.retain(is_there);
                if self.baseline.id.as_ref().is_some_and(|id| !is_there(id)) {
                    (self.baseline.run, self.baseline.lost) = (None, self.baseline.id.take());
                } else if self.baseline.lost.as_ref().is_some_and(is_there) {
                    self.baseline.id = self.baseline.lost.take();
                }
            }
            Err(error) => self.problem = Some(error),
        }
        self.selection_changed();
        self.make_view();
    }

    /// Requests the contents of the trash again if they are shown; returns false if too many jobs are waiting.
    #[must_use]
    pub fn read_trash(&self) -> bool {
        !self.trash.is_shown || self.give(RunJob::ListTrash)
    }

    /// Receives the contents of the trash.
    pub fn take_trash(&mut self, list: Result<Vec<RunEntry>, String>) {
        match list {
            Ok(entries) => self.trash.runs = Some(RunsView::new(&entries, Trash::ORDER, now_ms())),
            Err(error) => self.problem = Some(error),
        }
    }

    /// Receives the curves of a run.
    pub fn take_curves(&mut self, run: Arc<LoadedRun>) {
        self.asked_for.retain(|id| *id != run.id);
        if self.baseline.id.as_ref() == Some(&run.id) {
            self.baseline.run = Some(Arc::clone(&run));
        }
        self.loaded.insert(run.id.clone(), run);
    }

    /// A job failed: it may be requested again when the user repeats the choice.
    pub fn job_failed(&mut self) {
        self.is_listing = false;
    }

    /// Time until the window should be drawn again because of runs, whose table is `shown` or not; `None` if nothing
    /// changes.
    #[must_use]
    pub fn until_next(&self, shown: bool) -> Option<Duration> {
        let moves = self.service.as_ref().is_some_and(|d| shown || d.is_busy()) || self.is_watching();
        let age = self.view.changes_at.filter(|_| shown);
        let age = age.map(|at| Duration::from_millis(at.saturating_sub(now_ms())));
        age.into_iter().chain(moves.then_some(LIST_EVERY)).min()
    }

    /// Records that a run's curves are no longer requested.
    pub fn forget(&mut self, id: &str) {
        self.asked_for.retain(|a| a != id);
        self.loaded.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_folder_for_runs_there_are_none_and_this_is_reported() {
        let mut runs = KeptRuns::new(None, &(Arc::new(|| {}) as Arc<dyn Fn() + Send + Sync>));
        runs.tend(0, true);
        assert!(runs.entries.is_empty() && runs.problem.as_ref().is_some_and(|p| p.contains("no data folder")));
        assert!(!runs.give(RunJob::List) && runs.until_next(true).is_none());
    }

    #[test]
    fn selected_runs_have_letters_in_the_order_of_their_choice() {
        let mut runs = KeptRuns::new(None, &(Arc::new(|| {}) as Arc<dyn Fn() + Send + Sync>));
        runs.selected = vec!["x".into(), "y".into()];
        assert_eq!((runs.letter("y"), runs.letter("z")), (Some('B'), None));
    }
}
