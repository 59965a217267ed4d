//! Performs all commands and requests; this is the only place that does.

use crate::model::{DataSource, ListId, ListPath, Preset};
use crate::studio::commands::{Action, DataField, DialogPurpose, Edit, Request, Selection, Tab, TourMove, UiCommand};
use crate::studio::document::edit::split_path;
use crate::studio::document::fields::value::{FieldValue, Owner};
use crate::studio::document::presets;
use crate::studio::panels::help::Page;
use crate::studio::panels::modals::{Answer, Question};
use crate::studio::panels::palette::Offer;
use crate::studio::run::kept::continuation::Continuation;
use crate::studio::run::kept::service::RunJob;
use crate::studio::shell::app::StudioApp;
use crate::studio::shell::panel_state::first_layout;
use crate::studio::view_models::transport::Next;
use crate::studio::widgets::keyboard::layers_id;
use crate::train::{Command as Order, SessionSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of steps that are timed in each way.
const BOTH_WAYS: usize = 400;

impl StudioApp {
    /// Performs a command or a request, if it is possible now.
    pub fn perform(&mut self, ctx: &egui::Context, action: impl Into<Action>) {
        let action = action.into();
        if !self.is_possible(&action) {
            return;
        }
        let loses_edits = action.replaces_document() || action == Action::Command(UiCommand::Quit);
        if loses_edits && self.studio.document.is_dirty() {
            self.panels.modals.ask(Question::Unsaved(action));
            return;
        }
        self.perform_past_edits(ctx, action);
    }

    /// False if an action has no effect now. Shortcuts can trigger what a disabled button would explain, so it is
    /// explained.
    fn is_possible(&mut self, action: &Action) -> bool {
        match action {
            Action::Command(command) => {
                let is_enabled = self.studio.is_enabled(command);
                if let Some(why) = self.studio.objection(command).filter(|_| !is_enabled) {
                    self.studio.complain(why);
                }
                is_enabled
            }
            Action::Request(Request::ExportRuns { .. }) => self.studio.runs.first().is_some(),
            Action::Request(_) => true,
        }
    }

    /// Performs an action that loses no edits; a question about the trained weights may come first.
    fn perform_past_edits(&mut self, ctx: &egui::Context, action: Action) {
        if action.replaces_document() && self.studio.training.has_unsaved_weights() {
            self.panels.modals.ask(Question::Weights(action));
            return;
        }
        self.carry_out(ctx, action);
    }

    /// Performs an action without any question.
    pub(super) fn carry_out(&mut self, ctx: &egui::Context, action: Action) {
        match action {
            Action::Command(command) => self.apply_command(ctx, command),
            Action::Request(request) => self.apply_request(request),
        }
    }

    /// Performs a request.
    fn apply_request(&mut self, request: Request) {
        match request {
            Request::Open(path) => self.open_file(path),
            Request::Save { path, replace } => self.save_to(path, replace),
            Request::SaveWeights { path, replace: false } => self.probe_for_weights(path),
            Request::SaveWeights { path, replace: true } => self.save_weights_to(path),
            Request::UseData(field, path) => self.use_data(field, &path),
            Request::ExportRuns { format, path, replace } => self.export_runs(format, path, replace),
            Request::MakeCapsule { path, replace } => self.make_capsule(path, replace),
            Request::ReplayCapsule(path) => self.replay_capsule(path),
            Request::DeleteRuns(ids) => self.delete_runs(ids),
            Request::RemoveRuns(ids) => self.give_to_runs([RunJob::Remove(ids)]),
            Request::ContinueInOwnNetwork(id) => self.continue_own(id),
        }
    }

    /// Performs commands about files and the window; other commands are passed on to the functions for their subject.
    fn apply_command(&mut self, ctx: &egui::Context, command: UiCommand) {
        match command {
            UiCommand::New => self.open_document(presets::empty(), None),
            UiCommand::NewFromPreset(index) => {
                if let Some(preset) = presets::bundled(index) {
                    self.open_document(preset, None);
                }
            }
            UiCommand::Open => self.ask(DialogPurpose::Open),
            UiCommand::OpenByPath => self.ask_path(DialogPurpose::Open),
            UiCommand::OpenRecent(path) => self.open_file(path),
            UiCommand::Save => match self.studio.document.path().map(Path::to_owned) {
                Some(path) => self.save_to(path, false),
                None => self.ask(DialogPurpose::SaveAs),
            },
            UiCommand::SaveAs => self.ask(DialogPurpose::SaveAs),
            UiCommand::SaveByPath => self.ask_path(DialogPurpose::SaveAs),
            UiCommand::SaveWeights => self.ask(DialogPurpose::Weights),
            UiCommand::SaveWeightsByPath => self.ask_path(DialogPurpose::Weights),
            UiCommand::ChooseData(field) => self.ask(DialogPurpose::Data(field)),
            UiCommand::ChooseDataFolder(field) => self.ask(DialogPurpose::DataFolder(field)),
            UiCommand::Runs(command) => self.perform_on_runs(ctx, command),
            UiCommand::Quit => {
                self.may_close = true;
                ctx.send_viewport_cmd(egui::ViewportCommand::Close);
            }
            other => self.apply_to_document(ctx, other),
        }
    }

    /// Performs commands about the document and the selection.
    fn apply_to_document(&mut self, ctx: &egui::Context, command: UiCommand) {
        match command {
            UiCommand::Undo => self.undo(),
            UiCommand::Redo => self.redo(),
            UiCommand::AddLayer => self.panels.palette.open(Offer::Layers),
            UiCommand::AddKind(kind) => {
                let (parent, index) = self.place_for_new();
                self.edit(&Edit::Insert { parent, index, kind });
            }
            UiCommand::Duplicate | UiCommand::Remove | UiCommand::MoveUp | UiCommand::MoveDown => {
                self.on_selected_layer(&command);
            }
            UiCommand::OnLayer(path, command) => {
                self.studio.selection.select(Selection::Layer(path));
                self.on_selected_layer(&command);
            }
            UiCommand::Edit(edit) => self.edit(&edit),
            UiCommand::Select(selection) => {
                self.studio.selection.select(selection);
            }
            UiCommand::Back => self.studio.selection.go_back(),
            UiCommand::Forward => self.studio.selection.go_forward(),
            UiCommand::Fold(command) => self.studio.folds.perform(command, &self.studio.network),
            UiCommand::ShowProblem => self.show_problem(ctx),
            other => self.apply_to_run(ctx, other),
        }
    }

    /// Performs commands about the run.
    fn apply_to_run(&mut self, ctx: &egui::Context, command: UiCommand) {
        let training = &mut self.studio.training;
        match command {
            UiCommand::TrainOrPause if training.is_running() => training.send(Order::Pause),
            UiCommand::Train | UiCommand::TrainOrPause => self.train(Order::Start),
            UiCommand::Step => self.train(Order::Step(1)),
            UiCommand::Pause => training.send(Order::Pause),
            UiCommand::Stop => training.send(Order::Stop),
            UiCommand::Continue => self.continue_stopped(),
            UiCommand::Reset => self.studio.end_run(),
            UiCommand::SetLr(lr) => training.send(Order::SetLr(lr)),
            UiCommand::SetSmoothing(weight) => training.set_smoothing(weight),
            UiCommand::Predictions(command) => self.studio.predictions.perform(command, &mut self.studio.training),
            UiCommand::TimeBothWays => training.time_both_ways(BOTH_WAYS),
            UiCommand::CompareRecording(kind) => training.compare_recording(kind),
            UiCommand::ShowRecording(key) => self.studio.show_recording(key.as_deref()),
            UiCommand::ChooseDevice(choice) => self.studio.settings.device = choice,
            UiCommand::StartWith(kernels) => self.studio.settings.first_kernels = kernels,
            UiCommand::SetMetrics(metrics) => {
                let settings = &mut self.studio.settings;
                (settings.without_accuracy, settings.without_updates) = (!metrics.accuracy, !metrics.updates);
            }
            other => self.apply_to_view(ctx, other),
        }
    }

    /// Performs commands about what the window shows.
    fn apply_to_view(&mut self, ctx: &egui::Context, command: UiCommand) {
        let settings = &mut self.studio.settings;
        match command {
            UiCommand::ShowTab(tab) => self.show_tab(tab),
            UiCommand::ResetLayout => self.panels.tabs = first_layout(),
            UiCommand::ShowSide(side) => settings.toggle(side, ctx.content_rect().width()),
            UiCommand::SetPlotLog(plot, log) => {
                settings.plot_log.insert(plot.to_owned(), log);
            }
            UiCommand::ShowPlot(plot, true) => {
                settings.hidden_plots.remove(plot);
            }
            UiCommand::ShowPlot(plot, false) => {
                settings.hidden_plots.insert(plot.to_owned());
            }
            UiCommand::FitArena => self.panels.arena.fit(),
            UiCommand::FollowPlots => self.panels.train.fit(),
            UiCommand::ToggleLogAxis => {
                settings.log_axis ^= true;
                settings.plot_log.clear();
            }
            UiCommand::ToggleTheme => {
                let dark = ctx.theme() != egui::Theme::Dark;
                settings.dark = Some(dark);
                ctx.set_theme(if dark { egui::Theme::Dark } else { egui::Theme::Light });
            }
            UiCommand::ReduceMotion => {
                let still = settings.is_still(self.studio.motion.is_reduced());
                settings.still = Some(!still);
            }
            UiCommand::Palette => self.panels.palette.open(Offer::Commands),
            UiCommand::DismissNotice => self.studio.dismiss_notice(),
            UiCommand::ShowNotice => self.show_notice(),
            UiCommand::ShowShortcuts => self.panels.help.open(Page::Shortcuts),
            UiCommand::ShowAbout => self.panels.help.open(Page::About),
            UiCommand::Tour(step) => self.go_through_tour(step),
            other => self.studio.measure(other),
        }
    }

    /// Sets a field of the data to a file, relative to the preset's folder if the file is inside it, so that both can
    /// be moved together.
    fn use_data(&mut self, field: DataField, path: &Path) {
        let owner = match (field.input, self.studio.document.preset().data.as_ref().map(|data| &data.source)) {
            (None, _) => Owner::Preset,
            (Some(input), Some(DataSource::Joined { inputs, .. })) if input < inputs.len() => {
                Owner::Source(inputs[input].0.clone())
            }
            // The document has changed since the dialog was opened.
            _ => return,
        };
        let base = self.studio.document.base();
        let inside = (!base.as_os_str().is_empty()).then(|| path.strip_prefix(&base).ok()).flatten();
        let text = inside.unwrap_or(path).display().to_string();
        self.edit(&Edit::SetField { owner, name: field.name, value: FieldValue::Text(text) });
        // A text that was typed there before is discarded.
        self.panels.drafts.clear();
    }

    /// An invalid text is the user's last action: undo removes it first and restores the document's value.
    fn undo(&mut self) {
        if self.panels.drafts.mistakes() == 0 {
            let before = Arc::clone(self.studio.document.preset());
            self.studio.document.undo();
            self.studio.selection.follow(&before, self.studio.document.preset());
        }
        self.panels.drafts.clear();
    }

    fn redo(&mut self) {
        let before = Arc::clone(self.studio.document.preset());
        self.studio.document.redo();
        self.studio.selection.follow(&before, self.studio.document.preset());
        self.panels.drafts.clear();
    }

    /// Selects the first layer with a mistake, and gives the keyboard focus to the list of layers.
    fn show_problem(&mut self, ctx: &egui::Context) {
        let first = self.studio.network.first_problem.clone();
        if let Some(first) = first.or_else(|| self.panels.drafts.first_layer()) {
            self.studio.selection.select(Selection::Layer(first));
        }
        ctx.memory_mut(|m| m.request_focus(layers_id()));
    }

    /// Starts the tour, goes to its next step, or ends it.
    fn go_through_tour(&mut self, step: TourMove) {
        let studio = &mut self.studio;
        match step {
            TourMove::Start => studio.tour.start(),
            TourMove::Next => {
                let continues = studio.tour.next(studio.plan_revision);
                studio.settings.tour_done |= !continues;
            }
            TourMove::Dismiss => {
                studio.tour.dismiss();
                studio.settings.tour_done = true;
            }
        }
    }

    fn show_tab(&mut self, tab: Tab) {
        self.panels.tabs.make_active(|_, tile| matches!(tile, egui_tiles::Tile::Pane(t) if *t == tab));
    }

    fn edit(&mut self, edit: &Edit) {
        let touched = self.studio.document.apply(edit);
        if matches!(edit, Edit::SetField { .. }) {
            return;
        }
        self.studio.folds.follow(edit);
        // Layers have moved: a text that was typed for one must not appear in another.
        self.panels.drafts.forget_layers();
        if let Some(path) = touched {
            let selection = if path.is_empty() { Selection::Nothing } else { Selection::Layer(path) };
            self.studio.selection.select(selection);
        }
    }

    /// After the selected layer, or at the end.
    fn place_for_new(&self) -> (ListPath, usize) {
        match self.studio.selection.current() {
            Selection::Layer(path) => {
                let (parent, index) = split_path(path);
                (parent, index + 1)
            }
            _ => (ListPath::default(), self.studio.document.preset().layers.len()),
        }
    }

    fn on_selected_layer(&mut self, command: &UiCommand) {
        let Selection::Layer(path) = self.studio.selection.current().clone() else { return };
        let (parent, index) = split_path(&path);
        let preset = self.studio.document.preset();
        let edit = match command {
            UiCommand::Duplicate => Edit::Duplicate(path),
            UiCommand::Remove => Edit::Remove(path),
            UiCommand::MoveUp if index > 0 => Edit::Move { from: path, parent, index: index - 1 },
            UiCommand::MoveDown if index + 1 < preset.list(&parent).map_or(0, <[_]>::len) => {
                Edit::Move { from: path, parent, index: index + 2 }
            }
            // From the end of a list a layer moves to the next list of its block.
            UiCommand::MoveUp if parent.list.number > 0 => {
                let list = ListId { number: parent.list.number - 1, ..parent.list };
                let parent = parent.block.list(list);
                let index = preset.list(&parent).map_or(0, <[_]>::len);
                Edit::Move { from: path, parent, index }
            }
            UiCommand::MoveDown => {
                let list = ListId { number: parent.list.number + 1, ..parent.list };
                Edit::Move { from: path, parent: parent.block.list(list), index: 0 }
            }
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
            // A single step extends the run automatically.
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

    /// Trains the document as compiled: from its first step, or from where a kept run continues.
    pub(super) fn begin_run(&mut self, spec: SessionSpec, order: Order, from: Option<Continuation>) {
        let wake = Arc::clone(&self.studio.wake);
        // Messages about the previous run, or about another network, are outdated.
        self.studio.notice = None;
        self.studio.training.start(spec, order, from, move || wake());
        self.studio.training.device = Some(self.studio.devices.current().choice);
        self.panels.train.fit();
    }

    pub(super) fn open_document(&mut self, preset: Preset, path: Option<PathBuf>) {
        self.studio.document.replace(preset, path);
        self.studio.forget_plan();
        self.panels.drafts.clear();
        self.panels.network.begin();
        self.studio.forget_notice();
        self.studio.end_run();
    }

    /// Continues after a question.
    pub(super) fn take_answer(&mut self, ctx: &egui::Context, answer: Answer) {
        // The result of the answer is shown immediately, like that of a command.
        ctx.request_repaint();
        match answer {
            Answer::SaveThen(then) => {
                self.after_save = Some(then);
                self.perform(ctx, UiCommand::Save);
            }
            Answer::DiscardThen(then) => self.perform_past_edits(ctx, then),
            Answer::SaveWeightsThen(then) => {
                self.after_weights = Some((then, self.studio.document.revision()));
                self.ask(DialogPurpose::Weights);
            }
            Answer::LoseWeightsThen(then) => self.carry_out(ctx, then),
            Answer::Perform(request) => self.perform(ctx, request),
            Answer::Cancel => (self.after_save, self.after_weights) = (None, None),
        }
    }
}
