//! The rooms of the window. Each draws plain view models and asks for commands; none computes, locks or waits.

pub mod arena;
pub mod arena_numbers;
pub mod capture;
pub mod help;
pub mod inspector;
pub mod layer_card;
pub mod modals;
pub mod network;
pub mod palette;
pub mod plan_changes;
pub mod status;
pub mod step_graph;
pub mod tenancy;
pub mod top_bar;
pub mod tour;
pub mod train;
pub mod values;

use super::commands::Tab;
use super::widgets::field::Drafts;

/// What the panels remember between frames that is no part of the document.
pub struct Panels {
    pub drafts: Drafts,
    pub network: network::NetworkPanel,
    pub step_graph: step_graph::StepGraphPanel,
    pub arena: arena::ArenaPanel,
    pub train: train::TrainPanel,
    pub palette: palette::Palette,
    pub modals: modals::Modals,
    pub help: help::Help,
    pub look: values::PictureCache,
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
            palette: palette::Palette::default(),
            modals: modals::Modals::default(),
            help: help::Help::default(),
            look: values::PictureCache::default(),
            tabs: egui_tiles::Tree::new_tabs(egui::Id::unique("studio tabs"), Tab::ALL.to_vec()),
        }
    }
}
