//! The operations that an update is split into.

use super::Real;
use super::adapt::{push, set};
use crate::ir::Role;
use crate::lower::{Alias, LValue, LValueId, Op, OpKind, Program, Segment};
use crate::model::ParamId;
use crate::tensor::Shape;
use std::collections::HashMap;
use std::ops::Range;

/// The operation that makes the gradient of a parameter and uses it up.
pub(super) fn step_of(
    program: &mut Program,
    aliases: &mut Aliases,
    update: &Op,
    maker: usize,
    (param, segment): (ParamId, Segment),
    real: Real,
) -> Op {
    let maker = program.ops[maker].clone();
    let OpKind::AdamStep { beta1, beta2, eps, decoupled, .. } = update.kind else { return maker };
    let kind = match maker.kind {
        OpKind::Gemm(g) => {
            // The smallest tile of the kernels that are offered.
            let grain = if real == Real::F32 { 8 } else { 16 };
            OpKind::WeightStep { m: g.m, n: g.n, k: g.k, grain, beta1, beta2, eps, decoupled }
        }
        OpKind::BiasGrad { rows, cols, .. } => OpKind::BiasStep { rows, cols, beta1, beta2, eps, decoupled },
        _ => return maker,
    };
    let mut step = Op {
        args: vec![None; kind.slots().len()],
        fused: vec![maker.kind.name().to_owned(), update.kind.name().to_owned()],
        nodes: maker.nodes.iter().chain(&update.nodes).copied().collect(),
        kind,
        ..maker.clone()
    };
    for (slot, from) in [("a", "a"), ("b", "b"), ("a", "dy")] {
        if let Some(value) = maker.arg(from) {
            set(&mut step, slot, value);
        }
    }
    for slot in ["hyper", "corr"] {
        if let Some(value) = update.arg(slot) {
            set(&mut step, slot, value);
        }
    }
    let shape = program.value(program.params[param.0 as usize].value).clone();
    for (before, after) in [("param_prev", "param"), ("m_prev", "m"), ("v_prev", "v"), ("", "shadow")] {
        let (old, new) = (update.arg(before), update.arg(after));
        if let Some(flat) = old {
            let value = aliases.part(program, flat, &shape, param, segment);
            set(&mut step, before, value);
        }
        if let Some(flat) = new {
            let of = program.root(flat).0;
            let before = aliases.part(program, of, &shape, param, segment);
            let value = aliases.renewed(program, before);
            set(&mut step, after, value);
        }
    }
    step
}

/// The update of some neighbouring segments, whose gradients get memory of their own.
pub(super) fn part_of(program: &mut Program, update: &Op, segments: &Range<usize>) -> Op {
    let OpKind::AdamStep { beta1, beta2, eps, decoupled, .. } = update.kind else { return update.clone() };
    let of: Vec<(ParamId, Segment)> = program.segments[segments.clone()].to_vec();
    let start = of.first().map_or(0, |(_, s)| s.start);
    let end = of.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(crate::lower::FLAT_ALIGN));
    let own = of.iter().map(|(_, s)| Segment { start: s.start - start, len: s.len }).collect();
    let kind = OpKind::AdamStep { len: end - start, segments: own, beta1, beta2, eps, decoupled };
    let mut part = Op { args: vec![None; kind.slots().len()], kind, ..update.clone() };
    let layers: Vec<_> =
        of.iter().map(|(param, _)| program.value(program.params[param.0 as usize].value).layer).collect();
    part.layer = layers.first().copied().flatten().filter(|layer| layers.iter().all(|other| *other == Some(*layer)));
    for slot in ["hyper", "corr"] {
        if let Some(value) = update.arg(slot) {
            set(&mut part, slot, value);
        }
    }
    for slot in ["param_prev", "m_prev", "v_prev", "param", "m", "v", "shadow"] {
        let Some(flat) = update.arg(slot) else { continue };
        let (root, from) = program.root(flat);
        let (name, value) = (format!("{}.{}", program.value(flat).name, segments.start), program.value(root).clone());
        let alias = Some(Alias { of: root, start: from + start });
        let made = push(program, LValue { name, alias, shape: Shape::from([end - start]), ..value });
        set(&mut part, slot, made);
    }
    if let Some(flat) = update.arg("grad") {
        let root = program.root(flat).0;
        let value = program.value(root).clone();
        let name = format!("{}.{}", value.name, segments.start);
        let moved = push(program, LValue { name, role: Role::Grad, shape: Shape::from([end - start]), ..value });
        for value in &mut program.values {
            if let Some(alias) = value.alias.as_mut().filter(|a| a.of == root && (start..end).contains(&a.start)) {
                *alias = Alias { of: moved, start: alias.start - start };
            }
        }
        set(&mut part, "grad", moved);
    }
    part
}

/// The values that lie in others, by where they begin.
pub(super) struct Aliases(HashMap<(LValueId, usize), Vec<LValueId>>);

impl Aliases {
    pub(super) fn of(program: &Program) -> Self {
        let mut out: HashMap<_, Vec<LValueId>> = HashMap::new();
        for (value, id) in program.values.iter().zip((0..).map(LValueId)) {
            if let Some(Alias { of, start }) = value.alias {
                out.entry((of, start)).or_default().push(id);
            }
        }
        Self(out)
    }

    /// A parameter's stretch of a flat vector, as it is before the step.
    fn part(
        &mut self,
        program: &mut Program,
        flat: LValueId,
        like: &LValue,
        param: ParamId,
        segment: Segment,
    ) -> LValueId {
        let there = self.0.entry((flat, segment.start)).or_default();
        if let Some(found) = there.iter().find(|id| program.value(**id).param == Some(param)) {
            return *found;
        }
        let LValue { name, role, dtype, .. } = program.value(flat).clone();
        let alias = Some(Alias { of: flat, start: segment.start });
        let made = push(program, LValue { name: format!("{name}.{}", like.name), role, dtype, alias, ..like.clone() });
        there.push(made);
        made
    }

    /// What a value becomes, in the same place.
    fn renewed(&mut self, program: &mut Program, before: LValueId) -> LValueId {
        let there = self.0.entry((before, 0)).or_default();
        if let Some(found) = there.first() {
            return *found;
        }
        let value = program.value(before).clone();
        let alias = Some(Alias { of: before, start: 0 });
        let made = push(program, LValue { name: format!("{}.new", value.name), alias, ..value });
        there.push(made);
        made
    }
}

/// Who reads which stretch of the parameters or of their copy in half width, beside the optimizer: operation, first element, one past the last.
pub(super) struct Readers(Vec<(usize, usize, usize)>);

impl Readers {
    pub(super) fn of(program: &Program, update: &Op) -> Self {
        let flat: Vec<LValueId> =
            ["param", "shadow"].iter().filter_map(|s| update.arg(s)).map(|id| program.root(id).0).collect();
        let mut out = Vec::new();
        for (index, op) in program.ops.iter().enumerate().filter(|(_, op)| op.kind.slot("param_prev").is_none()) {
            for id in op.reads() {
                let (root, start) = program.root(id);
                if flat.contains(&root) {
                    out.push((index, start, start + program.value(id).shape.len()));
                }
            }
        }
        Self(out)
    }

    /// The last reader of a parameter.
    pub(super) fn last_of(&self, segment: Segment) -> usize {
        let overlaps = |r: &&(usize, usize, usize)| segment.start < r.2 && r.1 < segment.start + segment.len;
        self.0.iter().rev().find(overlaps).map_or(0, |r| r.0)
    }
}
