//! Makes the steps of a random network differ: layers that choose, and short batches.

use super::data::left_over;
use crate::model::draw::Draw;
use crate::model::layers::{ActivationLayer, BranchLayer, Dense, EarlyExit, Flatten, LayerType};
use crate::model::{LastBatch, LayerPath, LayerSpec, ListPath, Preset, check};
use crate::tensor::Shape;

/// The shares of blocks and of layers in these networks that choose.
const OF_BLOCKS: f64 = 0.6;
const OF_LAYERS: f64 = 0.2;

/// Makes the steps of some networks differ: layers choose, or the last batch of an epoch is short, provided that the
/// network is still valid.
pub(super) fn choose(draw: &mut Draw, preset: &mut Preset, output: &Shape) {
    let share = draw.size().choosing;
    let chooses = draw.coin(share);
    // A copy of the generator is used, so that the choices of layers do not depend on it.
    let is_short = draw.clone().coin(share);
    if chooses {
        let_layers_choose(draw, preset, output);
    }
    if is_short {
        shorten_last_batch(preset);
    }
}

/// Uses the samples at the end of an epoch that are fewer than a batch.
fn shorten_last_batch(preset: &mut Preset) {
    let mut short = preset.clone();
    let Some(data) = &mut short.data else { return };
    data.last_batch = LastBatch::Short;
    let is_single = left_over(data, preset.input.batch) == 1;
    // Statistics over a batch need more than one sample.
    if check(&short).model.is_some_and(|model| !is_single || model.without_statistics_of_one().is_none()) {
        *preset = short;
    }
}

fn let_layers_choose(draw: &mut Draw, preset: &mut Preset, output: &Shape) {
    // Backwards, so that the paths of the remaining layers stay valid.
    let mut places = Vec::new();
    gather(&preset.layers, &ListPath::default(), &mut places);
    for path in places.iter().rev() {
        let Some(layer) = preset.layer(path).cloned() else { continue };
        let mut other = layer.clone();
        if draw.coin(OF_BLOCKS) {
            other.draw_choice(draw);
        }
        // The first layer takes the network's inputs, or has the table that others use.
        let is_first = path.depth() == 1 && path.index() == Some(0);
        if other == layer && !is_first && draw.coin(OF_LAYERS) {
            let head = (path.depth() == 1 && draw.coin(0.5)).then(|| exit(draw, output));
            other = LayerSpec::BranchLayer(branch(draw, &layer, head));
        }
        replace(preset, path, other);
    }
    if draw.coin(0.5) {
        let (at, head) = (draw.between(1, preset.layers.len()), exit(draw, output));
        let before = preset.layers.clone();
        preset.layers.insert(at, head);
        restore_where_wrong(preset, before);
    }
}

/// The paths of all layers, outer ones before those inside them.
fn gather(layers: &[LayerSpec], list: &ListPath, places: &mut Vec<LayerPath>) {
    for (index, layer) in layers.iter().enumerate() {
        let path = list.child(index);
        places.push(path.clone());
        layer.lists().into_iter().for_each(|(id, inside)| gather(inside, &path.list(id), places));
    }
}

/// A branch in which one path is the layer; another path is empty, or returns what the layer returns.
fn branch(draw: &mut Draw, layer: &LayerSpec, head: Option<LayerSpec>) -> BranchLayer {
    let mut branch = BranchLayer::drawn(draw, &Shape::default());
    for path in &mut branch.paths {
        *path = vec![layer.clone()];
        if draw.coin(0.4) {
            path.push(LayerSpec::ActivationLayer(ActivationLayer { function: draw.function() }));
        }
    }
    if let Some(last) = branch.paths.last_mut() {
        if draw.coin(0.3) {
            last.clear();
        }
        last.extend(head);
    }
    branch
}

/// An exit whose head returns this shape.
fn exit(draw: &mut Draw, output: &Shape) -> LayerSpec {
    let mut exit = EarlyExit::drawn(draw, output);
    if output.rank() == 1 {
        exit.layers.push(LayerSpec::Flatten(Flatten));
    }
    let units = output.0.last().copied().unwrap_or(1);
    exit.layers.push(LayerSpec::Dense(Dense { units, activation: None, bias: draw.coin(0.5), tied: String::new() }));
    LayerSpec::EarlyExit(exit)
}

/// Replaces a layer by another one, if the network is still valid with it.
fn replace(preset: &mut Preset, path: &LayerPath, layer: LayerSpec) {
    let before = preset.layers.clone();
    if let Some(place) = preset.layer_mut(path).filter(|place| **place != layer) {
        *place = layer;
        restore_where_wrong(preset, before);
    }
}

fn restore_where_wrong(preset: &mut Preset, before: Vec<LayerSpec>) {
    let largest = |preset: &Preset| check(preset).facts.iter().filter_map(|f| f.output.as_ref().map(Shape::len)).max();
    let now = std::mem::replace(&mut preset.layers, before);
    let limit = largest(preset);
    let before = std::mem::replace(&mut preset.layers, now);
    if check(preset).model.is_none() || largest(preset) > limit {
        preset.layers = before;
    }
}
