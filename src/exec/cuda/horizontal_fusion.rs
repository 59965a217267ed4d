//! Horizontal fusion: operations that may run at the same time are combined into one launch.

use super::arguments::ArgRow;
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::error::CudaError;
use super::general_members::geometries;
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

/// Groups of the plan as launches: members with the same block size share a launch for each phase of their kernels; the
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
    let shared = without_compiling(ops, shared);
    let sources: Vec<KernelSource> = shared.iter().map(|members| source_of(members)).collect();
    let kernels = ops.gpu.kernels(&sources);
    let mut made: Vec<(Launch, &[Member])> = Vec::new();
    for (members, kernel) in shared.iter().zip(kernels) {
        match kernel {
            Ok(kernel) => made.push((together(members, kernel), members)),
            Err(why) => log_alone(members, &why),
        }
    }
    in_order(sets, with_geometries(ops, made))
}

/// Logs why operations share no launch.
fn log_alone(members: &[Member], why: &CudaError) {
    let ops: Vec<usize> = members.iter().map(|member| member.op).collect();
    log::warn!("operations {ops:?} do not share a launch: {why}");
}

/// Shared launches with their numbers of blocks, which depend on sizes if a member is general.
fn with_geometries(ops: &BoundOps, mut made: Vec<(Launch, &[Member])>) -> Vec<Launch> {
    let general = |launch: &Launch| match launch {
        Launch::Fused { kernel, args, .. } if kernel.geometry.is_some() => Some((Arc::clone(kernel), args.clone())),
        _ => None,
    };
    let open: Vec<_> = made.iter().filter_map(|(launch, _)| general(launch)).collect();
    let launches: Vec<_> = open.iter().map(|(kernel, args)| (&**kernel, &args[..])).collect();
    match geometries(&ops.gpu, &launches) {
        Ok(found) => {
            let mut found = found.into_iter();
            for (launch, _) in &mut made {
                let Launch::Fused { kernel, .. } = launch else { continue };
                if kernel.geometry.is_some()
                    && let Some(geometry) = found.next()
                {
                    *kernel = Arc::new(kernel.with_geometry(&geometry));
                }
            }
        }
        Err(why) => made.retain(|(launch, members)| {
            let is_open = general(launch).is_some();
            if is_open {
                log_alone(members, &why);
            }
            !is_open
        }),
    }
    made.into_iter().map(|(launch, _)| launch).collect()
}

/// The shared launches without those of general members whose kernel would have to be compiled for this combination:
/// the kernel is noted, so that it can be compiled when nobody waits. If members for the widest classes share a kernel
/// that is there, they do; otherwise only the members that are not general share a launch.
fn without_compiling(ops: &BoundOps, shared: Vec<Vec<Member>>) -> Vec<Vec<Member>> {
    let is_general = |members: &Vec<Member>| members.iter().any(|member| member.spec.is_general());
    let are_there =
        |all: &[Vec<Member>]| ops.gpu.has_kernels(&all.iter().map(|members| source_of(members)).collect::<Vec<_>>());
    let (mut general, mut ready): (Vec<_>, Vec<_>) = shared.into_iter().partition(is_general);
    let mut has_own = are_there(&general).into_iter();
    ready.extend(general.extract_if(.., |_| has_own.next() == Some(true)));
    let wider: Vec<Vec<Member>> = general.iter().map(|members| wider_members(members)).collect();
    let has_wider = are_there(&wider);
    for ((own, wider), has_wider) in general.into_iter().zip(wider).zip(has_wider) {
        ops.gpu.note_missing([&own, &wider].map(|members| source_of(members)));
        if has_wider {
            ready.push(wider);
            continue;
        }
        let rest: Vec<Member> = own.into_iter().filter(|member| !member.spec.is_general()).collect();
        if rest.len() > 1 {
            ready.push(rest);
        }
    }
    ready
}

/// The same operations with the kernels for the widest classes, where kernels are general and there are any.
fn wider_members(members: &[Member]) -> Vec<Member> {
    let wider = |member: &Member| {
        let spec = member.spec.wider().map_or_else(|| Arc::clone(&member.spec), Arc::new);
        Member { spec, ..member.clone() }
    };
    let mut members: Vec<Member> = members.iter().map(wider).collect();
    members.sort_by(|a, b| by_type(a, b).then(a.op.cmp(&b.op)));
    members
}

/// The order of the types of two members.
fn by_type(a: &Member, b: &Member) -> std::cmp::Ordering {
    a.spec.ty().cmp(&b.spec.ty())
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
    // The longest members start first, so that the launch ends as soon as possible, unless a member is general: then
    // the order depends on no size, so that one kernel serves many networks. Members of the same type are adjacent and
    // share their code.
    for members in &mut joined {
        let is_general = members.iter().any(|member| member.spec.is_general());
        let cost = |op: usize| if is_general { 0.0 } else { ops.compiled.selection.choices[op].cost_us };
        members.sort_by(|a, b| cost(b.op).total_cmp(&cost(a.op)).then_with(|| by_type(a, b)).then(a.op.cmp(&b.op)));
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

/// The contribution of an operation with one kernel to a shared launch. If the kernel has several phases, each of them
/// is in a launch of its own, with the same phase of other members.
fn member(ops: &BoundOps, op: usize) -> Option<Member> {
    let [BoundCall::Kernel { kernel, spec, args }] = &ops.calls[op][..] else { return None };
    let planned = matches!(ops.compiled.selection.choices[op].variant, Variant::Cuda(cuda::Route::Own(_)));
    (planned && !spec.is_alone()).then(|| Member { op, spec: Arc::clone(spec), args: **args, threads: kernel.threads })
}

/// The same, if its kernel is not general: the combination is compiled at once.
pub(super) fn own_sizes_member(ops: &BoundOps, op: usize) -> Option<Member> {
    member(ops, op).filter(|member| !member.spec.is_general())
}

fn source_of(members: &[Member]) -> KernelSource {
    members.iter().map(|member| KernelSpec::clone(&member.spec)).collect()
}

/// The launch of members with their common kernel.
fn together(members: &[Member], kernel: Arc<Kernel>) -> Launch {
    let ops = members.iter().map(|m| m.op).collect();
    Launch::Fused { ops, args: members.iter().flat_map(|m| m.args).collect(), kernel }
}

/// One launch of operations that do not depend on each other.
///
/// # Errors
/// If one of them is not a kernel for its own sizes that may share a launch, the last one needs more threads than the
/// others, or the compiler refuses.
pub(super) fn share(ops: &BoundOps, shared: &[usize]) -> Result<Launch, CudaError> {
    let members: Option<Vec<Member>> = shared.iter().map(|op| own_sizes_member(ops, *op)).collect();
    let members = members.ok_or("one of the operations is not a kernel for its own sizes that may share a launch")?;
    let (last, others) = members.split_last().ok_or("no operation is to be launched")?;
    if others.iter().all(|m| m.threads < last.threads) {
        return Err(format!("blocks of {} threads are too large for the other operations", last.threads).into());
    }
    let kernel = ops.gpu.kernel(source_of(&members))?;
    Ok(together(&members, kernel))
}
