//! Horizontal fusion: operations that may run at the same time are combined into one launch.

use super::arguments::ArgRow;
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::error::CudaError;
use super::kernel_store::Kernel;
use super::launch::Launch;
use super::source::KernelSource;
use crate::ops::OpKind;
use crate::select::cuda::KernelSpec;
use crate::select::{Variant, cuda};
use std::collections::HashMap;
use std::sync::Arc;

/// An operation that may share a launch.
#[derive(Clone)]
pub(super) struct Member {
    op: usize,
    pub(super) spec: Arc<KernelSpec>,
    pub(super) args: ArgRow,
    /// Threads in each of its blocks.
    threads: u32,
}

/// Shared memory of a block that occupies a multiprocessor alone.
const ALONE_BYTES: u32 = 100 << 10;

/// Groups of the plan as launches: members whose kernels have one phase and the same block size share a launch; the
/// others run one after the other.
pub(super) fn fuse(ops: &BoundOps) -> Vec<Launch> {
    let groups = &ops.compiled.plan.groups;
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let mut shared: Vec<Vec<Member>> = Vec::new();
    let mut at = 0;
    while at < ops.len() {
        let end =
            if groups.is_empty() { at + 1 } else { at + groups[at..].iter().take_while(|g| **g == groups[at]).count() };
        let set: Vec<usize> = (at..end).collect();
        if set.len() > 1 {
            shared.extend(shared_launches(ops, &set));
        }
        sets.push(set);
        at = end;
    }
    let sources: Vec<KernelSource> = shared.iter().map(|members| source_of(members)).collect();
    let kernels = ops.gpu.kernels(&sources);
    let mut made: Vec<Launch> = Vec::new();
    for (members, kernel) in shared.into_iter().zip(kernels) {
        match kernel {
            Ok(kernel) => made.push(together(&members, kernel)),
            Err(why) => log::warn!(
                "operations {:?} do not share a launch: {why}",
                members.iter().map(|m| m.op).collect::<Vec<_>>()
            ),
        }
    }
    in_order(sets, made)
}

/// The members of a group of the plan that share launches. Beside updates whose blocks each occupy a multiprocessor,
/// blocks may be of any size, because a separate launch would have to wait for all of these.
fn shared_launches(ops: &BoundOps, set: &[usize]) -> Vec<Vec<Member>> {
    let mut by_threads: HashMap<u32, Vec<Member>> = HashMap::new();
    for member in set.iter().filter_map(|op| member(ops, *op)) {
        by_threads.entry(member.threads).or_default().push(member);
    }
    let is_alone = |op: usize| {
        let updates = matches!(ops.compiled.plan.program.ops[op].kind, OpKind::WeightStep { .. });
        updates
            && matches!(&ops.calls[op][..], [BoundCall::Kernel { kernel, .. }] if kernel.phases[0].smem > ALONE_BYTES)
    };
    if by_threads.values().flatten().any(|m| is_alone(m.op)) {
        by_threads = HashMap::from([(0, by_threads.into_values().flatten().collect())]);
    }
    let mut joined: Vec<_> = by_threads.into_values().filter(|m| m.len() > 1).collect();
    joined.sort_by_key(|m| m[0].op);
    // The longest start first, so that the launch ends soonest. Members of one type share their code side by side.
    let cost = |op: usize| ops.compiled.selection.choices[op].cost_us;
    for members in &mut joined {
        let by_type = |a: &Member, b: &Member| a.spec.arguments.cmp(&b.spec.arguments);
        members.sort_by(|a, b| cost(b.op).total_cmp(&cost(a.op)).then(by_type(a, b)).then(a.op.cmp(&b.op)));
    }
    joined
}

/// The launches of each group of the plan: the shared ones, then the others.
fn in_order(sets: Vec<Vec<usize>>, mut made: Vec<Launch>) -> Vec<Launch> {
    let mut out = Vec::new();
    for set in sets {
        let in_set =
            |launch: &Launch| matches!(launch, Launch::Fused { ops, .. } if ops.iter().any(|o| set.contains(o)));
        let mut taken: Vec<usize> = Vec::new();
        while let Some(position) = made.iter().position(in_set) {
            let launch = made.remove(position);
            if let Launch::Fused { ops, .. } = &launch {
                taken.extend(ops);
            }
            out.push(launch);
        }
        out.extend(set.into_iter().filter(|op| !taken.contains(op)).map(|op| Launch::Single { op, flags: 0 }));
    }
    out
}

/// The contribution of an operation with one kernel of one phase to a shared launch.
pub(super) fn member(ops: &BoundOps, op: usize) -> Option<Member> {
    let [BoundCall::Kernel { kernel, spec, args }] = &ops.calls[op][..] else { return None };
    let planned = matches!(ops.compiled.selection.choices[op].variant, Variant::Cuda(cuda::Route::Own(_)));
    // Blocks of a cluster belong together and share a launch with no other operation. General members share none,
    // because the combination would have to be compiled for each network.
    let may_share = planned && kernel.phases.len() == 1 && spec.cluster_blocks == 1 && !spec.is_general();
    may_share.then(|| Member { op, spec: Arc::clone(spec), args: **args, threads: kernel.threads })
}

fn source_of(members: &[Member]) -> KernelSource {
    members.iter().map(|member| KernelSpec::clone(&member.spec)).collect()
}

fn together(members: &[Member], kernel: Arc<Kernel>) -> Launch {
    let ops = members.iter().map(|m| m.op).collect();
    Launch::Fused { ops, args: members.iter().flat_map(|m| m.args).collect(), kernel }
}

/// One launch of operations that do not depend on each other.
///
/// # Errors
/// If one of them is not a kernel of one phase, the last one needs more threads than the others, or the compiler
/// refuses.
pub(super) fn share(ops: &BoundOps, shared: &[usize]) -> Result<Launch, CudaError> {
    let members: Option<Vec<Member>> = shared.iter().map(|op| member(ops, *op)).collect();
    let members = members.ok_or("one of the operations is not a kernel of one phase")?;
    let (last, others) = members.split_last().ok_or("no operation is to be launched")?;
    if others.iter().all(|m| m.threads < last.threads) {
        return Err(format!("blocks of {} threads are too large for the other operations", last.threads).into());
    }
    let kernel = ops.gpu.kernel(source_of(&members))?;
    Ok(together(&members, kernel))
}
