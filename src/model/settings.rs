//! What is checked besides the layers: input, loss, optimizer, and whether the output suits the loss.

use super::diagnostic::Diagnostic;
use super::mistakes::Mistakes;
use super::optimizers::OptimizerSpec;
use super::path::LayerPath;
use super::preset::{InputSpec, LossSpec, Preset};
use crate::tensor::Shape;

/// More values than this in one buffer are a mistake, not a plan: 2^40 elements are 4 TiB.
pub(super) const MAX_ELEMENTS: usize = 1 << 40;

pub(super) fn check_input(input: &InputSpec, out: &mut Mistakes) -> Option<Shape> {
    let mut fail = |path: &str, message: String, help: &str| out.fail(path, message, help);
    let mut sound = true;
    if !matches!(input.shape.rank(), 1 | 3) {
        fail("input.shape", format!("found {}", input.shape), "expected [features] or [C, H, W]");
        sound = false;
    } else if input.shape.checked_len().is_none_or(|n| n == 0 || n > MAX_ELEMENTS) {
        fail(
            "input.shape",
            format!("found {}", input.shape),
            "every size must be at least 1, and a sample at most 2^40 values",
        );
        sound = false;
    }
    if input.batch == 0 || input.batch > 1 << 30 {
        fail("input.batch", format!("found {}", input.batch), "expected at least 1 and at most 2^30");
    } else if sound && input.shape.len().checked_mul(input.batch).is_none_or(|n| n > MAX_ELEMENTS) {
        fail(
            "input",
            format!("{} samples of shape {}", input.batch, input.shape),
            "a batch may hold at most 2^40 values",
        );
        sound = false;
    }
    sound.then(|| input.shape.clone())
}

pub(super) fn check_loss(loss: LossSpec, out: &mut Mistakes) {
    if let LossSpec::SoftmaxCrossEntropy { label_smoothing } = loss
        && !(0.0..=1.0).contains(&label_smoothing)
    {
        let message = format!("found {label_smoothing}");
        out.fail("loss.label_smoothing", message, "expected a number from 0 to 1");
    }
}

pub(super) fn check_output(preset: &Preset, output: &Shape, out: &mut Mistakes) {
    if matches!(preset.loss, LossSpec::SoftmaxCrossEntropy { .. }) && output.rank() != 1 {
        let layer = preset.layers.len().checked_sub(1).map(|i| LayerPath::from([i]));
        out.add(Diagnostic {
            layer,
            path: "loss".into(),
            message: format!("softmax_cross_entropy on an output of shape {output}"),
            help: "it takes [classes]: end with flatten and dense, or global_avg_pool and dense".into(),
        });
    }
}

pub(super) fn check_optimizer(optimizer: &OptimizerSpec, out: &mut Mistakes) {
    for (name, found, help) in optimizer.findings() {
        out.fail(name, found, help);
    }
}
