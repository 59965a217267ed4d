//! The edited preset: changed only by [`Edit`]s, each of which can be undone.

use crate::model::{LayerPath, Preset};
use crate::studio::document::back_forward::BackForward;
use crate::studio::document::edit::Edit;
use crate::studio::document::edit::change;
use crate::studio::document::fields::value::Owner;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Edits of one field within this time of each other are undone together.
const MERGE_WITHIN: Duration = Duration::from_secs(1);
/// The largest number of documents kept for undo.
const UNDO_LIMIT: usize = 500;

/// The document with its history.
#[derive(Debug)]
pub struct Document {
    preset: Arc<Preset>,
    /// As on disk, or as opened.
    saved: Arc<Preset>,
    path: Option<PathBuf>,
    others: BackForward<Arc<Preset>, UNDO_LIMIT>,
    last: Option<(Owner, &'static str, Instant)>,
    revision: u64,
    /// The revision at which the last undo step began.
    group: u64,
}

impl Document {
    /// A document that was opened from `path`, or a new one.
    #[must_use]
    pub fn new(preset: Preset, path: Option<PathBuf>) -> Self {
        let preset = Arc::new(preset);
        Self {
            saved: Arc::clone(&preset),
            preset,
            path,
            others: BackForward::default(),
            last: None,
            revision: 1,
            group: 1,
        }
    }

    /// Replaces everything by another document, with a new revision.
    pub fn replace(&mut self, preset: Preset, path: Option<PathBuf>) {
        let revision = self.revision + 1;
        *self = Self { revision, group: revision, ..Self::new(preset, path) };
    }

    /// Replaces everything by edits that were not saved.
    pub fn restore(&mut self, preset: Preset, saved: Preset, path: Option<PathBuf>) {
        self.replace(preset, path);
        self.saved = Arc::new(saved);
    }

    #[must_use]
    pub const fn preset(&self) -> &Arc<Preset> {
        &self.preset
    }

    /// The preset as on disk, or as opened.
    #[must_use]
    pub const fn saved(&self) -> &Arc<Preset> {
        &self.saved
    }

    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Increases with every change.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Increases with every change, except those that are undone together with the preceding one.
    #[must_use]
    pub const fn group(&self) -> u64 {
        self.group
    }

    /// The file's name, or the preset's.
    #[must_use]
    pub fn title(&self) -> String {
        let file = self.path.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        file.unwrap_or_else(|| self.preset.name.clone())
    }

    /// The folder that relative paths in the preset are relative to.
    #[must_use]
    pub fn base(&self) -> PathBuf {
        self.path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
    }

    /// True if there are unsaved edits.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !Arc::ptr_eq(&self.preset, &self.saved) && self.preset != self.saved
    }

    #[must_use]
    pub fn can_undo(&self) -> bool {
        self.others.can_go_back()
    }

    #[must_use]
    pub fn can_redo(&self) -> bool {
        self.others.can_go_forward()
    }

    /// Records that `preset` was written to `path`.
    pub fn mark_saved(&mut self, path: PathBuf, preset: Arc<Preset>) {
        self.path = Some(path);
        self.saved = preset;
        self.last = None;
    }

    fn moved(&mut self) {
        self.revision += 1;
        self.group = self.revision;
        self.last = None;
    }

    pub fn undo(&mut self) {
        if self.others.go_back(&mut self.preset) {
            self.moved();
        }
    }

    pub fn redo(&mut self) {
        if self.others.go_forward(&mut self.preset) {
            self.moved();
        }
    }

    /// Makes a change that can be undone; returns the layer that was added or moved. An edit that changes nothing is
    /// not recorded.
    pub fn apply(&mut self, edit: &Edit) -> Option<LayerPath> {
        let mut next = (*self.preset).clone();
        let touched = change(&mut next, edit)?;
        if next == *self.preset {
            return Some(touched);
        }
        let now = Instant::now();
        let key = match edit {
            Edit::SetField { owner, name, .. } => Some((owner.clone(), *name, now)),
            _ => None,
        };
        let merges = self.last.as_ref().zip(key.as_ref()).is_some_and(|((of, field, at), (owner, name, _))| {
            of == owner && field == name && now - *at < MERGE_WITHIN
        });
        let before = std::mem::replace(&mut self.preset, Arc::new(next));
        self.revision += 1;
        if merges {
            self.others.end_here();
        } else {
            self.others.record(before);
            self.group = self.revision;
        }
        self.last = key;
        Some(touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LayerKind;
    use crate::model::LayerSpec;
    use crate::model::check;
    use crate::model::{ListField, ListId};
    use crate::studio::document::fields::value::FieldValue;
    use crate::studio::document::presets::digits;

    fn path(p: &[usize]) -> LayerPath {
        LayerPath::from(p)
    }

    fn kind(name: &str) -> LayerKind {
        LayerKind::from_name(name).unwrap()
    }

    fn classes(doc: &Document) -> String {
        fn of(list: &[LayerSpec]) -> Vec<String> {
            let one = |l: &LayerSpec| {
                let inner: Vec<String> = l.lists().into_iter().flat_map(|(_, inside)| of(inside)).collect();
                if inner.is_empty() {
                    l.kind().class.to_owned()
                } else {
                    format!("{}({})", l.kind().class, inner.join(" "))
                }
            };
            list.iter().map(one).collect()
        }
        of(&doc.preset.layers).join(" ")
    }

    fn units(n: usize) -> Edit {
        Edit::SetField { owner: Owner::Layer(path(&[0])), name: "units", value: FieldValue::Count(n) }
    }

    #[test]
    fn typing_a_number_is_undone_as_one() {
        let mut doc = Document::new(digits(), None);
        for n in [2, 25, 256] {
            doc.apply(&units(n));
        }
        assert!(doc.is_dirty() && doc.can_undo());
        assert_eq!((doc.revision(), doc.group()), (4, 2));
        doc.undo();
        assert_eq!(doc.group(), 5);
        assert!(!doc.is_dirty() && !doc.can_undo() && doc.can_redo());
        doc.redo();
        doc.undo();
        doc.apply(&units(7));
        assert!(!doc.can_redo());
    }

    #[test]
    fn an_edit_without_effect_is_not_recorded() {
        let mut doc = Document::new(digits(), None);
        doc.apply(&units(128));
        assert_eq!(doc.apply(&Edit::Remove(path(&[9]))), None);
        assert!(!doc.can_undo() && doc.revision() == 1);
    }

    #[test]
    fn a_layer_inserted_into_a_block_keeps_it_valid() {
        let mut doc = Document::new(digits(), None);
        doc.apply(&Edit::Insert { parent: path(&[]).into(), index: 1, kind: kind("residual") });
        for name in ["dense", "layer_norm", "dense", "repeat"] {
            doc.apply(&Edit::Insert { parent: path(&[1]).into(), index: 9, kind: kind(name) });
        }
        doc.apply(&Edit::Insert { parent: path(&[1, 3]).into(), index: 0, kind: kind("dense") });
        doc.apply(&Edit::Duplicate(path(&[1, 0])));
        let checked = check(doc.preset());
        assert!(checked.model.is_some(), "{:?}", checked.diagnostics);
        // The network's width is kept, not that of the example.
        assert_eq!(checked.facts.iter().find(|f| f.path == path(&[1, 4, 0])).unwrap().params, 128 * 129);
        // The layers of a bottleneck have different widths: a copy of the narrow one stays narrow.
        let narrow = Edit::SetField { owner: Owner::Layer(path(&[1, 0])), name: "units", value: FieldValue::Count(16) };
        doc.apply(&narrow);
        doc.apply(&Edit::Duplicate(path(&[1, 0])));
        assert!(check(doc.preset()).model.is_some());
    }

    #[test]
    fn pictures_keep_their_size_and_channels_in_a_block() {
        let index = (0..crate::studio::document::presets::count())
            .find(|i| crate::studio::document::presets::name(*i) == "digits-cnn");
        let mut doc = Document::new(crate::studio::document::presets::bundled(index.unwrap()).unwrap(), None);
        doc.apply(&Edit::Insert { parent: path(&[]).into(), index: 1, kind: kind("residual") });
        for name in ["conv2d", "max_pool2d", "avg_pool2d", "batch_norm", "conv2d", "dense"] {
            doc.apply(&Edit::Insert { parent: path(&[1]).into(), index: 9, kind: kind(name) });
        }
        let checked = check(doc.preset());
        assert!(checked.model.is_some(), "{:?}", checked.diagnostics);
    }

    #[test]
    fn layers_move_into_blocks_and_out() {
        let mut doc = Document::new(digits(), None);
        doc.apply(&Edit::Insert { parent: path(&[]).into(), index: 2, kind: kind("residual") });
        assert_eq!(classes(&doc), "Dense Dropout Residual Dense");
        let moved = doc.apply(&Edit::Move { from: path(&[1]), parent: path(&[2]).into(), index: 0 });
        assert_eq!((moved, classes(&doc).as_str()), (Some(path(&[1, 0])), "Dense Residual(Dropout) Dense"));
        assert_eq!(doc.apply(&Edit::Move { from: path(&[1]), parent: path(&[1]).into(), index: 0 }), None);
        doc.apply(&Edit::Move { from: path(&[1, 0]), parent: path(&[]).into(), index: 3 });
        assert_eq!(classes(&doc), "Dense Residual Dense Dropout");
        doc.apply(&Edit::Duplicate(path(&[3])));
        doc.apply(&Edit::Remove(path(&[1])));
        assert_eq!(classes(&doc), "Dense Dense Dropout Dropout");
        for _ in 0..5 {
            doc.undo();
        }
        assert_eq!(classes(&doc), "Dense Dropout Dense");
    }

    #[test]
    fn a_tied_layer_follows_its_embedding() {
        let text = r#"{"name": "n", "input": {"type": "tokens", "shape": [3], "vocab": 7, "batch": 2},
            "layers": [{"type": "embedding", "units": 5}, {"type": "position"},
                {"type": "dense", "units": 7, "tied": "layers[0]"}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let mut doc = Document::new(crate::model::read_preset(text).unwrap(), None);
        let tied = |doc: &Document| doc.preset().layers.last().and_then(LayerSpec::tied).map(str::to_owned);
        doc.apply(&Edit::Remove(path(&[1])));
        assert_eq!(tied(&doc).as_deref(), Some("layers[0]"));
        doc.apply(&Edit::Insert { parent: path(&[]).into(), index: 0, kind: kind("dropout") });
        assert_eq!(tied(&doc).as_deref(), Some("layers.1"));
        doc.apply(&Edit::Remove(path(&[0])));
        assert_eq!((tied(&doc).as_deref(), check(doc.preset()).model.is_some()), (Some("layers.0"), true));
        // Without the embedding the reference is a mistake; undo restores both.
        doc.apply(&Edit::Remove(path(&[0])));
        assert!(check(doc.preset()).diagnostics.iter().any(|mistake| mistake.path == "layers[0].tied"));
        doc.undo();
        assert!(check(doc.preset()).model.is_some());
    }

    #[test]
    fn branches_are_added_and_removed_with_their_layers() {
        let mut doc = Document::new(digits(), None);
        doc.apply(&Edit::Insert { parent: path(&[]).into(), index: 1, kind: kind("parallel") });
        let branch = |number| path(&[1]).list(ListId::new(ListField::Branches, number));
        doc.apply(&Edit::Insert { parent: branch(1), index: 0, kind: kind("dense") });
        doc.apply(&Edit::Insert { parent: branch(1), index: 1, kind: kind("dropout") });
        let inside = branch(1).child(1);
        let new = Edit::InsertList(branch(0));
        assert_eq!(new.moved(&inside), Some(branch(2).child(1)));
        doc.apply(&new);
        assert_eq!(doc.preset().layer(&branch(2).child(1)).map(|l| l.kind().class), Some("Dropout"));
        // From one branch to another, and out of the block.
        let to = Edit::Move { from: branch(2).child(0), parent: branch(0), index: 0 };
        assert_eq!(to.moved(&branch(2).child(1)), Some(branch(2).child(0)));
        assert_eq!(doc.apply(&to), Some(branch(0).child(0)));
        let gone = Edit::RemoveList(branch(1));
        assert_eq!((gone.moved(&branch(1).child(0)), gone.moved(&path(&[1]))), (None, Some(path(&[1]))));
        assert_eq!(gone.moved(&branch(2).child(0)), Some(branch(1).child(0)));
        doc.apply(&gone);
        assert_eq!(classes(&doc), "Dense Parallel(Dense Dropout) Dropout Dense");
        doc.apply(&Edit::RemoveList(branch(1)));
        // The last branch cannot be removed.
        assert_eq!(doc.apply(&Edit::RemoveList(branch(0))), None);
        assert!(check(doc.preset()).model.is_some());
        for _ in 0..4 {
            doc.undo();
        }
        assert_eq!(classes(&doc), "Dense Parallel(Dense Dropout) Dropout Dense");
    }
}
