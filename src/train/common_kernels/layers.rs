//! Small networks around one layer, of any sizes: kernels for sizes that whole networks seldom have are found with
//! them.

use crate::model::random::Draw;
use crate::model::{Preset, read_value};
use serde_json::{Value, json};

/// Kinds of networks.
const KINDS: u64 = 17;

/// The network of a seed. `None` if the drawn sizes do not fit together.
#[must_use]
pub fn network_of_layer(seed: u64) -> Option<Preset> {
    let draw = &mut Draw::for_layers(seed);
    let kind = seed % KINDS;
    // Normalisations of batches, and layers that compute the loss, have the most classes.
    let (input, mut layers) = match kind {
        0..=3 => batch_norm(draw),
        4..=6 => classifier(draw),
        7 => row_norm(draw),
        8 => pooling(draw),
        9 => recurrent(draw, [96, 2_048]),
        10 => recurrent(draw, [1_024, 256]),
        11 | 12 => parameters(draw),
        13 => activations(draw),
        14 => convolutions(draw),
        15 => bottlenecks(draw),
        _ => products(draw),
    };
    let loss = if (4..=6).contains(&kind) {
        json!({"type": "softmax_cross_entropy", "label_smoothing": draw.pick(&[0.0, 0.1])})
    } else {
        layers.push(json!({"type": "dense", "units": size(draw, 1, 64), "bias": coin(draw)}));
        match draw.pick(&[0, 0, 1, 2, 3]) {
            0 => json!({"type": "mse"}),
            1 => json!({"type": "l1"}),
            2 => json!({"type": "huber", "delta": draw.pick(&[1.0, 0.5])}),
            _ => json!({"type": "binary_cross_entropy"}),
        }
    };
    let document = json!({
        "version": 1, "name": "layer", "input": input, "layers": layers, "loss": loss, "optimizer": optimizer(draw)
    });
    read_value(&document).ok()
}

/// Networks with an attention of each class: other networks seldom have heads of many features, and users change the
/// number of features.
#[must_use]
pub fn attention() -> Vec<Preset> {
    let mut found = Vec::new();
    for features in [16, 32, 64, 128, 256] {
        // The size of a tile, and whether a head has many tiles, depend on these.
        for batch_and_positions in [[2, 16], [2, 20], [2, 200], [64, 320]] {
            for kind in [[false, false], [false, true], [true, false], [true, true]] {
                found.extend([0.0, 0.1].into_iter().filter_map(|dropout| {
                    let document = one_attention([2, features], batch_and_positions, kind, dropout);
                    read_value(&document).ok()
                }));
            }
        }
    }
    found
}

/// The document of a network with one attention.
#[must_use]
pub fn one_attention(
    [heads, features]: [u64; 2],
    [batch, positions]: [u64; 2],
    [causal, rotary]: [bool; 2],
    dropout: f64,
) -> Value {
    json!({
        "version": 1, "name": "attention", "input": {"shape": [positions, heads * features], "batch": batch},
        "layers": [
            {"type": "attention", "heads": heads, "causal": causal, "rotary": rotary, "dropout": dropout},
            {"type": "take", "at": "last"}, {"type": "dense", "units": 1}],
        "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}
    })
}

/// A whole number from `least` to `most`, each power of two of which is as likely as the others.
fn size(draw: &mut Draw, least: u64, most: u64) -> u64 {
    let (low, high) = (least as f64, most as f64 + 1.0);
    let drawn = low * (high / low).powf(draw.number(0.0, 1.0));
    // Sizes that vectors divide are the usual ones.
    let unit = draw.pick(&[1, 1, 2, 4, 8]);
    (drawn as u64).next_multiple_of(unit).clamp(least, most)
}

/// True as often as false.
fn coin(draw: &mut Draw) -> bool {
    draw.coin(0.5)
}

/// Layers whose output is added to their input, or that are applied twice, so that gradients of their parameters are
/// added.
fn block(draw: &mut Draw, layers: &[Value]) -> Value {
    if coin(draw) {
        json!({"type": "residual", "layers": layers})
    } else {
        json!({"type": "repeat", "times": 2, "layers": layers})
    }
}

fn activation(draw: &mut Draw) -> Value {
    json!({"type": "activation", "function": draw.function().name()})
}

fn dense(units: u64) -> Value {
    json!({"type": "dense", "units": units})
}

/// The input and the layers of a network.
type Network = (Value, Vec<Value>);

/// With and without an activation, once and twice. The derivative of an activation before a pooling, unlike that of one
/// before a product, is computed with that of the normalisation.
fn batch_norm(draw: &mut Draw) -> Network {
    // Vectors have as many elements as divide the columns.
    let vector = draw.pick(&[1, 2, 4, 8]);
    let (columns, batch) = ((size(draw, 1, 2_048 / vector) | 1) * vector, size(draw, 4, 16_384));
    let convolution = json!({"type": "conv2d", "filters": columns, "kernel": 3, "padding": "same"});
    let pooling = json!({"type": "max_pool2d", "size": 3, "stride": 1, "padding": 1});
    let (shape, same, after) = match coin(draw) {
        true => (json!([2]), dense(columns), dense(columns)),
        false => (json!([1, 2, 2]), convolution, pooling),
    };
    let norm = json!({"type": "batch_norm"});
    let repeat = |layers: &[&Value]| json!({"type": "repeat", "times": 2, "layers": layers});
    let activation = activation(draw);
    let twice = [repeat(&[&norm, &activation, &after, &same]), repeat(&[&norm, &same])];
    let once = [same.clone(), norm.clone(), activation, after, same, norm];
    let layers = [&once[..], &twice[..], &[json!({"type": "flatten"})]].concat();
    (json!({"shape": shape, "batch": batch}), layers)
}

/// Alone, after and in blocks.
fn row_norm(draw: &mut Draw) -> Network {
    let (columns, batch, positions) = (size(draw, 1, 4_096), size(draw, 1, 1_024), size(draw, 1, 64));
    let (norm, same) = (json!({"type": draw.pick(&["layer_norm", "rms_norm"])}), dense(columns));
    let pair = [norm.clone(), same.clone()];
    let blocks = [&pair[..1], &pair, &pair[1..]].map(|layers| block(draw, layers));
    (json!({"shape": [positions, 2], "batch": batch}), [&[same, norm.clone()][..], &blocks[..], &[norm][..]].concat())
}

fn classifier(draw: &mut Draw) -> Network {
    let most = draw.pick(&[16, 64, 512]);
    let (classes, features, batch) = (size(draw, 2, most), size(draw, 1, 2_048), size(draw, 1, 4_096));
    let mut layers = vec![dense(features)];
    layers.extend(coin(draw).then(|| activation(draw)));
    layers.extend(coin(draw).then(|| json!({"type": "dropout", "rate": 0.2})));
    layers.push(dense(classes));
    // A layer between the classifier and the loss, so that one kernel does not compute both.
    layers.extend(coin(draw).then(|| json!({"type": "layer_norm"})));
    (json!({"shape": [2], "batch": batch}), layers)
}

fn pooling(draw: &mut Draw) -> Network {
    let (channels, batch) = (size(draw, 1, 256), size(draw, 1, 512));
    let [height, width] = [size(draw, 1, 32), size(draw, 1, 32)];
    let mut layers = vec![json!({"type": "conv2d", "filters": channels, "kernel": 1})];
    layers.extend(coin(draw).then(|| {
        let name = draw.pick(&["max_pool2d", "avg_pool2d"]);
        json!({"type": name, "size": size(draw, 1, 3), "stride": size(draw, 1, 3)})
    }));
    layers.push(json!({"type": "global_avg_pool"}));
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn recurrent(draw: &mut Draw, [most_units, most_batch]: [u64; 2]) -> Network {
    let (units, batch) = (size(draw, 1, most_units), size(draw, 1, most_batch));
    let (positions, features) = (size(draw, 1, 32), size(draw, 1, 64));
    let mut layer = json!({
        "type": draw.pick(&["rnn", "gru", "lstm"]), "units": units, "bidirectional": draw.coin(0.25),
        "return": draw.pick(&["sequence", "last"])
    });
    if layer["type"] == "rnn" {
        layer["nonlinearity"] = draw.pick(&["tanh", "relu"]).into();
    }
    (json!({"shape": [positions, features], "batch": batch}), vec![layer])
}

/// Many parameters, or few.
fn parameters(draw: &mut Draw) -> Network {
    let layers = (0..size(draw, 1, 48)).map(|_| {
        let units = size(draw, 1, 256);
        json!({"type": "dense", "units": units, "bias": coin(draw), "activation": draw.function().name()})
    });
    let layers = layers.collect();
    (json!({"shape": [size(draw, 1, 1_024)], "batch": size(draw, 1, 64)}), layers)
}

/// Activations that no other operation computes, on small and large arrays.
fn activations(draw: &mut Draw) -> Network {
    let (channels, batch) = (size(draw, 1, 64), size(draw, 1, 256));
    let [height, width] = [size(draw, 2, 64), size(draw, 2, 64)];
    let conv = json!({"type": "conv2d", "filters": channels, "kernel": 1});
    let pool = json!({"type": draw.pick(&["max_pool2d", "avg_pool2d"]), "size": 2});
    let inner = if coin(draw) { conv.clone() } else { activation(draw) };
    let residual = json!({"type": "residual", "layers": [inner]});
    let layers = vec![conv, pool, activation(draw), residual, activation(draw), json!({"type": "flatten"})];
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn products(draw: &mut Draw) -> Network {
    let (batch, features) = (size(draw, 1, 2_048), size(draw, 1, 1_024));
    let [units, inner] = [size(draw, 1, 1_024), size(draw, 1, 1_024)];
    let inner = [
        json!({"type": "dense", "units": inner, "bias": coin(draw), "activation": draw.function().name()}),
        json!({"type": "dense", "units": units, "bias": coin(draw)}),
    ];
    let residual = block(draw, &inner);
    let first = json!({"type": "dense", "units": units, "bias": coin(draw), "activation": draw.function().name()});
    (json!({"shape": [features], "batch": batch}), vec![first, residual, activation(draw)])
}

fn convolutions(draw: &mut Draw) -> Network {
    let (channels, batch) = (size(draw, 1, 64), size(draw, 1, 256));
    let [height, width] = [size(draw, 3, 64), size(draw, 3, 64)];
    let mut conv = || {
        let (filters, kernel) = (size(draw, 1, 128), draw.pick(&[1, 3, 3, 5]));
        let groups = draw.pick(if filters % 4 == 0 { &[1, 1, 1, 2, 4] } else { &[1] });
        json!({
            "type": "conv2d", "filters": filters, "kernel": kernel, "padding": "same", "groups": groups,
            "stride": draw.pick(&[1, 1, 1, 2]), "bias": coin(draw)
        })
    };
    let [mut first, mut second, third] = [conv(), conv(), conv()];
    first["groups"] = 1.into();
    // A number of groups divides the channels and the filters.
    for layer in [&mut first, &mut second] {
        layer["filters"] = layer["filters"].as_u64().map(|filters| filters.next_multiple_of(4)).into();
    }
    let mut layers = vec![first, second];
    layers.extend(coin(draw).then(|| activation(draw)));
    layers.extend([third, json!({"type": "global_avg_pool"})]);
    (json!({"shape": [channels, height, width], "batch": batch}), layers)
}

/// Residual blocks of convolutions with and without normalisations.
fn bottlenecks(draw: &mut Draw) -> Network {
    let (channels, inner, batch) = (size(draw, 1, 128), size(draw, 1, 128), size(draw, 1, 128));
    let [height, width] = [size(draw, 2, 32), size(draw, 2, 32)];
    let mut conv = |filters: u64| {
        let kernel = draw.pick(&[1, 3, 3]);
        let mut layers =
            vec![json!({"type": "conv2d", "filters": filters, "kernel": kernel, "padding": "same", "bias": false})];
        layers.extend(coin(draw).then(|| json!({"type": "batch_norm"})));
        layers.extend(coin(draw).then(|| activation(draw)));
        layers
    };
    let (first, layers) = (conv(channels), [conv(inner), conv(channels)].concat());
    let residual = block(draw, &layers);
    let layers = [first, vec![residual, activation(draw), json!({"type": "global_avg_pool"})]].concat();
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn optimizer(draw: &mut Draw) -> Value {
    let mut rule = match draw.pick(&[0, 1, 2, 3, 4]) {
        0 => json!({"type": "sgd", "lr": 0.01}),
        1 => json!({"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": coin(draw)}),
        2 => json!({"type": "adam", "lr": 0.001}),
        3 => json!({"type": "adamw", "lr": 0.001, "weight_decay": 0.01}),
        _ => json!({"type": "lion", "lr": 0.001}),
    };
    if draw.coin(0.25) {
        rule["clip_norm"] = 1.0.into();
    }
    if draw.coin(0.25) {
        rule["weight_decay"] = 0.01.into();
        rule["decay"] = "matrices".into();
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::check;

    #[test]
    fn most_seeds_give_a_network_of_each_kind() {
        let mut counts = [0; KINDS as usize];
        for seed in 0..20 * KINDS {
            let model = network_of_layer(seed).and_then(|preset| check(&preset).model);
            counts[(seed % KINDS) as usize] += usize::from(model.is_some());
        }
        assert!(counts.iter().all(|&count| count >= 10), "{counts:?} of 20");
        assert!(counts.iter().sum::<usize>() >= 18 * counts.len(), "{counts:?} of 20");
    }
}
