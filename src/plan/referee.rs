//! Checks a plan: traverses the step with only the addresses, and checks for every read that the bytes still belong to
//! the value.
//!
//! It shares no code with the binder: it uses no live ranges and no rules of reuse, only places, and what each
//! operation reads and writes.

use super::{BindingPlan, EXTERNAL};
use crate::ir::Role;
use crate::lower::{LValue, LValueId, Program};
use crate::ops::Dir;
use std::collections::BTreeMap;
use thiserror::Error;

/// A read or write for which the plan is wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DataflowError {
    #[error("op {op} ({name}) reads {value}, but bytes {from}..{to} were last written as {owner}")]
    Overwritten { op: usize, name: &'static str, value: String, from: u64, to: u64, owner: String },
    #[error("op {op} ({name}): {value} has no place")]
    NoPlace { op: usize, name: &'static str, value: String },
    #[error("op {op} ({name}): {value} reaches past the end of the arena")]
    OutOfArena { op: usize, name: &'static str, value: String },
    #[error("op {op} ({name}) writes {output} over {value}, which it uses too and which is another value")]
    SharedBytes { op: usize, name: &'static str, output: String, value: String },
    #[error("op {op} ({name}): its scratch memory overlaps {value}")]
    Workspace { op: usize, name: &'static str, value: String },
    #[error(
        "op {op} ({name}) writes {output}, which shares bytes with {value} of op {other}, and both may run at the same \
         time"
    )]
    Beside { op: usize, name: &'static str, output: String, other: usize, value: String },
    #[error("the parameter {value} does not hold its new value at the end of the step")]
    Lost { value: String },
}

/// The last writer of all bytes: disjoint ranges by their first byte.
#[derive(Default)]
struct Owners(BTreeMap<u64, (u64, Owner)>);

/// The last writer of some bytes: a value, or scratch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Value(LValueId),
    Scratch,
}

impl Owners {
    fn write(&mut self, from: u64, to: u64, owner: Owner) {
        let before = self.0.range(..from).next_back().map(|(s, v)| (*s, *v));
        if let Some((start, (end, old))) = before
            && end > from
        {
            self.0.insert(start, (from, old));
            if end > to {
                self.0.insert(to, (end, old));
            }
        }
        let inside: Vec<u64> = self.0.range(from..to).map(|(s, _)| *s).collect();
        for start in inside {
            if let Some((end, old)) = self.0.remove(&start)
                && end > to
            {
                self.0.insert(to, (end, old));
            }
        }
        self.0.insert(from, (to, owner));
    }

    /// The ranges that cover `[from, to)`; gaps are left out.
    fn read(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, Owner)> + '_ {
        let first = self.0.range(..from).next_back().filter(|(_, (end, _))| *end > from);
        first.into_iter().chain(self.0.range(from..to)).map(move |(s, (e, o))| ((*s).max(from), (*e).min(to), *o))
    }
}

/// Checks a plan.
///
/// # Errors
/// The first read of bytes that no longer contain the value.
pub fn check(plan: &BindingPlan) -> Result<(), DataflowError> {
    let program = &plan.program;
    let mut owners = Owners::default();
    let origins = origins(program);
    // Before the step, the memory of everything that survives it contains it.
    for (index, value) in program.values.iter().enumerate() {
        let id = LValueId(index as u32);
        if value.persistent
            && value.alias.is_none()
            && let Some((from, to)) = extent(plan, id)
        {
            owners.write(from, to, Owner::Value(id));
        }
    }
    for (index, op) in program.ops.iter().enumerate() {
        places(plan, index)?;
        reads(plan, index, &origins, &owners)?;
        if let Some(work) = plan.workspaces[index] {
            let work = plan.buffer(work);
            let (from, to) = (work.offset, work.offset + work.bytes);
            for (_, id) in op.bound(Dir::In).chain(op.bound(Dir::Out)) {
                if let Some((a, b)) = extent(plan, id)
                    && a < to
                    && from < b
                {
                    let (name, value) = (op.kind.name(), program.value(id).name.clone());
                    return Err(DataflowError::Workspace { op: index, name, value });
                }
            }
            owners.write(from, to, Owner::Scratch);
        }
        for (_, id) in op.bound(Dir::Out) {
            if let Some((from, to)) = extent(plan, id) {
                owners.write(from, to, Owner::Value(id));
            }
        }
    }
    groups(plan)?;
    survivors(plan, &owners)
}

/// The bytes of a value: the first, and one past the last.
fn extent(plan: &BindingPlan, id: LValueId) -> Option<(u64, u64)> {
    plan.place(id).map(|p| (p.offset, p.offset + plan.program.value(id).bytes()))
}

/// Checks that every value that an operation uses has its place in the arena, and that no output shares bytes with
/// another value.
fn places(plan: &BindingPlan, index: usize) -> Result<(), DataflowError> {
    let program = &plan.program;
    let op = &program.ops[index];
    let name = op.kind.name();
    let text = |id: LValueId| program.value(id).name.clone();
    for (_, id) in op.bound(Dir::In).chain(op.bound(Dir::Out)) {
        let Some((_, to)) = extent(plan, id) else {
            return Err(DataflowError::NoPlace { op: index, name, value: text(id) });
        };
        if to > plan.arena_bytes && to < EXTERNAL {
            return Err(DataflowError::OutOfArena { op: index, name, value: text(id) });
        }
    }
    for (_, output) in op.bound(Dir::Out) {
        for (_, id) in op.bound(Dir::In).chain(op.bound(Dir::Out)) {
            let apart = program.root(output).0 != program.root(id).0;
            if apart
                && let (Some((a, b)), Some((from, to))) = (extent(plan, output), extent(plan, id))
                && a < to
                && from < b
            {
                return Err(DataflowError::SharedBytes { op: index, name, output: text(output), value: text(id) });
            }
        }
    }
    Ok(())
}

/// Checks that what an operation reads was last written as the value that it reads.
fn reads(plan: &BindingPlan, index: usize, origins: &Origins, owners: &Owners) -> Result<(), DataflowError> {
    let program = &plan.program;
    let op = &program.ops[index];
    let name = op.kind.name();
    let text = |id: LValueId| program.value(id).name.clone();
    for (_, id) in op.bound(Dir::In) {
        let Some((from, to)) = extent(plan, id) else { continue };
        for (from, to, owner) in stretches(program, origins, id, from, to).flat_map(|(a, b)| owners.read(a, b)) {
            let holds = match owner {
                Owner::Value(owner) => holds(program, origins, id, owner),
                Owner::Scratch => false,
            };
            if !holds {
                let owner = match owner {
                    Owner::Value(v) => text(v),
                    Owner::Scratch => "scratch memory".into(),
                };
                return Err(DataflowError::Overwritten { op: index, name, value: text(id), from, to, owner });
            }
        }
    }
    Ok(())
}

/// Checks operations of one group, which may run at the same time: what one writes, including scratch, no other may
/// access.
fn groups(plan: &BindingPlan) -> Result<(), DataflowError> {
    let program = &plan.program;
    let extents = |index: usize| {
        let op = &program.ops[index];
        let bound = op.kind.slots().iter().zip(&op.args).filter_map(move |(slot, arg)| {
            let (place, value) = (plan.place((*arg)?)?, program.value((*arg)?));
            Some((place.offset, place.offset + value.bytes(), slot.dir.is_written(), value.name.as_str()))
        });
        let work = plan.workspaces[index].map(|id| plan.buffer(id));
        let work = work.map(|work| (work.offset, work.offset + work.bytes, true, "scratch memory"));
        bound.chain(work).collect::<Vec<_>>()
    };
    for (index, group) in plan.groups.iter().enumerate() {
        for other in (index + 1..plan.groups.len()).take_while(|o| plan.groups[*o] == *group) {
            let (mine, theirs) = (extents(index), extents(other));
            for (op, other, a, b) in [(index, other, &mine, &theirs), (other, index, &theirs, &mine)] {
                for (from, to, _, output) in a.iter().filter(|extent| extent.2) {
                    if let Some((.., value)) = b.iter().find(|extent| extent.0 < *to && *from < extent.1) {
                        let (name, output) = (program.ops[op].kind.name(), (*output).to_owned());
                        return Err(DataflowError::Beside { op, name, output, other, value: (*value).to_owned() });
                    }
                }
            }
        }
    }
    Ok(())
}

/// The origin of the contents of values.
struct Origins {
    /// For each value, the value that it is a view of and that some operation (or the host) wrote; itself where it was
    /// written.
    of: Vec<LValueId>,
    /// For each value, whether an operation writes it as a whole.
    written: Vec<bool>,
}

fn origins(program: &Program) -> Origins {
    let mut written = vec![false; program.values.len()];
    for id in program.ops.iter().flat_map(crate::lower::Op::writes) {
        written[id.0 as usize] = true;
    }
    let of = (0..program.values.len() as u32).map(|i| {
        let mut id = LValueId(i);
        while let (false, Some(alias)) = (written[id.0 as usize], program.value(id).alias) {
            id = alias.of;
        }
        id
    });
    Origins { of: of.collect(), written }
}

/// Whether bytes last written as `owner` are what a reader of `id` expects: the same value, or one of the parts of a
/// value that no operation writes as a whole.
fn holds(program: &Program, origins: &Origins, id: LValueId, owner: LValueId) -> bool {
    let wanted = origins.of[id.0 as usize];
    if wanted == owner {
        return true;
    }
    let part = program.value(owner);
    let is_of_root = part.alias.is_some_and(|_| program.root(owner).0 == wanted);
    // A flat vector that no operation writes as a whole consists of the values of its parameters.
    if wanted == id && is_of_root && part.param.is_some() {
        return true;
    }
    // Memory that existed before the step contains a single value: a part that is written again is another value.
    // Gradients that batches add to are the exception.
    let root = program.value(program.root(id).0);
    let is_given = root.persistent && root.role != Role::Grad;
    let mut above = part.alias.map(|alias| alias.of);
    while let Some(of) = above.filter(|_| !is_given) {
        if of == id {
            return !origins.written[id.0 as usize];
        }
        above = program.value(of).alias.map(|alias| alias.of);
    }
    false
}

/// The relevant bytes of a value: all of it, or, for a flat vector that is written part by part, its parts without the
/// padding between them.
fn stretches<'p>(
    program: &'p Program,
    origins: &Origins,
    id: LValueId,
    from: u64,
    to: u64,
) -> impl Iterator<Item = (u64, u64)> + 'p {
    let value = program.value(id);
    let origin = origins.of[id.0 as usize];
    let is_made_of_parts = origin == id || !origins.written[origin.0 as usize];
    let may_have_parts = !value.persistent && is_made_of_parts && value.param.is_none() && value.layer.is_none();
    let parts = move |v: &'p LValue| {
        let may_be_part = may_have_parts && v.param.is_some();
        let start = may_be_part.then(|| start_in(program, v, id)).flatten()?;
        Some((start as u64, (start + v.shape.len()) as u64))
    };
    let by_parts = program.values.iter().any(|v| parts(v).is_some());
    let size = value.dtype.size() as u64;
    let whole = (!by_parts).then_some((from, to));
    whole.into_iter().chain(
        program.values.iter().filter_map(parts).map(move |(start, end)| (from + start * size, from + end * size)),
    )
}

/// The first element of a part in the value that it is a part of, or a part of a part.
fn start_in(program: &Program, part: &LValue, whole: LValueId) -> Option<usize> {
    let (mut start, mut above) = (0, part.alias);
    while let Some(alias) = above {
        start += alias.start;
        if alias.of == whole {
            return Some(start);
        }
        above = program.value(alias.of).alias;
    }
    None
}

/// At the end, the memory of every persistent value must contain it or its successor.
fn survivors(plan: &BindingPlan, owners: &Owners) -> Result<(), DataflowError> {
    let program = &plan.program;
    for (index, value) in program.values.iter().enumerate() {
        let id = LValueId(index as u32);
        let Some(place) = plan.place(id).filter(|_| value.persistent && value.alias.is_none()) else { continue };
        for (_, _, owner) in owners.read(place.offset, place.offset + value.bytes()) {
            let sound = matches!(owner, Owner::Value(o) if program.root(o).0 == id);
            if !sound {
                return Err(DataflowError::Lost { value: value.name.clone() });
            }
        }
    }
    Ok(())
}
