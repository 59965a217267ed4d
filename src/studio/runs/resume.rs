//! Continuing a kept run: from its checkpoint, in the same curves, with the network that it began with.

use super::{Job, RunsCommand};
use crate::model::{Preset, write_preset};
use crate::studio::app::StudioApp;
use crate::studio::commands::{Command, Tab};
use crate::studio::curves::History;
use crate::studio::panels::modals::Question;
use crate::studio::view_models::format;
use crate::train::runs::{ResumePoint, RunStore, change};
use crate::train::{Command as Order, Recipe, SessionSpec, refusal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const GONE: &str = "This run is not there any more: it was deleted meanwhile. Choose another one in Runs.";

/// Where a kept run continues, and what is known of it until there.
#[derive(Debug)]
pub struct Continuation {
    pub point: ResumePoint,
    pub history: History,
    checkpoint: PathBuf,
}

impl Continuation {
    /// Reads a run up to its checkpoint.
    ///
    /// # Errors
    /// Where it has none, or its files cannot be read, in words.
    pub fn read(store: &RunStore, id: &str) -> Result<Self, String> {
        if !is_let_go(store, id) {
            return Err("it is being written by another program; stop it there, then continue it here".to_owned());
        }
        let (point, curves) = store.resume_point(id).map_err(|e| e.to_string())?;
        Ok(Self { point, history: History::of(&curves), checkpoint: store.checkpoint(id) })
    }
}

/// Waits for a run that this window let go just now, as long as its last checkpoint may take; false where it is still being written.
pub(super) fn is_let_go(store: &RunStore, id: &str) -> bool {
    const PATIENCE: Duration = Duration::from_secs(10);
    let asked = Instant::now();
    while store.is_busy(id) {
        if asked.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// What a run would be trained with, as a document: what a person reads only is left out.
fn essence(preset: &Preset, base: &Path) -> String {
    let preset = Preset { name: String::new(), about: String::new(), ..preset.clone() };
    write_preset(&preset.with_whole_paths(base))
}

/// The recipe of a preset whose data are found from this folder.
fn recipe(preset: &Preset, base: &Path) -> Recipe {
    Recipe::of(&preset.clone().with_whole_paths(base), preset.train.map_or(0, |t| t.seed), true)
}

impl StudioApp {
    /// Continues the first selected run. Where another network is open, a question comes first.
    pub(super) fn ask_to_continue(&mut self, ctx: &egui::Context) {
        let Some(entry) = self.studio.runs.first() else { return };
        let id = entry.id.clone();
        if self.studio.training.keeping.id() == Some(&id) && self.studio.training.obeys() {
            self.perform(ctx, Command::ShowTab(Tab::Train));
            let order = if self.studio.training.is_stopped() { Command::Continue } else { Command::Train };
            return self.perform(ctx, order);
        }
        if self.studio.training.is_running() {
            let text = "Another run is in progress. Stop it on the Train tab, then continue this one.";
            return self.studio.complain(text);
        }
        match self.difference_from_open(&id) {
            Err(why) => self.studio.complain(why),
            Ok(None) => self.read_to_continue(id),
            Ok(Some(_)) if self.resumes_as_open(&id) => self.read_to_continue(id),
            Ok(Some(change)) => self.panels.modals.ask(Question::Continue { id, change }),
        }
    }

    /// What is different in the open network from that of a run; `None` where it is the same.
    fn difference_from_open(&self, id: &str) -> Result<Option<String>, &'static str> {
        let entry = self.studio.runs.entry(id).ok_or(GONE)?;
        let preset = entry.record.read_preset();
        let preset = preset.ok_or("The preset of this run is of another version, which alone can continue it.")?;
        let document = &self.studio.document;
        let own = essence(&preset, &entry.record.base);
        Ok(change(&own, &essence(document.preset(), &document.base())))
    }

    /// Whether a run can continue with the open network as it is: what was changed of it is applied, and reported once
    /// the run is prepared.
    fn resumes_as_open(&self, id: &str) -> bool {
        let Some(entry) = self.studio.runs.entry(id) else { return false };
        let document = &self.studio.document;
        let own = entry.record.read_preset().map(|preset| recipe(&preset, &entry.record.base));
        own.is_some_and(|own| refusal(&own.changes(&recipe(document.preset(), &document.base()))).is_none())
    }

    /// Continues this run. Its own network is opened where it is not; edits that nobody saved are asked about.
    pub(super) fn continue_run(&mut self, ctx: &egui::Context, id: String) {
        if self.studio.runs.entry(&id).is_none() {
            return self.run_is_gone();
        }
        self.studio.runs.select(id.clone());
        match self.difference_from_open(&id) {
            Ok(Some(_)) if !self.studio.training.is_running() => {
                self.perform(ctx, Command::Runs(RunsCommand::ContinueOwn(id)));
            }
            _ => self.ask_to_continue(ctx),
        }
    }

    /// Reports that a run which should be continued was deleted; what offered it goes away.
    pub(super) fn run_is_gone(&mut self) {
        self.studio.complain(GONE);
        self.list_runs();
    }

    /// Opens a run's own network and continues it.
    pub(super) fn continue_own(&mut self, id: String) {
        let Some(entry) = self.studio.runs.entry(&id) else { return self.run_is_gone() };
        let Some(preset) = entry.record.read_preset() else { return };
        let preset = preset.with_whole_paths(&entry.record.base);
        self.open_document(preset, None);
        self.read_to_continue(id);
    }

    fn read_to_continue(&mut self, id: String) {
        if !self.studio.runs.give(Job::Continue(id)) {
            self.studio.complain("Too much is being done with runs at once. Try again.");
        }
    }

    /// Continues a run that was read.
    pub(super) fn go_on(&mut self, ctx: &egui::Context, from: Continuation) {
        if self.studio.training.is_running() {
            return self.studio.complain("Another run was begun meanwhile. Stop it on the Train tab, and try again.");
        }
        if !self.studio.devices.current().trains() {
            return self
                .studio
                .complain("Nothing is trained on this device. Choose another one at the top, and try again.");
        }
        let preset = self.studio.document.preset();
        let (id, step) = (from.point.id.clone(), from.point.step);
        let asked = preset.train.map_or(1000, |t| t.steps as u64);
        // A run that was over continues for as long again.
        let total = if asked > step { asked } else { step + asked };
        let spec = SessionSpec {
            steps: usize::try_from(total).ok(),
            resume: Some(from.checkpoint.clone()),
            ..self.spec_to_train()
        };
        self.begin_run(spec, Order::Start, Some(from));
        self.perform(ctx, Command::ShowTab(Tab::Train));
        let name = self.studio.runs.name(&id).to_owned();
        self.studio.say(format!("{name} continues from step {}.", format::exact(step)));
    }

    /// Continues the run on the Train tab after it was stopped.
    pub(in crate::studio) fn continue_stopped(&mut self) {
        let stale = self.studio.is_stale();
        self.studio.training.send(Order::Start);
        if stale {
            let text = "The run continues with the network and the device that it began with. Train anew trains what is open now.";
            self.studio.say(text);
        }
    }
}

impl RunsCommand {
    /// True where it puts another document in the place of the one that is open.
    #[must_use]
    pub const fn replaces_document(&self) -> bool {
        matches!(self, Self::OpenPreset | Self::ContinueOwn(_))
    }
}
