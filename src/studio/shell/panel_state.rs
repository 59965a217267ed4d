//! State of the panels that is not part of the document, and the layout of the tabs.

use crate::studio::commands::tab::Tab;
use crate::studio::panels::{
    arena, capture, data, help, modals, network, palette, predictions, runs, status, step_graph, train, values, verify,
};
use crate::studio::widgets::field::Drafts;
use crate::studio::widgets::keyboard::FocusRing;

/// State of the panels that is not part of the document.
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
    pub pictures: values::PictureCache,
    pub status: status::StatusPanel,
    pub row: TabRow,
    pub tabs: egui_tiles::Tree<Tab>,
}

/// Every tab in one row, as at the first start.
#[must_use]
pub fn first_layout() -> egui_tiles::Tree<Tab> {
    egui_tiles::Tree::new_tabs(egui::Id::unique("studio tabs"), Tab::ALL.to_vec())
}

/// A stored layout with tabs that are new since it was written; `None` if it has no root.
#[must_use]
pub fn with_new_tabs(mut tabs: egui_tiles::Tree<Tab>) -> Option<egui_tiles::Tree<Tab>> {
    use egui_tiles::{Container, Tile};
    let root = tabs.root()?;
    let missing: Vec<Tab> = Tab::ALL.into_iter().filter(|t| tabs.tiles.find_pane(t).is_none()).collect();
    let is_row = |id: &egui_tiles::TileId| matches!(tabs.tiles.get(*id), Some(Tile::Container(Container::Tabs(_))));
    // The first row of tabs: the outermost one, if that is a row.
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

/// The space on either side of a tab's name, in points: as large as possible while all tabs are visible in a row of
/// this width.
pub(super) fn tab_spacing(ui: &egui::Ui, width: f32) -> f32 {
    /// Its largest and its smallest value.
    const ROOM: [f32; 2] = [12.0, 5.0];
    /// The space that the row keeps free at its ends.
    const ENDS: f32 = 8.0;
    let font = egui::TextStyle::Button.resolve(ui.style());
    let text =
        |tab: Tab| ui.painter().layout_no_wrap(tab.title().to_owned(), font.clone(), egui::Color32::WHITE).size().x;
    let names: f32 = Tab::ALL.into_iter().map(text).sum();
    ((width - ENDS - names) / (2 * Tab::ALL.len()) as f32).clamp(ROOM[1], ROOM[0])
}

/// The state for which the row of tabs was last drawn.
#[derive(Debug, Default)]
pub struct TabRow {
    shown: Vec<Tab>,
    width: f32,
    /// The number of frames in which the row still scrolls to the shown tabs.
    frames: u8,
}

impl TabRow {
    /// True in the frames after other tabs were chosen, or the width of the row changed: then the row scrolls to the
    /// shown tabs. Afterwards the user may scroll it.
    pub(super) fn reveals(&mut self, shown: &[Tab], width: f32) -> bool {
        /// The arrows at the ends of the row appear one frame later, and take space.
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
            pictures: values::PictureCache::default(),
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
    fn the_row_of_tabs_scrolls_once_to_the_chosen_tabs() {
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
        // Tabs that are side by side stay so; the new ones are added to the first row of tabs.
        let mut tiles = egui_tiles::Tiles::default();
        let panes = [tiles.insert_pane(Tab::Train), tiles.insert_pane(Tab::Arena)];
        let rows = panes.map(|p| tiles.insert_tab_tile(vec![p]));
        let root = tiles.insert_horizontal_tile(rows.to_vec());
        let all = with_new_tabs(egui_tiles::Tree::new(egui::Id::unique("side by side"), root, tiles)).unwrap();
        assert!(Tab::ALL.iter().all(|t| all.tiles.find_pane(t).is_some()) && all.root() == Some(root));
        assert!(with_new_tabs(egui_tiles::Tree::empty(egui::Id::unique("none"))).is_none());
    }
}
