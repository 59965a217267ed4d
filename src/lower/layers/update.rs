//! The end of the step: counters, the update, and its metrics.

use super::Lower;
use crate::ir::{Node, Role, ValueId, nodes};
use crate::lower::flat::Region;
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{Alias, LValue, LValueId, Layout};
use crate::model::Schedule;
use crate::ops;
use crate::ops::OpKind;
use crate::ops::{Scalar, Segment};
use crate::tensor::Shape;

impl Lower for nodes::StepInc {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let before = l.lowered(node.inputs[0]);
        let after = l.updated(node.outputs[0], before);
        l.emit(OpKind::StepInc(ops::StepInc {}), &[("counter_prev", Some(before)), ("counter", Some(after))]);
    }
}

impl Lower for nodes::BiasCorr {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let counter = l.lowered(node.inputs[0]);
        let corr = l.lower_value(node.outputs[0], Layout::Plain);
        l.values[corr.0 as usize].persistent = true;
        if let Some(group) = l.graph.value(node.outputs[0]).group {
            let of = l.of_all_groups("corrs", l.graph.real());
            l.values[corr.0 as usize].alias = Some(Alias { of, start: 2 * group as usize });
        }
        let [beta1, beta2] = self.betas.map(Scalar::new);
        l.emit(OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }), &[("counter", Some(counter)), ("corr", Some(corr))]);
    }
}

impl Lower for nodes::GradNorms {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let norms = l.lower_value(node.outputs[0], Layout::Plain);
        for region in l.regions.clone() {
            let grads = l.gradients(l.graph.real(), &region);
            let norms = numbers_of(l, norms, &region);
            let (len, segments) = (region.len, segments_of(l, &region));
            let kind = OpKind::GradNorms(ops::GradNorms { len, segments, batches: self.batches });
            l.emit(kind, &[("grad", Some(grads)), ("grad_norm_seg", Some(norms))]);
        }
    }
}

impl Lower for nodes::UpdateRates {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let &Self { schedule: kind, warmup, last, every, factor, clip_norm, batches } = self;
        let schedule = Schedule { kind, warmup, last, every, factor };
        let segments = if clip_norm > 0.0 { l.segments.len() } else { 0 };
        let op = ops::UpdateRates { batches, ..ops::UpdateRates::new(schedule, clip_norm, segments) };
        // Inputs are in the order of the slots, without the ones that the node does not have.
        let wanted = [("hyper", true), ("counter", !schedule.is_constant()), ("steps", kind.has_end())];
        let wanted = wanted.into_iter().chain([("grad_norm_seg", segments > 0)]).filter(|(_, is_there)| *is_there);
        let inputs: Vec<LValueId> = node.inputs.iter().map(|input| l.lowered(*input)).collect();
        let rates = l.lower_value(node.outputs[0], Layout::Plain);
        l.values[rates.0 as usize].persistent = true;
        let mut bound: Vec<(&str, Option<LValueId>)> =
            wanted.zip(inputs).map(|((slot, _), input)| (slot, Some(input))).collect();
        bound.push(("rates", Some(rates)));
        l.emit(OpKind::UpdateRates(op), &bound);
    }
}

impl Lower for nodes::UpdateMetrics {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let (max, sq) = (l.lowered(node.inputs[0]), l.lowered(node.inputs[1]));
        let segments = l.segments.len();
        let (a, b) = (l.lower_value(node.outputs[0], Layout::Plain), l.lower_value(node.outputs[1], Layout::Plain));
        let bound = [
            ("update_max_seg", Some(max)),
            ("grad_norm_seg", Some(sq)),
            ("update_max", Some(a)),
            ("grad_norm", Some(b)),
        ];
        l.emit(OpKind::UpdateMetrics(ops::UpdateMetrics { segments }), &bound);
    }
}

impl Lower for nodes::OptimizerStep {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let real = l.graph.real();
        let regions = l.regions.clone();
        let hyper = l.lowered(node.inputs[0]);
        let is_made = |input: &&ValueId| l.graph.value(**input).producer.is_some();
        let corrections: Vec<ValueId> = node.inputs[1..].iter().take(regions.len()).filter(is_made).copied().collect();
        let corrections: Vec<LValueId> = corrections.into_iter().map(|id| l.lowered(id)).collect();
        // The new values of single parameters and moments are in the memory of the old ones.
        for (before, after) in &l.graph.updates {
            if l.graph.value(*after).producer == Some(l.node) {
                let before = l.lowered(*before);
                l.updated(*after, before);
            }
        }
        let params: Vec<_> = regions.iter().map(|region| flat_update(l, "params", Role::Param, region)).collect();
        // If gradients are clipped, their norms were computed before.
        let count = if self.clipped { 1 } else { 2 };
        let first = node.outputs.len().saturating_sub(count);
        let measures =
            [0, 1].map(|i| (self.measured && i < count).then(|| l.lower_value(node.outputs[first + i], Layout::Plain)));
        for (number, region) in regions.iter().enumerate() {
            let grads = l.gradients(real, region);
            let [max, norms] = measures.map(|vector| vector.map(|vector| numbers_of(l, vector, region)));
            let (before, after) = params[number];
            let mut bound = vec![
                ("param_prev".to_owned(), Some(before)),
                ("grad".to_owned(), Some(grads)),
                ("hyper".to_owned(), Some(hyper)),
                ("corr".to_owned(), corrections.get(number).copied()),
                ("param".to_owned(), Some(after)),
                ("update_max".to_owned(), max),
                ("grad_norm_seg".to_owned(), norms),
            ];
            for state in self.rule.states() {
                let (before, after) = flat_update(l, state, Role::State, region);
                bound.extend([(format!("{state}_prev"), Some(before)), ((*state).to_owned(), Some(after))]);
            }
            emit(self, l, region, &bound);
        }
    }
}

/// Adds the update of one region of the flat vectors with these arguments.
fn emit(step: &nodes::OptimizerStep, l: &mut Lowerer<'_>, region: &Region, bound: &[(String, Option<LValueId>)]) {
    let bound: Vec<(&str, Option<LValueId>)> = bound.iter().map(|(slot, id)| (slot.as_str(), *id)).collect();
    let exempt = step.exempt.iter().filter(|number| region.segments.contains(number));
    let exempt = exempt.map(|number| number - region.segments.start).collect();
    // Its slots have the names of the optimizer's states.
    let options = ops::StepOptions { clipped: step.clipped, exempt };
    l.emit(OpKind::flat_step(step.rule, region.len, segments_of(l, region), options), &bound);
}

/// The segments of a region, counted from its beginning.
fn segments_of(l: &Lowerer<'_>, region: &Region) -> Vec<Segment> {
    let own = l.segments[region.segments.clone()].iter();
    own.map(|(_, segment)| Segment { start: segment.start - region.start, len: segment.len }).collect()
}

/// The numbers that belong to the segments of a region, in a vector with one number for each segment.
fn numbers_of(l: &mut Lowerer<'_>, vector: LValueId, region: &Region) -> LValueId {
    if l.regions.len() == 1 {
        return vector;
    }
    let name = format!("{}.{}", l.lv(vector).name, region.group);
    let alias = Some(Alias { of: vector, start: region.segments.start });
    // A vector whose parts are written one by one is named after a parameter there.
    let param = l.segments.get(region.segments.start).map(|(param, _)| *param);
    let value = LValue { name, alias, param, shape: Shape::from([region.segments.len()]), ..l.lv(vector).clone() };
    l.push(value)
}

/// The range of a flat vector for a region, before the step, and after it in the same memory.
fn flat_update(l: &mut Lowerer<'_>, name: &'static str, role: Role, region: &Region) -> (LValueId, LValueId) {
    let real = l.graph.real();
    let mut before = l.flat(name, role, real, true);
    let mut own = name.to_owned();
    if !l.updates_all() {
        own = format!("{name}.{}", region.group);
        let alias = Some(Alias { of: before, start: region.start });
        let stretch = LValue { name: own.clone(), alias, shape: Shape::from([region.len]), ..l.lv(before).clone() };
        before = l.push(stretch);
    }
    let alias = Some(Alias { of: before, start: 0 });
    let after = LValue { name: format!("{own}.new"), alias, ..l.lv(before).clone() };
    (before, l.push(after))
}
