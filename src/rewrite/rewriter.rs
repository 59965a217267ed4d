//! The program while a pass changes it.
//!
//! Operations keep their numbers until the pass is over: replacements and fusions take effect immediately; insertions,
//! moves and removals take effect in [`Rewriter::finish`], which renumbers the operations and returns the origin of
//! each.

use super::history::{Change, How, PassRun, absorb, parts};
use crate::ir::Role;
use crate::lower::{Alias, LValue, LValueId, Op, Program};
use crate::model::ParamId;
use crate::ops::OpKind;
use crate::tensor::{DType, Shape};

/// What happened to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// It has other arguments, or another kind; with the numbers of the operations that were fused into it.
    Replaced {
        taken: Vec<usize>,
    },
    /// It was fused into the operation with this number.
    FusedInto(usize),
    /// It was removed; what was made from it was inserted elsewhere.
    Gone,
}

/// An operation whose place differs from that of its number: before or after an operation, given by number.
struct Inserted {
    at: usize,
    behind: bool,
    op: Op,
    how: How,
    from: Vec<usize>,
}

/// A program that is being rewritten.
pub(super) struct Rewriter {
    program: Program,
    fates: Vec<Fate>,
    inserted: Vec<Inserted>,
    values_before: usize,
    values_changed: usize,
}

impl Rewriter {
    pub(super) fn new(program: Program) -> Self {
        let fates = vec![Fate::Kept; program.ops.len()];
        let values_before = program.values.len();
        Self { program, fates, inserted: Vec::new(), values_before, values_changed: 0 }
    }

    /// The program with the numbers from before the pass; removed operations are still in it.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    pub(super) fn op(&self, number: usize) -> &Op {
        &self.program.ops[number]
    }

    /// The number of operations before the pass.
    pub(super) fn len(&self) -> usize {
        self.program.ops.len()
    }

    /// The numbers of the operations of some kinds, before the pass changes any.
    pub(super) fn find(&self, want: impl Fn(&OpKind) -> bool) -> Vec<usize> {
        (0..self.len()).filter(|&number| want(&self.op(number).kind)).collect()
    }

    /// Whether an operation still exists under its own number.
    pub(super) fn is_there(&self, number: usize) -> bool {
        matches!(self.fates[number], Fate::Kept | Fate::Replaced { .. })
    }

    /// The number of the operation that now does the work of this one.
    pub(super) fn now(&self, number: usize) -> usize {
        match self.fates[number] {
            Fate::FusedInto(other) => self.now(other),
            _ => number,
        }
    }

    /// Adds a value. All existing values keep their ids.
    pub(super) fn push(&mut self, value: LValue) -> LValueId {
        self.program.values.push(value);
        LValueId(self.program.values.len() as u32 - 1)
    }

    /// Adds a separate value that survives the step.
    pub(super) fn state(&mut self, name: String, dtype: DType, len: usize) -> LValueId {
        self.push(LValue { persistent: true, ..LValue::vector(name, Role::State, dtype, len) })
    }

    /// Adds a view of a value, from its first element on.
    pub(super) fn view(&mut self, name: String, of: LValueId, len: usize) -> LValueId {
        let alias = Some(Alias { of, start: 0 });
        let value = LValue { name, alias, shape: Shape::from([len]), ..self.program.value(of).clone() };
        self.push(value)
    }

    /// A value whose type or place is to be changed.
    pub(super) fn value_mut(&mut self, id: LValueId) -> &mut LValue {
        self.values_changed += 1;
        &mut self.program.values[id.0 as usize]
    }

    /// Records that no value contains the gradient of a parameter any more.
    pub(super) fn forget_gradient(&mut self, param: ParamId) {
        self.program.params[param.0 as usize].grad = None;
    }

    /// Binds a value to a slot, if the operation has that slot.
    pub(super) fn bind(&mut self, number: usize, slot: &str, value: LValueId) {
        let Some(index) = self.program.ops[number].kind.slot(slot) else { return };
        self.program.ops[number].args[index] = Some(value);
        self.touch(number);
    }

    /// Replaces an operation by another.
    pub(super) fn replace(&mut self, number: usize, op: Op) {
        self.program.ops[number] = op;
        self.touch(number);
    }

    /// Replaces an operation by another one that also does the work of those in `taken`.
    pub(super) fn fuse(&mut self, number: usize, op: Op, taken: &[usize]) {
        self.replace(number, op);
        for &other in taken {
            let before = std::mem::replace(&mut self.fates[other], Fate::FusedInto(number));
            let Fate::Replaced { taken: all } = &mut self.fates[number] else { continue };
            all.push(other);
            if let Fate::Replaced { taken } = before {
                all.extend(taken);
            }
        }
    }

    /// Inserts an operation before another. It is made `from` operations that are replaced or removed by the same pass,
    /// or from none.
    pub(super) fn insert_before(&mut self, number: usize, op: Op, from: &[usize]) {
        self.insert(number, false, op, from);
    }

    /// Inserts an operation after another, and after what was inserted there before.
    pub(super) fn insert_behind(&mut self, number: usize, op: Op, from: &[usize]) {
        self.insert(number, true, op, from);
    }

    /// Adds an operation at the end.
    pub(super) fn append(&mut self, op: Op, from: &[usize]) {
        self.insert(self.len(), false, op, from);
    }

    /// Removes an operation. Operations that are inserted beside it are still placed correctly.
    pub(super) fn remove(&mut self, number: usize) {
        self.fates[number] = Fate::Gone;
    }

    /// Moves an operation to before another, after what was moved there before.
    pub(super) fn move_before(&mut self, number: usize, target: usize) {
        let op = self.program.ops[number].clone();
        self.remove(number);
        self.inserted.push(Inserted { at: target, behind: false, op, how: How::Moved, from: vec![number] });
    }

    fn insert(&mut self, at: usize, behind: bool, op: Op, from: &[usize]) {
        let how = match from {
            [] => How::Added,
            [_] => How::Split,
            _ => How::Fused,
        };
        from.iter().for_each(|&number| self.touch(number));
        self.inserted.push(Inserted { at, behind, op, how, from: from.to_vec() });
    }

    fn touch(&mut self, number: usize) {
        if self.fates[number] == Fate::Kept {
            self.fates[number] = Fate::Replaced { taken: Vec::new() };
        }
    }

    /// The program with everything in its place, and what changed.
    pub(super) fn finish(self, name: &'static str) -> (Program, PassRun) {
        let Self { mut program, fates, mut inserted, values_before, values_changed } = self;
        let before = program.ops.len();
        if inserted.is_empty() && fates.iter().all(|fate| *fate == Fate::Kept) {
            let values_added = program.values.len() - values_before;
            let run = PassRun { name, before, after: before, values_added, values_changed, changes: Vec::new() };
            return (program, run);
        }
        let mut made = Made { ops: Vec::with_capacity(before + inserted.len()), changes: Vec::new() };
        // Operations at the same place stay in the order in which they were added.
        inserted.sort_by_key(|i| (i.at, i.behind));
        let mut waiting = inserted.into_iter().peekable();
        let mut gone = Vec::new();
        for (at, (op, fate)) in program.ops.into_iter().zip(fates).enumerate() {
            while let Some(next) = waiting.next_if(|i| i.at == at && !i.behind) {
                made.insert(next);
            }
            match fate {
                Fate::Kept => made.ops.push(op),
                Fate::Replaced { taken } => made.replace(at, op, taken),
                Fate::FusedInto(_) => {}
                Fate::Gone => gone.push(at),
            }
            while let Some(next) = waiting.next_if(|i| i.at == at) {
                made.insert(next);
            }
        }
        waiting.for_each(|next| made.insert(next));
        let changes = made.with_removed(gone);
        program.ops = made.ops;
        let (after, values_added) = (program.ops.len(), program.values.len() - values_before);
        (program, PassRun { name, before, after, values_added, values_changed, changes })
    }
}

/// The operations after a pass that are in place so far.
struct Made {
    ops: Vec<Op>,
    changes: Vec<Change>,
}

impl Made {
    fn insert(&mut self, inserted: Inserted) {
        self.change(inserted.how, inserted.from);
        self.ops.push(inserted.op);
    }

    fn replace(&mut self, at: usize, op: Op, mut taken: Vec<usize>) {
        let how = if taken.is_empty() { How::Changed } else { How::Fused };
        taken.push(at);
        self.change(how, taken);
        self.ops.push(op);
    }

    /// Records what the next operation was made from.
    fn change(&mut self, how: How, mut before: Vec<usize>) {
        before.sort_unstable();
        self.changes.push(Change { how, before, after: Some(self.ops.len()) });
    }

    /// The changes, with the operations from which nothing was made at the end.
    fn with_removed(&mut self, gone: Vec<usize>) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        let most = gone.last().map_or(0, |last| last + 1);
        let mut used = vec![false; most];
        changes.iter().flat_map(|c| &c.before).filter(|n| **n < most).for_each(|n| used[*n] = true);
        let lost = gone.into_iter().filter(|&number| !used[number]);
        changes.extend(lost.map(|number| Change { how: How::Removed, before: vec![number], after: None }));
        changes
    }
}

/// Binds a value to a slot of an operation that is not in the program yet, if it has that slot.
pub(super) fn set(op: &mut Op, slot: &str, value: LValueId) {
    if let Some(index) = op.kind.slot(slot) {
        op.args[index] = Some(value);
    }
}

/// An operation with these arguments that belongs to the same layer and phase as another one. It consists of no other
/// operations.
pub(super) fn made_like(like: &Op, kind: OpKind, args: &[(&str, Option<LValueId>)]) -> Op {
    let mut op = Op { args: vec![None; kind.slots().len()], kind, fused: Vec::new(), ..like.clone() };
    for (slot, value) in args {
        value.iter().for_each(|value| set(&mut op, slot, *value));
    }
    op
}

/// A producer and its only reader as one operation of `kind`, in the reader's place. Other arguments of both stay bound
/// if the kind has their slots; `bound` overrides them.
pub(super) fn merged(producer: &Op, reader: &Op, kind: OpKind, bound: &[(&str, Option<LValueId>)]) -> Op {
    let mut args = vec![None; kind.slots().len()];
    if std::mem::discriminant(&producer.kind) == std::mem::discriminant(&kind) {
        args.clone_from(&producer.args);
    }
    for (name, value) in bound {
        if let Some(slot) = kind.slot(name) {
            args[slot] = *value;
        }
    }
    let (layer, nodes) = (producer.layer.or(reader.layer), producer.nodes.clone());
    let mut op = Op { kind, args, layer, pass: reader.pass, phase: reader.phase, nodes, fused: parts(producer) };
    absorb(&mut op, reader);
    op
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::FilterOrder;
    use crate::rewrite::sample::{classifier, lowered};

    fn program() -> Program {
        lowered(&classifier(r#"{"type": "dense", "units": 16, "activation": "relu"}"#, "sgd"), FilterOrder::Hwio)
    }

    fn names(program: &Program) -> Vec<&'static str> {
        program.ops.iter().map(|op| op.kind.name()).collect()
    }

    #[test]
    fn a_pass_that_changes_nothing_records_no_changes() {
        let (after, run) = Rewriter::new(program()).finish("idle");
        assert_eq!(after, program());
        assert!(!run.changed() && run.before == run.after);
    }

    #[test]
    fn operations_are_placed_and_their_origins_are_recorded() {
        let before = program();
        let (own, count) = (names(&before), before.ops.len());
        let mut rw = Rewriter::new(before);
        // 1 does the work of 0; 3 is moved before 2; 5 becomes two, one of which is appended; an operation is added
        // after 4.
        rw.fuse(1, rw.op(1).clone(), &[0]);
        assert_eq!((rw.now(0), rw.is_there(0), rw.is_there(1)), (1, false, true));
        rw.move_before(3, 2);
        rw.insert_behind(4, rw.op(0).clone(), &[]);
        rw.append(rw.op(5).clone(), &[5]);
        rw.remove(6);
        let (after, run) = rw.finish("test");
        let expected = [&[own[1], own[3], own[2], own[4], own[0], own[5]], &own[7..], &[own[5]]].concat();
        assert_eq!(names(&after), expected);
        assert_eq!((run.before, run.after), (count, count));
        let origins = run.origins();
        assert_eq!(origins[..6], [vec![0, 1], vec![3], vec![2], vec![4], vec![], vec![5]]);
        assert_eq!(origins[count - 1], [5]);
        let hows: Vec<How> = run.changes.iter().map(|change| change.how).collect();
        assert_eq!(hows, [How::Fused, How::Moved, How::Added, How::Changed, How::Split, How::Removed]);
        assert_eq!(run.changes.last().unwrap().before, [6]);
    }
}
