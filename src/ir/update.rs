//! The end of the step: counters, the optimizer, and the metrics of the update.

use super::builder::Builder;
use super::graph::Phase;
use super::nodes::{BiasCorr, GradNorms, OptimizerStep, StepInc, UpdateMetrics, UpdateRates};
use super::value::{Role, Value, ValueId};
use crate::model::{ParamId, Schedule, UpdateSpec};
use crate::tensor::{DType, Shape};
use std::ops::Range;

impl Builder<'_> {
    /// The update of every trained parameter, with the counters and moments that it needs, and its metrics. `params`
    /// are the values before the step; values that survive the step are added to `updates`.
    pub(super) fn optimizer(&mut self, params: &[ValueId], updates: &mut Vec<(ValueId, ValueId)>) {
        self.phase = Phase::Optimizer;
        let real = self.real;
        let live = self.model.optimizer.live_fields().len();
        let hyper = self.source("hyper", Role::State, Shape::from([live]), real);
        let mut trained: Vec<usize> = (0..params.len()).filter(|&i| self.grads[i].is_some()).collect();
        // Groups of parameters come one after the other, as in the flat vectors.
        trained.sort_by_key(|i| self.model.params[*i].group);
        let groups = self.groups(&trained);
        if trained.is_empty() {
            // There is no trained parameter on the path; the step is still counted, and has its learning rate.
            let (counter, _) = self.counters(&groups, updates);
            self.rates(hyper, counter, None);
            return;
        }
        let (counter, corr) = self.counters(&groups, updates);
        let norms = self.scales().then(|| self.grad_norms(&trained));
        let rates = self.rates(hyper, counter, norms).unwrap_or(hyper);
        let mut inputs: Vec<ValueId> = std::iter::once(rates).chain(corr).collect();
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
        self.step(&trained, &groups, norms, (inputs, outputs));
    }

    /// The norm of the gradient of each trained parameter, before the update.
    fn grad_norms(&mut self, trained: &[usize]) -> ValueId {
        let norms = self.value("grad_norm_seg".into(), Role::Metric, Shape::from([trained.len()]), self.real);
        let grads = trained.iter().filter_map(|&i| self.grads[i]).collect();
        self.node(GradNorms { batches: self.model.accumulate }, grads, vec![norms]);
        norms
    }

    /// Whether gradients are scaled before they are used: to compute their mean, or to clip them.
    fn scales(&self) -> bool {
        self.model.accumulate > 1 || self.model.update.clips()
    }

    /// The factors of the update in this step, if they are not constant in `hyper`. Without `norms` nothing is updated.
    fn rates(&mut self, hyper: ValueId, counter: Option<ValueId>, norms: Option<ValueId>) -> Option<ValueId> {
        let UpdateSpec { schedule, clip_norm, .. } = self.model.update;
        let counter = counter.filter(|_| !schedule.is_constant());
        if counter.is_none() && !self.scales() {
            return None;
        }
        let steps = schedule.kind.has_end().then(|| self.source("steps", Role::State, Shape::from([1]), DType::I64));
        let count = if self.scales() { 3 } else { 2 };
        let rates = self.value("rates".into(), Role::State, Shape::from([count]), self.real);
        let Schedule { kind, warmup, last, every, factor } = schedule;
        let batches = self.model.accumulate;
        let node = UpdateRates { schedule: kind, warmup, last, every, factor, clip_norm, batches };
        let norms = norms.filter(|_| clip_norm > 0.0);
        let inputs = std::iter::once(hyper).chain(counter).chain(steps).chain(norms).collect();
        self.node(node, inputs, vec![rates]);
        Some(rates)
    }

    /// The new value of one that survives the step.
    fn surviving(&mut self, before: ValueId, updates: &mut Vec<(ValueId, ValueId)>) -> ValueId {
        let Value { name, role, shape, dtype, param, layer, .. } = self.values[before.0 as usize].clone();
        let after = self.value(format!("{name}.new"), role, shape, dtype);
        self.values[after.0 as usize].param = param;
        self.values[after.0 as usize].layer = layer;
        updates.push((before, after));
        after
    }

    /// Counts the batch, if several make one step.
    pub(super) fn count_batch(&mut self, updates: &mut Vec<(ValueId, ValueId)>) {
        let Some(batches) = self.batches else { return };
        self.phase = Phase::Optimizer;
        self.layer = None;
        let after = self.surviving(batches, updates);
        self.node(StepInc {}, vec![batches], vec![after]);
    }

    /// The groups of parameters in this order, with the indices of each group's parameters.
    fn groups(&self, trained: &[usize]) -> Vec<(u32, Range<usize>)> {
        let mut groups: Vec<(u32, Range<usize>)> = Vec::new();
        for (place, param) in trained.iter().enumerate() {
            let group = self.model.params[*param].group;
            match groups.last_mut().filter(|(last, _)| *last == group) {
                Some((_, places)) => places.end = place + 1,
                None => groups.push((group, place..place + 1)),
            }
        }
        groups
    }

    /// Counts the step, and the updates of each group of parameters; returns the step's counter, and the bias
    /// corrections of each group, if the optimizer has any. The count of group 0 is that of the steps.
    fn counters(
        &mut self,
        groups: &[(u32, Range<usize>)],
        updates: &mut Vec<(ValueId, ValueId)>,
    ) -> (Option<ValueId>, Vec<ValueId>) {
        let Some(counter) = self.counter else { return (None, Vec::new()) };
        let steps = self.surviving(counter, updates);
        self.node(StepInc {}, vec![counter], vec![steps]);
        let Some(betas) = self.model.optimizer.corrected() else { return (Some(steps), Vec::new()) };
        // Operations of one kind are consecutive, so that a GPU may launch them together.
        let mut counts = Vec::with_capacity(groups.len());
        for (group, _) in groups {
            if *group == 0 {
                counts.push(steps);
                continue;
            }
            let before = self.source(&format!("counter.{group}"), Role::State, Shape::from([2]), DType::I64);
            self.values[before.0 as usize].group = Some(*group);
            let count = self.surviving(before, updates);
            self.node(StepInc {}, vec![before], vec![count]);
            counts.push(count);
        }
        let mut corrections = Vec::with_capacity(groups.len());
        for ((group, _), count) in groups.iter().zip(counts) {
            let name = if *group == 0 { "corr".to_owned() } else { format!("corr.{group}") };
            let corr = self.source(&name, Role::State, Shape::from([2]), self.real);
            self.values[corr.0 as usize].group = (*group > 0).then_some(*group);
            self.node(BiasCorr { betas }, vec![count], vec![corr]);
            corrections.push(corr);
        }
        (Some(steps), corrections)
    }

    /// The update itself and its metrics, for these trained parameters in these groups; the norms of their gradients
    /// are computed with it unless that was done before.
    fn step(
        &mut self,
        trained: &[usize],
        groups: &[(u32, Range<usize>)],
        norms: Option<ValueId>,
        (inputs, mut outputs): (Vec<ValueId>, Vec<ValueId>),
    ) {
        let (real, measured) = (self.real, self.metrics.updates);
        let segments = Shape::from([trained.len()]);
        let measures = measured.then(|| {
            let mut measure = |name: &str| self.value(name.into(), Role::Metric, segments.clone(), real);
            let largest = measure("update_max_seg");
            [largest, norms.unwrap_or_else(|| measure("grad_norm_seg"))]
        });
        outputs.extend(measures.iter().flatten().filter(|measure| Some(**measure) != norms));
        let (rule, decay) = (self.model.optimizer.rule(), self.model.update.decay);
        let stays = |(number, i): (usize, &usize)| (!decay.includes(&self.model.params[*i])).then_some(number);
        let exempt = trained.iter().enumerate().filter_map(stays).collect();
        let sizes = groups.iter().map(|(_, places)| places.len());
        let groups = if groups.len() > 1 { sizes.collect() } else { Vec::new() };
        self.node(OptimizerStep { rule, measured, clipped: norms.is_some(), exempt, groups }, inputs, outputs);
        if let Some(measures) = measures {
            self.phase = Phase::Metric;
            let outputs =
                ["update_max", "grad_norm"].map(|name| self.value(name.into(), Role::Metric, Shape::from([1]), real));
            self.node(UpdateMetrics {}, measures.to_vec(), outputs.to_vec());
        }
    }
}
