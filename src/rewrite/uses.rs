//! The producers and readers of each value of a program, which passes use before they fuse.

use super::rewriter::Rewriter;
use crate::ir::Mode;
use crate::lower::{LValueId, Op, Program};
use crate::ops::OpKind;
use std::collections::HashMap;

/// Producers and readers by contents: a plain view counts as the value that it shows.
pub(super) struct Uses {
    /// The operation that writes each value.
    writer: Vec<Option<usize>>,
    /// The value whose contents each value shows.
    content: Vec<LValueId>,
    /// The number of operations that read each value, including its plain views.
    readers: Vec<usize>,
    /// The first of them; a number past the last operation if there is none.
    first: Vec<usize>,
}

impl Uses {
    pub(super) fn of(program: &Program) -> Self {
        let content = contents(program);
        let mut readers = vec![0; program.values.len()];
        let mut first = vec![program.ops.len(); program.values.len()];
        for (number, op) in program.ops.iter().enumerate() {
            for read in op.reads() {
                let at = content[read.0 as usize].0 as usize;
                readers[at] += 1;
                first[at] = first[at].min(number);
            }
        }
        readers[content[program.output.0 as usize].0 as usize] += usize::from(program.mode == Mode::Eval);
        let mut writer = vec![None; program.values.len()];
        for (index, op) in program.ops.iter().enumerate() {
            for written in op.writes() {
                writer[written.0 as usize] = Some(index);
            }
        }
        Self { writer, content, readers, first }
    }

    /// The operation that writes `value`, regardless of its readers.
    pub(super) fn producer(&self, rw: &Rewriter, value: Option<LValueId>) -> Option<usize> {
        self.writer[self.content[value?.0 as usize].0 as usize].map(|number| rw.now(number))
    }

    /// Whether operation `number`, which reads `value`, is the first to do so, so that the producer of `value` may be
    /// fused into it.
    pub(super) fn is_first_reader(&self, value: Option<LValueId>, number: usize) -> bool {
        value.is_some_and(|id| self.first[self.content[id.0 as usize].0 as usize] >= number)
    }

    /// The operation that writes `value`, if `value` has no other reader and does not outlive the step.
    pub(super) fn sole_producer(&self, rw: &Rewriter, value: Option<LValueId>) -> Option<usize> {
        let id = self.content[value?.0 as usize];
        let free = self.readers[id.0 as usize] == 1 && !rw.program().value(id).persistent;
        self.producer(rw, Some(id)).filter(|_| free)
    }
}

/// Calls `fuse` for every operation of some kinds, with the producers and readers from before the pass.
pub(super) fn with_uses(rw: &mut Rewriter, want: impl Fn(&OpKind) -> bool, fuse: impl Fn(&mut Rewriter, &Uses, usize)) {
    let found = rw.find(want);
    if !found.is_empty() {
        let uses = Uses::of(rw.program());
        found.into_iter().for_each(|number| fuse(rw, &uses, number));
    }
}

/// For each value, the value whose contents it shows: itself, unless it is a view of all of another value and no
/// operation writes it.
fn contents(program: &Program) -> Vec<LValueId> {
    let mut written = vec![false; program.values.len()];
    for id in program.ops.iter().flat_map(Op::writes) {
        written[id.0 as usize] = true;
    }
    let mut content: Vec<LValueId> = (0..program.values.len() as u32).map(LValueId).collect();
    for (index, value) in program.values.iter().enumerate() {
        let Some(alias) = value.alias else { continue };
        let whole = alias.start == 0 && program.value(alias.of).shape.len() == value.shape.len();
        // Values come after those that they show, so that one pass resolves chains.
        if whole && !value.persistent && !written[index] && (alias.of.0 as usize) < index {
            content[index] = content[alias.of.0 as usize];
        }
    }
    content
}

/// Whether two values have elements in common.
pub(super) fn shares(program: &Program, a: LValueId, b: LValueId) -> bool {
    let [(root, start), (other, first)] = [a, b].map(|id| program.root(id));
    let [len, more] = [a, b].map(|id| program.value(id).shape.len());
    root == other && start < first + more && first < start + len
}

/// Makes operations of some kinds one with the only operation that reads what is in their slot `out`, where `joined`
/// says what both become: of the program, the operation, its reader and that value.
pub(super) fn join_readers(
    rw: &mut Rewriter,
    out: &str,
    want: impl Fn(&OpKind) -> bool,
    joined: impl Fn(&Program, &Op, &Op, LValueId) -> Option<Op>,
) {
    let found = rw.find(want).into_iter().filter_map(|number| Some((number, rw.op(number).arg(out)?)));
    let found: Vec<(usize, LValueId)> = found.collect();
    let readers = Readers::of(rw.program(), found.iter().map(|(_, out)| *out));
    for (number, out) in found {
        let Some(reader) = readers.sole(rw, out) else { continue };
        if let Some(joined) = joined(rw.program(), rw.op(number), rw.op(reader), out) {
            rw.fuse(reader, joined, &[number]);
        }
    }
}

/// The readers of the memory of some values, by number.
struct Readers(HashMap<LValueId, Vec<usize>>);

impl Readers {
    /// The readers of the given values, and of everything that shares their memory.
    pub(super) fn of(program: &Program, values: impl Iterator<Item = LValueId>) -> Self {
        let mut readers: HashMap<LValueId, Vec<usize>> = values.map(|id| (program.root(id).0, Vec::new())).collect();
        if readers.is_empty() {
            return Self(readers);
        }
        for (number, op) in program.ops.iter().enumerate() {
            for id in op.reads() {
                if let Some(found) = readers.get_mut(&program.root(id).0) {
                    found.push(number);
                }
            }
        }
        Self(readers)
    }

    /// The only operation that reads a value, if nothing else reads it or any view of it, and it does not outlive the
    /// step.
    fn sole(&self, rw: &Rewriter, id: LValueId) -> Option<usize> {
        let program = rw.program();
        let home = program.root(id).0;
        if program.value(home).persistent || program.root(program.output).0 == home {
            return None;
        }
        let reads = |number: usize| rw.op(number).reads().filter(|read| program.root(*read).0 == home).count();
        let mut numbers: Vec<usize> = self.0.get(&home)?.iter().map(|number| rw.now(*number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| reads(*number) > 0);
        let [number] = numbers[..] else { return None };
        (reads(number) == 1 && rw.op(number).reads().any(|read| read == id)).then_some(number)
    }
}
