//! The device memory of recordings over one store and one arena.

use std::sync::Arc;
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cuda::{Gpu, gpu};
use stepgraph::model::{check, read_preset};

/// The most device memory of a graph of 100 nodes.
const MOST_BYTES: u64 = 400 << 10;

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

/// The bytes of the device's memory that one more recording of a step takes, and its nodes: the median of several
/// rounds of 64 recordings, because other tests use the same device. Rounds in which they freed memory do not count.
fn measured(gpu: &Gpu, compiled: &Arc<Compiled>, owner: &Step, kept: &mut Vec<Step>) -> (u64, u64) {
    let (store, arena) = (owner.store(), owner.lent_arena());
    let mut round = || {
        let before = gpu.free_bytes().unwrap();
        kept.extend((0..64).map(|_| Step::over(Arc::clone(compiled), store, arena, 1).unwrap()));
        before.saturating_sub(gpu.free_bytes().unwrap()) / 64
    };
    let mut rounds: Vec<u64> = (0..9).map(|_| round()).filter(|bytes| *bytes > 0).take(5).collect();
    rounds.sort_unstable();
    (rounds[rounds.len() / 2], kept.last().unwrap().recording().nodes as u64)
}

#[test]
fn recordings_take_little_device_memory_on_a_gpu() {
    let gpu = match gpu(0) {
        Ok(gpu) => gpu,
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let model = check(&read_preset(&network()).unwrap()).model.unwrap();
    let compiled = |blocks: usize| {
        let value = |block: usize| format!("L{}={}", block + 1, u8::from(block < blocks));
        let path = (0..6).map(value).collect::<Vec<_>>().join(" ");
        let model = model.along(&model.path_named(&path, 0).unwrap());
        Arc::new(compile(&model, &Options::train(gpu.target())).unwrap())
    };
    let all: Vec<Arc<Compiled>> = (0..=6).rev().map(compiled).collect();
    let whole = Step::with_room(Arc::clone(&all[0]), &all, 1).unwrap();
    let (mut kept, mut most) = (Vec::new(), 0);
    for compiled in &all {
        let (bytes, nodes) = measured(&gpu, compiled, &whole, &mut kept);
        let counted = kept.last().unwrap().recording_bytes();
        println!("a recording of {nodes} nodes takes {bytes} bytes of device memory, and counts as {counted} bytes");
        assert!(0 < bytes && bytes <= counted, "{nodes} nodes");
        assert!(nodes < 90 || bytes * 100 <= MOST_BYTES * nodes, "{nodes} nodes: {bytes} bytes");
        most = most.max(nodes);
    }
    assert!(most >= 90, "{most} nodes");
}
