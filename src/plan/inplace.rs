//! Which operations may overwrite their inputs.

use crate::lower::{Alias, LValueId, Program};

/// The root of every value, followed through aliases, with the first element in it.
pub(super) fn roots(program: &Program) -> Vec<(LValueId, usize)> {
    (0..program.values.len() as u32).map(|i| program.root(LValueId(i))).collect()
}

/// Marks values as aliases of values that they may overwrite: if no later operation reads the input's memory, it is not
/// kept after the step, and it has the same size as the output. Members of one of `groups` may run at the same time, so
/// that none may overwrite what another reads.
pub(super) fn alias_in_place(program: &mut Program, groups: &[u32]) {
    let mut root: Vec<LValueId> = roots(program).into_iter().map(|(r, _)| r).collect();
    let mut last_read = vec![0usize; program.values.len()];
    for (index, op) in program.ops.iter().enumerate() {
        for read in op.reads() {
            let r = root[read.0 as usize];
            last_read[r.0 as usize] = last_read[r.0 as usize].max(index);
        }
    }
    for index in 0..program.ops.len() {
        let op = &program.ops[index];
        let pairs = op.kind.in_place();
        let shared = |from: usize| op.args[from].is_some_and(|id| read_beside(program, &root, groups, index, id));
        if pairs.iter().any(|(from, _)| shared(*from)) {
            continue;
        }
        let found = pairs.iter().find_map(|pair| candidate(program, &root, &last_read, index, *pair));
        if let Some((from, to)) = found {
            let (into, out) = (root[from.0 as usize], root[to.0 as usize]);
            program.values[to.0 as usize].alias = Some(Alias { of: from, start: 0 });
            last_read[into.0 as usize] = last_read[into.0 as usize].max(last_read[out.0 as usize]);
            // Views of the output follow it to its new memory; they come after it.
            for r in root.iter_mut().skip(to.0 as usize).filter(|r| **r == out) {
                *r = into;
            }
        }
    }
}

/// Whether another member of the operation's group accesses the memory of `id`.
fn read_beside(program: &Program, root: &[LValueId], groups: &[u32], index: usize, id: LValueId) -> bool {
    if groups.is_empty() {
        return false;
    }
    let home = root[id.0 as usize];
    let beside = (0..program.ops.len()).filter(|&o| o != index && groups[o] == groups[index]);
    beside.flat_map(|o| program.ops[o].args.iter().flatten()).any(|v| root[v.0 as usize] == home)
}

/// The values of a pair of slots, if the second may be stored in the memory of the first.
fn candidate(
    program: &Program,
    root: &[LValueId],
    last_read: &[usize],
    index: usize,
    (from, to): (usize, usize),
) -> Option<(LValueId, LValueId)> {
    let op = &program.ops[index];
    let (input, output) = (op.args[from]?, op.args[to]?);
    let (into, out) = (root[input.0 as usize], root[output.0 as usize]);
    let (home, value) = (program.value(into), program.value(output));
    let others = op.reads().filter(|r| root[r.0 as usize] == into).count();
    let free = !home.persistent && last_read[into.0 as usize] == index && others == 1;
    let own = value.alias.is_none() && out == output && !value.persistent;
    let fits = home.shape.len() == value.shape.len() && home.dtype == value.dtype;
    (free && own && fits).then_some((input, output))
}
