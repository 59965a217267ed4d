//! The rooms of the window. Each draws plain view models and asks for commands; none computes, locks or waits.

pub mod arena;
pub mod arena_numbers;
pub mod capture;
pub mod curves;
pub mod data;
pub mod help;
pub mod inspector;
mod jobs;
pub mod layer_card;
pub mod modals;
pub mod network;
pub mod palette;
pub mod plan_changes;
pub mod predictions;
pub mod run_tools;
pub mod runs;
pub mod status;
pub mod step_graph;
pub mod tenancy;
pub mod top_bar;
pub mod tour;
pub mod train;
pub mod trash;
pub mod values;
pub mod verify;

use super::commands::{Command, Queue, Tab};
use super::icons;
use super::state::Studio;
use super::theme;
use super::widgets::button::empty_ui;
use super::widgets::field::Drafts;
use super::widgets::keys::FocusRing;

/// Says why the network cannot be used yet, where [`Studio::is_ready`] is false.
pub(super) fn unready_ui(ui: &mut egui::Ui, studio: &Studio, to: &str) {
    if studio.document.preset().layers.is_empty() {
        let next = "Press Add layer in the network at the left: what a layer does is said beside its name.";
        empty_ui(ui, &format!("Add a layer to {to}"), next);
    } else if studio.problems() > 0 {
        let next = "The problems are marked in the network at the left, each with its remedy.";
        empty_ui(ui, &format!("Fix the network to {to}"), next);
    } else if studio.devices.current().trains() {
        empty_ui(ui, "Compiling…", &format!("The network is being planned; then you can {to}."));
    } else {
        empty_ui(ui, &format!("Choose a device to {to}"), "The chosen one is not here: it can only be planned for.");
    }
}

/// Says that what follows is of the network before its problem, and draws it faintly; nothing where it is of the
/// network on screen.
pub(super) fn outdated_ui(ui: &mut egui::Ui, studio: &Studio, out: &mut Queue) {
    /// How much of their colour things keep that are of an older network.
    const FAINT: f32 = 0.45;
    if !studio.is_plan_outdated() {
        return;
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let color = theme::colors(ui).warning;
        let text = format!("{}  The network has a problem. What is shown here is the step before it.", icons::WARNING);
        ui.label(egui::RichText::new(text).size(12.0).color(color));
        if ui.button("Show the problem").on_hover_text(Command::ShowProblem.info().about).clicked() {
            out.push(Command::ShowProblem);
        }
    });
    ui.add_space(4.0);
    ui.set_opacity(FAINT);
}

/// What the panels remember between frames that is no part of the document.
pub struct Panels {
    pub drafts: Drafts,
    pub network: network::NetworkPanel,
    pub step_graph: step_graph::StepGraphPanel,
    pub arena: arena::ArenaPanel,
    pub capture: capture::CapturePanel,
    pub train: train::TrainPanel,
    pub data: data::DataPanel,
    pub predictions: predictions::PredictionsPanel,
    pub verify: verify::VerifyPanel,
    pub runs: runs::RunsPanel,
    pub palette: palette::Palette,
    pub modals: modals::Modals,
    /// The tabs that are drawn in this frame.
    pub shown: Vec<Tab>,
    pub help: help::Help,
    pub ring: FocusRing,
    pub look: values::PictureCache,
    pub status: status::StatusPanel,
    pub row: TabRow,
    pub tabs: egui_tiles::Tree<Tab>,
}

/// Every tab in one row, as at the first start.
#[must_use]
pub fn first_layout() -> egui_tiles::Tree<Tab> {
    egui_tiles::Tree::new_tabs(egui::Id::unique("studio tabs"), Tab::ALL.to_vec())
}

/// A remembered layout with the tabs that are new since it was written; `None` where it has lost its root.
#[must_use]
pub fn with_new_tabs(mut tabs: egui_tiles::Tree<Tab>) -> Option<egui_tiles::Tree<Tab>> {
    use egui_tiles::{Container, Tile};
    let root = tabs.root()?;
    let missing: Vec<Tab> = Tab::ALL.into_iter().filter(|t| tabs.tiles.find_pane(t).is_none()).collect();
    let is_row = |id: &egui_tiles::TileId| matches!(tabs.tiles.get(*id), Some(Tile::Container(Container::Tabs(_))));
    // The first row of tabs that there is, the outermost where that is one.
    let row = Some(root).filter(is_row).or_else(|| {
        let mut rows: Vec<_> = tabs.tiles.tile_ids().filter(is_row).collect();
        rows.sort_by_key(|id| id.0);
        rows.first().copied()
    })?;
    for tab in missing {
        let id = tabs.tiles.insert_pane(tab);
        if let Some(Tile::Container(Container::Tabs(row))) = tabs.tiles.get_mut(row) {
            row.add_child(id);
        }
    }
    Some(tabs)
}

/// What the row of tabs was last drawn for.
#[derive(Debug, Default)]
pub struct TabRow {
    shown: Vec<Tab>,
    width: f32,
    /// Frames in which the shown tabs are still brought into view.
    frames: u8,
}

impl TabRow {
    /// True in the frames after other tabs were chosen, or the row became wider or narrower: those that are shown are
    /// to be in view. A person may scroll the row to others from then on.
    pub(super) fn reveals(&mut self, shown: &[Tab], width: f32) -> bool {
        /// The arrows at the ends of the row come a frame later, and take room.
        const FRAMES: u8 = 4;
        if self.shown != shown || (self.width - width).abs() > 0.5 {
            self.shown = shown.to_vec();
            (self.width, self.frames) = (width, FRAMES);
        }
        self.frames = self.frames.saturating_sub(1);
        self.frames > 0
    }
}

impl Default for Panels {
    fn default() -> Self {
        Self {
            drafts: Drafts::default(),
            network: network::NetworkPanel::default(),
            step_graph: step_graph::StepGraphPanel::default(),
            arena: arena::ArenaPanel::default(),
            capture: capture::CapturePanel::default(),
            train: train::TrainPanel::default(),
            data: data::DataPanel::default(),
            predictions: predictions::PredictionsPanel::default(),
            verify: verify::VerifyPanel::default(),
            runs: runs::RunsPanel::default(),
            palette: palette::Palette::default(),
            modals: modals::Modals::default(),
            shown: Vec::new(),
            help: help::Help::default(),
            ring: FocusRing::default(),
            look: values::PictureCache::default(),
            status: status::StatusPanel::default(),
            row: TabRow::default(),
            tabs: first_layout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_tabs_are_brought_into_view_once() {
        let mut row = TabRow::default();
        let mut frames = |shown: &[Tab], width| (0..10).filter(|_| row.reveals(shown, width)).count();
        assert!(frames(&[Tab::Train], 700.0) > 0);
        assert_eq!(frames(&[Tab::Train], 700.0), 0);
        assert!(frames(&[Tab::Runs], 700.0) > 0 && frames(&[Tab::Runs], 500.0) > 0);
    }

    #[test]
    fn an_older_layout_gets_the_tabs_that_are_new() {
        let id = egui::Id::unique("old tabs");
        let old = egui_tiles::Tree::new_tabs(id, vec![Tab::Arena, Tab::Train]);
        let all = with_new_tabs(old).unwrap();
        assert!(Tab::ALL.iter().all(|t| all.tiles.find_pane(t).is_some()));
        let Some(egui_tiles::Container::Tabs(row)) = all.tiles.get_container(all.root().unwrap()) else {
            panic!("tabs")
        };
        assert_eq!(row.children.len(), Tab::ALL.len());
        // What stands side by side stays so; the new ones go to the first row of tabs.
        let mut tiles = egui_tiles::Tiles::default();
        let panes = [tiles.insert_pane(Tab::Train), tiles.insert_pane(Tab::Arena)];
        let rows = panes.map(|p| tiles.insert_tab_tile(vec![p]));
        let root = tiles.insert_horizontal_tile(rows.to_vec());
        let all = with_new_tabs(egui_tiles::Tree::new(egui::Id::unique("side by side"), root, tiles)).unwrap();
        assert!(Tab::ALL.iter().all(|t| all.tiles.find_pane(t).is_some()) && all.root() == Some(root));
        assert!(with_new_tabs(egui_tiles::Tree::empty(egui::Id::unique("none"))).is_none());
    }
}
