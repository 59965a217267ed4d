//! The ledger: what may have changed since the graphs were read, checked before every launch of a graph. The arguments
//! in their nodes are read at capture and whenever [`read`](super::graph_reader::read) is called.

use super::bound_ops::BoundOps;
use super::captured_graph::{CapturedGraph, Identity};
use super::recording::Role;
use crate::exec::error::ExecError;
use crate::plan::Place;

/// The state when the graphs were read.
pub(super) struct Ledger {
    /// The start addresses of the store and the arena.
    bases: [u64; 2],
    /// The graphs that were read.
    graphs: Vec<(Role, Identity)>,
    pub(super) live: Vec<LiveConstant>,
}

/// A number that the host may change between two replays and that kernels read.
pub(super) struct LiveConstant {
    /// The first operation that reads it, and its slot.
    pub(super) reader: (usize, usize),
    /// Its place in the plan, where the host writes it.
    pub(super) place: Place,
    /// The address in the node of that operation.
    pub(super) address: u64,
}

impl Ledger {
    pub(super) fn new(ops: &BoundOps) -> Self {
        Self { bases: ops.env.bases(), graphs: Vec::new(), live: Vec::new() }
    }

    /// Records a graph that was read.
    pub(super) fn note(&mut self, role: Role, graph: &CapturedGraph) {
        self.forget(|r| r == role);
        self.graphs.push((role, graph.identity()));
    }

    /// Removes graphs that no longer exist.
    pub(super) fn forget(&mut self, gone: impl Fn(Role) -> bool) {
        self.graphs.retain(|(role, _)| !gone(*role));
    }

    /// Checks that a graph may be launched: the memory has not moved, the nodes read live constants from their places,
    /// and it is the graph that was read.
    ///
    /// # Errors
    /// What changed.
    pub(super) fn check(&self, ops: &BoundOps, role: Role, graph: &CapturedGraph) -> Result<(), ExecError> {
        self.check_memory(ops)?;
        if self.graphs.contains(&(role, graph.identity())) {
            return Ok(());
        }
        let graph = role.name(ops.compiled.plan.program.mode);
        Err(ExecError::Graph { graph, why: "the graph to be launched is not the one that was read at capture".into() })
    }

    /// Checks that the memory has not moved, and that nodes read live constants from their places.
    ///
    /// # Errors
    /// What changed.
    pub(super) fn check_memory(&self, ops: &BoundOps) -> Result<(), ExecError> {
        let found = ops.env.bases();
        if found != self.bases {
            return Err(ExecError::moved(self.bases, found));
        }
        for live in &self.live {
            let written = ops.env.address(&ops.compiled.plan, live.place);
            if live.address != written {
                let (op, slot) = live.reader;
                return Err(ops.mismatch(op, slot, written, live.address));
            }
        }
        Ok(())
    }
}
