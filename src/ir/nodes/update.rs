//! The end of the step: counters, the update of the parameters, and its metrics.

use super::node_type::{NodeType, Shapes, must, same, shape_rules};
use crate::ir::value::Role;
use crate::model::{ScheduleKind, UpdateRule};
use serde::{Deserialize, Serialize};

/// `counter -> counter`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepInc {}

/// `counter -> corr`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BiasCorr {
    pub betas: [f64; 2],
}

/// `grads.. -> grad_norm_seg`: the norm of the gradient of each parameter, divided by the number of batches that the
/// gradient sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradNorms {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub batches: usize,
}

const fn one() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_one(count: &usize) -> bool {
    *count == 1
}

/// `hyper, counter, [steps], [grad_norm_seg] -> rates`: the rate of the step from its schedule, the decay, and, if
/// `clip_norm` is not zero or gradients are the sum of several batches, their factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateRates {
    pub schedule: ScheduleKind,
    pub warmup: usize,
    #[serde(rename = "final")]
    pub last: f64,
    pub every: usize,
    pub factor: f64,
    pub clip_norm: f64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub batches: usize,
}

/// `hyper, [corr..], params.., grads.., moments.. -> params.., moments.., [update_max_seg, grad_norm_seg]`: a
/// correction for each group of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerStep {
    pub rule: UpdateRule,
    pub measured: bool,
    /// Whether `hyper` has a third value that gradients are multiplied by. Then their norms are computed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// The trained parameters, by number, that have no weight decay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<usize>,
    /// The number of parameters of each group, if there are several groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<usize>,
}

/// `update_max_seg, grad_norm_seg -> update_max, grad_norm`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {}

shape_rules! {
    StepInc: |at| same(at.input(0), at.output(0));
    BiasCorr: |at| must(at.output(0) == [2], "two corrections");
    UpdateMetrics: |at| same(at.input(0), at.input(1));
}

impl NodeType for GradNorms {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let [grads, _] = at.count(Role::Grad);
        must(at.output(0) == [grads], "each gradient has a norm")
    }
}

impl NodeType for UpdateRates {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let rates = if self.clip_norm > 0.0 || self.batches > 1 { 3 } else { 2 };
        must(at.input(0) == [2] && at.output(0) == [rates], "two rates, and a third where gradients are scaled")
    }
}

impl NodeType for OptimizerStep {
    fn name(&self) -> Option<&'static str> {
        Some(self.rule.node_name())
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let ([before, after], [grads, _]) = (at.count(Role::Param), at.count(Role::Grad));
        must(before == after && before == grads, "each parameter has one gradient and one update")
    }
}
