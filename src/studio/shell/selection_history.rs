//! The selection, with a history.

use crate::model::Preset;
use crate::studio::commands::selection::Selection;
use crate::studio::document::back_forward::BackForward;
use crate::studio::document::edit::split_path;

/// The selections before and after the current one.
#[derive(Debug, Default)]
pub struct SelectionHistory {
    current: Selection,
    others: BackForward<Selection, LIMIT>,
}

/// The largest number of earlier selections that are stored.
const LIMIT: usize = 100;

impl SelectionHistory {
    /// The present selection.
    #[must_use]
    pub const fn current(&self) -> &Selection {
        &self.current
    }

    /// Selects something; returns false if it was selected already.
    pub fn select(&mut self, selection: Selection) -> bool {
        if selection == self.current {
            return false;
        }
        self.others.record(std::mem::replace(&mut self.current, selection));
        true
    }

    /// Clears the history, because another document is open.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Replaces every selection by the same item in another plan; entries that no longer exist are removed.
    pub fn replace(&mut self, into: impl Fn(&Selection) -> Option<Selection>) {
        self.current = into(&self.current).unwrap_or_default();
        self.others.replace(into);
    }

    /// Removes layers that the preset does not have; if the current one is among them, the network is selected.
    pub fn forget_missing(&mut self, preset: &Preset) {
        let there = |s: &Selection| if let Selection::Layer(path) = s { preset.layer(path).is_some() } else { true };
        if !there(&self.current) {
            self.current = Selection::Nothing;
        }
        self.others.replace(|selection| there(selection).then(|| selection.clone()));
    }

    /// After undo or redo: a selected layer stays selected if it is still the same one, otherwise the network is
    /// selected.
    pub fn follow(&mut self, before: &Preset, after: &Preset) {
        let Selection::Layer(path) = &self.current else { return };
        let kind = |preset: &Preset| preset.layer(path).map(crate::model::LayerSpec::kind);
        // Layers that were added or removed in the same list have changed the indices of the others.
        let siblings = |preset: &Preset| preset.list(&split_path(path).0).map(<[_]>::len);
        if kind(before) != kind(after) || siblings(before) != siblings(after) {
            self.current = Selection::Nothing;
        }
    }

    #[must_use]
    pub const fn can_go_back(&self) -> bool {
        self.others.can_go_back()
    }

    #[must_use]
    pub const fn can_go_forward(&self) -> bool {
        self.others.can_go_forward()
    }

    pub fn go_back(&mut self) {
        self.others.go_back(&mut self.current);
    }

    pub fn go_forward(&mut self) {
        self.others.go_forward(&mut self.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LayerPath;

    #[test]
    fn a_removed_layer_is_not_selected() {
        let preset = crate::studio::document::presets::digits();
        let layer = |index| Selection::Layer(LayerPath::from([index]));
        let mut longer = preset.clone();
        longer.layers.insert(1, preset.layers[0].clone());
        let mut h = SelectionHistory::default();
        h.select(layer(3));
        h.select(layer(1));
        h.follow(&longer, &preset);
        h.forget_missing(&preset);
        assert_eq!(h.current(), &Selection::Nothing);
        h.go_back();
        assert_eq!((h.current(), h.can_go_back()), (&Selection::Nothing, false));
        // An edit of a field does not change the layer's place.
        h.select(layer(2));
        h.follow(&preset, &preset.clone());
        assert_eq!(h.current(), &layer(2));
    }

    #[test]
    fn selections_go_back_and_forward() {
        let mut h = SelectionHistory::default();
        assert!(h.select(Selection::Op(1)) && h.select(Selection::Op(2)) && !h.select(Selection::Op(2)));
        h.go_back();
        assert_eq!(h.current(), &Selection::Op(1));
        h.go_forward();
        assert_eq!(h.current(), &Selection::Op(2));
        h.go_back();
        h.select(Selection::Op(3));
        assert!(!h.can_go_forward() && h.can_go_back());
    }
}
