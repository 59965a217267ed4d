//! Operations that may run at the same time, put into one launch.

use super::bind::{MAX_ARGS, Row, Work, code_of};
use super::gpu::{Gpu, Kernel};
use super::overlap::FLAGS;
use crate::compile::Compiled;
use crate::select::cuda;
use std::collections::HashMap;
use std::sync::Arc;

/// An operation that may share a launch: its number, its unit, its arguments.
type Member = (usize, (&'static str, String), Row);

/// One launch of a recording: an operation by itself, or several that share a launch.
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

/// Groups of the plan as launches: members whose kernels have one phase and the same block size share one; the rest run one after the other.
pub(super) fn group(gpu: &Gpu, compiled: &Compiled, calls: &[Vec<Work>]) -> Vec<Launch> {
    let groups = &compiled.plan.groups;
    // What may share a launch: its block size and its unit.
    let member = |op: usize| -> Option<(u32, (&'static str, String), Row)> {
        let [Work::Kernel { kernel, args }] = &calls[op][..] else { return None };
        let crate::select::Variant::Cuda(cuda::Route::Own(number)) = compiled.selection.choices[op].variant else {
            return None;
        };
        let operation = &compiled.plan.program.ops[op];
        let code = code_of(&operation.kind, compiled, operation, Some(number)).ok()?;
        // Blocks of a cluster belong together and share a launch with nobody.
        let alone = code.ty.contains("__cluster_dims__");
        (kernel.phases.len() == 1 && !alone).then_some((kernel.threads, (code.file, code.ty), **args))
    };
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let mut shared: Vec<Vec<Member>> = Vec::new();
    let mut at = 0;
    while at < calls.len() {
        let end =
            if groups.is_empty() { at + 1 } else { at + groups[at..].iter().take_while(|g| **g == groups[at]).count() };
        let mut by_threads: HashMap<u32, Vec<Member>> = HashMap::new();
        if end - at > 1 {
            for op in at..end {
                if let Some((threads, unit, row)) = member(op) {
                    by_threads.entry(threads).or_default().push((op, unit, row));
                }
            }
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
    let units: Vec<Vec<(&'static str, String)>> =
        shared.iter().map(|members| members.iter().map(|(_, unit, _)| unit.clone()).collect()).collect();
    let kernels = gpu.kernels(&units);
    let mut made: Vec<Launch> = Vec::new();
    for (members, kernel) in shared.into_iter().zip(kernels) {
        match kernel {
            Ok(kernel) => made.push(Launch::Group {
                ops: members.iter().map(|m| m.0).collect(),
                args: members.iter().flat_map(|m| m.2).collect(),
                kernel,
            }),
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
