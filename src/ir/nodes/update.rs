//! The end of the step: counters, the update of the parameters, and what is measured of it.

use super::{NodeType, Role, Shapes, must, same};
use crate::model::UpdateRule;
use serde::{Deserialize, Serialize};

/// `counter -> counter`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepInc {}

/// `counter -> corr`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BiasCorr {
    pub betas: [f64; 2],
}

/// `hyper, [corr], params.., grads.., moments.. -> params.., moments.., [update_max_seg, grad_norm_seg]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerStep {
    pub rule: UpdateRule,
    pub measured: bool,
}

/// `update_max_seg, grad_norm_seg -> update_max, grad_norm`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {}

impl NodeType for StepInc {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for BiasCorr {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.output(0) == [2], "two corrections")
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

impl NodeType for UpdateMetrics {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.input(1))
    }
}
