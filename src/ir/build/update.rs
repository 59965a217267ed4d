//! The end of the step: counters, the optimizer, and what is measured of the update.

use super::Builder;
use crate::ir::{Metrics, NodeKind, OptimizerRule, Phase, Role, Value, ValueId};
use crate::model::{OptimizerSpec, ParamId};
use crate::tensor::Shape;

impl Builder<'_> {
    /// The update of every trained parameter, with the counters and moments that it needs, and its metrics.
    pub(super) fn optimizer(&mut self, params: &[ValueId], metrics: Metrics, updates: &mut Vec<(ValueId, ValueId)>) {
        self.phase = Phase::Optimizer;
        let real = self.real;
        let mut survive = |b: &mut Self, before: ValueId| {
            let Value { name, role, shape, dtype, param, layer, .. } = b.values[before.0 as usize].clone();
            let after = b.value(format!("{name}.new"), role, shape, dtype);
            b.values[after.0 as usize].param = param;
            b.values[after.0 as usize].layer = layer;
            updates.push((before, after));
            after
        };
        let hyper = self.source("hyper", Role::State, Shape::from([2]), real);
        let mut corr = None;
        if let Some(counter) = self.counter {
            let after = survive(self, counter);
            self.node(NodeKind::StepInc, vec![counter], vec![after]);
            if let OptimizerSpec::Adam { betas, .. } = self.model.optimizer {
                let c = self.source("corr", Role::State, Shape::from([2]), real);
                self.node(NodeKind::BiasCorr { betas }, vec![after], vec![c]);
                corr = Some(c);
            }
        }
        let (rule, moments): (OptimizerRule, &[&str]) = match self.model.optimizer {
            OptimizerSpec::Sgd { momentum, nesterov, .. } => {
                (OptimizerRule::Sgd { momentum, nesterov }, if momentum > 0.0 { &["momentum"] } else { &[] })
            }
            OptimizerSpec::Adam { betas, eps, decoupled, .. } => {
                (OptimizerRule::Adam { betas, eps, decoupled }, &["m", "v"])
            }
        };
        let trained: Vec<usize> = (0..params.len()).filter(|&i| self.grads[i].is_some()).collect();
        let mut inputs: Vec<ValueId> = std::iter::once(hyper).chain(corr).collect();
        inputs.extend(trained.iter().map(|&i| params[i]));
        inputs.extend(trained.iter().filter_map(|&i| self.grads[i]));
        let mut outputs = Vec::new();
        for &i in &trained {
            let name = format!("{}.new", self.model.params[i].name);
            let after = self.value(name, Role::Param, self.model.params[i].shape.clone(), real);
            self.values[after.0 as usize].param = Some(ParamId(i as u32));
            self.current[i] = after;
            outputs.push(after);
        }
        for &moment in moments {
            for &i in &trained {
                let Value { name, shape, param, layer, .. } = self.values[params[i].0 as usize].clone();
                let before = self.value(format!("{moment}.{name}"), Role::State, shape, real);
                self.values[before.0 as usize].param = param;
                self.values[before.0 as usize].layer = layer;
                inputs.push(before);
                outputs.push(survive(self, before));
            }
        }
        let measured = metrics.updates;
        let segments = Shape::from([trained.len()]);
        let measures = measured.then(|| {
            ["update_max_seg", "grad_norm_seg"]
                .map(|name| self.value(name.into(), Role::Metric, segments.clone(), real))
        });
        outputs.extend(measures.iter().flatten());
        self.node(NodeKind::OptimizerStep { rule, measured }, inputs, outputs);
        if let Some(measures) = measures {
            self.phase = Phase::Metric;
            let outputs =
                ["update_max", "grad_norm"].map(|name| self.value(name.into(), Role::Metric, Shape::from([1]), real));
            self.node(NodeKind::UpdateMetrics, measures.to_vec(), outputs.to_vec());
        }
    }
}
