//! The kernels of a GPU's step, each against its plain loops.

use super::{Check, Culprit, VerifyOptions, bounds};
use crate::compile::{Options, compile};
use crate::exec::Step;
use crate::model::Model;
use crate::train::{TrainError, gpu_times};
use std::sync::Arc;

/// Every kernel of a GPU's step against plain loops, on fresh random inputs.
pub(super) fn twins(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let small = model.with_batch(model.batch.min(16));
    let (mut worst, mut of, mut wrong, mut count) = (0.0f64, String::new(), Vec::new(), 0);
    let compiling = options.compiling();
    let times = gpu_times(&small, &compiling)?;
    let compiled = Arc::new(compile(&small, &Options { gpu_times: times, ..compiling })?);
    let Step::Cuda(mut step) = Step::new(Arc::clone(&compiled), 1)? else {
        return Ok(Check::skipped("kernels against their twins", "the step runs on a CPU"));
    };
    for index in 0..compiled.plan.program.ops.len() {
        let twin = step.compare_with_reference(index, options.seed)?;
        count += 1;
        let ratio = bounds::ratio(twin.error, twin.limit);
        if ratio > worst {
            (worst, of) = (ratio, format!(" at {}: {}", twin.kernel, bounds::told(twin.error, twin.limit)));
        }
        if !twin.wrong.is_empty() {
            wrong.push((format!("op {index} {}: {}", twin.kernel, twin.wrong), Some(Culprit::Op(index))));
        }
    }
    let passed = wrong.is_empty();
    let figures = format!("{count} kernels on random inputs, {} wrong; largest error{of}", wrong.len());
    wrong.truncate(12);
    Ok(Check::new("kernels against their twins (f64)", passed, figures).ratio(worst).detail(wrong))
}
