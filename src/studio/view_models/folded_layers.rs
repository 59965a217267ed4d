//! The folded parts of the list of layers: blocks, and sequences of equal neighbours.

use crate::model::LayerPath;
use crate::studio::commands::fold::Fold;
use crate::studio::commands::fold::FoldCommand;
use crate::studio::document::edit::Edit;
use crate::studio::view_models::network::NetworkView;
use std::collections::BTreeSet;

impl Fold {
    /// True if folding it hides this layer.
    fn holds(&self, path: &LayerPath, network: &NetworkView) -> bool {
        match self {
            Self::Block(block) => path.starts_with(block) && path != block,
            Self::Run(first) => network.run_at(first).is_some_and(|r| r.holds(path)),
        }
    }
}

/// A row of a folded list: its layer, or the first one of its sequence, and its fold with whether it is folded.
pub type FoldRow = (LayerPath, Option<(Fold, bool)>);

/// The effect of the left or right arrow key in a folded list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sideways {
    Fold(Fold, bool),
    /// Moves to the row with this index.
    To(usize),
}

impl Sideways {
    /// The left arrow folds the row, or moves to the head of its block, or to the row above. The right arrow unfolds
    /// the row, or moves to the first row inside.
    #[must_use]
    pub fn of(left: bool, at: usize, network: &NetworkView, row: impl Fn(usize) -> Option<FoldRow>) -> Option<Self> {
        let (path, fold) = row(at)?;
        let head = |at: usize, path: &LayerPath| {
            let holds = |(fold, folded): (Fold, bool)| !folded && fold.holds(path, network);
            (0..at).rev().find(|n| row(*n).and_then(|(_, fold)| fold).is_some_and(holds))
        };
        match (left, fold) {
            (_, Some((fold, folded))) if folded != left => Some(Self::Fold(fold, left)),
            (false, Some(_)) => Some(Self::To(at + 1)),
            (false, None) => None,
            (true, _) => {
                let is_outermost = |n: &usize| row(*n).is_some_and(|(path, _)| head(*n, &path).is_none());
                head(at, &path).or_else(|| (0..at).rev().find(is_outermost)).map(Self::To)
            }
        }
    }
}

/// A network with more layers than this opens folded.
const MANY: usize = 32;

/// The items that are folded.
#[derive(Debug, Default)]
pub struct FoldedLayers {
    folded: BTreeSet<Fold>,
    /// Increases with every change.
    revision: u64,
    /// True after the opened network was folded, or found small enough to stay unfolded.
    settled: bool,
}

impl FoldedLayers {
    /// Increases with every change.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    #[must_use]
    pub fn is_folded(&self, fold: &Fold) -> bool {
        self.folded.contains(fold)
    }

    /// Another network was opened: it is folded if it is large.
    pub fn forget(&mut self) {
        *self = Self { revision: self.revision + 1, ..Self::default() };
    }

    /// Folds a network that was just opened if it is large.
    pub fn settle(&mut self, network: &NetworkView) {
        if !std::mem::replace(&mut self.settled, true) && network.cards.len() > MANY {
            self.perform(FoldCommand::All, network);
        }
    }

    pub fn perform(&mut self, command: FoldCommand, network: &NetworkView) {
        self.revision += 1;
        match command {
            FoldCommand::All => self.folded.extend(network.folds()),
            FoldCommand::Nothing => self.folded.clear(),
            FoldCommand::Set(fold, true) => drop(self.folded.insert(fold)),
            FoldCommand::Set(fold, false) => drop(self.folded.remove(&fold)),
        }
    }

    /// Unfolds everything that hides a layer.
    pub fn reveal(&mut self, path: &LayerPath, network: &NetworkView) {
        let before = self.folded.len();
        self.folded.retain(|fold| !fold.holds(path, network));
        self.revision += u64::from(self.folded.len() != before);
    }

    /// Updates the folds after an edit.
    pub fn follow(&mut self, edit: &Edit) {
        if matches!(edit, Edit::SetField { .. }) {
            return;
        }
        self.revision += 1;
        let moved = |fold: Fold| match fold {
            Fold::Block(path) => edit.moved(&path).map(Fold::Block),
            // The next layer of a sequence replaces the first one.
            Fold::Run(path) if *edit == Edit::Remove(path.clone()) => Some(Fold::Run(path)),
            Fold::Run(path) => edit.moved(&path).map(Fold::Run),
        };
        self.folded = std::mem::take(&mut self.folded).into_iter().filter_map(moved).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ListPath;
    use crate::studio::document::presets;

    fn view(name: &str) -> NetworkView {
        let index = (0..presets::count()).find(|i| presets::name(*i) == name).unwrap();
        NetworkView::new(&presets::bundled(index).unwrap(), None, None, None, &[])
    }

    fn path(p: &[usize]) -> LayerPath {
        LayerPath::from(p)
    }

    #[test]
    fn a_large_network_opens_folded_and_a_small_one_does_not() {
        let large = view("stress-200");
        let mut folds = FoldedLayers::default();
        folds.settle(&large);
        let rows = large.rows(|f| folds.is_folded(f));
        assert!(rows.len() < 8, "{}", rows.len());
        // Only once: layers that the user unfolds stay unfolded.
        folds.perform(FoldCommand::Nothing, &large);
        folds.settle(&large);
        assert!(large.rows(|f| folds.is_folded(f)).len() >= large.cards.len());
        let small = view("digits-residual");
        let mut folds = FoldedLayers::default();
        folds.settle(&small);
        assert!(small.rows(|f| folds.is_folded(f)).len() >= small.cards.len());
    }

    #[test]
    fn only_the_folds_that_hide_a_layer_are_unfolded() {
        let large = view("stress-200");
        let mut folds = FoldedLayers::default();
        folds.perform(FoldCommand::All, &large);
        folds.reveal(&path(&[7, 1]), &large);
        assert!(!folds.is_folded(&Fold::Block(path(&[7]))) && folds.is_folded(&Fold::Block(path(&[8]))));
        assert!(!folds.is_folded(&Fold::Run(path(&[1]))));
        // A selected block stays folded.
        folds.reveal(&path(&[8]), &large);
        assert!(folds.is_folded(&Fold::Block(path(&[8]))));
    }

    #[test]
    fn folds_follow_their_layers_through_edits() {
        let mut folds =
            FoldedLayers { folded: [Fold::Block(path(&[2])), Fold::Run(path(&[2]))].into(), ..FoldedLayers::default() };
        let kind = crate::model::LayerKind::ALL[0];
        folds.follow(&Edit::Insert { parent: ListPath::default(), index: 0, kind });
        assert!(folds.is_folded(&Fold::Block(path(&[3]))) && folds.is_folded(&Fold::Run(path(&[3]))));
        folds.follow(&Edit::Move { from: path(&[3]), parent: ListPath::default(), index: 0 });
        assert!(folds.is_folded(&Fold::Block(path(&[0]))));
        folds.follow(&Edit::Duplicate(path(&[0])));
        folds.follow(&Edit::Remove(path(&[0])));
        assert!(!folds.is_folded(&Fold::Block(path(&[0]))) && folds.is_folded(&Fold::Run(path(&[0]))));
    }
}
