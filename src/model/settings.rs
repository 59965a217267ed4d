//! What is checked besides the layers: input, loss, optimizer, and whether the output suits the loss.

use super::diagnostic::{Diagnostic, LayerPath};
use super::mistakes::Mistakes;
use super::preset::{InputSpec, LossSpec, OptimizerSpec, Preset};
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
        let layer = preset.layers.len().checked_sub(1).map(|i| LayerPath(vec![i]));
        out.add(Diagnostic {
            layer,
            path: "loss".into(),
            message: format!("softmax_cross_entropy on an output of shape {output}"),
            help: "it takes [classes]: end with flatten and dense, or global_avg_pool and dense".into(),
        });
    }
}

pub(super) fn check_optimizer(optimizer: &OptimizerSpec, out: &mut Mistakes) {
    let mut within = |name: &str, value: f64, sound: bool, help: &str| {
        if !sound {
            out.fail(format!("optimizer.{name}"), format!("found {value}"), help);
        }
    };
    let (lr, decay) = (optimizer.lr(), optimizer.weight_decay());
    within("lr", lr, (0.0..=1e6).contains(&lr), "expected a number from 0 to 1e6, such as 0.001");
    within("weight_decay", decay, (0.0..=1e6).contains(&decay), "expected a number from 0 to 1e6");
    match *optimizer {
        OptimizerSpec::Sgd { momentum, nesterov, .. } => {
            within(
                "momentum",
                momentum,
                (0.0..1.0).contains(&momentum),
                "expected a number from 0 up to, but not including, 1",
            );
            within(
                "momentum",
                momentum,
                !nesterov || momentum > 0.0,
                "nesterov needs a momentum above 0, such as 0.9; or set nesterov to false",
            );
        }
        OptimizerSpec::Adam { betas, eps, .. } => {
            for (which, beta) in ["first", "second"].into_iter().zip(betas) {
                let help = format!("expected the {which} of the two numbers to be from 0 up to, but not including, 1");
                within("betas", beta, (0.0..1.0).contains(&beta), &help);
            }
            within("eps", eps, eps > 0.0 && eps <= 1.0, "expected a number above 0 and at most 1, such as 1e-8");
        }
    }
}
