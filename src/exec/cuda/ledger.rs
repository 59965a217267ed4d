//! The ledger: what can have changed since the graphs were read, looked at before every launch of one. The arguments in
//! their nodes are read at capture and where [`Step::read_graph`] is asked for.

use super::bind::DeviceEnv;
use super::capture::Role;
use super::graph::{Graph, Identity};
use super::overlap::FLAGS;
use super::step::Step;
use crate::exec::ExecError;
use crate::plan::Place;

/// What was so when the graphs were read.
pub(super) struct Ledger {
    /// Where the arena began, and the memory of the step whose parameters are shared (0 where none is).
    bases: [u64; 2],
    /// The graphs that were read.
    graphs: Vec<(Role, Identity)>,
    pub(super) live: Vec<LiveConstant>,
}

/// A number that the host may change between two replays, and kernels read.
pub(super) struct LiveConstant {
    /// The first operation that reads it, and its slot.
    pub(super) op: usize,
    pub(super) slot: usize,
    /// Where the plan has it, which is where the host writes it.
    pub(super) place: Place,
    /// The address in the node of that operation.
    pub(super) address: u64,
}

/// Where a step's memory begins, and that of the step whose parameters it shares.
fn bases(env: &DeviceEnv) -> [u64; 2] {
    [env.memory.base(), env.shared.as_ref().map_or(0, |memory| memory.base())]
}

impl Ledger {
    pub(super) fn new(env: &DeviceEnv) -> Self {
        Self { bases: bases(env), graphs: Vec::new(), live: Vec::new() }
    }

    /// Notes a graph that was read.
    pub(super) fn note(&mut self, role: Role, graph: &Graph) {
        self.forget(|r| r == role);
        self.graphs.push((role, graph.identity()));
    }

    /// Forgets graphs that are gone.
    pub(super) fn forget(&mut self, gone: impl Fn(Role) -> bool) {
        self.graphs.retain(|(role, _)| !gone(*role));
    }
}

impl Step {
    /// Whether a graph may be launched: the memory is where it was, live constants are where its nodes read them, and
    /// it is the graph that was read.
    ///
    /// # Errors
    /// What changed.
    pub(super) fn check(&self, role: Role, graph: &Graph) -> Result<(), ExecError> {
        self.check_memory()?;
        if self.ledger.graphs.contains(&(role, graph.identity())) {
            return Ok(());
        }
        let graph = role.name(self.compiled.plan.program.mode);
        Err(ExecError::Graph { graph, why: "what is to be launched is not what was read at capture".into() })
    }

    /// Whether the memory is where it was, and live constants are where nodes read them.
    ///
    /// # Errors
    /// What changed.
    pub(super) fn check_memory(&self) -> Result<(), ExecError> {
        let found = bases(&self.env);
        if found != self.ledger.bases {
            return Err(moved(self.ledger.bases, found));
        }
        for live in &self.ledger.live {
            let written = self.env.address(&self.compiled.plan, live.place);
            if live.address != written {
                return Err(self.mismatch(live.op, live.slot, written, live.address));
            }
        }
        Ok(())
    }

    /// Checks what a launch of the graph with this number checks. Nothing is launched.
    ///
    /// # Errors
    /// What changed.
    pub fn check_graph(&self, number: usize) -> Result<(), ExecError> {
        match self.numbered(number) {
            Some((role, graph)) => self.check(role, graph),
            None => self.check_memory(),
        }
    }

    /// Numbers that the host may change between two replays, whose addresses every replay is checked against.
    #[must_use]
    pub fn live_constants_held(&self) -> usize {
        self.ledger.live.len()
    }

    /// Arguments of one step that were read from its graph's nodes at capture.
    #[must_use]
    pub fn held_arguments(&self) -> usize {
        self.graph.as_ref().map_or(0, |graph| graph.arguments)
    }

    #[cold]
    pub(super) fn mismatch(&self, op: usize, slot: usize, expected: u64, found: u64) -> ExecError {
        let mut error = ExecError::ledger(&self.compiled, op, slot, expected as usize, found as usize);
        if let ExecError::Ledger { slot: name, .. } = &mut error
            && slot == FLAGS
        {
            *name = "launch flags";
        }
        error
    }
}

#[cold]
fn moved(recorded: [u64; 2], found: [u64; 2]) -> ExecError {
    let differs = usize::from(recorded[0] == found[0]);
    ExecError::ArenaMoved { recorded: recorded[differs] as usize, found: found[differs] as usize }
}
