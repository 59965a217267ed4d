//! Makes the steps of a random network differ: layers that choose, short batches, and texts of several lengths.

use super::data::left_over;
use crate::model::draw::Draw;
use crate::model::layers::{ActivationLayer, BranchLayer, Dense, EarlyExit, Flatten, LayerType};
use crate::model::{
    Content, DataSource, DataSpec, LastBatch, LayerPath, LayerSpec, ListPath, LossSpec, Preset, SplitKind, check,
};
use crate::tensor::Shape;

/// The share of blocks that choose, and of other layers that are replaced by a branch, in networks whose layers choose.
const BLOCK_SHARE: f64 = 0.6;
const LAYER_SHARE: f64 = 0.2;
/// The share of networks with an output for each token that learn texts of several lengths.
const BUCKETS_SHARE: f64 = 0.5;
/// The share of the lengths of a sample that are buckets.
const LENGTH_SHARE: f64 = 0.3;
/// The tokens of the source code.
const ASCII: usize = 128;

/// Makes the steps of some networks differ: layers choose, the last batch of an epoch is short, or batches have
/// different lengths, provided that the network is still valid.
pub(super) fn choose(draw: &mut Draw, preset: &mut Preset, output: &Shape) {
    let share = draw.size().choosing;
    if share <= 0.0 {
        return;
    }
    let chooses = draw.coin(share);
    // Copies of the generator are used, so that these decisions do not change the choices of layers.
    let is_short = draw.clone().coin(share);
    let output = draw_buckets(&mut draw.clone(), preset, output).unwrap_or_else(|| output.clone());
    if chooses {
        let_layers_choose(draw, preset, &output);
    }
    if is_short {
        shorten_last_batch(preset);
    }
}

/// Lets a network with an output for each token learn pieces of source code that have several lengths, if it stays
/// valid; returns the new shape of its output.
fn draw_buckets(draw: &mut Draw, preset: &mut Preset, output: &Shape) -> Option<Shape> {
    let mut text = preset.clone();
    let [input] = &mut text.input.inputs[..] else { return None };
    let (Content::Tokens { vocab }, &[whole]) = (&mut input.content, &input.shape.0[..]) else { return None };
    *vocab = (*vocab).max(ASCII);
    if !draw.coin(BUCKETS_SHARE) || output.rank() != 2 || output.0[0] != whole {
        return None;
    }
    match text.layers.last_mut() {
        Some(LayerSpec::Dense(last)) if !last.tied.is_empty() => last.units = *vocab,
        Some(LayerSpec::Dense(last)) if preset.loss.wants_classes() => last.units = last.units.max(ASCII),
        _ => {
            let (units, bias) = (*vocab, draw.coin(0.5));
            text.layers.push(LayerSpec::Dense(Dense { units, activation: None, bias, tied: String::new() }));
        }
    }
    if !text.loss.wants_classes() {
        text.loss = LossSpec::SOFTMAX_CROSS_ENTROPY;
    }
    let mut buckets: Vec<usize> = (1..whole).filter(|_| draw.coin(LENGTH_SHARE)).collect();
    buckets.push(whole);
    text.data = Some(DataSpec { held_out: 0.1, split: SplitKind::Last, ..DataSpec::of(DataSource::SourceCode) });
    let model = check(&text).model?;
    let has_lengths = buckets.iter().all(|length| model.with_length(*length).is_ok());
    if !has_lengths || buckets.len() < 2 {
        return None;
    }
    text.data.iter_mut().for_each(|data| data.buckets.clone_from(&buckets));
    *preset = text;
    Some(model.output)
}

/// Lets the last batch of an epoch be short, if the network stays valid.
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
    let mut paths = Vec::new();
    collect_paths(&preset.layers, &ListPath::default(), &mut paths);
    for path in paths.iter().rev() {
        let Some(layer) = preset.layer(path).cloned() else { continue };
        let mut other = layer.clone();
        if draw.coin(BLOCK_SHARE) {
            other.draw_choice(draw);
        }
        // The first layer reads the network's inputs, or has the embedding weight that tied layers use.
        let is_first = path.depth() == 1 && path.index() == Some(0);
        if other == layer && !is_first && draw.coin(LAYER_SHARE) {
            let head = (path.depth() == 1 && draw.coin(0.5)).then(|| exit(draw, output));
            other = LayerSpec::BranchLayer(branch(draw, &layer, head));
        }
        replace(preset, path, other);
    }
    if draw.coin(0.5) {
        let (at, head) = (draw.between(1, preset.layers.len()), exit(draw, output));
        let before = preset.layers.clone();
        preset.layers.insert(at, head);
        restore_if_invalid(preset, before);
    }
}

/// The paths of all layers, outer ones before those inside them.
fn collect_paths(layers: &[LayerSpec], list: &ListPath, paths: &mut Vec<LayerPath>) {
    for (index, layer) in layers.iter().enumerate() {
        let path = list.child(index);
        paths.push(path.clone());
        layer.lists().into_iter().for_each(|(id, inside)| collect_paths(inside, &path.list(id), paths));
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
        restore_if_invalid(preset, before);
    }
}

/// Restores the layers `before` a change if the changed network is invalid, or has a layer with a larger output than
/// all layers before the change.
fn restore_if_invalid(preset: &mut Preset, before: Vec<LayerSpec>) {
    let largest = |preset: &Preset| check(preset).facts.iter().filter_map(|f| f.output.as_ref().map(Shape::len)).max();
    let now = std::mem::replace(&mut preset.layers, before);
    let limit = largest(preset);
    let before = std::mem::replace(&mut preset.layers, now);
    if check(preset).model.is_none() || largest(preset) > limit {
        preset.layers = before;
    }
}
