//! Continues a kept run: from its checkpoint, with the same curves and its original network.

use crate::model::{Preset, write_preset};
use crate::studio::commands::{Request, Tab, UiCommand};
use crate::studio::panels::modals::Question;
use crate::studio::run::kept::continuation::Continuation;
use crate::studio::run::kept::service::RunJob;
use crate::studio::shell::app::StudioApp;
use crate::studio::view_models::format;
use crate::train::runs::change;
use crate::train::{Command as Order, Overrides, Recipe, SessionSpec, Start, refusal};
use std::path::Path;

const GONE: &str = "This run no longer exists: it was deleted in the meantime. Choose another one in Runs.";

/// The settings that a run would be trained with, as a document; descriptions are left out.
fn essence(preset: &Preset, base: &Path) -> String {
    let preset = Preset { name: String::new(), about: String::new(), ..preset.clone() };
    write_preset(&preset.with_whole_paths(base))
}

/// The recipe of a preset whose data are relative to this folder.
fn recipe(preset: &Preset, base: &Path) -> Recipe {
    Recipe::of(&preset.clone().with_whole_paths(base), preset.train.map_or(0, |t| t.seed), true)
}

impl StudioApp {
    /// Continues the first selected run. If another network is open, a question comes first.
    pub(super) fn ask_to_continue(&mut self, ctx: &egui::Context) {
        let Some(entry) = self.studio.runs.first() else { return };
        let id = entry.id.clone();
        if self.studio.training.writer.id() == Some(&id) && self.studio.training.obeys() {
            self.perform(ctx, UiCommand::ShowTab(Tab::Train));
            let order = if self.studio.training.is_stopped() { UiCommand::Continue } else { UiCommand::Train };
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

    /// The differences between the open network and that of a run; `None` if there are none.
    fn difference_from_open(&self, id: &str) -> Result<Option<String>, &'static str> {
        let entry = self.studio.runs.entry(id).ok_or(GONE)?;
        let preset = entry.record.read_preset();
        let preset = preset.ok_or(
            "The preset of this run belongs to another version of the program; only that version can continue the run.",
        )?;
        let document = &self.studio.document;
        let own = essence(&preset, &entry.record.base);
        Ok(change(&own, &essence(document.preset(), &document.base())))
    }

    /// Whether a run can continue with the open network as it is: its changes are applied, and reported once the run is
    /// prepared.
    fn resumes_as_open(&self, id: &str) -> bool {
        let Some(entry) = self.studio.runs.entry(id) else { return false };
        let document = &self.studio.document;
        let own = entry.record.read_preset().map(|preset| recipe(&preset, &entry.record.base));
        own.is_some_and(|own| refusal(&own.changes(&recipe(document.preset(), &document.base()))).is_none())
    }

    /// Continues this run. Its own network is opened if it is not open; a question about unsaved edits may come first.
    pub(super) fn continue_run(&mut self, ctx: &egui::Context, id: String) {
        if self.studio.runs.entry(&id).is_none() {
            return self.run_is_gone();
        }
        self.studio.runs.select(id.clone());
        match self.difference_from_open(&id) {
            Ok(Some(_)) if !self.studio.training.is_running() => {
                self.perform(ctx, Request::ContinueInOwnNetwork(id));
            }
            _ => self.ask_to_continue(ctx),
        }
    }

    /// Reports that the run to continue was deleted, and removes its offers.
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
        self.give_to_runs([RunJob::Continue(id)]);
    }

    /// Continues a run whose files were read.
    pub(super) fn continue_from(&mut self, ctx: &egui::Context, from: Continuation) {
        if self.studio.training.is_running() {
            return self
                .studio
                .complain("Another run was started in the meantime. Stop it on the Train tab, and try again.");
        }
        if !self.studio.devices.current().trains() {
            return self
                .studio
                .complain("Networks cannot be trained on this device. Choose another one at the top, and try again.");
        }
        let preset = self.studio.document.preset();
        let (id, step) = (from.point.id.clone(), from.point.step);
        let asked = preset.train.map_or(1000, |t| t.steps as u64);
        // A finished run continues for the same number of steps.
        let total = if asked > step { asked } else { step + asked };
        let spec = SessionSpec {
            overrides: Overrides { steps: usize::try_from(total).ok(), seed: None },
            start: Start::from_checkpoint(from.checkpoint.clone()),
            ..self.spec_to_train()
        };
        self.begin_run(spec, Order::Start, Some(from));
        self.perform(ctx, UiCommand::ShowTab(Tab::Train));
        let name = self.studio.runs.name(&id).to_owned();
        self.studio.say(format!("{name} continues from step {}.", format::exact(step)));
    }

    /// Continues the run on the Train tab after it was stopped.
    pub(super) fn continue_stopped(&mut self) {
        let stale = self.studio.is_stale();
        self.studio.training.send(Order::Start);
        if stale {
            let text = "The run continues with the network and the device that it began with. Train from scratch \
                        trains the network that is open now.";
            self.studio.say(text);
        }
    }
}
