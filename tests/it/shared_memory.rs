//! Every kernel that may be chosen for a GPU fits into the shared memory of its blocks. The compiler says so, without a
//! GPU.

use crate::candidates::{each_candidate, has_compiler, models};
use std::collections::{BTreeMap, BTreeSet};
use stepgraph::exec::cuda::{Arch, KernelSource, compile_source};
use stepgraph::model::{Model, check, read_preset};
use stepgraph::select::cuda::KernelSpec;
use stepgraph::select::{CudaFacts, Target};

/// Kernels whose bounds are compiled together.
const AT_ONCE: usize = 200;

/// Networks with large layers: images of many channels, wide images of few channels, wide rows, long sequences.
const LARGE: [&str; 4] = [
    r#"{"version": 1, "name": "channels", "input": {"shape": [3, 32, 32], "batch": 256}, "layers": [
    {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same", "activation": "relu"},
    {"type": "conv2d", "filters": 128, "kernel": 3, "padding": "same", "stride": 2}, {"type": "batch_norm"},
    {"type": "conv2d", "filters": 256, "kernel": 3, "padding": "same"},
    {"type": "conv2d", "filters": 96, "kernel": 1}, {"type": "global_avg_pool"}, {"type": "dense", "units": 1000}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#,
    r#"{"version": 1, "name": "photographs", "input": {"shape": [3, 224, 320], "batch": 8}, "layers": [
    {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same"}, {"type": "max_pool2d", "size": 2},
    {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same"},
    {"type": "conv2d", "filters": 32, "kernel": 7, "stride": 2, "padding": 3}, {"type": "global_avg_pool"},
    {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}}"#,
    r#"{"version": 1, "name": "rows", "input": {"shape": [4096], "batch": 4096}, "layers": [
    {"type": "dense", "units": 4096, "activation": "gelu"}, {"type": "layer_norm"},
    {"type": "dense", "units": 20011}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#,
    r#"{"version": 1, "name": "texts", "input": {"type": "tokens", "shape": [1024], "vocab": 50304, "batch": 4},
    "layers": [{"type": "embedding", "units": 768}, {"type": "attention", "heads": 12, "causal": true},
    {"type": "attention", "heads": 4, "causal": true}, {"type": "rms_norm"}, {"type": "lstm", "units": 512},
    {"type": "gru", "units": 300}, {"type": "dense", "units": 50304}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#,
];

fn large() -> impl Iterator<Item = Model> {
    LARGE.into_iter().map(|text| check(&read_preset(text).unwrap()).model.unwrap())
}

/// All candidates for the operations of all networks on a GPU with this capability, by the name of their file.
fn candidates(capability: (u32, u32)) -> BTreeMap<&'static str, Vec<KernelSpec>> {
    let (mut found, mut seen) = (BTreeMap::<_, Vec<KernelSpec>>::new(), BTreeSet::new());
    each_candidate(models().into_iter().chain(large()), capability, |_, spec| {
        let spec = spec.compiled();
        if seen.insert((spec.ty(), spec.declarations.clone())) {
            found.entry(spec.file.name()).or_default().push(spec);
        }
    });
    found
}

/// The text of kernels without the kernels: their types, and a bound of the shared memory of each.
fn bounds(specs: &[KernelSpec], most: usize) -> String {
    // A single kernel would have another text; the first one is repeated.
    let text = KernelSource::from_iter(specs.iter().chain(&specs[..1]).cloned()).text();
    let (types, _) = text.split_once("struct Members {").expect("several kernels share a launch");
    // Types are checked one by one, so that the compiler names each that does not fit.
    let bound = |index: usize| {
        let phase = |phase: usize| format!("member{index}::Op::smem({phase}) <= {most}");
        format!("static_assert({} && {} && {}, \"member {index} fits\");\n", phase(0), phase(1), phase(2))
    };
    types.to_owned() + &(0..specs.len()).map(bound).collect::<String>()
}

#[test]
fn the_shared_memory_of_every_candidate_fits_its_gpu() {
    if !has_compiler() {
        return;
    }
    for capability in [(8, 0), (8, 6), (9, 0), (10, 0)] {
        let most = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() }.shared_bytes();
        let (mut count, mut wrong) = (0, Vec::new());
        for specs in candidates(capability).values() {
            for some in specs.chunks(AT_ONCE) {
                count += some.len();
                let Err(why) = compile_source(&bounds(some, most), Arch(capability.0, capability.1)) else { continue };
                let why = why.to_string();
                let too_large = |index: &usize| why.contains(&format!("\"member {index} fits\""));
                let found = (0..some.len()).filter(too_large).map(|index| some[index].ty());
                let before = wrong.len();
                wrong.extend(found);
                assert!(wrong.len() > before, "{why}");
            }
        }
        assert!(count > 500, "{capability:?}: only {count} kernels were looked at");
        assert!(wrong.is_empty(), "{capability:?}, more than {most} bytes: {wrong:#?}");
        println!("{capability:?}: {count} kernels take at most {most} bytes");
    }
}
