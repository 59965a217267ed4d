//! The window: draws the panels, passes each its view model, and performs their commands.

use crate::model::Preset;
use crate::select::Tuning;
use crate::studio::commands::{Action, CommandQueue, Request, Side, Tab, UiCommand};
use crate::studio::document::files::real;
use crate::studio::document::history::Document;
use crate::studio::document::last_opened::LastOpened;
use crate::studio::document::presets;
use crate::studio::panels;
use crate::studio::panels::modals::{Answer, Question};
use crate::studio::panels::tour::Parts;
use crate::studio::shell::motion::Motion;
use crate::studio::shell::panel_state::{Panels, first_layout, tab_spacing, with_new_tabs};
use crate::studio::shell::settings::Settings;
use crate::studio::shell::shortcuts;
use crate::studio::shell::state::Studio;
use crate::studio::shell::window::Fit;
use crate::studio::theme;
use crate::studio::view_models::readiness::EnabledCommands;
use crate::studio::widgets::field::Editing;
use crate::train::runs::RunStore;
use egui::{CentralPanel, Frame, Margin, Panel, Ui};
use egui_tiles::{Behavior, TileId, Tiles, UiResponse};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the studio starts.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    /// The file to open instead of what was open last, or the name of a bundled preset.
    pub preset: Option<PathBuf>,
    /// The folder in which unsaved edits are kept safe from crashes; `None` if they are not.
    pub recovery: Option<PathBuf>,
    /// Kernel times remembered from this machine.
    pub tuning: Option<Arc<Tuning>>,
    /// The store of kept runs; `None` if runs are not kept.
    pub runs: Option<RunStore>,
    /// Whether the tour is shown to users who have not seen it.
    pub tour: bool,
    /// Whether animations are reduced if the system requests it.
    pub asks_system: bool,
}

/// The studio's window.
pub struct StudioApp {
    pub studio: Studio,
    pub panels: Panels,
    /// The commands of the panels in this frame.
    commands: CommandQueue,
    /// The program's requests before the panels are drawn.
    requests: Vec<Request>,
    /// Set once the user has decided about unsaved changes.
    pub(super) may_close: bool,
    /// The action that waits until a save is on the disk.
    pub(super) after_save: Option<Action>,
    /// The action that waits until the weights are on the disk, and the document's revision at its request.
    pub(super) after_weights: Option<(Action, u64)>,
    /// True while a dialog was open in the last frame.
    has_dialog: bool,
    /// The window's title as last set, because not every system reports it.
    title: String,
    /// What is stored as the open network: its file, and the document as it was saved.
    remembered: Option<(Option<PathBuf>, Arc<Preset>)>,
    /// The stored settings as last written, and the tabs that were shown then.
    written: Option<(Settings, Vec<Tab>)>,
    /// Fits the window to its screen.
    fit: Fit,
}

/// The time between frames while something runs: drawing must not slow the worker down.
const FRAME_EVERY: Duration = Duration::from_millis(33);

/// The key of the layout in the storage.
const TABS_KEY: &str = "tabs";

impl StudioApp {
    /// The window's first state.
    ///
    /// # Errors
    /// If the system refuses to start threads.
    pub fn new(cc: &eframe::CreationContext<'_>, startup: &Startup) -> std::io::Result<Self> {
        theme::install(&cc.egui_ctx);
        let stored = |key: &str| cc.storage.and_then(|s| s.get_string(key));
        let settings: Settings = cc.storage.and_then(|s| eframe::get_value(s, eframe::APP_KEY)).unwrap_or_default();
        if let Some(dark) = settings.dark {
            cc.egui_ctx.set_theme(if dark { egui::Theme::Dark } else { egui::Theme::Light });
        }
        // Ctrl-Q asks about unsaved changes like every other way of closing.
        cc.egui_ctx.options_mut(|o| o.quit_shortcuts.clear());
        let ctx = cc.egui_ctx.clone();
        let wake = Arc::new(move || ctx.request_repaint_after(FRAME_EVERY));
        let mut studio = Studio::new(Document::new(presets::digits(), None), settings, startup.tuning.clone(), wake)?;
        let mut panels = Panels::default();
        if let Some(tabs) = stored(TABS_KEY).and_then(|t| serde_json::from_str(&t).ok()) {
            panels.tabs = with_new_tabs(tabs).unwrap_or_else(first_layout);
        }
        if startup.asks_system {
            studio.motion = Motion::ask(Arc::clone(&studio.wake));
        }
        if let Some(store) = &startup.runs {
            studio.keep_runs_in(store.clone());
            studio.runs.baseline.id.clone_from(&studio.settings.baseline);
        }
        if let Some(folder) = &startup.recovery {
            studio.recover_in(folder);
        }
        // Edits that a crash left come first; a requested file replaces what was open last.
        if startup.preset.is_none() && !studio.document.is_dirty() {
            studio.open_last();
        }
        let mut app = Self {
            studio,
            panels,
            commands: CommandQueue::default(),
            requests: Vec::new(),
            may_close: false,
            after_save: None,
            after_weights: None,
            has_dialog: false,
            title: String::new(),
            remembered: None,
            written: None,
            fit: Fit::default(),
        };
        if startup.tour && !app.studio.settings.tour_done {
            app.studio.tour.start();
        }
        // Restored edits of the requested file stay.
        let has_restored = |path: &Path| {
            let document = &app.studio.document;
            path.is_file() && document.is_dirty() && document.path().is_some_and(|open| real(open) == real(path))
        };
        if let Some(path) = startup.preset.as_deref().filter(|path| !has_restored(path)) {
            app.open_at_start(path);
        }
        Ok(app)
    }

    /// Opens a file before the first frame, or a bundled preset with this name.
    fn open_at_start(&mut self, path: &Path) {
        let bundled = path.to_str().filter(|_| !path.is_file()).and_then(presets::index);
        match bundled {
            Some(index) => self.commands.push(UiCommand::NewFromPreset(index)),
            None => self.requests.push(Request::Open(path.to_owned())),
        }
    }

    /// Receives answers, dropped files and shortcuts.
    fn receive(&mut self, ctx: &egui::Context) {
        self.studio.draft_mistakes = self.panels.drafts.mistakes();
        self.take_file_events(ctx);
        self.studio.shown.clone_from(&self.panels.shown);
        if self.studio.take_answers() {
            ctx.request_repaint();
        }
        self.take_saved_weights(ctx);
        self.take_run_events(ctx);
        if let Some(after) = self.studio.runs.until_next(self.panels.shown.contains(&Tab::Runs)) {
            ctx.request_repaint_after(after.max(FRAME_EVERY));
        }
        if let Some(after) = self.studio.jobs.until_next() {
            ctx.request_repaint_after(after);
        }
        if let Some(after) = self.studio.until_safe() {
            ctx.request_repaint_after(after.max(FRAME_EVERY));
        }
        let dropped = ctx.input(|i| i.raw.dropped_files.first().map(|f| f.path().to_owned()));
        if let Some(path) = dropped {
            self.requests.push(Request::Open(path));
        }
        if ctx.input(|i| i.viewport().close_requested()) {
            self.close_requested(ctx);
        }
    }

    fn close_requested(&mut self, ctx: &egui::Context) {
        if self.studio.document.is_dirty() && !self.may_close {
            ctx.send_viewport_cmd(egui::ViewportCommand::CancelClose);
            self.panels.modals.ask(Question::Unsaved(UiCommand::Quit.into()));
        } else {
            self.studio.end_recovery();
        }
    }

    /// Stores the settings as soon as they change, so that they survive a crash too.
    pub fn remember(&mut self, storage: Option<&mut (dyn eframe::Storage + 'static)>) {
        self.remember_open();
        let runs = &self.studio.runs;
        self.studio.settings.baseline = runs.baseline.remembered();
        let (settings, shown) = (&self.studio.settings, &self.panels.shown);
        let Some(storage) = storage else { return };
        if self.written.as_ref().is_some_and(|(s, tabs)| s == settings && tabs == shown) {
            return;
        }
        self.written = Some((settings.clone(), shown.clone()));
        eframe::App::save(self, storage);
        storage.flush();
    }

    /// Records the open network.
    fn remember_open(&mut self) {
        let document = &self.studio.document;
        let is_known = |(path, saved): &(Option<PathBuf>, Arc<Preset>)| {
            path.as_deref() == document.path() && Arc::ptr_eq(saved, document.saved())
        };
        if self.remembered.as_ref().is_some_and(is_known) {
            return;
        }
        self.remembered = Some((document.path().map(Path::to_owned), Arc::clone(document.saved())));
        self.studio.settings.last = Some(LastOpened::of(document));
    }

    fn panels_ui(&mut self, ui: &mut Ui) {
        let (studio, panels, commands) = (&self.studio, &mut self.panels, &mut self.commands);
        let (enabled, window) = (studio.enabled_commands(), ui.ctx().content_rect().width());
        let room =
            |ui: &Ui, x: i8, y: i8| Frame::new().fill(theme::colors(ui).panel).inner_margin(Margin::symmetric(x, y));
        let frame = room(ui, 8, 6);
        let top = Panel::top("top bar")
            .frame(frame)
            .show(ui, |ui| panels::top_bar::top_bar_ui(ui, &studio.top_bar_view(window, &enabled), commands));
        let frame = room(ui, 12, 4);
        let bottom = Panel::bottom("status").frame(frame).show(ui, |ui| {
            panels::status::status_ui(ui, &studio.status_view(), &mut panels.status, commands);
        });
        // From left to right and from top to bottom.
        let mut areas = vec![top.response.rect];
        let frame = room(ui, 12, 8);
        // The tabs keep the larger part, even if the user makes a panel wider.
        let range = |least: f32| least..=(window * 0.36).clamp(least, 480.0);
        let mut network = None;
        if studio.settings.shows(Side::Network, window) {
            let panel = Panel::left("network panel").frame(frame).default_size(340.0).size_range(range(264.0));
            let shown = panel.show(ui, |ui| {
                let mut editing = Editing { drafts: &mut panels.drafts, commands: &mut *commands };
                panels::network::network_ui(ui, &studio.network_view(), &mut panels.network, &mut editing);
            });
            network = Some(shown.response.rect);
            areas.extend(network);
        }
        let mut inspector = None;
        if studio.settings.shows(Side::Inspector, window) {
            let panel = Panel::right("inspector panel").frame(frame).default_size(256.0).size_range(range(200.0));
            let shown = panel.show(ui, |ui| {
                panels::inspector::inspector_ui(ui, &studio.inspector_view(), &mut panels.pictures, commands)
            });
            inspector = Some(shown.response.rect);
        }
        let middle = CentralPanel::no_frame().show(ui, |ui| {
            let mut tabs = std::mem::replace(&mut panels.tabs, egui_tiles::Tree::empty(egui::Id::unique("no tabs")));
            panels.shown.clear();
            let reveals = panels.row.reveals(&studio.shown, ui.available_width());
            let spacing = tab_spacing(ui, ui.available_width());
            tabs.ui(&mut Tabs { studio, panels, enabled: &enabled, commands, reveals, spacing }, ui);
            if reveals {
                ui.ctx().request_repaint();
            }
            panels.tabs = tabs;
        });
        let middle = middle.response.rect;
        areas.extend([middle].into_iter().chain(inspector).chain([bottom.response.rect]));
        let answer = overlays_ui(ui, studio, panels, &enabled, &Parts { network, middle, inspector }, commands);
        if let Some(answer) = answer {
            self.take_answer(&ui.ctx().clone(), answer);
        }
        self.panels.ring.ui(ui.ctx(), &areas);
    }
}

/// Draws what is over the panels: the palette, the tour, help and questions. Returns the answer to a question.
fn overlays_ui(
    ui: &Ui,
    studio: &Studio,
    panels: &mut Panels,
    enabled: &EnabledCommands,
    parts: &Parts,
    commands: &mut CommandQueue,
) -> Option<Answer> {
    panels::palette::palette_ui(ui, enabled, &mut panels.palette, commands);
    if let Some(view) = studio.tour_view() {
        panels::tour::tour_ui(ui, &view, parts, commands);
    }
    panels::help::help_ui(ui, &studio.help_view(), &mut panels.help);
    panels::modals::modals_ui(ui, &studio.modals_view(), &mut panels.modals)
}

impl eframe::App for StudioApp {
    fn logic(&mut self, ctx: &egui::Context, _frame: &mut eframe::Frame) {
        let still = self.studio.settings.is_still(self.studio.motion.is_reduced());
        theme::set_motion(ctx, !still);
        self.receive(ctx);
    }

    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        let ctx = ui.ctx().clone();
        let has_dialog = ctx.memory(|m| m.top_modal_layer().is_some());
        if has_dialog && !std::mem::replace(&mut self.has_dialog, has_dialog) {
            // The control under the pointer is behind the dialog now: its tooltip must not be drawn over it.
            ctx.input_mut(|i| i.pointer = egui::PointerState::default());
        }
        self.has_dialog = has_dialog;
        self.fit.keep(&ctx);
        self.commands.extend(shortcuts::pressed(&ctx));
        self.panels_ui(ui);
        if self.panels.shown != self.studio.shown {
            // The data of a tab is loaded from the next frame on.
            ctx.request_repaint();
        }
        let requests = std::mem::take(&mut self.requests).into_iter().map(Action::Request);
        let actions: Vec<Action> = requests.chain(self.commands.take().into_iter().map(Action::Command)).collect();
        if !actions.is_empty() {
            for action in actions {
                self.perform(&ctx, action);
            }
            // The result of a command is shown immediately, not at the next movement of the pointer.
            ctx.request_repaint();
        }
        let mark = if self.studio.document.is_dirty() { "• " } else { "" };
        let title = format!("{mark}{} - Stepgraph", self.studio.document.title());
        // Every command to the window causes another frame: if one were sent in each frame, an idle window would never
        // rest.
        if self.title != title {
            ctx.send_viewport_cmd(egui::ViewportCommand::Title(title.clone()));
            self.title = title;
        }
        self.remember(frame.storage_mut());
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        let runs = &self.studio.runs;
        self.studio.settings.baseline = runs.baseline.remembered();
        eframe::set_value(storage, eframe::APP_KEY, &self.studio.settings);
        if let Ok(text) = serde_json::to_string(&self.panels.tabs) {
            storage.set_string(TABS_KEY, text);
        }
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        visuals.panel_fill.to_normalized_gamma_f32()
    }
}

/// The tabs in the middle.
struct Tabs<'a> {
    studio: &'a Studio,
    panels: &'a mut Panels,
    enabled: &'a EnabledCommands,
    commands: &'a mut CommandQueue,
    /// True if the row of tabs scrolls to the shown ones.
    reveals: bool,
    /// The space on either side of a tab's name, in points.
    spacing: f32,
}

impl Behavior<Tab> for Tabs<'_> {
    fn pane_ui(&mut self, ui: &mut Ui, _tile: TileId, tab: &mut Tab) -> UiResponse {
        let fill = theme::colors(ui).panel;
        self.panels.shown.push(*tab);
        Frame::new().fill(fill).inner_margin(Margin::same(12)).show(ui, |ui| {
            ui.take_available_space();
            match tab {
                Tab::Train => {
                    panels::train::train_ui(ui, &self.studio.train_view(), &mut self.panels.train, self.commands)
                }
                Tab::StepGraph => {
                    let view = self.studio.plan_on_screen();
                    panels::step_graph::step_graph_ui(ui, &view, &mut self.panels.step_graph, self.commands)
                }
                Tab::Arena => {
                    panels::arena::arena_ui(ui, &self.studio.arena_view(), &mut self.panels.arena, self.commands)
                }
                Tab::Capture => panels::capture::capture_ui(
                    ui,
                    &self.studio.capture_view(),
                    &mut self.panels.capture,
                    self.commands,
                ),
                Tab::Data => {
                    let Panels { data, drafts, .. } = &mut *self.panels;
                    let mut editing = Editing { drafts, commands: self.commands };
                    panels::data::data_ui(ui, &self.studio.data_view(), data, &mut editing);
                }
                Tab::Predictions => {
                    panels::predictions::predictions_ui(
                        ui,
                        &self.studio.predictions_view(),
                        &mut self.panels.predictions,
                        self.commands,
                    );
                }
                Tab::Verify => {
                    panels::verify::verify_ui(ui, &self.studio.verify_view(), &mut self.panels.verify, self.commands)
                }
                Tab::Recordings => panels::recordings::recordings_ui(ui, &self.studio.recordings_view(), self.commands),
                Tab::Runs => panels::runs::runs_ui(
                    ui,
                    &self.studio.runs_view(self.enabled),
                    &mut self.panels.runs,
                    self.commands,
                ),
            }
        });
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, tab: &Tab) -> egui::WidgetText {
        tab.title().into()
    }

    fn tab_bar_height(&self, _style: &egui::Style) -> f32 {
        32.0
    }

    fn tab_title_spacing(&self, _visuals: &egui::Visuals) -> f32 {
        self.spacing
    }

    fn tab_bar_color(&self, visuals: &egui::Visuals) -> egui::Color32 {
        visuals.extreme_bg_color
    }

    fn simplification_options(&self) -> egui_tiles::SimplificationOptions {
        // A tab that is alone after a drag still shows its name.
        egui_tiles::SimplificationOptions { all_panes_must_have_tabs: true, ..Default::default() }
    }

    fn on_tab_button(&mut self, tiles: &mut Tiles<Tab>, tile: TileId, response: egui::Response) -> egui::Response {
        match tiles.get_pane(&tile) {
            Some(tab) => {
                let command = UiCommand::ShowTab(*tab);
                let tooltip = command.tooltip(&response.ctx);
                if self.reveals && self.studio.shown.contains(tab) {
                    response.scroll_to_me_animation(Some(egui::Align::Center), egui::style::ScrollAnimation::none());
                }
                response.on_hover_text(tooltip)
            }
            None => response,
        }
    }
}
