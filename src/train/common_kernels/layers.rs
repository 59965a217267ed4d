//! Small networks around one layer, of any sizes: kernels for sizes that whole networks seldom have are found with
//! them.

use crate::model::{Preset, read_preset};
use crate::tensor::random_words;
use serde_json::{Value, json};

/// The functions that activations compute.
const FUNCTIONS: [&str; 6] = ["relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh"];

/// Kinds of networks.
const KINDS: u64 = 17;

/// The network of a seed. `None` if the drawn sizes do not fit together.
#[must_use]
pub fn network_of_layer(seed: u64) -> Option<Preset> {
    let draw = &mut Numbers { seed, count: 0 };
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
        layers.push(json!({"type": "dense", "units": draw.size(1, 64), "bias": draw.coin()}));
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
    read_preset(&document.to_string()).ok()
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
                    read_preset(&document.to_string()).ok()
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

/// Numbers that are drawn from a seed.
struct Numbers {
    seed: u64,
    count: i64,
}

impl Numbers {
    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        self.count += 1;
        f64::from(random_words(1, self.seed as u32, self.count, 0)[0]) / 2f64.powi(32)
    }

    /// A whole number from `least` to `most`, each power of two of which is as likely as the others.
    fn size(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = (least as f64, most as f64 + 1.0);
        let drawn = low * (high / low).powf(self.share());
        // Sizes that vectors divide are the usual ones.
        let unit = self.pick(&[1, 1, 2, 4, 8]);
        (drawn as u64).next_multiple_of(unit).clamp(least, most)
    }

    fn coin(&mut self) -> bool {
        self.share() < 0.5
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.share() * all.len() as f64) as usize]
    }

    fn function(&mut self) -> &'static str {
        self.pick(&FUNCTIONS)
    }

    /// Layers whose output is added to their input, or that are applied twice, so that gradients of their parameters
    /// are added.
    fn block(&mut self, layers: Vec<Value>) -> Value {
        match self.coin() {
            true => json!({"type": "residual", "layers": layers}),
            false => json!({"type": "repeat", "times": 2, "layers": layers}),
        }
    }

    fn activation(&mut self) -> Value {
        json!({"type": "activation", "function": self.function()})
    }
}

fn dense(units: u64) -> Value {
    json!({"type": "dense", "units": units})
}

/// The input and the layers of a network.
type Network = (Value, Vec<Value>);

/// With and without an activation, once and twice. The derivative of an activation before a pooling, unlike that of one
/// before a product, is computed with that of the normalisation.
fn batch_norm(draw: &mut Numbers) -> Network {
    // Vectors have as many elements as divide the columns.
    let vector = draw.pick(&[1, 2, 4, 8]);
    let (columns, batch) = ((draw.size(1, 2_048 / vector) | 1) * vector, draw.size(4, 16_384));
    let convolution = json!({"type": "conv2d", "filters": columns, "kernel": 3, "padding": "same"});
    let (norm, same) = (json!({"type": "batch_norm"}), if draw.coin() { dense(columns) } else { convolution });
    let shape = if same["type"] == "dense" { json!([2]) } else { json!([1, 2, 2]) };
    let repeat = |layers: &[&Value]| json!({"type": "repeat", "times": 2, "layers": layers});
    let pooling = json!({"type": "max_pool2d", "size": 3, "stride": 1, "padding": 1});
    let after = if same["type"] == "dense" { same.clone() } else { pooling };
    let activation = draw.activation();
    let twice = [repeat(&[&norm, &activation, &after, &same]), repeat(&[&norm, &same])];
    let once = [same.clone(), norm.clone(), activation, after, same, norm];
    let layers = [&once[..], &twice[..], &[json!({"type": "flatten"})]].concat();
    (json!({"shape": shape, "batch": batch}), layers)
}

/// Alone, after and in blocks.
fn row_norm(draw: &mut Numbers) -> Network {
    let (columns, batch, positions) = (draw.size(1, 4_096), draw.size(1, 1_024), draw.size(1, 64));
    let (norm, same) = (json!({"type": draw.pick(&["layer_norm", "rms_norm"])}), dense(columns));
    let mut block = |layers: &[&Value]| draw.block(layers.iter().map(|&layer| layer.clone()).collect());
    let blocks = [block(&[&norm]), block(&[&norm, &same]), block(&[&same])];
    (json!({"shape": [positions, 2], "batch": batch}), [&[same, norm.clone()][..], &blocks[..], &[norm][..]].concat())
}

fn classifier(draw: &mut Numbers) -> Network {
    let most = draw.pick(&[16, 64, 512]);
    let (classes, features, batch) = (draw.size(2, most), draw.size(1, 2_048), draw.size(1, 4_096));
    let mut layers = vec![dense(features)];
    layers.extend(draw.coin().then(|| draw.activation()));
    layers.extend(draw.coin().then(|| json!({"type": "dropout", "rate": 0.2})));
    layers.push(dense(classes));
    // A layer between the classifier and the loss, so that one kernel does not compute both.
    layers.extend(draw.coin().then(|| json!({"type": "layer_norm"})));
    (json!({"shape": [2], "batch": batch}), layers)
}

fn pooling(draw: &mut Numbers) -> Network {
    let (channels, batch) = (draw.size(1, 256), draw.size(1, 512));
    let [height, width] = [draw.size(1, 32), draw.size(1, 32)];
    let mut layers = vec![json!({"type": "conv2d", "filters": channels, "kernel": 1})];
    layers.extend(draw.coin().then(|| {
        let name = draw.pick(&["max_pool2d", "avg_pool2d"]);
        json!({"type": name, "size": draw.size(1, 3), "stride": draw.size(1, 3)})
    }));
    layers.push(json!({"type": "global_avg_pool"}));
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn recurrent(draw: &mut Numbers, [most_units, most_batch]: [u64; 2]) -> Network {
    let (units, batch) = (draw.size(1, most_units), draw.size(1, most_batch));
    let (positions, features) = (draw.size(1, 32), draw.size(1, 64));
    let mut layer = json!({
        "type": draw.pick(&["rnn", "gru", "lstm"]), "units": units, "bidirectional": draw.share() < 0.25,
        "return": draw.pick(&["sequence", "last"])
    });
    if layer["type"] == "rnn" {
        layer["nonlinearity"] = draw.pick(&["tanh", "relu"]).into();
    }
    (json!({"shape": [positions, features], "batch": batch}), vec![layer])
}

/// Many parameters, or few.
fn parameters(draw: &mut Numbers) -> Network {
    let layers = (0..draw.size(1, 48)).map(|_| {
        let units = draw.size(1, 256);
        json!({"type": "dense", "units": units, "bias": draw.coin(), "activation": draw.function()})
    });
    let layers = layers.collect();
    (json!({"shape": [draw.size(1, 1_024)], "batch": draw.size(1, 64)}), layers)
}

/// Activations that no other operation computes, on small and large arrays.
fn activations(draw: &mut Numbers) -> Network {
    let (channels, batch) = (draw.size(1, 64), draw.size(1, 256));
    let [height, width] = [draw.size(2, 64), draw.size(2, 64)];
    let conv = json!({"type": "conv2d", "filters": channels, "kernel": 1});
    let pool = json!({"type": draw.pick(&["max_pool2d", "avg_pool2d"]), "size": 2});
    let inner = if draw.coin() { conv.clone() } else { draw.activation() };
    let residual = json!({"type": "residual", "layers": [inner]});
    let layers = vec![conv, pool, draw.activation(), residual, draw.activation(), json!({"type": "flatten"})];
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn products(draw: &mut Numbers) -> Network {
    let (batch, features) = (draw.size(1, 2_048), draw.size(1, 1_024));
    let [units, inner] = [draw.size(1, 1_024), draw.size(1, 1_024)];
    let inner = [
        json!({"type": "dense", "units": inner, "bias": draw.coin(), "activation": draw.function()}),
        json!({"type": "dense", "units": units, "bias": draw.coin()}),
    ];
    let residual = draw.block(inner.into());
    let first = json!({"type": "dense", "units": units, "bias": draw.coin(), "activation": draw.function()});
    (json!({"shape": [features], "batch": batch}), vec![first, residual, draw.activation()])
}

fn convolutions(draw: &mut Numbers) -> Network {
    let (channels, batch) = (draw.size(1, 64), draw.size(1, 256));
    let [height, width] = [draw.size(3, 64), draw.size(3, 64)];
    let mut conv = || {
        let (filters, kernel) = (draw.size(1, 128), draw.pick(&[1, 3, 3, 5]));
        let groups = draw.pick(if filters % 4 == 0 { &[1, 1, 1, 2, 4] } else { &[1] });
        json!({
            "type": "conv2d", "filters": filters, "kernel": kernel, "padding": "same", "groups": groups,
            "stride": draw.pick(&[1, 1, 1, 2]), "bias": draw.coin()
        })
    };
    let [mut first, mut second, third] = [conv(), conv(), conv()];
    first["groups"] = 1.into();
    // A number of groups divides the channels and the filters.
    for layer in [&mut first, &mut second] {
        layer["filters"] = layer["filters"].as_u64().map(|filters| filters.next_multiple_of(4)).into();
    }
    let mut layers = vec![first, second];
    layers.extend(draw.coin().then(|| draw.activation()));
    layers.extend([third, json!({"type": "global_avg_pool"})]);
    (json!({"shape": [channels, height, width], "batch": batch}), layers)
}

/// Residual blocks of convolutions with and without normalisations.
fn bottlenecks(draw: &mut Numbers) -> Network {
    let (channels, inner, batch) = (draw.size(1, 128), draw.size(1, 128), draw.size(1, 128));
    let [height, width] = [draw.size(2, 32), draw.size(2, 32)];
    let mut conv = |filters: u64| {
        let kernel = draw.pick(&[1, 3, 3]);
        let mut layers =
            vec![json!({"type": "conv2d", "filters": filters, "kernel": kernel, "padding": "same", "bias": false})];
        layers.extend(draw.coin().then(|| json!({"type": "batch_norm"})));
        layers.extend(draw.coin().then(|| draw.activation()));
        layers
    };
    let (first, block) = (conv(channels), [conv(inner), conv(channels)].concat());
    let residual = draw.block(block);
    let layers = [first, vec![residual, draw.activation(), json!({"type": "global_avg_pool"})]].concat();
    (json!({"shape": [1, height, width], "batch": batch}), layers)
}

fn optimizer(draw: &mut Numbers) -> Value {
    let mut rule = match draw.pick(&[0, 1, 2, 3, 4]) {
        0 => json!({"type": "sgd", "lr": 0.01}),
        1 => json!({"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": draw.coin()}),
        2 => json!({"type": "adam", "lr": 0.001}),
        3 => json!({"type": "adamw", "lr": 0.001, "weight_decay": 0.01}),
        _ => json!({"type": "lion", "lr": 0.001}),
    };
    if draw.share() < 0.25 {
        rule["clip_norm"] = 1.0.into();
    }
    if draw.share() < 0.25 {
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
