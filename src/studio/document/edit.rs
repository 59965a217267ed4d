//! Changes to a preset: what each does, and where it leaves the layers.

use crate::model::{LayerKind, LayerPath, LayerSpec, Preset, check};
use crate::studio::document::fields::inputs::set_input_field;
use crate::studio::document::fields::layer::set_layer_field;
use crate::studio::document::fields::preset::set_preset_field;
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
    /// Puts a new layer before position `index` of a block, or of the network where `parent` is empty.
    Insert {
        parent: LayerPath,
        index: usize,
        kind: LayerKind,
    },
    Remove(LayerPath),
    Duplicate(LayerPath),
    /// Moves a layer before position `index` of another list; both are counted before the move.
    Move {
        from: LayerPath,
        parent: LayerPath,
        index: usize,
    },
}

impl Edit {
    /// Where the layer at `path` is after the edit; `None` where it is gone.
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
                let parent = without(parent, from)?;
                match path.0.strip_prefix(from.0.as_slice()) {
                    Some(rest) => Some(LayerPath([parent.child(index).0.as_slice(), rest].concat())),
                    None => without(path, from).map(|p| with_room(&p, &parent, index)),
                }
            }
        }
    }
}

/// A path after a layer came before position `index` of `parent`.
fn with_room(path: &LayerPath, parent: &LayerPath, index: usize) -> LayerPath {
    let mut path = path.clone();
    if path.0.starts_with(&parent.0)
        && let Some(place) = path.0.get_mut(parent.0.len())
        && *place >= index
    {
        *place += 1;
    }
    path
}

/// A path after another layer was taken out; `None` where it went with it.
fn without(path: &LayerPath, gone: &LayerPath) -> Option<LayerPath> {
    if path.0.starts_with(&gone.0) {
        return None;
    }
    let (parent, index) = split_path(gone);
    let mut path = path.clone();
    if path.0.starts_with(&parent.0)
        && let Some(place) = path.0.get_mut(parent.0.len())
        && *place > index
    {
        *place -= 1;
    }
    Some(path)
}

/// The list of layers that `parent` holds.
fn list_mut<'a>(preset: &'a mut Preset, parent: &LayerPath) -> Option<&'a mut Vec<LayerSpec>> {
    let mut list = &mut preset.layers;
    for &index in &parent.0 {
        list = list.get_mut(index)?.children_mut()?;
    }
    Some(list)
}

/// The layer at `path`.
#[must_use]
pub fn layer_at<'a>(preset: &'a Preset, path: &LayerPath) -> Option<&'a LayerSpec> {
    let (&last, parents) = path.0.split_last()?;
    let mut list = preset.layers.as_slice();
    for &index in parents {
        list = list.get(index)?.children();
    }
    list.get(last)
}

/// The block that a layer is in, and its place there.
#[must_use]
pub fn split_path(path: &LayerPath) -> (LayerPath, usize) {
    let (&last, parents) = path.0.split_last().unwrap_or((&0, &[]));
    (LayerPath(parents.to_vec()), last)
}

/// Makes a change; gives the layer that it made or moved, `None` where it does not apply.
pub(super) fn change(preset: &mut Preset, edit: &Edit) -> Option<LayerPath> {
    match edit {
        Edit::SetField { owner: Owner::Preset, name, value } => {
            set_preset_field(preset, name, value).then(LayerPath::default)
        }
        Edit::SetField { owner: Owner::Input(input), name, value } => {
            set_input_field(&mut preset.input, input, name, value).then(LayerPath::default)
        }
        Edit::SetField { owner: Owner::Layer(path), name, value } => {
            let (parent, index) = split_path(path);
            let layer = list_mut(preset, &parent)?.get_mut(index)?;
            set_layer_field(layer, name, value).then(|| path.clone())
        }
        Edit::Insert { parent, index, kind } => {
            let list = list_mut(preset, parent)?;
            let index = (*index).min(list.len());
            let mut layer = kind.example();
            if !parent.0.is_empty()
                && let Some(input) = input_at(preset, parent, index)
            {
                layer.keep_shape(&input);
            }
            list_mut(preset, parent)?.insert(index, layer);
            Some(parent.child(index))
        }
        Edit::Remove(path) => {
            let (parent, index) = split_path(path);
            let list = list_mut(preset, &parent)?;
            if index >= list.len() {
                return None;
            }
            list.remove(index);
            // The neighbour is what a person works on next.
            Some(if list.is_empty() { parent } else { parent.child(index.min(list.len() - 1)) })
        }
        Edit::Duplicate(path) => {
            let (parent, index) = split_path(path);
            let list = list_mut(preset, &parent)?;
            let mut copy = list.get(index)?.clone();
            if !parent.0.is_empty()
                && let Some(input) = input_at(preset, &parent, index + 1)
            {
                copy.keep_shape(&input);
            }
            list_mut(preset, &parent)?.insert(index + 1, copy);
            Some(parent.child(index + 1))
        }
        Edit::Move { from, parent, index } => move_layer(preset, from, parent, *index),
    }
}

/// One sample's shape before position `index` of a block, where it is known.
fn input_at(preset: &Preset, parent: &LayerPath, index: usize) -> Option<Shape> {
    let facts = check(preset).facts;
    let fact = |path: LayerPath| facts.iter().find(|f| f.path == path);
    match index.checked_sub(1) {
        Some(before) => fact(parent.child(before))?.output.clone(),
        None => fact(parent.clone())?.input.clone(),
    }
}

fn move_layer(preset: &mut Preset, from: &LayerPath, parent: &LayerPath, index: usize) -> Option<LayerPath> {
    // A block cannot be moved into itself.
    if parent.0.starts_with(&from.0) {
        return None;
    }
    let (source, at) = split_path(from);
    list_mut(preset, parent)?;
    let list = list_mut(preset, &source)?;
    if at >= list.len() {
        return None;
    }
    let layer = list.remove(at);
    // Taking the layer out moved what stood behind it in the same list.
    let index = if *parent == source && index > at { index - 1 } else { index };
    let parent = without(parent, from)?;
    let list = list_mut(preset, &parent)?;
    let index = index.min(list.len());
    list.insert(index, layer);
    Some(parent.child(index))
}
