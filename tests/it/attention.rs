//! Attention by the matrix instructions of warpgroups.

use crate::cudnn::{compare_on, with_kernels};
use stepgraph::exec::cuda::gpu;
use stepgraph::model::Precision;
use stepgraph::select::{CudaFacts, Kernels, Target};

/// Positions, samples, heads, heads of keys and values, and whether attention is causal: tiles that are not whole,
/// heads that share keys and values, more parts than blocks, and more tiles than fit into shared memory.
const SHAPES: [(usize, usize, usize, usize, bool); 9] = [
    (150, 3, 2, 2, true),
    (257, 2, 2, 2, false),
    (64, 40, 4, 2, true),
    (320, 1, 4, 2, true),
    (33, 5, 3, 1, false),
    (900, 1, 1, 1, true),
    (200, 2, 4, 1, true),
    (129, 3, 6, 3, true),
    (384, 1, 2, 2, false),
];

/// Parts of the names of these kernels and the starts of their types: of attention and of its gradient.
const KERNELS: [(&str, &str); 2] = [("_wgmma128x128_v0", "AttentionWgmma<"), ("_wgmma128x64_v0", "AttentionWgmmaBwd<")];

/// A network with an attention of such a shape, with heads of 64 features.
fn network((positions, batch, heads, kv_heads, causal): (usize, usize, usize, usize, bool)) -> String {
    let units = 64 * heads;
    format!(
        r#"{{"version": 1, "name": "attention", "input": {{"type": "tokens", "shape": [{positions}], "vocab": 30,
        "batch": {batch}}}, "layers": [{{"type": "embedding", "units": {units}}}, {{"type": "attention",
        "heads": {heads}, "kv_heads": {kv_heads}, "causal": {causal}}}, {{"type": "dense", "units": 30}}],
        "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
    )
}

#[test]
fn only_16_bits_on_hopper_have_these_kernels() {
    let of = |target: &Target, precision: Precision| {
        KERNELS.map(|(plan, _)| with_kernels(&network(SHAPES[3]), target, precision, plan).1.len())
    };
    let hopper = Target::h200();
    let other = Target::cuda("some GPU", CudaFacts { capability: (8, 9), ..hopper.as_cuda().unwrap() });
    for (precision, count) in [(Precision::Bf16, 1), (Precision::F16, 1), (Precision::Tf32, 0), (Precision::F32, 0)] {
        assert_eq!((of(&hopper, precision), of(&other, precision)), ([count; 2], [0; 2]), "{precision:?}");
    }
}

#[test]
fn attention_by_warpgroups_equals_plain_loops_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let facts = machine.as_cuda().unwrap();
    if facts.capability != (9, 0) {
        return println!("skipped: the GPU has no matrix instructions of warpgroups");
    }
    for (number, shape) in SHAPES.into_iter().enumerate() {
        // Each shape in one precision, and the first ones with general members too.
        let precision = [Precision::Bf16, Precision::F16][number % 2];
        let members: &[_] =
            if number < 4 { &[Kernels::Specialised, Kernels::General] } else { &[Kernels::Specialised] };
        for kernels in members {
            let machine = Target { kernels: *kernels, ..machine.clone() };
            println!("{kernels:?}, {shape:?}");
            KERNELS.iter().for_each(|kernel| compare_on(&machine, &network(shape), precision, *kernel, 1));
        }
    }
}
