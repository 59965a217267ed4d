//! The passes, in the order in which they run. A new one is a file here and a line in [`PASSES`].
//!
//! | name | when | what it does |
//! |---|---|---|
//! | `fuse_bias` | fusing | product or convolution + bias |
//! | `fuse_activation` | fusing | product, convolution or batch normalisation + activation |
//! | `fuse_activation_gradient` | fusing | input gradient + derivative of the activation in front of the layer |
//! | `fuse_norm_gradient` | fusing | derivative of an activation + backward pass of the batch normalisation before it |
//! | `fuse_softmax_loss` | fusing | softmax, cross entropy, mean, accuracy and gradient as one operation |
//! | `chunked_classifier` | CPU, fusing | large last dense layer, loss and gradients as one operation, in chunks of
//! rows |
//! | `fuse_squared_error` | fusing | squared error and gradient as one operation |
//! | `join_sum_activation` | GPU | sum + activation, or + derivative |
//! | `join_norm_sum` | GPU | batch normalisation + sum (+ activation): the tail of a residual block |
//! | `half_precision_parameters` | GPU, bf16 and f16 | a half-precision copy of the parameters, for products |
//! | `half_precision_activations` | GPU, bf16 and f16 | activations and their gradients in half precision |
//! | `fused_classifier` | GPU | last dense layer, loss and input gradient as one operation |
//! | `fused_optimizer` | GPU, not f16 | Adam's step as part of the weight gradient, in small dense networks |
//! | `bucketed_update` | GPU, not f16 | Adam's step for some layers at a time, in large networks |
//! | `relu_bit_mask` | GPU | a bit for each element of a ReLU's output, in large networks |
//! | `folded_metrics` | GPU | totals of update and gradient as part of the update |
//! | `loss_scaling` | GPU, f16 | an adaptive scale of the loss's gradient |
//! | `tickets` | GPU | counters of finished blocks |
//!
//! *Fusing* is always, unless a plan for a CPU is to keep to reference kernels. The order matters: biases go into
//! products before activations do; what is fused with a gradient must have been fused before parameters are updated
//! there; half precision comes before everything that adds values of the products' type; counters of blocks come last,
//! when it is known which operations there are.

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
mod half_precision_activations;
mod half_precision_parameters;
mod join_norm_sum;
mod join_sum_activation;
mod loss_scaling;
mod relu_bit_mask;
mod tickets;

use super::pass::Pass;
pub(crate) use chunked_classifier::LARGE_SCORES;
pub use half_precision_activations::stored_in_half;

/// Every pass, in order.
pub const PASSES: [Pass; 18] = [
    fuse_bias::PASS,
    fuse_activation::PASS,
    fuse_activation_gradient::PASS,
    fuse_norm_gradient::PASS,
    fuse_softmax_loss::PASS,
    chunked_classifier::PASS,
    fuse_squared_error::PASS,
    join_sum_activation::PASS,
    join_norm_sum::PASS,
    half_precision_parameters::PASS,
    half_precision_activations::PASS,
    fused_classifier::PASS,
    fused_optimizer::PASS,
    bucketed_update::PASS,
    relu_bit_mask::PASS,
    folded_metrics::PASS,
    loss_scaling::PASS,
    tickets::PASS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_pass_in_order() {
        let rows = include_str!("mod.rs").lines().filter_map(|l| l.strip_prefix("//! | `"));
        let listed: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        assert_eq!(listed, PASSES.map(|pass| pass.name));
        for pass in PASSES {
            assert!(pass.about.ends_with('.') && !pass.when.is_empty(), "{}", pass.name);
        }
    }
}
