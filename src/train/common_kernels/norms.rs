//! Networks with batch normalisations of each class of sizes. Which of three ways is the fastest changes within narrow
//! ranges of sizes, which random networks seldom meet.

use crate::model::{Activation, Precision, Preset, read_value};
use crate::ops::{BatchNorm, BatchNormBwd, OpKind, Scalar};
use crate::select::cuda::{Real, custom_kernels};
use crate::select::{Kernels, Target};
use serde_json::{Value, json};
use std::collections::HashSet;

/// These networks have fewer rows than this, which are the samples of a batch times the pixels of an image.
pub const MOST_ROWS: usize = 1 << 20;
/// Every number of vectors up to this one is a row.
pub const FEW_VECTORS: usize = 128;
/// They have fewer elements than this.
const MOST_ELEMENTS: usize = 1 << 28;

/// Networks of two batch normalisations, as many as the kernels of the sizes below need. Empty if the machine has no
/// GPU.
pub fn batch_norms(machine: &Target, precision: Precision) -> Vec<Preset> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for columns in columns() {
        for rows in rows().take_while(|rows| rows * columns < MOST_ELEMENTS) {
            let before = seen.len();
            seen.extend(kernels(machine, precision, rows, columns));
            if seen.len() > before {
                let documents = [false, true].map(|is_repeated| network(rows, columns, is_repeated));
                found.extend(documents.iter().filter_map(|document| read_value(document).ok()));
            }
        }
    }
    found
}

/// Numbers of rows, 16 in each power of two.
fn rows() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(4), |rows: &usize| Some(rows + (rows / 16).max(1))).take_while(|rows| *rows < MOST_ROWS)
}

/// Numbers of columns: every number of vectors of each width that blocks can divide among themselves in different ways,
/// and some larger ones.
fn columns() -> impl Iterator<Item = usize> {
    let vectors =
        |width: usize| (1..=FEW_VECTORS).map(move |count| count * width).filter(move |n| n % (2 * width) == width);
    let narrow = [1, 2].into_iter().flat_map(vectors);
    let of_four = (1..=FEW_VECTORS).map(|count| 4 * count);
    let of_eight = (FEW_VECTORS / 2 + 1..=FEW_VECTORS).map(|count| 8 * count);
    let large =
        [1, 2, 4, 8].into_iter().flat_map(|width| [161, 265, 397, 529, 1_057, 1_601].map(|count| count * width));
    narrow.chain(of_four).chain(of_eight).chain(large)
}

/// The general kernels that are chosen for the normalisation of this many rows and columns, and for its gradient with
/// and without that of an activation.
fn kernels(machine: &Target, precision: Precision, rows: usize, channels: usize) -> Vec<String> {
    let Some(facts) = machine.as_cuda() else { return Vec::new() };
    let act_grad = Some(Activation::Relu);
    let gradient = |act_grad| OpKind::BatchNormBwd(BatchNormBwd { rows, channels, act_grad, accumulate: false });
    let [eps, momentum] = [1e-5, 0.1].map(Scalar::new);
    let forward = OpKind::BatchNorm(BatchNorm { rows, channels, eps, momentum, act: None });
    let chosen = [forward, gradient(None), gradient(act_grad)].into_iter().filter_map(|kind| {
        let offered = custom_kernels(&kind, Real::from(precision), &facts);
        // The last one among equals is preferred, as in the selection.
        let chosen = offered.into_iter().rev().min_by(|a, b| a.cost_us.total_cmp(&b.cost_us))?;
        Some(chosen.spec.of(Kernels::General).ty())
    });
    chosen.collect()
}

/// The derivative of an activation before a pooling is computed with that of the normalisation. In a layer that is
/// applied twice, gradients of parameters are added.
fn network(rows: usize, columns: usize, is_repeated: bool) -> Value {
    let norm = json!({"type": "batch_norm"});
    let activation = json!({"type": "activation", "function": "relu"});
    let pooling = json!({"type": "max_pool2d", "size": 3, "stride": 1, "padding": 1});
    let first = [norm.clone(), activation, pooling];
    let mut layers = if is_repeated {
        let repeat = |layers: &[Value]| json!({"type": "repeat", "times": 2, "layers": layers});
        vec![repeat(&first), repeat(&[norm])]
    } else {
        first.into_iter().chain([norm]).collect()
    };
    layers.extend([json!({"type": "flatten"}), json!({"type": "dense", "units": 1})]);
    json!({
        "version": 1, "name": "batch-norm", "input": {"shape": [columns, 1, 1], "batch": rows}, "layers": layers,
        "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::exec::cuda::kernels_for_any_size;
    use crate::model::check;

    #[test]
    fn batch_normalisations_of_other_sizes_have_common_kernels() {
        let machine = Target::h200().with_kernels(Kernels::General);
        for precision in [Precision::F32, Precision::Bf16] {
            let mut common = HashSet::new();
            let mut planned = 0;
            for preset in batch_norms(&machine, precision) {
                let model = check(&Preset { precision, ..preset }).model.unwrap();
                let compiled = compile(&model, &Options::train(machine.clone())).unwrap();
                for kernel in kernels_for_any_size(&compiled) {
                    common.extend(
                        [Some(kernel.own.types()), kernel.wider.map(|wider| wider.types())].into_iter().flatten(),
                    );
                }
                planned += 1;
            }
            assert!((100..1_000).contains(&planned), "{planned} networks");
            // Sizes that are not among those above.
            let few_rows = [(4_801, 22), (4_704, 17), (1_999, 250), (613, 31), (9_001, 6), (70, 1_100), (5, 3)];
            let many_rows = [(100_352, 8), (65_536, 16), (3_139, 1_008), (50_176, 24), (200_704, 3)];
            for (rows, columns) in few_rows.into_iter().chain(many_rows) {
                for kernel in kernels(&machine, precision, rows, columns) {
                    assert!(common.contains(&kernel), "{rows} rows, {columns} columns: {kernel}");
                }
            }
        }
    }
}
