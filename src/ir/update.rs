//! The end of the step: counters, the optimizer, and what is measured of the update.

use super::builder::Builder;
use super::graph::Phase;
use super::nodes::{BiasCorr, OptimizerStep, StepInc, UpdateMetrics};
use super::value::{Role, Value, ValueId};
use crate::model::ParamId;
use crate::tensor::Shape;

impl Builder<'_> {
    /// The update of every trained parameter, with the counters and moments that it needs, and its metrics. `params`
    /// are the values before the step; what survives the step is added to `updates`.
    pub(super) fn optimizer(&mut self, params: &[ValueId], updates: &mut Vec<(ValueId, ValueId)>) {
        self.phase = Phase::Optimizer;
        let real = self.real;
        let hyper = self.source("hyper", Role::State, Shape::from([2]), real);
        let corr = self.counters(updates);
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
        for &state in self.model.optimizer.rule().states() {
            for &i in &trained {
                let Value { name, shape, param, layer, .. } = self.values[params[i].0 as usize].clone();
                let before = self.value(format!("{state}.{name}"), Role::State, shape, real);
                self.values[before.0 as usize].param = param;
                self.values[before.0 as usize].layer = layer;
                inputs.push(before);
                outputs.push(self.surviving(before, updates));
            }
        }
        self.step(trained.len(), inputs, outputs);
    }

    /// The value that one which survives the step becomes.
    fn surviving(&mut self, before: ValueId, updates: &mut Vec<(ValueId, ValueId)>) -> ValueId {
        let Value { name, role, shape, dtype, param, layer, .. } = self.values[before.0 as usize].clone();
        let after = self.value(format!("{name}.new"), role, shape, dtype);
        self.values[after.0 as usize].param = param;
        self.values[after.0 as usize].layer = layer;
        updates.push((before, after));
        after
    }

    /// Counts the step; gives the bias corrections, where the optimizer has some.
    fn counters(&mut self, updates: &mut Vec<(ValueId, ValueId)>) -> Option<ValueId> {
        let counter = self.counter?;
        let after = self.surviving(counter, updates);
        self.node(StepInc {}, vec![counter], vec![after]);
        let betas = self.model.optimizer.corrected()?;
        let corr = self.source("corr", Role::State, Shape::from([2]), self.real);
        self.node(BiasCorr { betas }, vec![after], vec![corr]);
        Some(corr)
    }

    /// The update itself and its metrics, for so many trained parameters.
    fn step(&mut self, trained: usize, inputs: Vec<ValueId>, mut outputs: Vec<ValueId>) {
        let (real, measured) = (self.real, self.metrics.updates);
        let segments = Shape::from([trained]);
        let measures = measured.then(|| {
            ["update_max_seg", "grad_norm_seg"]
                .map(|name| self.value(name.into(), Role::Metric, segments.clone(), real))
        });
        outputs.extend(measures.iter().flatten());
        let rule = self.model.optimizer.rule();
        self.node(OptimizerStep { rule, measured }, inputs, outputs);
        if let Some(measures) = measures {
            self.phase = Phase::Metric;
            let outputs =
                ["update_max", "grad_norm"].map(|name| self.value(name.into(), Role::Metric, Shape::from([1]), real));
            self.node(UpdateMetrics {}, measures.to_vec(), outputs.to_vec());
        }
    }
}
