//! The end of the step: counters, the update, and what is measured of it.

use super::Lower;
use crate::ir::{Node, Role, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{Alias, LValue, LValueId, Layout};
use crate::model::Schedule;
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Scalar;

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
        let [beta1, beta2] = self.betas.map(Scalar::new);
        l.emit(OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }), &[("counter", Some(counter)), ("corr", Some(corr))]);
    }
}

impl Lower for nodes::GradNorms {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let grads = l.gradients(l.graph.real());
        let norms = l.lower_value(node.outputs[0], Layout::Plain);
        let segments = l.segments.iter().map(|(_, segment)| *segment).collect();
        let kind = OpKind::GradNorms(ops::GradNorms { len: l.flat_len, segments, batches: self.batches });
        l.emit(kind, &[("grad", Some(grads)), ("grad_norm_seg", Some(norms))]);
    }
}

impl Lower for nodes::UpdateRates {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let &Self { schedule: kind, warmup, last, every, factor, clip_norm, batches } = self;
        let schedule = Schedule { kind, warmup, last, every, factor };
        let segments = if clip_norm > 0.0 { l.segments.len() } else { 0 };
        let op = ops::UpdateRates { batches, ..ops::UpdateRates::new(schedule, clip_norm, segments) };
        // Inputs are in the order of the slots, those that it does without left out.
        let wanted = [("hyper", true), ("counter", !schedule.is_constant()), ("steps", kind.has_end())];
        let wanted = wanted.into_iter().chain([("grad_norm_seg", op.clips())]).filter(|(_, is_there)| *is_there);
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
        let params = l.flat("params", Role::Param, real, true);
        let grads = l.gradients(real);
        let hyper = Some(l.lowered(node.inputs[0]));
        let corr = l.graph.value(node.inputs[1]).producer.map(|_| l.lowered(node.inputs[1]));
        // The new values of single parameters and moments are where the old ones were.
        for (before, after) in &l.graph.updates {
            if l.graph.value(*after).producer == Some(l.node) {
                let before = l.lowered(*before);
                l.updated(*after, before);
            }
        }
        let (_, new_params) = flat_update(l, "params", Role::Param);
        // Where gradients are clipped, their norms were measured before.
        let count = if self.clipped { 1 } else { 2 };
        let measures = node.outputs.len().saturating_sub(count);
        let [max, sq] = [0, 1]
            .map(|i| (self.measured && i < count).then(|| l.lower_value(node.outputs[measures + i], Layout::Plain)));
        let mut bound = vec![
            ("param_prev".to_owned(), Some(params)),
            ("grad".to_owned(), Some(grads)),
            ("hyper".to_owned(), hyper),
            ("corr".to_owned(), corr),
            ("param".to_owned(), Some(new_params)),
            ("update_max".to_owned(), max),
            ("grad_norm_seg".to_owned(), sq),
        ];
        for state in self.rule.states() {
            let (before, after) = flat_update(l, state, Role::State);
            bound.extend([(format!("{state}_prev"), Some(before)), ((*state).to_owned(), Some(after))]);
        }
        let bound: Vec<(&str, Option<LValueId>)> = bound.iter().map(|(slot, id)| (slot.as_str(), *id)).collect();
        let segments = l.segments.iter().map(|(_, segment)| *segment).collect();
        // Its slots have the names of the optimizer's states.
        let options = ops::StepOptions { clipped: self.clipped, exempt: self.exempt.clone() };
        l.emit(OpKind::flat_step(self.rule, l.flat_len, segments, options), &bound);
    }
}

/// A flat vector before the step, and after it in the same memory.
fn flat_update(l: &mut Lowerer<'_>, name: &'static str, role: Role) -> (LValueId, LValueId) {
    let real = l.graph.real();
    let before = l.flat(name, role, real, true);
    let alias = Some(Alias { of: before, start: 0 });
    let after = LValue { name: format!("{name}.new"), alias, ..l.lv(before).clone() };
    (before, l.push(after))
}
