//! Random valid networks, over every layer, loss, optimizer and precision, for checks and property tests, and the
//! reduction of one that fails.
//!
//! A seed gives the same network on every machine. The random fields of each layer are drawn in the layer's file,
//! beside the rule for their values, and are reached through the same table as reading, writing and checking.

mod builder;
mod choices;
mod data;
mod inputs;
mod settings;
mod shrink;

pub use super::draw::{Draw, Size};
pub use builder::Filter;
pub use shrink::shrink;

use super::layers::{Dense, Embedding, Flatten, GlobalAvgPool, LayerType};
use super::{Content, InputSpec, LayerPath, LayerSpec, NamedInput, Precision, Preset, Targets, UpdateSpec, check};
use crate::tensor::Shape;
use builder::Builder;

/// The share of networks whose input is tokens.
const TOKENS: f64 = 0.12;
/// The share of these whose vocabulary is large, and its size.
const LARGE: f64 = 0.2;
const VOCABULARY: (usize, usize) = (200, 4_000);
/// The share of the classifiers among these that use the weight of the embedding, if a sample does not have too many
/// scores.
const TIED: f64 = 0.5;

/// The network of a seed, which is the same on every machine.
#[must_use]
pub fn random_preset(seed: u64, size: Size) -> Preset {
    random_preset_where(seed, size, &|_| true)
}

/// The network of a seed among those that `filter` accepts. It is called for single layers, on a batch of two with the
/// mean squared error, and for the whole network. Does not end if it accepts nothing.
#[must_use]
pub fn random_preset_where(seed: u64, size: Size, filter: Filter<'_>) -> Preset {
    let (mut draw, mut of_data) = (Draw::new(seed, size), Draw::for_data(seed, size));
    let (mut of_recipe, mut of_inputs) = (Draw::for_recipe(seed, size), Draw::for_inputs(seed, size));
    let mut of_choices = Draw::for_choices(seed, size);
    loop {
        let (mut preset, output) = preset([&mut draw, &mut of_data, &mut of_recipe, &mut of_inputs], (seed, filter));
        choices::choose(&mut of_choices, &mut preset, &output);
        if check(&preset).model.as_ref().is_some_and(filter) {
            return preset;
        }
    }
}

/// A network without layers that choose, and the shape of its output.
fn preset([draw, of_data, of_recipe, of_inputs]: [&mut Draw; 4], (seed, filter): (u64, Filter<'_>)) -> (Preset, Shape) {
    let size = draw.size();
    let usual = input_shape(draw);
    let vocab = draw.coin(TOKENS).then(|| draw.extreme_or(&[1, 2], |d| d.between(3, 40)));
    let is_large = vocab.is_some() && of_recipe.coin(LARGE);
    let vocab = if is_large { Some(of_recipe.between(VOCABULARY.0, VOCABULARY.1)) } else { vocab };
    let fitted = data::input_shape(of_data).filter(|_| vocab.is_none());
    let (is_fitted, mut shape) = (fitted.is_some(), fitted.unwrap_or(usual));
    let batch = draw.extreme_or(&[1], |d| d.between(2, size.batch));
    let count = draw.between(1, size.layers);
    let (mut first, mut content, mut input) = (Vec::new(), Content::Real, shape.clone());
    if let Some(vocab) = vocab {
        shape = Shape::from([draw.extreme_or(&[1], |d| d.between(2, 12))]);
        let embedding = Embedding::drawn(draw, &shape);
        (content, input) = (Content::Tokens { vocab }, Shape::from([shape.0[0], embedding.units]));
        first.push(LayerSpec::Embedding(embedding));
    }
    let mut inputs = vec![NamedInput { content, ..NamedInput::only(shape.clone()) }];
    if let Some(several) = inputs::several(of_inputs, batch, content, &shape) {
        (inputs, first, input) = (several.inputs, vec![several.first], several.output);
    }
    let (rest, mut output) = Builder::new(draw, batch, filter).layers(count, &input, 0, false);
    let mut layers = [first, rest].concat();
    let loss = settings::loss(draw, of_recipe);
    if loss.wants_classes() {
        let least = if is_fitted { data::classes(&shape) } else { 2 };
        output = classify([draw, of_recipe], &mut layers, output, (least, vocab));
    }
    // No data set has tokens, or a class for each position.
    let has_sets = !content.is_tokens() && (output.rank() != 2 || loss.targets() == Targets::Values);
    let data = if has_sets { data::spec(of_data, batch, loss, [&shape, &output]) } else { None };
    let data = data.and_then(|data| data::joined(data, &inputs));
    let update = UpdateSpec::drawn(of_recipe);
    let mut preset = Preset {
        name: format!("random-{seed}"),
        about: String::new(),
        input: InputSpec { batch, inputs },
        layers,
        loss,
        optimizer: settings::optimizer(draw),
        update,
        precision: draw.pick(&Precision::ALL),
        train: settings::train(draw),
        data,
    };
    if let Some(train) = &mut preset.train {
        // A warm-up ends before the run does.
        preset.update.schedule.warmup = preset.update.schedule.warmup.min(train.steps);
        // A copy of the generator is used, so that the network itself does not depend on this.
        train.accumulate = settings::accumulated(&mut of_recipe.clone());
    }
    (preset, output)
}

/// Adds a classifier of at least this many classes, or of a vocabulary, to layers; returns the shape of its scores.
fn classify(
    [draw, of_recipe]: [&mut Draw; 2],
    layers: &mut Vec<LayerSpec>,
    mut output: Shape,
    (least, vocab): (usize, Option<usize>),
) -> Shape {
    // Each position of a sequence may have a class.
    if output.rank() == 3 || output.rank() == 2 && draw.coin(0.6) {
        layers.push(if draw.coin(0.5) { LayerSpec::Flatten(Flatten) } else { LayerSpec::GlobalAvgPool(GlobalAvgPool) });
        output = Shape::from([1]);
    }
    let classifier = settings::classifier(draw, least);
    let tied = vocab.and_then(|vocab| tied_classifier(of_recipe, layers, &output, vocab));
    let last = tied.unwrap_or_else(|| vec![classifier]);
    if let (Some(LayerSpec::Dense(dense)), Some(classes)) = (last.last(), output.0.last_mut()) {
        *classes = dense.units;
    }
    layers.extend(last);
    output
}

/// A classifier of tokens that uses the weight of the embedding in the first layer, after a layer with as many outputs
/// as the embedding; `None` for other networks.
fn tied_classifier(draw: &mut Draw, layers: &[LayerSpec], output: &Shape, vocab: usize) -> Option<Vec<LayerSpec>> {
    let Some(LayerSpec::Embedding(embedding)) = layers.first() else { return None };
    let rows: usize = output.0[..output.rank() - 1].iter().product();
    if !draw.coin(TIED) || rows * vocab > draw.size().sample {
        return None;
    }
    let (activation, bias, tied) = (draw.activation(), draw.coin(0.5), String::new());
    let before = Dense { units: embedding.units, activation, bias, tied };
    let (activation, bias, tied) = (None, draw.coin(0.5), LayerPath::from([0]).dotted());
    Some([before, Dense { units: vocab, activation, bias, tied }].map(LayerSpec::Dense).to_vec())
}

/// Features, a sequence, or an image that need not be square and may be a single row, column or pixel.
fn input_shape(draw: &mut Draw) -> Shape {
    let sample = draw.size().sample;
    let side = if sample > 1_000 { 16 } else { 9 };
    if draw.coin(0.25) {
        let positions = draw.extreme_or(&[1, 2], |d| d.between(3, 2 * side));
        Shape::from([positions, draw.extreme_or(&[1], |d| d.between(2, side))])
    } else if draw.coin(0.6) {
        let mut measure = || draw.extreme_or(&[1, 2], |d| d.between(3, side));
        let (height, width) = (measure(), measure());
        Shape::from([draw.between(1, 5), height, width])
    } else {
        Shape::from([draw.extreme_or(&[1, 2], |d| d.between(1, sample / 16))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LastBatch, LayerKind, LossSpec, OptimizerSpec, read_preset, write_preset};
    use std::collections::{BTreeMap, BTreeSet};

    fn kinds(layers: &[LayerSpec], depth: usize, seen: &mut BTreeMap<(&'static str, usize), usize>) {
        for layer in layers {
            *seen.entry((layer.kind().type_name, depth)).or_default() += 1;
            layer.lists().into_iter().for_each(|(_, inside)| kinds(inside, depth + 1, seen));
        }
    }

    #[test]
    fn every_kind_of_layer_is_drawn_outside_and_inside_of_blocks() {
        let mut seen = BTreeMap::new();
        (0..400).for_each(|seed| kinds(&random_preset(seed, Size::SMALL.choosing()).layers, 0, &mut seen));
        for kind in LayerKind::ALL {
            for depth in [0, 1] {
                // A layer that changes the shape of every other input occurs inside blocks if their input has the
                // output's shape already.
                let changes_shape = ["global_avg_pool", "take", "embedding"].contains(&kind.type_name);
                let is_found = seen.contains_key(&(kind.type_name, depth)) || depth == 1 && changes_shape;
                assert!(is_found, "{} at depth {depth}", kind.type_name);
            }
        }
    }

    #[test]
    fn layers_choose_only_for_sizes_that_allow_it() {
        let chooses = |seed, size| check(&random_preset(seed, size)).model.is_some_and(|model| model.chooses());
        assert!((0..200).all(|seed| !chooses(seed, Size::SMALL) && !chooses(seed, Size::LARGE)));
        assert!((0..200).filter(|seed| chooses(*seed, Size::SMALL.choosing())).count() > 20);
        let is_short = |seed: &u64| {
            let data = random_preset(*seed, Size::SMALL.choosing()).data;
            data.is_some_and(|data| data.last_batch == LastBatch::Short)
        };
        assert!((0..200).filter(is_short).count() > 10);
    }

    #[test]
    fn texts_of_several_lengths_are_drawn_for_networks_with_positions() {
        let (mut with_buckets, mut with_positions) = (0, 0);
        for seed in 0..2_000 {
            let preset = random_preset(seed, Size::SMALL.choosing());
            let Some(data) = preset.data.as_ref().filter(|data| !data.buckets.is_empty()) else { continue };
            let model = check(&preset).model.unwrap();
            assert!(data.buckets.len() > 1 && data.buckets.iter().all(|length| model.with_length(*length).is_ok()));
            with_buckets += 1;
            with_positions += usize::from(preset.layers.iter().any(|layer| layer.kind().type_name == "position"));
        }
        assert!(with_buckets > 12 && with_positions > 2, "{with_buckets} {with_positions}");
    }

    #[test]
    fn the_network_of_a_seed_never_changes() {
        let text = write_preset(&random_preset(7, Size::SMALL));
        assert_eq!(text, write_preset(&random_preset(7, Size::SMALL)));
        assert_ne!(text, write_preset(&random_preset(8, Size::SMALL)).replace("random-8", "random-7"));
        // The Fowler-Noll-Vo hash of the documents: only a change of the generator changes it.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for seed in 0..300 {
            let size = if seed % 4 == 0 { Size::LARGE } else { Size::SMALL };
            // Data have separate random numbers, and the batches of a step are drawn after everything else.
            let mut network = Preset { data: None, ..random_preset(seed, size) };
            network.train.iter_mut().for_each(|train| train.accumulate = 1);
            for byte in write_preset(&network).bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(format!("{hash:016x}"), GOLDEN);
    }

    #[test]
    fn networks_with_several_inputs_are_drawn_with_every_kind_of_content() {
        let (mut several, mut tokens, mut joined, mut shared) = (0, 0, 0, 0);
        for seed in 0..400 {
            let preset = random_preset(seed, Size::SMALL);
            let inputs = &preset.input.inputs;
            if inputs.len() < 2 {
                continue;
            }
            several += 1;
            tokens += usize::from(inputs.iter().any(|input| input.content.is_tokens()));
            joined += usize::from(preset.data.is_some_and(|data| data.source.name() == "joined"));
            let Some(LayerSpec::Parallel(first)) = preset.layers.first() else {
                panic!("branches take inputs by name")
            };
            assert!(inputs.iter().all(|input| first.branches.iter().any(|b| b.input.as_ref() == Some(&input.name))));
            shared += usize::from(first.branches.len() > inputs.len());
        }
        assert!(several > 25 && tokens > 5 && joined > 2 && shared > 3, "{several} {tokens} {joined} {shared}");
    }

    const GOLDEN: &str = "7f547c1ef98b0aff";

    #[test]
    fn large_vocabularies_and_tied_classifiers_are_drawn() {
        let (mut large, mut tied, mut both) = (0, 0, 0);
        for seed in 0..3_000 {
            let preset = random_preset(seed, if seed % 4 == 0 { Size::LARGE } else { Size::SMALL });
            let vocab = preset.input.inputs[0].content.vocab();
            let is_large = vocab.is_some_and(|vocab| vocab >= VOCABULARY.0);
            let is_tied = preset.layers.iter().any(|layer| layer.tied().is_some());
            assert!(!is_tied || preset.layers.last().and_then(LayerSpec::tied) == Some("layers.0"));
            (large, tied, both) =
                (large + i32::from(is_large), tied + i32::from(is_tied), both + i32::from(is_large && is_tied));
        }
        assert!(large > 30 && tied > 50 && both > 1, "{large} {tied} {both}");
    }

    #[test]
    fn networks_can_be_written_and_read_and_stay_within_their_size() {
        for seed in 0..200 {
            let preset = random_preset(seed, Size::SMALL);
            assert_eq!(read_preset(&write_preset(&preset)).as_ref(), Ok(&preset));
            let largest = check(&preset).facts.iter().filter_map(|f| f.output.as_ref().map(Shape::len)).max();
            let limit = Size::SMALL.sample.max(preset.input.inputs[0].shape.len());
            assert!(largest.is_some_and(|l| l <= limit), "{}: {largest:?}", preset.name);
        }
    }

    #[test]
    fn batches_of_one_single_classes_and_every_setting_are_drawn() {
        // A new precision does not compile here until it is drawn; a new loss or optimizer is among the names. The ways
        // in which an optimizer is drawn differ in their cost: gradient descent is drawn in three ways, others in one.
        let optimizer = |optimizer: OptimizerSpec| (optimizer.name(), optimizer.cost());
        let precision = |precision: Precision| match precision {
            Precision::F32 => 0,
            Precision::Tf32 => 1,
            Precision::Bf16 => 2,
            Precision::F16 => 3,
        };
        let (mut losses, mut optimizers, mut precisions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut single, mut one_class, mut with_data, mut with_classes, mut accumulated) = (0, 0, 0, 0, 0);
        for seed in 0..600 {
            let preset = random_preset(seed, Size::SMALL);
            losses.insert(preset.loss.name());
            optimizers.insert(optimizer(preset.optimizer));
            precisions.insert(precision(preset.precision));
            single += usize::from(preset.input.batch == 1);
            accumulated += usize::from(preset.train.is_some_and(|train| train.accumulate > 1));
            with_data += usize::from(preset.data.is_some());
            with_classes += usize::from(preset.data.is_some() && preset.loss.wants_classes());
            let units = match preset.layers.last() {
                Some(LayerSpec::Dense(dense)) => dense.units,
                _ => 0,
            };
            one_class += usize::from(preset.loss.wants_classes() && units == 1);
        }
        assert_eq!(
            (losses.len(), optimizers.len(), precisions.len()),
            (LossSpec::NAMES.len(), OptimizerSpec::NAMES.len() + 2, 4)
        );
        assert!(single > 20 && one_class > 2 && accumulated > 20, "{single} {one_class} {accumulated}");
        assert!((240..=380).contains(&with_data) && with_classes > 60, "{with_data} {with_classes}");
    }
}
