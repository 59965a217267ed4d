//! The passes, in the order in which they run. A new one is a file here and an entry of [`PASSES`].
//!
//! *Fusing* means always, unless a plan for a CPU must use reference kernels. The order matters: biases are fused into
//! products before activations are; other fusions with a gradient come before updates are fused into it; half precision
//! comes before every pass that adds values of the products' type; counters of blocks come last, when all operations
//! are known.

mod bucketed_update;
mod chunked_classifier;
mod folded_metrics;
mod fuse_activation;
mod fuse_activation_gradient;
mod fuse_bias;
mod fuse_norm_gradient;
mod fuse_softmax_loss;
mod fuse_squared_error;
mod fused_classifier;
mod fused_optimizer;
mod gathered_gradients;
mod half_precision_activations;
mod half_precision_parameters;
mod join_gradient_sum;
mod join_norm_sum;
mod join_position;
mod join_product_sum;
mod join_row_norm;
mod join_sum_activation;
mod loss_scaling;
mod relu_bit_mask;
mod split_classifier;
mod tickets;

use super::pass::{Goal, Pass, When};
use crate::model::Precision;
pub(crate) use chunked_classifier::LARGE_SCORES;
pub use half_precision_activations::stored_in_half;

const FUSING: When = ("always except on a CPU with reference kernels", Goal::fuses);
const LARGE_ON_CPU: When = ("on a CPU, if the scores take more than 16 MiB", |goal| goal.fuses() && !goal.is_gpu());
const GPU: When = ("on a GPU", Goal::is_gpu);
const FEW_CLASSES: When = ("on a GPU, for up to 32 classes and small layers", Goal::is_gpu);
const LARGE_ON_GPU: When = ("on a GPU, if the scores take more than 64 MiB", Goal::is_gpu);
const MANY_ROWS: When =
    ("on a GPU, if small layers sum over 512 rows and more (128 with norms of short rows in f32)", Goal::is_gpu);
const SHORT_ROWS: When = ("on a GPU in f32, for rows of 32, 64 or 128 columns", in_f32);
const LARGE_MASKS: When = ("on a GPU, for networks of 16 million parameters and more", Goal::is_gpu);
const IN_HALF: When = ("on a GPU in bf16 and f16", |goal| goal.half().is_some());
const IN_F16: When = ("on a GPU in f16", Goal::scales_loss);
// With loss scaling, all gradients are checked before any parameter changes, so that updates stay at the end.
const SMALL: When = ("on a GPU, except in f16, for dense networks of up to a million parameters", updates_early);
const LARGE: When = ("on a GPU, except in f16, for networks of 16 million parameters and more", updates_early);

fn in_f32(goal: &Goal) -> bool {
    goal.is_gpu() && goal.precision == Precision::F32
}

fn updates_early(goal: &Goal) -> bool {
    goal.is_gpu() && !goal.scales_loss()
}

/// Every pass, in order.
pub const PASSES: [Pass; 24] = [
    Pass::new(
        "fuse_bias",
        FUSING,
        "A product or convolution adds the bias while it writes its result.",
        fuse_bias::run,
    ),
    Pass::new(
        "fuse_activation",
        FUSING,
        "A product, convolution or batch normalisation also applies the activation that follows it.",
        fuse_activation::run,
    ),
    Pass::new(
        "fuse_activation_gradient",
        FUSING,
        "The product that computes an input gradient multiplies it by the derivative of the preceding activation.",
        fuse_activation_gradient::run,
    ),
    Pass::new(
        "fuse_norm_gradient",
        FUSING,
        "The backward pass of a batch normalisation applies the derivative of the activation that follows it.",
        fuse_norm_gradient::run,
    ),
    Pass::new(
        "fuse_softmax_loss",
        FUSING,
        "Softmax, cross entropy, their mean, the accuracy and the gradient of the logits become one operation.",
        fuse_softmax_loss::run,
    ),
    Pass::new(
        "chunked_classifier",
        LARGE_ON_CPU,
        "The last dense layer of a classifier, its loss and its gradients become one operation on chunks of rows.",
        chunked_classifier::run,
    ),
    Pass::new(
        "fuse_squared_error",
        FUSING,
        "The mean squared error and the gradient of the output become one operation.",
        fuse_squared_error::run,
    ),
    Pass::new(
        "join_sum_activation",
        GPU,
        "A sum applies the activation, or the derivative of an activation, that is its only reader.",
        join_sum_activation::run,
    ),
    Pass::new(
        "join_norm_sum",
        GPU,
        "A batch normalisation adds the other operand of a sum to its output, and applies the activation of the sum.",
        join_norm_sum::run,
    ),
    Pass::new(
        "half_precision_parameters",
        IN_HALF,
        "Products read a half-precision copy of the parameters, which the optimizer writes beside the parameters.",
        half_precision_parameters::run,
    ),
    Pass::new(
        "half_precision_activations",
        IN_HALF,
        "Activations and their gradients are stored in half precision, with everything that shares their memory.",
        half_precision_activations::run,
    ),
    Pass::new("join_position", GPU, "An embedding adds the learned positions that follow it.", join_position::run),
    Pass::new(
        "join_product_sum",
        GPU,
        "A product adds the other operand of a sum to its result: the end of a residual block.",
        join_product_sum::run,
    ),
    Pass::new(
        "join_gradient_sum",
        GPU,
        "The gradient of a layer or RMS normalisation adds the gradient that goes around its residual block.",
        join_gradient_sum::run,
    ),
    Pass::new(
        "fused_classifier",
        FEW_CLASSES,
        "The last dense layer of a classifier, its loss and the gradient of its input become one operation.",
        fused_classifier::run,
    ),
    Pass::new(
        "fused_optimizer",
        SMALL,
        "The operations that compute the gradients of a small dense network also update its parameters by Adam.",
        fused_optimizer::run,
    ),
    Pass::new(
        "bucketed_update",
        LARGE,
        "Adam updates the parameters of a few layers at a time, as soon as their gradients are computed.",
        bucketed_update::run,
    ),
    Pass::new(
        "relu_bit_mask",
        LARGE_MASKS,
        "One bit for each element replaces a saved ReLU output if only the signs of its elements are needed.",
        relu_bit_mask::run,
    ),
    Pass::new(
        "folded_metrics",
        GPU,
        "The optimizer's operation also writes the largest update and the gradient's norm over all parameters.",
        folded_metrics::run,
    ),
    Pass::new(
        "loss_scaling",
        IN_F16,
        "The gradient of the loss is multiplied by a scale, which an operation before the optimizer adapts.",
        loss_scaling::run,
    ),
    Pass::new(
        "split_classifier",
        LARGE_ON_GPU,
        "The last dense layer, its loss and its gradients are computed for one group of rows after the other.",
        split_classifier::run,
    ),
    Pass::new(
        "gathered_gradients",
        MANY_ROWS,
        "Gradients of small parameters over many rows move to the end of the backward pass, where they share a launch.",
        gathered_gradients::run,
    ),
    Pass::new(
        "join_row_norm",
        SHORT_ROWS,
        "A product normalises the rows that it computes, or applies the gradient of the normalisation to them.",
        join_row_norm::run,
    ),
    Pass::new(
        "tickets",
        GPU,
        "Operations whose last block combines the results of all blocks get a counter of finished blocks.",
        tickets::run,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_pass_in_order() {
        let rows = include_str!("../../../docs/passes.md").lines().filter(|line| line.starts_with("| `"));
        let row = |pass: &Pass| format!("| `{}` | {} | {} |", pass.name, pass.when, pass.about);
        assert_eq!(rows.collect::<Vec<_>>(), PASSES.each_ref().map(row));
    }
}
