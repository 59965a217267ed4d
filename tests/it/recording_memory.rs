//! The device memory of recordings: those of 64 paths over one store and one arena.

use std::sync::Arc;
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::{check, read_preset};

/// The largest device memory of a node of a graph: that of a graph of 100 nodes is below 400 KiB.
const NODE_BYTES: u64 = 400 * 1024 / 100;

/// Six blocks of convolutions, each of which runs or not.
fn network() -> String {
    let block = r#"{"type": "residual", "choose": {"by": "cycle", "values": [1, 0]}, "layers": [
        {"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same", "bias": false}, {"type": "batch_norm"},
        {"type": "activation", "function": "relu"},
        {"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same", "bias": false}, {"type": "batch_norm"}]},"#;
    format!(
        r#"{{"version": 1, "name": "blocks", "input": {{"shape": [1, 8, 8], "batch": 64}}, "layers": [
        {{"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same"}}, {}
        {{"type": "global_avg_pool"}}, {{"type": "dense", "units": 10}}],
        "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.01}}}}"#,
        block.repeat(6)
    )
}

#[test]
fn recordings_of_64_paths_take_little_device_memory_on_a_gpu() {
    let gpu = match gpu(0) {
        Ok(gpu) => gpu,
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let model = check(&read_preset(&network()).unwrap()).model.unwrap();
    // The path that runs all blocks comes first: it has the largest arena.
    let path = |skipped: usize| {
        let value = |block: usize| format!("L{}={}", block + 1, u8::from(skipped >> block & 1 == 0));
        (0..6).map(value).collect::<Vec<_>>().join(" ")
    };
    let compiled = |skipped: usize| {
        let model = model.along(&model.path_named(&path(skipped), 0).unwrap());
        Arc::new(compile(&model, &Options::train(gpu.target())).unwrap())
    };
    let all: Vec<Arc<Compiled>> = (0..64).map(compiled).collect();
    let whole = Step::with_room(Arc::clone(&all[0]), &all, 1).unwrap();
    let (store, arena) = (Arc::clone(whole.store()), Arc::clone(whole.lent_arena()));
    let record = || all.iter().map(|c| Step::over(Arc::clone(c), &store, &arena, 1).unwrap()).collect::<Vec<_>>();
    // The first recordings load the kernels, which all recordings share. Other tests use the same device, so that the
    // median of several rounds counts.
    let mut steps = record();
    let nodes: u64 = steps.iter().map(|step| step.recording().nodes as u64).sum();
    let mut rounds: Vec<i64> = (0..5)
        .map(|_| {
            let before = gpu.free_bytes().unwrap() as i64;
            steps.extend(record());
            before - gpu.free_bytes().unwrap() as i64
        })
        .collect();
    rounds.sort_unstable();
    let taken = u64::try_from(rounds[2]).unwrap_or_default();
    println!("64 recordings with {nodes} nodes take {rounds:?} bytes: {} for a node", taken / nodes);
    assert!(nodes > 64 * 20, "{nodes} nodes");
    assert!(taken > 0 && taken <= nodes * NODE_BYTES, "{rounds:?} bytes for {nodes} nodes");
}
