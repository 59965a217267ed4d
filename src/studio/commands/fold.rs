//! Foldable items in the list of layers, and the commands for them.

use crate::model::LayerPath;
use crate::studio::commands::info::{CTRL, Info, keys};
use crate::studio::theme::icons;
use egui::Key;

/// A foldable item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fold {
    /// The layers inside a block.
    Block(LayerPath),
    /// A sequence of equal neighbours, identified by the first of them.
    Run(LayerPath),
}

/// A command for folds.
#[derive(Clone, Debug, PartialEq)]
pub enum FoldCommand {
    All,
    Nothing,
    /// Folds or unfolds one.
    Set(Fold, bool),
}

impl FoldCommand {
    /// The command's appearance.
    #[must_use]
    pub const fn info(&self) -> Info {
        let (label, icon, shortcut, about) = match self {
            Self::All => (
                "Fold all layers",
                icons::FOLDED,
                keys(CTRL, Key::OpenBracket),
                "Folds every block, and every run of equal layers, to a line",
            ),
            Self::Nothing => {
                ("Unfold all layers", icons::DOWN, keys(CTRL, Key::CloseBracket), "Shows every layer with its fields")
            }
            Self::Set(_, true) => ("Fold", icons::DOWN, None, "Folds these layers to a line"),
            Self::Set(_, false) => ("Unfold", icons::FOLDED, None, "Shows these layers with their fields"),
        };
        Info { label, icon, shortcut, about }
    }
}
