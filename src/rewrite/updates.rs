//! Where updates of parameters may be placed: shared by the passes that move or fuse updates.

use super::rewriter::Rewriter;
use crate::lower::{LValueId, Op, Program};
use crate::model::ParamId;
use crate::ops::{OpKind, Segment};
use std::collections::HashMap;

/// The number of parameters above which saving memory justifies additional operations.
const MANY: usize = 1 << 24;

/// Whether a network has at least that many parameters.
pub(super) fn is_large(program: &Program) -> bool {
    program.segments.iter().map(|(_, s)| s.len).sum::<usize>() >= MANY
}

/// The only update, if it is by Adam, has no options in addition to its rule, and updates all parameters of the
/// network.
pub(super) fn sole_update(program: &Program) -> Option<usize> {
    let all = program.flat_len();
    let is_update = |at: &usize| match &program.ops[*at].kind {
        OpKind::AdamStep(step) => step.options.is_usual() && step.len == all,
        _ => false,
    };
    let mut updates = (0..program.ops.len()).filter(is_update);
    let update = updates.next()?;
    updates.next().is_none().then_some(update)
}

/// The operations that write the gradient of each segment, in order; `None` if a segment has none, or if another
/// operation than the update reads one.
pub(super) fn gradient_writers(program: &Program, update: usize) -> Option<Vec<Vec<usize>>> {
    let grads = program.root(program.ops[update].arg("grad")?).0;
    let mut by_place: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, op) in program.ops.iter().enumerate() {
        if index != update && op.reads().any(|id| program.root(id).0 == grads) {
            return None;
        }
        for (root, place) in op.writes().map(|id| program.root(id)) {
            if root == grads {
                by_place.entry(place).or_default().push(index);
            }
        }
    }
    let of = |(param, _): &(ParamId, Segment)| {
        by_place.get(&program.root(program.params[param.0 as usize].grad?).1).cloned()
    };
    program.segments.iter().map(of).collect()
}

/// The readers of ranges of the parameters or of their half-precision copy, except the optimizer: operation, first
/// element, one past the last.
pub(super) struct ParamReaders(Vec<(usize, usize, usize)>);

impl ParamReaders {
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

/// An update to be placed.
pub(super) struct Update {
    /// The number of the operation that it follows.
    pub(super) ready: usize,
    pub(super) op: Op,
    /// The operations that it was made from.
    pub(super) from: Vec<usize>,
}

/// Puts each of the updates, which are sorted by the operations that they follow, after that operation. Counters, and
/// the rates computed from them, are put after everything that reads their old values, and before everything that reads
/// the new ones; horizontal fusion combines them with other operations.
pub(super) fn place(rw: &mut Rewriter, updates: Vec<Update>) {
    let is_counter = |op: &Op| matches!(op.kind, OpKind::StepInc { .. } | OpKind::BiasCorr(_) | OpKind::UpdateRates(_));
    let ops = &rw.program().ops;
    let counted = ops.iter().rposition(|op| !is_counter(op) && op.arg("counter").is_some());
    let front = updates.first().map_or(0, |u| u.ready).max(counted.map_or(0, |at| at + 1));
    let counters: Vec<usize> = (0..ops.len()).filter(|&at| is_counter(&ops[at])).collect();
    for counter in counters {
        rw.move_before(counter, front);
    }
    for Update { ready, op, from } in updates {
        rw.insert_behind(ready.max(front), op, &from);
    }
}
