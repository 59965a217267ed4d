//! Recurrent layers of several blocks with matrix instructions.

use crate::cudnn::compare_on;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::Precision;
use stepgraph::select::{Kernels, Target};

/// Cell, samples and units: weights in registers, and not; several tiles of samples; numbers of units that are odd or
/// no multiples of eight; more states than a warp reads at once; and fewer ranges of states than warps.
const SHAPES: [(&str, usize, usize); 6] =
    [("lstm", 64, 512), ("rnn", 600, 300), ("gru", 40, 301), ("rnn", 3, 2049), ("rnn", 2048, 280), ("lstm", 150, 260)];

fn network((cell, batch, units): (&str, usize, usize)) -> String {
    format!(
        r#"{{"version": 1, "name": "recurrent", "input": {{"shape": [3, 4], "batch": {batch}}}, "layers": [
        {{"type": "{cell}", "units": {units}, "return": "last"}}, {{"type": "dense", "units": 3}}],
        "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
    )
}

#[test]
fn recurrent_layers_of_several_blocks_equal_plain_loops_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    if machine.as_cuda().unwrap().multiprocessors < 128 {
        return println!("skipped: the shapes are for GPUs of 128 multiprocessors");
    }
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let precision = [Precision::Tf32, Precision::Bf16, Precision::F16][number % 3];
        for kernels in [Kernels::Specialised, Kernels::General] {
            let machine = Target { kernels, ..machine.clone() };
            println!("{kernels:?}, {shape:?}");
            let (cell, ..) = shape;
            let real = precision.name();
            for (op, runs) in [(cell.to_owned(), "RecurrenceGrid<"), (format!("{cell}_bwd"), "RecurrenceGridBwd<")] {
                compare_on(&machine, &network(shape), precision, (&format!("{op}_{real}_grid_mma"), runs), 1);
            }
        }
    }
}
