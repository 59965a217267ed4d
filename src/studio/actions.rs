//! What each command does.

use super::app::StudioApp;
use super::commands::Command;
use super::document::{Document, Edit, split_path};
use super::fields::{FieldValue, Owner};
use super::files::Asked;
use super::panels::first_layout;
use super::panels::help::Page;
use super::panels::modals::{Answer, Question};
use super::panels::palette::Offer;
use super::presets;
use super::runs::Continuation;
use super::selection::Selection;
use super::tour::TourMove;
use super::transport::Next;
use super::widgets::keys::layers_id;
use crate::model::{LayerPath, Preset};
use crate::train::{Command as Order, Proof, SessionSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Steps that are timed each way.
const BOTH_WAYS: usize = 400;

impl StudioApp {
    /// Carries out a command, where it makes sense now.
    pub fn perform(&mut self, ctx: &egui::Context, command: Command) {
        if !self.studio.is_enabled(&command) {
            // Keys reach what a disabled button would explain.
            if let Some(why) = self.studio.objection(&command) {
                self.studio.complain(why);
            }
            return;
        }
        let replaces =
            matches!(command, Command::New | Command::NewFromPreset(_) | Command::OpenFile(_) | Command::Quit)
                || matches!(&command, Command::Runs(c) if c.replaces_document());
        if replaces && self.studio.document.is_dirty() {
            self.panels.modals.ask(Question::Unsaved(command));
            return;
        }
        self.perform_past_edits(ctx, command);
    }

    /// Carries out a command that nothing unsaved in the document stands before; the run's weights may.
    fn perform_past_edits(&mut self, ctx: &egui::Context, command: Command) {
        let replaces = matches!(command, Command::New | Command::NewFromPreset(_) | Command::OpenFile(_))
            || matches!(&command, Command::Runs(c) if c.replaces_document());
        if replaces && self.studio.training.has_unsaved_weights() {
            self.panels.modals.ask(Question::Weights(command));
            return;
        }
        self.carry_out(ctx, command);
    }

    pub(super) fn carry_out(&mut self, ctx: &egui::Context, command: Command) {
        match command {
            Command::New => self.open_document(presets::empty(), None),
            Command::NewFromPreset(index) => {
                if let Some(preset) = presets::bundled(index) {
                    self.open_document(preset, None);
                }
            }
            Command::Open => self.ask(Asked::Open),
            Command::OpenByPath => self.panels.modals.ask_path(Asked::Open, self.start_path(Asked::Open)),
            Command::OpenFile(path) => {
                if !self.studio.files.read(path) {
                    self.studio.complain("Too many files are being opened at once. Try again.");
                }
            }
            Command::Save => match self.studio.document.path().map(Path::to_owned) {
                Some(path) => self.save_to(path, false),
                None => self.ask(Asked::SaveAs),
            },
            Command::SaveAs => self.ask(Asked::SaveAs),
            Command::SaveByPath => self.panels.modals.ask_path(Asked::SaveAs, self.start_path(Asked::SaveAs)),
            Command::SaveFile(path) => self.save_to(path, false),
            Command::SaveWeights => self.ask(Asked::Weights),
            Command::SaveWeightsByPath => self.panels.modals.ask_path(Asked::Weights, self.start_path(Asked::Weights)),
            Command::SaveWeightsFile(path) => self.probe_for_weights(path),
            Command::Quit => {
                self.may_close = true;
                ctx.send_viewport_cmd(egui::ViewportCommand::Close);
            }
            Command::Undo => self.undo(),
            Command::Redo => {
                let before = Arc::clone(self.studio.document.preset());
                self.studio.document.redo();
                self.studio.selection.follow(&before, self.studio.document.preset());
                self.panels.drafts.clear();
            }
            Command::AddLayer => self.panels.palette.open(Offer::Layers),
            Command::Palette => self.panels.palette.open(Offer::Commands),
            Command::AddKind(kind) => {
                let (parent, index) = self.place_for_new();
                self.edit(&Edit::Insert { parent, index, kind });
            }
            Command::Duplicate | Command::Remove | Command::MoveUp | Command::MoveDown => {
                self.on_selected_layer(&command)
            }
            Command::OnLayer(path, command) => {
                self.studio.selection.select(Selection::Layer(path));
                self.on_selected_layer(&command);
            }
            Command::Edit(edit) => self.edit(&edit),
            Command::Select(selection) => {
                self.studio.selection.select(selection);
            }
            Command::Back => self.studio.selection.go_back(),
            Command::Forward => self.studio.selection.go_forward(),
            Command::TrainOrPause if self.studio.training.is_running() => self.studio.training.send(Order::Pause),
            Command::Train | Command::TrainOrPause => self.train(Order::Start),
            Command::Step => self.train(Order::Step(1)),
            Command::Pause => self.studio.training.send(Order::Pause),
            Command::Stop => self.studio.training.send(Order::Stop),
            Command::Continue => self.continue_stopped(),
            Command::Reset => self.studio.let_run_go(),
            Command::SetLr(lr) => self.studio.training.send(Order::SetLr(lr)),
            Command::SetSmoothing(weight) => self.studio.training.set_smoothing(weight),
            Command::ShowTab(tab) => {
                let is_it = |_: egui_tiles::TileId, tile: &egui_tiles::Tile<super::commands::Tab>| matches!(tile, egui_tiles::Tile::Pane(t) if *t == tab);
                self.panels.tabs.make_active(is_it);
            }
            Command::ResetLayout => self.panels.tabs = first_layout(),
            Command::Prove(proof) => self.prove(proof),
            Command::CancelProofs => self.studio.proofs.cancel(),
            Command::CancelJob(kind) => self.studio.cancel_job(kind),
            Command::SetReplays(replays) => self.studio.settings.replays = replays,
            Command::TimeBothWays => self.studio.training.time_both_ways(BOTH_WAYS),
            Command::MeasurePrices => {
                let studio = &mut self.studio;
                let (preset, base) = (Arc::clone(studio.document.preset()), studio.document.base());
                let machine = studio.devices.here();
                studio.prices.measure(preset, base, machine, studio.document.revision());
            }
            Command::ChooseData(field) => self.ask(Asked::Data(field)),
            Command::ChooseDataFolder(field) => self.ask(Asked::DataFolder(field)),
            Command::UseData(field, path) => self.use_data(field, &path),
            Command::SetPlotLog(plot, log) => {
                self.studio.settings.plot_log.insert(plot.to_owned(), log);
            }
            Command::ShowPlot(plot, true) => {
                self.studio.settings.hidden_plots.remove(plot);
            }
            Command::ShowPlot(plot, false) => {
                self.studio.settings.hidden_plots.insert(plot.to_owned());
            }
            Command::SetMetrics(metrics) => {
                let settings = &mut self.studio.settings;
                (settings.without_accuracy, settings.without_updates) = (!metrics.accuracy, !metrics.updates);
            }
            Command::FitArena => self.panels.arena.fit(),
            Command::ChooseDevice(choice) => self.studio.settings.device = choice,
            Command::FollowPlots => self.panels.train.fit(),
            Command::ToggleLogAxis => {
                self.studio.settings.log_axis ^= true;
                self.studio.settings.plot_log.clear();
            }
            Command::ToggleTheme => {
                let dark = ctx.theme() != egui::Theme::Dark;
                self.studio.settings.dark = Some(dark);
                ctx.set_theme(if dark { egui::Theme::Dark } else { egui::Theme::Light });
            }
            Command::DismissNotice => self.studio.dismiss_notice(),
            Command::ShowNotice => self.show_notice(),
            Command::Runs(command) => self.perform_on_runs(ctx, command),
            Command::ShowSide(side) => side.toggle(&mut self.studio.settings, ctx.content_rect().width()),
            Command::Fold(command) => self.studio.folds.perform(command, &self.studio.network),
            Command::ShowProblem => {
                let first = self.studio.network.first_problem.clone();
                if let Some(first) = first.or_else(|| self.panels.drafts.first_layer()) {
                    self.studio.selection.select(Selection::Layer(first));
                }
                ctx.memory_mut(|m| m.request_focus(layers_id()));
            }
            other => self.find_out(other),
        }
    }

    /// Carries out what asks for facts, and what helps.
    fn find_out(&mut self, command: Command) {
        let studio = &mut self.studio;
        match command {
            Command::MeasureOps | Command::ComparePlans | Command::FindFirstBad => {
                let Some(subject) = studio.subject() else { return };
                let begun = match command {
                    Command::MeasureOps => studio.lab.measure(subject),
                    Command::ComparePlans => studio.lab.compare(subject),
                    _ => studio.lab.find_first_bad(subject, &studio.training),
                };
                if let Err(error) = begun {
                    studio.complain(format!(
                        "The system gives no thread for this: {error}. Close other programs and try again."
                    ));
                }
            }
            Command::Scrub(op) => studio.lab.scrub = op,
            Command::ShowValues => studio.lab.values.on ^= true,
            Command::ShowSlice(slice) => studio.lab.values.slice = slice,
            Command::ShowPart(part) => studio.lab.values.part = part,
            Command::UseWeights(weights) => {
                studio.lab.values.weights = Some(weights);
                // Those of a resumed run are taken anew.
                studio.lab.moment_of = None;
            }
            Command::SelectLargestBuffer => {
                if let Some(id) = studio.plan.as_ref().and_then(|p| p.arena.largest.first().copied()) {
                    studio.selection.select(Selection::Buffer(id));
                }
            }
            Command::ReduceMotion => {
                let still = studio.settings.is_still(studio.motion.is_reduced());
                studio.settings.still = Some(!still);
            }
            Command::Tour(TourMove::Start) => studio.tour.start(),
            Command::Tour(TourMove::Next) => {
                let goes_on = studio.tour.next(studio.plan_revision);
                studio.settings.tour_done |= !goes_on;
            }
            Command::Tour(TourMove::Dismiss) => {
                studio.tour.dismiss();
                studio.settings.tour_done = true;
            }
            Command::ShowShortcuts => self.panels.help.open(Page::Shortcuts),
            Command::ShowAbout => self.panels.help.open(Page::About),
            _ => {}
        }
    }

    /// Proves something of the step of the document, or everything.
    fn prove(&mut self, proof: Option<Proof>) {
        let studio = &mut self.studio;
        let (preset, options) = (Arc::clone(studio.document.preset()), studio.verify_options());
        let proofs = proof.map_or_else(|| Proof::ALL.to_vec(), |p| vec![p]);
        let (revision, wake) = (studio.document.revision(), Arc::clone(&studio.wake));
        if let Err(error) = studio.proofs.start(preset, options, proofs, revision, wake) {
            studio.complain(format!("The proofs cannot be run: {error}. Close other programs and try again."));
        }
    }

    /// Has a field of the data name a file: from the preset's folder where it lies in it, so that both can move together.
    pub(super) fn use_data(&mut self, field: &'static str, path: &Path) {
        let base = self.studio.document.base();
        let inside = (!base.as_os_str().is_empty()).then(|| path.strip_prefix(&base).ok()).flatten();
        let text = inside.unwrap_or(path).display().to_string();
        self.edit(&Edit::SetField { owner: Owner::Preset, name: field, value: FieldValue::Text(text) });
        // What was typed there before is not what counts any more.
        self.panels.drafts.clear();
    }

    /// A wrong text is the last thing a person did: it goes first, and the document's own value is back.
    fn undo(&mut self) {
        if self.panels.drafts.mistakes() == 0 {
            let before = Arc::clone(self.studio.document.preset());
            self.studio.document.undo();
            self.studio.selection.follow(&before, self.studio.document.preset());
        }
        self.panels.drafts.clear();
    }

    fn edit(&mut self, edit: &Edit) {
        let touched = self.studio.document.apply(edit);
        if matches!(edit, Edit::SetField { .. }) {
            return;
        }
        self.studio.folds.follow(edit);
        // Layers have moved: what was typed into one must not appear in another.
        self.panels.drafts.forget_layers();
        if let Some(path) = touched {
            let selection = if path.0.is_empty() { Selection::Nothing } else { Selection::Layer(path) };
            self.studio.selection.select(selection);
        }
    }

    /// Behind the selected layer, or at the end.
    fn place_for_new(&self) -> (LayerPath, usize) {
        match self.studio.selection.current() {
            Selection::Layer(path) => {
                let (parent, index) = split_path(path);
                (parent, index + 1)
            }
            _ => (LayerPath::default(), self.studio.document.preset().layers.len()),
        }
    }

    fn on_selected_layer(&mut self, command: &Command) {
        let Selection::Layer(path) = self.studio.selection.current().clone() else { return };
        let (parent, index) = split_path(&path);
        let edit = match command {
            Command::Duplicate => Edit::Duplicate(path),
            Command::Remove => Edit::Remove(path),
            Command::MoveUp if index > 0 => Edit::Move { from: path, parent, index: index - 1 },
            Command::MoveDown => Edit::Move { from: path, parent, index: index + 2 },
            _ => return,
        };
        self.edit(&edit);
    }

    fn train(&mut self, order: Order) {
        if self.studio.training.is_alive() {
            self.studio.training.send(order);
            return;
        }
        if let Next::TrainOn(steps) = self.studio.next() {
            // A single step makes the run longer by itself alone.
            let steps = if let Order::Step(count) = order { count } else { steps };
            self.studio.training.extend(steps, order);
            return;
        }
        let spec = self.spec_to_train();
        self.begin_run(spec, order, None);
    }

    /// The document as it would be trained now.
    pub(super) fn spec_to_train(&self) -> SessionSpec {
        let preset = (**self.studio.document.preset()).clone();
        let machine = self.studio.devices.current();
        let (target, tuning) = (Some(machine.target.clone()), machine.tuning.clone());
        let metrics = self.studio.settings.metrics();
        SessionSpec { machine: target, tuning, metrics, ..SessionSpec::new(preset, self.studio.document.base()) }
    }

    /// Trains what was made of the document: from its first step, or from where a kept run continues.
    pub(super) fn begin_run(&mut self, spec: SessionSpec, order: Order, from: Option<Continuation>) {
        let wake = Arc::clone(&self.studio.wake);
        // What was reported of the run before, or of another network, is over.
        self.studio.notice = None;
        self.studio.training.start(spec, order, from, move || wake());
        self.studio.training.device = Some(self.studio.devices.current().choice);
        self.panels.train.fit();
    }

    pub(super) fn open_document(&mut self, preset: Preset, path: Option<PathBuf>) {
        self.studio.document.replace(preset, path);
        self.studio.forget_plan();
        self.panels.drafts.clear();
        self.studio.forget_notice();
        self.studio.let_run_go();
    }

    pub(super) fn start_path(&self, what: Asked) -> String {
        let document: &Document = &self.studio.document;
        match (document.path(), what) {
            (Some(path), Asked::Weights) => path.with_file_name(self.weights_name()).display().to_string(),
            (None, Asked::Weights) => self.weights_name(),
            (_, Asked::Data(_) | Asked::DataFolder(_)) => document.base().display().to_string(),
            (Some(path), Asked::Export(_) | Asked::Capsule) => {
                path.with_file_name(self.export_name(what)).display().to_string()
            }
            (_, Asked::Export(_) | Asked::Capsule | Asked::Replay) => self.export_name(what),
            (Some(path), _) => path.display().to_string(),
            (None, Asked::SaveAs) => format!("{}.json", document.preset().name),
            (None, Asked::Open) => String::new(),
        }
    }

    /// The name under which the weights of the run are offered to be saved.
    fn weights_name(&self) -> String {
        let trained = self.studio.training.preset.as_ref().unwrap_or_else(|| self.studio.document.preset());
        format!("{}.safetensors", trained.name)
    }

    pub(super) fn ask(&self, what: Asked) {
        let document = &self.studio.document;
        let name = match (what, document.path().and_then(Path::file_name)) {
            (Asked::Weights, _) => self.weights_name(),
            (Asked::Export(_) | Asked::Capsule | Asked::Replay, _) => self.export_name(what),
            (_, Some(name)) => name.to_string_lossy().into_owned(),
            (_, None) => format!("{}.json", document.preset().name),
        };
        self.studio.files.ask(what, &name, document.path().and_then(Path::parent));
    }

    /// Continues after a question.
    pub(super) fn take_answer(&mut self, ctx: &egui::Context, answer: Answer) {
        match answer {
            Answer::SaveThen(then) => {
                self.after_save = Some(then);
                self.perform(ctx, Command::Save);
            }
            Answer::DiscardThen(then) => self.perform_past_edits(ctx, then),
            Answer::SaveWeightsThen(then) => {
                self.after_weights = Some((then, self.studio.document.revision()));
                self.ask(Asked::Weights);
            }
            Answer::LoseWeightsThen(then) => self.carry_out(ctx, then),
            Answer::Overwrite(Asked::Weights, path) => self.save_weights_to(path),
            Answer::Overwrite(Asked::Export(format), path) => self.export_runs(format, path, true),
            Answer::Overwrite(Asked::Capsule, path) => self.make_capsule(path, true),
            Answer::Perform(command) => self.perform(ctx, command),
            Answer::Overwrite(_, path) => self.save_to(path, true),
            Answer::Cancel => (self.after_save, self.after_weights) = (None, None),
        }
    }
}
