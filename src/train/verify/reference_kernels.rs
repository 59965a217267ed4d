//! The kernels of a GPU's step, each against its plain-loop reference.

use super::bound::ratio_text;
use super::names::GPU_KERNELS;
use super::{Check, Culprit, VerifyOptions};
use crate::compile::{Compiled, Options, compile};
use crate::exec::Step;
use crate::model::Model;
use crate::tensor::counted;
use crate::train::{TrainError, gpu_times};
use std::sync::Arc;

/// The most floating-point operations of a step that the plain loops compute.
const FLOPS: u64 = 1_000_000_000;
/// Floating-point operations that they do in a second on one core.
const RATE: f64 = 3e8;
/// The smallest batch of any network, and the largest of one that does too much arithmetic.
const BATCH: (usize, usize) = (2, 16);

/// Seconds that plain loops take to follow a GPU's step, roughly.
pub(super) fn seconds(step: &Compiled) -> f64 {
    if step.selection.target.as_cuda().is_some() { step.selection.flops().min(FLOPS) as f64 / RATE } else { 0.0 }
}

/// The network with the batch that plain loops can follow: its own where they can. A GPU's kernels are made for their
/// sizes, so those of another batch are others.
fn followed(model: &Model, compiling: &Options) -> Result<Model, TrainError> {
    if model.batch <= BATCH.1 {
        return Ok(model.with_batch(model.batch.max(BATCH.0)));
    }
    let each = compile(model, compiling)?.selection.flops() / model.batch as u64;
    let most = usize::try_from(FLOPS / each.max(1)).unwrap_or(usize::MAX);
    Ok(model.with_batch(model.batch.min(most.max(BATCH.1))))
}

/// Every kernel of a GPU's step against plain loops, on fresh random inputs.
pub(super) fn compare(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let compiling = options.compiling();
    let small = followed(model, &compiling)?;
    let (mut worst, mut of, mut wrong, mut count) = (0.0f64, String::new(), Vec::new(), 0);
    let times = gpu_times(&small, &compiling)?;
    let compiled = Arc::new(compile(&small, &Options { gpu_times: times, ..compiling })?);
    let mut step = Step::new(Arc::clone(&compiled), 1)?;
    for index in 0..compiled.plan.program.ops.len() {
        let Some(found) = step.compare_with_reference(index, options.seed)? else {
            return Ok(Check::skipped(GPU_KERNELS, "the step runs on a CPU"));
        };
        count += 1;
        if found.ratio > worst {
            (worst, of) = (found.ratio, format!(" at {}: {}", found.kernel, found.at));
        }
        if !found.wrong.is_empty() {
            wrong.push((format!("op {index} {}: {}", found.kernel, found.wrong), Some(Culprit::Op(index))));
        }
    }
    let passed = wrong.is_empty();
    let (batch, wrongs) = (small.batch, wrong.len());
    let figures = format!(
        "{} on random inputs of a batch of {batch}, {wrongs} wrong; largest error {} of its bound{of}",
        counted(count, "kernel"),
        ratio_text(worst, 2)
    );
    wrong.truncate(12);
    Ok(Check::new(GPU_KERNELS, passed, figures).ratio(worst).detail(wrong))
}
