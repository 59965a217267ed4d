//! The rooms of the window. Each draws plain view models and asks for commands; none computes, locks or waits.

pub mod arena;
pub mod capture;
pub mod inspector;
pub mod layer_card;
pub mod modals;
pub mod network;
pub mod palette;
pub mod runs;
pub mod status;
pub mod step_graph;
pub mod top_bar;
pub mod train;

use super::commands::Tab;
use super::widgets::field::Drafts;

/// What the panels remember between frames that is no part of the document.
pub struct Panels {
    pub drafts: Drafts,
    pub network: network::NetworkPanel,
    pub step_graph: step_graph::StepGraphPanel,
    pub arena: arena::ArenaPanel,
    pub train: train::TrainPanel,
    pub runs: runs::RunsPanel,
    pub palette: palette::Palette,
    pub modals: modals::Modals,
    pub tabs: egui_tiles::Tree<Tab>,
}

impl Default for Panels {
    fn default() -> Self {
        Self {
            drafts: Drafts::default(),
            network: network::NetworkPanel::default(),
            step_graph: step_graph::StepGraphPanel::default(),
            arena: arena::ArenaPanel::default(),
            train: train::TrainPanel::default(),
            runs: runs::RunsPanel::default(),
            palette: palette::Palette::default(),
            modals: modals::Modals::default(),
            tabs: egui_tiles::Tree::new_tabs(egui::Id::unique("studio tabs"), Tab::ALL.to_vec()),
        }
    }
}

impl Panels {
    /// Puts tabs that an older layout does not know beside the others.
    pub fn add_missing_tabs(&mut self) {
        for tab in Tab::ALL {
            let tiles = &mut self.tabs.tiles;
            if tiles.iter().any(|(_, tile)| matches!(tile, egui_tiles::Tile::Pane(t) if *t == tab)) {
                continue;
            }
            let pane = tiles.insert_pane(tab);
            let holder = tiles.iter_mut().find_map(|(_, tile)| match tile {
                egui_tiles::Tile::Container(egui_tiles::Container::Tabs(tabs)) => Some(tabs),
                _ => None,
            });
            match holder {
                Some(tabs) => tabs.add_child(pane),
                // A layout without any tabs is no layout of ours: it is begun anew.
                None => self.tabs = Self::default().tabs,
            }
        }
    }
}
