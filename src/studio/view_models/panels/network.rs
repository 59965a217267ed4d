//! What the network's panel shows.

use crate::studio::commands::Selection;
use crate::studio::view_models::folded_layers::FoldedLayers;
use crate::studio::view_models::network::{NetworkView, Row};
use crate::studio::view_models::related::Related;

/// What the network's panel shows.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPanelView<'a> {
    pub network: &'a NetworkView,
    /// The folds of the list of layers.
    pub rows: &'a [Row],
    pub folds: &'a FoldedLayers,
    /// The document's revision.
    pub revision: u64,
    pub selection: &'a Selection,
    pub related: &'a Related,
    /// True while the Data tab is shown, which reports what is wrong with the data.
    pub is_data_shown: bool,
}
