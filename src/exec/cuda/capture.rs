//! Captures a step's launches. Every graph is read back before it may be launched.

use super::bound_ops::BoundOps;
use super::captured_graph::CapturedGraph;
use super::error::CudaError;
use super::feed_launch::FeedLaunch;
use super::graph_reader::{Planned, library_words, planned, read_nodes};
use super::launch::Launch;
use super::library_nodes::Marks;
use super::recording::Role;
use crate::exec::error::ExecError;
use std::collections::HashSet;

/// Captures these launches, with a data feed before each step and after the last one if there is a feed, and reads the
/// graph's nodes.
///
/// # Errors
/// If the driver or a library reports an error, or the graph is not the planned one.
pub(super) fn capture(
    ops: &BoundOps,
    role: Role,
    launches: &[&Launch],
    feeds: &[&FeedLaunch],
) -> Result<CapturedGraph, ExecError> {
    let marks = Marks::default();
    let mut graph = CapturedGraph::capture(&ops.gpu, &marks, || {
        let Some((last, feeds)) = feeds.split_last() else { return put_all(ops, &marks, launches) };
        let each = (launches.len() / feeds.len().max(1)).max(1);
        for (feed, step) in feeds.iter().zip(launches.chunks(each)) {
            feed.put(&ops.gpu)?;
            put_all(ops, &marks, step)?;
        }
        last.put(&ops.gpu)
    })?;
    let planned = planned(ops, launches, feeds);
    graph.own = read_nodes(ops, role, &graph, &planned)?;
    // Passes after a library's product are custom kernels.
    let own: HashSet<_> = graph.own.iter().copied().collect();
    graph.library.iter_mut().for_each(|nodes| nodes.retain(|node| !own.contains(node)));
    graph.library_words = library_words(ops, &graph, launches)?;
    graph.arguments = planned.iter().map(Planned::addresses).sum::<usize>() + graph.library_words.len();
    Ok(graph)
}

/// Enqueues launches on a stream that is being captured.
fn put_all(ops: &BoundOps, marks: &Marks, launches: &[&Launch]) -> Result<(), CudaError> {
    launches.iter().try_for_each(|launch| {
        let put = || ops.put(launch).map_err(during_capture);
        if ops.asks_library(launch) { marks.library(&ops.gpu, put) } else { put() }
    })
}

/// A failure as the capture reports it, as one of the device and not of an operation.
fn during_capture(error: ExecError) -> CudaError {
    match error {
        ExecError::Device { op, kernel, layer, why } => why.in_operation(format!("op {op} ({kernel}, {layer})")),
        other => CudaError::from(other.to_string()),
    }
}
