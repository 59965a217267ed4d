//! Everything the window shows: the document, its compiled step, the run, the selection, and the views of them.
//!
//! The panels see views of it. It changes by commands and requests, in `actions`, and by answers from the other
//! threads, in [`Studio::take_answers`].

use crate::model::{Checked, Diagnostic, check};
use crate::select::Tuning;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::tab::Tab;
use crate::studio::document::files::FileService;
use crate::studio::document::history::Document;
use crate::studio::document::recovery::Recovery;
use crate::studio::jobs::compiler::{Answer, Compiler};
use crate::studio::jobs::devices::Devices;
use crate::studio::jobs::list::Jobs;
use crate::studio::jobs::measurements::Measurements;
use crate::studio::jobs::prices::PriceList;
use crate::studio::jobs::proofs::Proofs;
use crate::studio::jobs::shown_recording::ShownRecording;
use crate::studio::run::kept::KeptRuns;
use crate::studio::run::predictions::Predictions;
use crate::studio::run::samples::{Samples, key_of};
use crate::studio::run::training::Training;
use crate::studio::shell::motion::Motion;
use crate::studio::shell::selection_history::SelectionHistory;
use crate::studio::shell::settings::Settings;
use crate::studio::shell::tour::Tour;
use crate::studio::view_models::changes::PlanChanges;
use crate::studio::view_models::folded_layers::FoldedLayers;
use crate::studio::view_models::hints::{classes_of, hints};
use crate::studio::view_models::inspector::InspectorView;
use crate::studio::view_models::network::{NetworkView, Row};
use crate::studio::view_models::notice::Notice;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::Related;
use crate::studio::view_models::status::PlanNumbers;
use crate::studio::view_models::transport::Next;
use crate::train::runs::RunStore;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two writes of the recovery file.
const RECOVER_EVERY: Duration = Duration::from_secs(1);

/// What views depend on: the revisions of document, answer and plan, the mistakes found in the data, and the number of
/// its classes.
type ViewKey = (u64, u64, u64, Vec<Diagnostic>, Option<usize>);

/// What the inspector's page depends on: the selection; the revisions of document and plan, and whether the document is
/// compiled; the steps of the run whose changes it shows.
type PageKey = (Selection, (u64, u64, bool), usize);

/// The changes of the plan by the last edit.
#[derive(Default)]
pub struct EditEffect {
    /// As text.
    pub difference: Option<String>,
    /// The added and removed items.
    pub changes: Option<Arc<PlanChanges>>,
    /// The time of the compiler from request to answer.
    pub took: Duration,
}

/// The state of the window.
pub struct Studio {
    pub document: Document,
    pub devices: Devices,
    pub training: Training,
    pub samples: Samples,
    pub predictions: Predictions,
    pub proofs: Proofs,
    pub prices: PriceList,
    /// The tabs that were drawn last: data for other tabs is neither loaded nor requested.
    pub shown: Vec<Tab>,
    pub runs: KeptRuns,
    pub selection: SelectionHistory,
    pub settings: Settings,
    pub notice: Option<Notice>,
    /// Fields with an invalid text, so that the document is not what the user sees.
    pub draft_mistakes: usize,
    /// The newest plan of a document without mistakes, and the document's revision.
    pub plan: Option<Arc<PlanView>>,
    pub plan_revision: u64,
    /// The number of plans so far.
    pub(super) plan_number: u64,
    /// The recording whose plan the views show instead.
    pub recording: ShownRecording,
    pub last_edit: EditEffect,
    /// Measurements on request.
    pub measurements: Measurements,
    /// Background jobs.
    pub jobs: Jobs,
    pub tour: Tour,
    /// The system's setting about motion.
    pub motion: Motion,
    pub network: NetworkView,
    pub folds: FoldedLayers,
    /// The folds of the list of layers.
    pub rows: Vec<Row>,
    pub related: Related,
    pub inspector: InspectorView,
    pub(super) files: FileService,
    pub(super) wake: Arc<dyn Fn() + Send + Sync>,
    compiler: Compiler,
    checked: Option<Checked>,
    failure: Option<String>,
    answered: u64,
    /// The plan before the edits that are undone together, and the number of that undo step: changes are reported
    /// relative to it.
    before: Option<Arc<PlanView>>,
    group: u64,
    /// What the views last depended on.
    made_for: Option<ViewKey>,
    rows_for: Option<u64>,
    inspected: Option<PageKey>,
    recovery: Option<Recovery>,
    recovered: (u64, bool, Option<Instant>),
}

impl Studio {
    /// The state with a document; `wake` requests a frame, from any thread.
    ///
    /// # Errors
    /// If the system refuses to start threads.
    pub fn new(
        document: Document,
        settings: Settings,
        tuning: Option<Arc<Tuning>>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let bell = Arc::clone(&wake);
        let devices = Devices::new(tuning, move || bell())?;
        let bell = Arc::clone(&wake);
        Ok(Self {
            compiler: Compiler::spawn(Arc::clone(devices.current()), move || bell())?,
            files: FileService::spawn(Arc::clone(&wake))?,
            document,
            devices,
            training: Training::default(),
            samples: Samples::new(Arc::clone(&wake))?,
            predictions: Predictions::new(Arc::clone(&wake))?,
            proofs: Proofs::default(),
            prices: PriceList::new(Arc::clone(&wake))?,
            shown: Vec::new(),
            runs: KeptRuns::new(None, &wake),
            selection: SelectionHistory::default(),
            settings,
            notice: None,
            draft_mistakes: 0,
            plan: None,
            plan_revision: 0,
            plan_number: 0,
            recording: ShownRecording::default(),
            last_edit: EditEffect::default(),
            measurements: Measurements::new(Arc::clone(&wake)),
            jobs: Jobs::default(),
            tour: Tour::default(),
            motion: Motion::default(),
            network: NetworkView::default(),
            folds: FoldedLayers::default(),
            rows: Vec::new(),
            related: Related::default(),
            inspector: InspectorView::default(),
            wake,
            checked: None,
            failure: None,
            answered: 0,
            before: None,
            group: 0,
            made_for: None,
            rows_for: None,
            inspected: None,
            recovery: None,
            recovered: (0, false, None),
        })
    }

    /// Keeps unsaved edits in this folder from now on, and restores those that a crash left there.
    pub fn recover_in(&mut self, folder: &std::path::Path) {
        self.recovery = Recovery::claim(folder);
        let Some((preset, origin)) = self.recovery.as_ref().and_then(Recovery::left) else { return };
        let saved = origin
            .as_deref()
            .and_then(|p| crate::studio::document::files::read(p).ok())
            .unwrap_or_else(crate::studio::document::presets::empty);
        if let Some(origin) = &origin {
            self.files.learn(origin.clone());
        }
        let way = if origin.is_some() { "open the file again" } else { "open another network" };
        self.document.restore(preset, saved, origin);
        self.say(format!("Unsaved edits of the last session were restored. Save them, or {way} to discard them."));
    }

    /// Keeps the runs of this window in this store from now on, and shows the existing ones.
    pub fn keep_runs_in(&mut self, store: RunStore) {
        self.runs = KeptRuns::new(Some(store.clone()), &self.wake);
        self.training.writer.store = Some(store);
    }

    /// The number of mistakes in what the user sees.
    #[must_use]
    pub const fn problems(&self) -> usize {
        self.network.problems + self.draft_mistakes
    }

    /// True if the newest document has been compiled or rejected.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.answered == self.document.revision()
    }

    /// True where the document could be trained now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.devices.current().trains()
            && self.draft_mistakes == 0
            && self.is_answered()
            && self.plan.is_some()
            && !self.is_plan_stale()
    }

    /// True where the plan belongs to an older document.
    #[must_use]
    pub const fn is_plan_stale(&self) -> bool {
        self.plan_revision != self.document.revision()
    }

    /// True if the plan is that of the network before its mistakes: there will be no newer one until they are
    /// corrected.
    #[must_use]
    pub const fn is_plan_outdated(&self) -> bool {
        self.plan.is_some() && self.is_answered() && self.is_plan_stale()
    }

    /// True if the run trains another network than the one on screen, or on another device. The length of training is
    /// not part of the network.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let device = self.devices.current().choice;
        let now = self.document.preset();
        self.training.device.is_some_and(|d| d != device)
            || self.training.preset.as_ref().is_some_and(|p| !Arc::ptr_eq(p, now) && !p.trains_as(now))
    }

    /// The effect of pressing Train.
    #[must_use]
    pub fn next(&self) -> Next {
        let steps = self.document.preset().train.map_or(1000, |t| t.steps as u64);
        self.training.next(self.is_stale(), steps)
    }

    /// Receives results from the other threads, within a part of a frame; returns true if some are left.
    pub fn take_answers(&mut self) -> bool {
        const BUDGET: Duration = Duration::from_millis(3);
        if self.devices.poll(self.settings.device, self.settings.first_kernels) {
            self.compiler.set_machine(Arc::clone(self.devices.current()));
            self.measurements.change_device();
            self.proofs.change_device();
            self.prices.change_device();
            // The plan on screen stays until the new one is ready, as after an edit.
            (self.answered, self.plan_revision) = (u64::MAX, u64::MAX);
            self.before.clone_from(&self.plan);
        }
        if self.group != self.document.group() {
            self.group = self.document.group();
            self.before.clone_from(&self.plan);
        }
        let revision = self.document.revision();
        let preset = Arc::clone(self.document.preset());
        self.compiler.ask(revision, &preset, self.before.as_ref());
        self.follow_recording();
        if let Some(answer) = self.compiler.poll() {
            self.take_answer(answer);
        }
        let left = self.training.drain(BUDGET);
        self.take_news();
        if let Some(notes) = self.training.take_resumed() {
            self.say_more(&format!(" {notes}."));
        }
        self.update_tabs();
        if let Some(problem) = self.training.writer.tend() {
            self.complain(problem);
        }
        self.runs.tend(self.training.writer.changes, self.shown.contains(&Tab::Runs));
        self.ask_measurements();
        self.report_found();
        self.follow_jobs();
        self.tour.watch(self.training.done(), self.selection.current(), self.plan_revision);
        self.keep_safe();
        self.make_views();
        left
    }

    /// Exchanges data with the tabs for data, predictions and checks.
    fn update_tabs(&mut self) {
        self.samples.poll();
        // A document that is being checked may soon have another output.
        if self.shown.contains(&Tab::Data) && self.is_answered() {
            let model = self.checked.as_ref().and_then(|c| c.model.as_ref());
            self.samples.want(key_of(self.document.preset(), model, self.document.base()));
        }
        let shown = self.shown.contains(&Tab::Predictions);
        let layer = match self.selection.current() {
            Selection::Layer(path) => Some(path),
            _ => None,
        };
        self.predictions.follow(&mut self.training, shown, layer);
        self.ask_price();
        self.proofs.poll();
        self.prices.poll();
    }

    /// True while the newest document is being compiled.
    #[must_use]
    pub const fn is_compiling(&self) -> bool {
        self.compiler.is_busy()
    }

    /// Cancels compiling the newest document, until the next edit.
    pub(super) fn cancel_compile(&mut self) {
        self.compiler.cancel();
        self.answered = self.document.revision();
        self.checked = Some(check(self.document.preset()));
        self.failure = Some("Planning was cancelled. Any edit plans the step again.".to_owned());
    }

    fn take_answer(&mut self, answer: Answer) {
        self.answered = answer.revision;
        self.devices.suit(&answer.machine);
        self.devices.cpu_only = answer.cpu_only;
        self.failure = answer.error;
        self.checked = Some(answer.checked);
        if let Some(plan) = answer.plan {
            let numbers = |plan: &PlanView| PlanNumbers::of(plan, self.measurements.ceilings.as_ref());
            let difference = self.before.as_ref().and_then(|before| numbers(&plan).difference(&numbers(before)));
            let shown = self.plan_shown().cloned();
            self.last_edit = EditEffect { difference, changes: answer.changes.map(Arc::new), took: answer.took };
            self.plan = Some(plan);
            self.plan_revision = answer.revision;
            self.plan_number += 1;
            self.follow_plan(shown.as_ref());
        }
    }

    /// Another document is open: everything that belonged to the old one is dropped.
    pub(super) fn forget_plan(&mut self) {
        (self.plan, self.before, self.checked, self.failure) = (None, None, None, None);
        self.last_edit = EditEffect::default();
        self.recording.clear();
        self.measurements.clear();
        self.selection.clear();
        self.folds.forget();
        self.proofs.clear();
    }

    /// Writes the recovery file if there are new edits, at most once a second.
    fn keep_safe(&mut self) {
        let Some(recovery) = &self.recovery else { return };
        let (revision, dirty) = (self.document.revision(), self.document.is_dirty());
        let (last, was_dirty, at) = self.recovered;
        let changed = (dirty && (revision != last || !was_dirty)) || (!dirty && was_dirty);
        if !changed || at.is_some_and(|t| t.elapsed() < RECOVER_EVERY) {
            return;
        }
        let edits = dirty.then(|| (Arc::clone(self.document.preset()), self.document.path().map(PathBuf::from)));
        if self.files.recover(recovery.path().to_owned(), edits) {
            self.recovered = (revision, dirty, Some(Instant::now()));
        }
    }

    /// Time until unsaved edits must be written; `None` if all are.
    #[must_use]
    pub fn until_safe(&self) -> Option<Duration> {
        let (last, was_dirty, at) = self.recovered;
        let dirty = self.document.is_dirty();
        let changed = (dirty && (self.document.revision() != last || !was_dirty)) || (!dirty && was_dirty);
        (self.recovery.is_some() && changed)
            .then(|| at.map_or(Duration::ZERO, |t| RECOVER_EVERY.saturating_sub(t.elapsed())))
    }

    /// Removes the recovery file, because the user has decided about the edits.
    pub fn end_recovery(&mut self) {
        if let Some(recovery) = self.recovery.take() {
            self.files.recover(recovery.path().to_owned(), None);
        }
    }

    /// Mistakes of the document that only its data shows: known once a run began, or the data was viewed.
    fn misfits(&self) -> Vec<Diagnostic> {
        let preset = self.document.preset();
        let model = || self.checked.as_ref().filter(|_| self.is_answered()).and_then(|c| c.model.as_ref());
        // The data that was loaded last is newer than what a run has found.
        match self.samples.verdict(preset, || key_of(preset, model(), self.document.base())) {
            Some(found) => found.into_iter().collect(),
            None => self.training.mistakes_of(preset).to_vec(),
        }
    }

    /// The number of classes of the document's data, if it is known.
    fn classes(&self) -> Option<usize> {
        let data = self.document.preset().data.as_ref()?;
        classes_of(&data.source).or_else(|| self.samples.classes(data))
    }

    /// Updates the views if what they show has changed.
    fn make_views(&mut self) {
        let misfits = self.misfits();
        let key = (self.document.revision(), self.answered, self.plan_revision, misfits, self.classes());
        if self.made_for.as_ref() != Some(&key) {
            self.selection.forget_missing(self.document.preset());
            let fresh = if self.is_plan_stale() { None } else { self.plan.as_deref() };
            self.network =
                NetworkView::new(self.document.preset(), self.checked.as_ref(), fresh, self.failure.as_deref(), &key.3);
            let model = self.checked.as_ref().filter(|_| self.is_answered()).and_then(|c| c.model.as_ref());
            if let (Some(model), Some(classes)) = (model, key.4) {
                self.network.set_hints(hints(self.document.preset(), &model.output, classes));
            }
            self.made_for = Some(key);
            self.folds.settle(&self.network);
            self.rows_for = None;
        }
        if let Selection::Layer(path) = self.selection.current()
            && self.inspected.as_ref().is_none_or(|k| k.0 != *self.selection.current())
        {
            self.folds.reveal(path, &self.network);
        }
        if self.rows_for != Some(self.folds.revision()) {
            self.rows_for = Some(self.folds.revision());
            self.rows = self.network.rows(|fold| self.folds.is_folded(fold));
        }
        // A page shows changes of parameters too, but only for the same network.
        let updates = &self.training.history.layer_updates;
        let shown = if self.is_stale() {
            0
        } else {
            updates.first().map_or(0, |_| self.training.history.curves.loss.raw.len())
        };
        let made_of = (self.document.revision(), self.revision_shown(), self.is_answered());
        let key = (self.selection.current().clone(), made_of, shown);
        // Until the compiler answers, the page of the same item stays, so that an edit does not make it flicker.
        let waits = !self.is_answered() && self.inspected.as_ref().is_some_and(|k| k.0 == key.0);
        if !waits && self.inspected.as_ref() != Some(&key) {
            let updates: &[f32] = if shown == 0 { &[] } else { updates };
            let same = self.inspected.as_ref().is_some_and(|k| (&k.0, k.1) == (&key.0, key.1));
            let is_layer = matches!(key.0, Selection::Layer(_));
            // A plan of another network has other layers with these numbers.
            let is_of_document = is_layer || key.0 == Selection::Nothing;
            let is_older = is_of_document && self.is_plan_stale() && !self.shows_recording();
            let plan = self.recording.plan().or(self.plan.as_ref()).filter(|_| !is_older).map(|plan| &**plan);
            if !same {
                self.related = Related::new(self.selection.current(), plan.map(|p| &*p.compiled));
            }
            if !same || is_layer {
                self.inspector = InspectorView::new(self.selection.current(), self.document.preset(), plan, updates);
            }
            self.inspected = Some(key);
        }
    }
}
