//! Reads the nodes of captured graphs, at capture and on request, and compares them with the plan.
//!
//! The driver reads the graph that was captured, and not the executable graph that was instantiated from it: CUDA 13.0
//! has no function that reads the arguments in an executable graph. No code changes a captured graph after it was
//! instantiated, apart from tests.

use super::arguments::{ArgRow, FLAGS, MAX_ARGS, put_numbers};
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::captured_graph::CapturedGraph;
use super::extents::extent;
use super::feed_launch::{FEED_ARGS, FeedLaunch};
use super::kernel_store::Phase;
use super::launch::Launch;
use super::ledger::LiveConstant;
use super::library_nodes::{LibraryWord, WordReader, addresses_in, can_read};
use super::planned_launch::{Difference, PlannedLaunch, pair};
use super::recording::Role;
use crate::exec::backend::GraphRead;
use crate::exec::error::ExecError;
use crate::ops::Slot;
use cudarc::driver::sys;
use std::collections::{HashMap, HashSet};

/// A planned launch and its function.
pub(super) type Planned = PlannedLaunch<sys::CUfunction>;

/// Reads the nodes of a graph and compares their arguments with the current planned launches. Nothing is launched.
///
/// # Errors
/// The first difference, with operation and layer, or an error of the driver.
pub(super) fn read(
    ops: &BoundOps,
    role: Role,
    graph: &CapturedGraph,
    planned: &[Planned],
) -> Result<GraphRead, ExecError> {
    let name = role.name(ops.compiled.plan.program.mode);
    let kernels = read_nodes(ops, role, graph, planned)?.len();
    check_library_words(ops, graph)?;
    Ok(GraphRead {
        name,
        nodes: graph.nodes(),
        kernels,
        arguments: planned.iter().map(Planned::addresses).sum(),
        library_nodes: graph.library.iter().map(Vec::len).sum(),
        library_arguments: graph.library_words.len(),
        unread: graph.nodes().saturating_sub(kernels + library_nodes_read(graph)),
    })
}

/// Whether a graph has as many nodes as at capture.
///
/// # Errors
/// If it has not, or the driver reports an error.
pub(super) fn check_size(ops: &BoundOps, role: Role, graph: &CapturedGraph) -> Result<(), ExecError> {
    let nodes = graph.list()?.len();
    if nodes == graph.nodes() {
        return Ok(());
    }
    let why = format!("it has {nodes} nodes, and was captured with {}", graph.nodes());
    Err(ExecError::Graph { graph: role.name(ops.compiled.plan.program.mode), why })
}

/// Compares the parameters of the libraries' nodes of a graph with those at capture.
///
/// # Errors
/// The first address that differs now, or an error of the driver.
fn check_library_words(ops: &BoundOps, graph: &CapturedGraph) -> Result<(), ExecError> {
    let mut reader = WordReader::default();
    for word in &graph.library_words {
        // SAFETY: the node belongs to a graph that is alive.
        let found = unsafe { reader.read(word.place) }?.unwrap_or(0);
        let is_planned = slot_of(ops, word.op, word.address) == Some(word.slot);
        if found != word.address || !is_planned {
            return Err(ops.mismatch(word.op, word.slot, word.address, found));
        }
    }
    Ok(())
}

/// Reads the nodes of custom kernels in a graph and compares them with these launches; returns the node of each.
///
/// # Errors
/// The first difference, or an error of the driver.
pub(super) fn read_nodes(
    ops: &BoundOps,
    role: Role,
    graph: &CapturedGraph,
    planned: &[Planned],
) -> Result<Vec<sys::CUgraphNode>, ExecError> {
    let words: HashMap<_, _> = planned.iter().map(|launch| (launch.function, launch.args.len())).collect();
    let found = graph.arguments(|function| words.get(&function).copied().unwrap_or(0))?;
    pair(planned, &found).map_err(|difference| different(ops, role, planned, &difference))
}

/// The kernel launches of a graph according to the plan. Launches of one function are in the order in which they are
/// enqueued.
pub(super) fn planned(ops: &BoundOps, launches: &[&Launch], feeds: &[&FeedLaunch]) -> Vec<Planned> {
    let mut out = Vec::with_capacity(launches.len() + feeds.len());
    for feed in feeds {
        let mut args = feed.args.clone();
        if let Some(op) = feed.metrics {
            let slots = ops.compiled.plan.program.ops[op].kind.slots().len();
            args[FeedLaunch::metrics_words(slots)].copy_from_slice(&ops.row(op)[..slots]);
        }
        let members = std::iter::once(None).chain(feed.metrics.map(Some)).collect();
        let numbers = feed.numbers.iter().filter(|number| **number != 0).count();
        out.push(Planned { function: feed.kernel.phases[0].function, args, ops: members, numbers });
    }
    for launch in launches {
        match launch {
            Launch::Single { op, flags } => planned_single(ops, *op, *flags, &mut out),
            Launch::Fused { ops: members, kernel, args } => {
                let (mut args, mut numbers) = (args.clone(), 0);
                for (op, words) in members.iter().zip(args.chunks_exact_mut(MAX_ARGS)) {
                    let mut row = ops.row(*op);
                    numbers += ops.calls[*op].iter().map(|call| plan_numbers(call, &mut row)).sum::<usize>();
                    words[..FLAGS].copy_from_slice(&row[..FLAGS]);
                }
                let members: Vec<Option<usize>> = members.iter().map(|op| Some(*op)).collect();
                let planned =
                    |p: &Phase| Planned { function: p.function, args: args.clone(), ops: members.clone(), numbers };
                out.extend(kernel.phases.iter().map(planned));
            }
        }
    }
    out
}

/// The launches of a single operation, one for each phase of each of its kernels.
fn planned_single(ops: &BoundOps, op: usize, flags: u64, out: &mut Vec<Planned>) {
    // A pass after a library's product has its own slots, which were filled from the operation's when it was bound.
    let is_pass = ops.calls[op].len() > 1;
    for call in &ops.calls[op] {
        let BoundCall::Kernel { kernel, args: call_args, .. } = call else { continue };
        let mut args = if is_pass { **call_args } else { ops.row(op) };
        let numbers = plan_numbers(call, &mut args);
        args[FLAGS] = flags;
        let phases = kernel.phases.iter();
        let planned = |p: &Phase| Planned { function: p.function, args: args.to_vec(), ops: vec![Some(op)], numbers };
        out.extend(phases.map(planned));
    }
}

/// Puts the numbers that a call's kernel reads into its planned arguments; returns how many of them are not zero.
fn plan_numbers(call: &BoundCall, args: &mut ArgRow) -> usize {
    let BoundCall::Kernel { args: bound, spec, .. } = call else { return 0 };
    let mut numbers = spec.numbers().to_vec();
    if let Some(table) = spec.table() {
        // The memory of a table is not part of a plan: its expected address is the one that was bound.
        numbers[table.number] = bound[FLAGS - 1 - table.number];
    }
    put_numbers(args, &numbers);
    numbers.iter().filter(|number| **number != 0).count()
}

/// A difference as an error that names operation and layer.
#[cold]
fn different(ops: &BoundOps, role: Role, planned: &[Planned], difference: &Difference) -> ExecError {
    let why = match *difference {
        Difference::Argument { launch, word, planned: expected, found } => {
            let (op, slot) = planned[launch].owner(word);
            match op {
                Some(op) => return ops.mismatch(op, operations_slot(ops, op, slot, expected), expected, found),
                None => {
                    let name = FEED_ARGS.get(slot).copied().unwrap_or("a watched value or flags");
                    format!("the data feed has {name} at {found:#x}, but {expected:#x} was recorded")
                }
            }
        }
        Difference::Missing { launch } => match planned[launch].owner(0).0 {
            Some(op) => {
                let kernel = &ops.compiled.selection.choices[op].kernel;
                format!("op {op} ({kernel}, {}) has no node", ops.compiled.owner(op))
            }
            None => "a launch of the data feed has no node".into(),
        },
        Difference::Surplus { count } => format!("{count} nodes belong to no launch of the plan"),
    };
    ExecError::Graph { graph: role.name(ops.compiled.plan.program.mode), why }
}

/// The slot of an operation that a word of one of its kernels belongs to: the slot itself, or the one that a pass took
/// the address from.
fn operations_slot(ops: &BoundOps, op: usize, slot: usize, address: u64) -> usize {
    let row = ops.row(op);
    if slot == FLAGS || row[slot] == address {
        return slot;
    }
    row[..FLAGS].iter().position(|a| *a == address).unwrap_or(slot)
}

/// The addresses among the parameters of libraries' nodes that belong to their operations. Empty if the driver is too
/// old to report the sizes of parameters.
///
/// # Errors
/// If the driver reports an error.
pub(super) fn library_words(
    ops: &BoundOps,
    graph: &CapturedGraph,
    launches: &[&Launch],
) -> Result<Vec<LibraryWord>, ExecError> {
    let mut out = Vec::new();
    if graph.library.is_empty() || !can_read() {
        return Ok(out);
    }
    let memory = ops.env.ranges();
    for (launch, nodes) in launches.iter().filter(|launch| ops.asks_library(launch)).zip(&graph.library) {
        let op = launch.ops()[0];
        // SAFETY: the nodes belong to a graph that is alive.
        let found = unsafe { addresses_in(nodes, &memory) }?;
        for (place, address) in found {
            match slot_of(ops, op, address) {
                Some(slot) => out.push(LibraryWord { place, address, op, slot }),
                // Two neighbouring 32-bit numbers may look like an address.
                None => {
                    log::debug!("op {op}: {address:#x} in a library's node is not one of the operation's addresses")
                }
            }
        }
    }
    Ok(out)
}

/// The slot of an operation whose bytes contain an address, or end at it.
fn slot_of(ops: &BoundOps, op: usize, address: u64) -> Option<usize> {
    let row = ops.row(op);
    let slots = ops.compiled.plan.program.ops[op].kind.slots().iter().enumerate();
    let holds = |(slot, kind): (usize, &Slot)| {
        let (from, to) = extent(&ops.compiled, op, slot, kind.dir)?;
        let start = row[slot];
        (start..=start + (to - from)).contains(&address).then_some((start, slot))
    };
    // An address at a border is the start of the following range.
    slots.filter_map(holds).max().map(|(_, slot)| slot)
}

/// Every live constant with the address in the node of its first reader; constants that only libraries read are left
/// out. `planned` are the launches of the graph of one step, whose nodes were read and agree with the plan.
pub(super) fn live_constants(ops: &BoundOps, planned: &[Planned]) -> Vec<LiveConstant> {
    let plan = &ops.compiled.plan;
    let mut out: Vec<LiveConstant> = Vec::new();
    for launch in planned {
        for (member, op) in launch.ops.iter().enumerate().filter_map(|(member, op)| Some((member, (*op)?))) {
            for (slot, kind) in plan.program.ops[op].kind.slots().iter().enumerate() {
                let Some(place) = plan.argument(op, slot).filter(|_| kind.live) else {
                    continue;
                };
                let address = launch.args[member * MAX_ARGS + slot];
                // A pass after a library's product has its own slots.
                if address == ops.row(op)[slot] && out.iter().all(|known| known.place != place) {
                    out.push(LiveConstant { reader: (op, slot), place, address });
                }
            }
        }
    }
    out
}

/// The number of libraries' nodes in which addresses were found.
fn library_nodes_read(graph: &CapturedGraph) -> usize {
    let nodes: HashSet<_> = graph.library_words.iter().map(|word| word.place.node).collect();
    nodes.len()
}
