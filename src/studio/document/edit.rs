//! Changes to a preset, and the paths of layers after a change.

use crate::model::{LayerKind, LayerPath, LayerSpec, ListId, ListPath, Preset, check};
use crate::studio::document::fields::inputs::set_input_field;
use crate::studio::document::fields::layer::set_layer_field;
use crate::studio::document::fields::preset::{set_preset_field, set_source_field};
use crate::studio::document::fields::value::{FieldValue, Owner};
use crate::tensor::Shape;

/// A change to the document.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    SetField {
        owner: Owner,
        name: &'static str,
        value: FieldValue,
    },
    /// Inserts a new layer before position `index` of a list.
    Insert {
        parent: ListPath,
        index: usize,
        kind: LayerKind,
    },
    Remove(LayerPath),
    Duplicate(LayerPath),
    /// Moves a layer before position `index` of another list; both are counted before the move.
    Move {
        from: LayerPath,
        parent: ListPath,
        index: usize,
    },
    /// Inserts an empty list of layers before this one of its block, or after the last one.
    InsertList(ListPath),
    /// Removes a list with its layers; a block keeps its last list.
    RemoveList(ListPath),
}

impl Edit {
    /// The path of the layer at `path` after the edit; `None` if it was removed.
    #[must_use]
    pub fn moved(&self, path: &LayerPath) -> Option<LayerPath> {
        match self {
            Self::SetField { .. } => Some(path.clone()),
            Self::Insert { parent, index, .. } => Some(with_room(path, parent, *index)),
            Self::Duplicate(of) => {
                let (parent, index) = split_path(of);
                Some(with_room(path, &parent, index + 1))
            }
            Self::Remove(gone) => without(path, gone),
            Self::Move { from, parent, index } => {
                let (source, at) = split_path(from);
                let index = if *parent == source && *index > at { index - 1 } else { *index };
                let parent = list_without(parent, from)?;
                match path.0.strip_prefix(from.0.as_slice()) {
                    Some(rest) => Some(LayerPath([parent.child(index).0.as_slice(), rest].concat())),
                    None => without(path, from).map(|p| with_room(&p, &parent, index)),
                }
            }
            Self::InsertList(new) => {
                Some(renumbered(path, new, |number| number + usize::from(number >= new.list.number)))
            }
            Self::RemoveList(gone) if gone.place_of(path).is_some() => None,
            Self::RemoveList(gone) => {
                Some(renumbered(path, gone, |number| number - usize::from(number > gone.list.number)))
            }
        }
    }
}

/// A path after a layer was inserted before position `index` of `parent`.
fn with_room(path: &LayerPath, parent: &ListPath, index: usize) -> LayerPath {
    let mut path = path.clone();
    if parent.place_of(&path).is_some_and(|place| place >= index)
        && let Some(segment) = path.0.get_mut(parent.block.depth())
    {
        segment.index += 1;
    }
    path
}

/// A path after the lists of the block that has `list` were renumbered.
fn renumbered(path: &LayerPath, list: &ListPath, number: impl Fn(usize) -> usize) -> LayerPath {
    let mut path = path.clone();
    if path.starts_with(&list.block)
        && let Some(segment) = path.0.get_mut(list.block.depth())
        && segment.list.field == list.list.field
    {
        segment.list.number = number(segment.list.number);
    }
    path
}

/// A path after another layer was removed; `None` if it was inside that layer.
fn without(path: &LayerPath, gone: &LayerPath) -> Option<LayerPath> {
    if path.starts_with(gone) {
        return None;
    }
    let (parent, index) = split_path(gone);
    let mut path = path.clone();
    if parent.place_of(&path).is_some_and(|place| place > index)
        && let Some(segment) = path.0.get_mut(parent.block.depth())
    {
        segment.index -= 1;
    }
    Some(path)
}

/// A list after a layer was removed; `None` if it was inside that layer.
fn list_without(list: &ListPath, gone: &LayerPath) -> Option<ListPath> {
    without(&list.block, gone).map(|block| block.list(list.list))
}

/// The list that contains a layer, and its index there.
#[must_use]
pub fn split_path(path: &LayerPath) -> (ListPath, usize) {
    path.split().unwrap_or_default()
}

/// Makes a change; returns the layer that was added or moved, `None` if the change is not possible. References to
/// layers are updated.
pub(super) fn change(preset: &mut Preset, edit: &Edit) -> Option<LayerPath> {
    let at = apply(preset, edit)?;
    rename_places(&mut preset.layers, edit);
    Some(at)
}

/// Updates layers that use the weight of another layer to the path of that layer after an edit. If it was removed, the
/// path stays, and is a mistake.
fn rename_places(layers: &mut [LayerSpec], edit: &Edit) {
    for layer in layers {
        let place = layer.tied().and_then(|place| place.parse::<LayerPath>().ok());
        if let Some(place) = place
            && let Some(moved) = edit.moved(&place).filter(|moved| *moved != place)
        {
            layer.set("tied", &FieldValue::Text(moved.dotted()));
        }
        let ids: Vec<ListId> = layer.lists().into_iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(list) = layer.list_mut(id) {
                rename_places(list, edit);
            }
        }
    }
}

fn apply(preset: &mut Preset, edit: &Edit) -> Option<LayerPath> {
    match edit {
        Edit::SetField { owner: Owner::Preset, name, value } => {
            set_preset_field(preset, name, value).then(LayerPath::default)
        }
        Edit::SetField { owner: Owner::Source(input), name, value } => {
            set_source_field(preset, input, name, value).then(LayerPath::default)
        }
        Edit::SetField { owner: Owner::Input(input), name, value } => {
            set_input_field(&mut preset.input, input, name, value).then(LayerPath::default)
        }
        Edit::SetField { owner: Owner::Layer(path), name, value } => {
            let (parent, index) = split_path(path);
            let layer = preset.list_mut(&parent)?.get_mut(index)?;
            set_layer_field(layer, name, value).then(|| path.clone())
        }
        Edit::SetField { owner: Owner::List(list), name, value } => {
            preset.layer_mut(&list.block)?.set_in_entry(list.list, name, value).then(|| list.block.clone())
        }
        Edit::Insert { parent, index, kind } => {
            let index = (*index).min(preset.list(parent)?.len());
            let mut layer = kind.example();
            if !parent.block.is_empty()
                && let Some(input) = input_at(preset, parent, index)
            {
                layer.keep_shape(&input);
            }
            preset.list_mut(parent)?.insert(index, layer);
            Some(parent.child(index))
        }
        Edit::Remove(path) => {
            let (parent, index) = split_path(path);
            let list = preset.list_mut(&parent)?;
            if index >= list.len() {
                return None;
            }
            list.remove(index);
            // The neighbour becomes the selected layer.
            Some(if list.is_empty() { parent.block } else { parent.child(index.min(list.len() - 1)) })
        }
        Edit::Duplicate(path) => {
            let (parent, index) = split_path(path);
            let mut copy = preset.list(&parent)?.get(index)?.clone();
            if !parent.block.is_empty()
                && let Some(input) = input_at(preset, &parent, index + 1)
            {
                copy.keep_shape(&input);
            }
            preset.list_mut(&parent)?.insert(index + 1, copy);
            Some(parent.child(index + 1))
        }
        Edit::Move { from, parent, index } => move_layer(preset, from, parent, *index),
        Edit::InsertList(new) => preset.layer_mut(&new.block)?.insert_list(new.list).then(|| new.block.clone()),
        Edit::RemoveList(gone) => preset.layer_mut(&gone.block)?.remove_list(gone.list).then(|| gone.block.clone()),
    }
}

/// One sample's shape before position `index` of a list, if it is known.
fn input_at(preset: &Preset, parent: &ListPath, index: usize) -> Option<Shape> {
    let facts = check(preset).facts;
    let fact = |path: LayerPath| facts.iter().find(|f| f.path == path);
    match index.checked_sub(1) {
        Some(before) => fact(parent.child(before))?.output.clone(),
        // The layers of a branch describe the type of its named input.
        None if preset.layer(&parent.block)?.input_of(parent.list).is_some() => {
            fact(parent.child(0)).and_then(|first| first.input.clone())
        }
        None => fact(parent.block.clone())?.input.clone(),
    }
}

fn move_layer(preset: &mut Preset, from: &LayerPath, parent: &ListPath, index: usize) -> Option<LayerPath> {
    // A block cannot be moved into itself.
    if parent.block.starts_with(from) {
        return None;
    }
    let (source, at) = split_path(from);
    preset.list(parent)?;
    let list = preset.list_mut(&source)?;
    if at >= list.len() {
        return None;
    }
    let layer = list.remove(at);
    // Removing the layer has moved the layers after it in the same list.
    let index = if *parent == source && index > at { index - 1 } else { index };
    let parent = list_without(parent, from)?;
    let list = preset.list_mut(&parent)?;
    let index = index.min(list.len());
    list.insert(index, layer);
    Some(parent.child(index))
}
