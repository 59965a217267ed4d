//! Operations that may run at the same time, put into one launch.

use super::bind::{MAX_ARGS, Row, Unit, Work, code_of};
use super::gpu::{Gpu, Kernel};
use super::overlap::{FLAGS, OVERLAPPED};
use crate::compile::Compiled;
use crate::lower::OpKind;
use crate::select::{Variant, cuda};
use std::collections::HashMap;
use std::sync::Arc;

/// An operation that may share a launch: its number, its unit, its arguments.
pub(super) type Member = (usize, (&'static str, String), Row);

/// One launch of a recording: an operation by itself, or several that share a launch.
#[derive(Clone)]
pub(super) enum Launch {
    /// With what it tells its kernels about the launches in front and behind.
    Single {
        op: usize,
        flags: u64,
    },
    Group {
        ops: Vec<usize>,
        kernel: Arc<Kernel>,
        args: Vec<u64>,
    },
}

impl Launch {
    pub(super) fn ops(&self) -> &[usize] {
        match self {
            Self::Single { op, .. } => std::slice::from_ref(op),
            Self::Group { ops, .. } => ops,
        }
    }

    /// Whether the next launch starts as soon as this one's wait is over.
    pub(super) fn starts_next_early(&self) -> bool {
        match self {
            Self::Single { flags, .. } => flags & OVERLAPPED != 0,
            Self::Group { args, .. } => args[FLAGS] & OVERLAPPED != 0,
        }
    }

    /// Has the next launch start as soon as this one's wait is over.
    pub(super) fn start_next_early(&mut self) {
        for op in self.ops().to_vec() {
            self.add_flags(op, OVERLAPPED);
        }
    }

    /// Adds to the flags of one of its operations.
    pub(super) fn add_flags(&mut self, of: usize, more: u64) {
        match self {
            Self::Single { flags, .. } => *flags |= more,
            Self::Group { ops, args, .. } => {
                if let Some(member) = ops.iter().position(|op| *op == of) {
                    args[member * MAX_ARGS + FLAGS] |= more;
                }
            }
        }
    }
}

/// Shared memory of a block that has a multiprocessor to itself.
const ALONE_BYTES: u32 = 100 << 10;

/// Groups of the plan as launches: members whose kernels have one phase and the same block size share one; the rest run one after the other. Beside updates
/// whose blocks have a multiprocessor to themselves, blocks may be of any size: what waits for a launch of its own would wait for all of these.
pub(super) fn group(gpu: &Gpu, compiled: &Compiled, calls: &[Vec<Work>]) -> Vec<Launch> {
    let groups = &compiled.plan.groups;
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let mut shared: Vec<Vec<Member>> = Vec::new();
    let mut at = 0;
    while at < calls.len() {
        let end =
            if groups.is_empty() { at + 1 } else { at + groups[at..].iter().take_while(|g| **g == groups[at]).count() };
        let mut by_threads: HashMap<u32, Vec<Member>> = HashMap::new();
        if end - at > 1 {
            for op in at..end {
                if let Some((threads, member)) = member(compiled, calls, op) {
                    by_threads.entry(threads).or_default().push(member);
                }
            }
        }
        let is_alone = |op: usize| {
            let updates = matches!(compiled.plan.program.ops[op].kind, OpKind::WeightStep { .. });
            updates && matches!(&calls[op][..], [Work::Kernel { kernel, .. }] if kernel.phases[0].smem > ALONE_BYTES)
        };
        if by_threads.values().flatten().any(|m| is_alone(m.0)) {
            by_threads = HashMap::from([(0, by_threads.into_values().flatten().collect())]);
        }
        let mut joined: Vec<_> = by_threads.into_values().filter(|m| m.len() > 1).collect();
        joined.sort_by_key(|m| m[0].0);
        sets.push((at..end).collect());
        for mut members in joined {
            // The longest start first, so that the launch ends soonest.
            let cost = |op: usize| compiled.selection.choices[op].cost_us;
            members.sort_by(|a, b| cost(b.0).total_cmp(&cost(a.0)).then(a.0.cmp(&b.0)));
            shared.push(members);
        }
        at = end;
    }
    let units: Vec<Unit> = shared.iter().map(|members| unit_of(members)).collect();
    let kernels = gpu.kernels(&units);
    let mut made: Vec<Launch> = Vec::new();
    for (members, kernel) in shared.into_iter().zip(kernels) {
        match kernel {
            Ok(kernel) => made.push(together(&members, kernel)),
            Err(why) => log::warn!(
                "operations {:?} do not share a launch: {why}",
                members.iter().map(|m| m.0).collect::<Vec<_>>()
            ),
        }
    }
    let mut out = Vec::new();
    for set in sets {
        let in_group =
            |launch: &Launch| matches!(launch, Launch::Group { ops, .. } if ops.iter().any(|o| set.contains(o)));
        let mut taken: Vec<usize> = Vec::new();
        while let Some(position) = made.iter().position(in_group) {
            let launch = made.remove(position);
            if let Launch::Group { ops, .. } = &launch {
                taken.extend(ops);
            }
            out.push(launch);
        }
        out.extend(set.into_iter().filter(|op| !taken.contains(op)).map(|op| Launch::Single { op, flags: 0 }));
    }
    out
}

/// What an operation that is one kernel of one phase brings into a launch that it shares, and its block size.
pub(super) fn member(compiled: &Compiled, calls: &[Vec<Work>], op: usize) -> Option<(u32, Member)> {
    let [Work::Kernel { kernel, args }] = &calls[op][..] else { return None };
    let Variant::Cuda(cuda::Route::Own(number)) = compiled.selection.choices[op].variant else { return None };
    let operation = &compiled.plan.program.ops[op];
    let code = code_of(&operation.kind, compiled, operation, Some(number)).ok()?;
    // Blocks of a cluster belong together and share a launch with nobody.
    let alone = code.ty.contains("__cluster_dims__");
    (kernel.phases.len() == 1 && !alone).then_some((kernel.threads, (op, (code.file, code.ty), **args)))
}

fn unit_of(members: &[Member]) -> Unit {
    members.iter().map(|(_, unit, _)| unit.clone()).collect()
}

fn together(members: &[Member], kernel: Arc<Kernel>) -> Launch {
    let ops = members.iter().map(|m| m.0).collect();
    Launch::Group { ops, args: members.iter().flat_map(|m| m.2).collect(), kernel }
}

/// One launch of some operations that do not depend on each other.
///
/// # Errors
/// Where one of them is not a kernel of one phase, or the last needs more threads than the others, or the compiler refuses.
pub(super) fn share(gpu: &Gpu, compiled: &Compiled, calls: &[Vec<Work>], ops: &[usize]) -> Result<Launch, String> {
    let members: Option<Vec<(u32, Member)>> = ops.iter().map(|op| member(compiled, calls, *op)).collect();
    let members = members.ok_or("one of the operations is not a kernel of one phase")?;
    let (threads, members): (Vec<u32>, Vec<Member>) = members.into_iter().unzip();
    let (last, others) = threads.split_last().ok_or("there is nothing to launch")?;
    if others.iter().all(|t| t < last) {
        return Err(format!("blocks of {last} threads are too large for the others"));
    }
    let kernel = gpu.kernels(&[unit_of(&members)]).pop().unwrap_or_else(|| Err("no kernel came back".into()))?;
    Ok(together(&members, kernel))
}
