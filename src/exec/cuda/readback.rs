//! Reads the nodes of captured graphs, at capture and when it is asked for, and compares them with the plan.
//!
//! The driver reads the graph that was captured, and not what was instantiated from it: no call of CUDA 13.0 reads the
//! arguments in an executable graph. Nothing here changes one after it was instantiated.

use super::bind::{MAX_ARGS, Work};
use super::capture::{FeedLaunch, Role};
use super::graph::Graph;
use super::group::Launch;
use super::ledger::LiveConstant;
use super::library_nodes::{LibraryWord, WordReader, addresses_in, can_read};
use super::nodes::{Difference, PlannedLaunch, pair};
use super::overlap::{FLAGS, extent};
use super::step::{Step, gpu_error};
use crate::exec::{ExecError, GraphRead};
use crate::lower::Slot;
use crate::plan::is_live;
use cudarc::driver::sys;
use std::collections::{HashMap, HashSet};

/// A launch of the plan's, by function.
pub(super) type Planned = PlannedLaunch<sys::CUfunction>;

/// The data feed's arguments, by place; watched values follow.
pub(super) const FEED_ARGS: [&str; 7] =
    ["samples", "targets", "places", "the step counter", "records", "the batch's x", "the batch's y"];

impl Step {
    /// The graphs that may be launched, in words.
    #[must_use]
    pub fn graphs(&self) -> Vec<String> {
        let mode = self.compiled.plan.program.mode;
        self.graphs_by_role().iter().map(|(role, _)| role.name(mode)).collect()
    }

    fn graphs_by_role(&self) -> Vec<(Role, &Graph)> {
        let one = self.graph.as_ref().ok().map(|graph| (Role::One, graph));
        let several = self.many.as_ref().map(|(steps, graph)| (Role::Several(*steps), graph));
        let fed = self.intake.iter().flat_map(|i| i.graphs().iter().map(|(steps, graph)| (Role::Fed(*steps), graph)));
        one.into_iter().chain(several).chain(fed).collect()
    }

    /// A graph by its place among [`Self::graphs`].
    pub(super) fn numbered(&self, number: usize) -> Option<(Role, &Graph)> {
        self.graphs_by_role().get(number).copied()
    }

    /// As [`Self::numbered`], to change it.
    pub(super) fn numbered_mut(&mut self, number: usize) -> Option<&mut Graph> {
        let one = self.graph.as_mut().ok();
        let several = self.many.as_mut().map(|(_, graph)| graph);
        let fed = self.intake.iter_mut().flat_map(|intake| intake.graphs_mut());
        one.into_iter().chain(several).chain(fed).nth(number)
    }

    /// Reads the nodes of a graph, by its place among [`Self::graphs`], and compares their arguments with the plan's.
    /// Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, and what the driver says.
    pub fn read_graph(&self, number: usize) -> Result<GraphRead, ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        let (role, graph) = self.numbered(number).ok_or_else(|| gpu_error(format!("there is no graph {number}")))?;
        let name = role.name(self.compiled.plan.program.mode);
        let nodes = graph.list().map_err(gpu_error)?.len();
        if nodes != graph.nodes() {
            let why = format!("it has {nodes} nodes, and was captured with {}", graph.nodes());
            return Err(ExecError::Graph { graph: name, why });
        }
        if let (Role::Fed(_), Some(intake)) = (role, &self.intake) {
            intake.check(self)?;
        }
        let planned = self.planned_of(role);
        let own = self.read_nodes(role, graph, &planned)?.len();
        self.read_library_words(graph)?;
        let library_nodes: usize = graph.library.iter().map(Vec::len).sum();
        Ok(GraphRead {
            name,
            nodes,
            kernels: own,
            arguments: planned.iter().map(Planned::addresses).sum(),
            library_nodes,
            library_arguments: graph.library_words.len(),
            unread: nodes.saturating_sub(own + library_nodes_read(graph)),
        })
    }

    /// Reads what the libraries' nodes of a graph held at capture.
    ///
    /// # Errors
    /// The first address that is another now, and what the driver says.
    fn read_library_words(&self, graph: &Graph) -> Result<(), ExecError> {
        let mut reader = WordReader::default();
        for word in &graph.library_words {
            // SAFETY: the node belongs to a graph that is alive.
            let found = unsafe { reader.read(word.place) }.map_err(gpu_error)?.unwrap_or(0);
            let is_planned = self.slot_of(word.op, word.address) == Some(word.slot);
            if found != word.address || !is_planned {
                return Err(self.mismatch(word.op, word.slot, word.address, found));
            }
        }
        Ok(())
    }

    /// The kernel launches of one of the step's graphs, as the plan has them now.
    pub(super) fn planned_of(&self, role: Role) -> Vec<Planned> {
        let feeds = match (role, &self.intake) {
            (Role::Fed(steps), Some(intake)) => intake.feeds(steps),
            _ => Vec::new(),
        };
        self.planned(&self.launches_of(role), &feeds)
    }

    /// Reads the nodes of our kernels in a graph and compares them with these launches; gives the node of each.
    ///
    /// # Errors
    /// The first difference, and what the driver says.
    pub(super) fn read_nodes(
        &self,
        role: Role,
        graph: &Graph,
        planned: &[Planned],
    ) -> Result<Vec<sys::CUgraphNode>, ExecError> {
        let words: HashMap<_, _> = planned.iter().map(|launch| (launch.function, launch.args.len())).collect();
        let found = graph.arguments(|function| words.get(&function).copied().unwrap_or(0)).map_err(gpu_error)?;
        pair(planned, &found).map_err(|difference| self.different(role, planned, &difference))
    }

    /// The kernel launches of a graph as the plan has them. Those of one function stand in the order in which they are
    /// put.
    pub(super) fn planned(&self, launches: &[&Launch], feeds: &[&FeedLaunch]) -> Vec<Planned> {
        let mut out = Vec::with_capacity(launches.len() + feeds.len());
        for feed in feeds {
            let mut args = feed.args.clone();
            if let Some(op) = feed.metrics {
                let slots = self.compiled.plan.program.ops[op].kind.slots().len();
                args[MAX_ARGS..MAX_ARGS + slots].copy_from_slice(&self.row(op)[..slots]);
            }
            let ops = std::iter::once(None).chain(feed.metrics.map(Some)).collect();
            out.push(Planned { function: feed.kernel.phases[0].function, args, ops });
        }
        for launch in launches {
            match launch {
                Launch::Single { op, flags } => self.planned_single(*op, *flags, &mut out),
                Launch::Group { ops, kernel, args } => {
                    let mut args = args.clone();
                    for (op, words) in ops.iter().zip(args.chunks_exact_mut(MAX_ARGS)) {
                        words[..FLAGS].copy_from_slice(&self.row(*op)[..FLAGS]);
                    }
                    let ops = ops.iter().map(|op| Some(*op)).collect();
                    out.push(Planned { function: kernel.phases[0].function, args, ops });
                }
            }
        }
        out
    }

    /// The launches of an operation by itself, one for each phase of each of its kernels.
    fn planned_single(&self, op: usize, flags: u64, out: &mut Vec<Planned>) {
        // A pass behind a library's product has slots of its own, which were filled from the operation's when it was
        // bound.
        let is_pass = self.calls[op].len() > 1;
        for work in &self.calls[op] {
            let Work::Kernel { kernel, args } = work else { continue };
            let mut args = if is_pass { **args } else { self.row(op) };
            args[FLAGS] = flags;
            let phases = kernel.phases.iter();
            out.extend(phases.map(|p| Planned { function: p.function, args: args.to_vec(), ops: vec![Some(op)] }));
        }
    }

    /// A difference as an error that names operation and layer.
    #[cold]
    fn different(&self, role: Role, planned: &[Planned], difference: &Difference) -> ExecError {
        let why = match *difference {
            Difference::Argument { launch, word, planned: expected, found } => {
                let (op, slot) = planned[launch].owner(word);
                match op {
                    Some(op) => return self.mismatch(op, self.operations_slot(op, slot, expected), expected, found),
                    None => {
                        let name = FEED_ARGS.get(slot).copied().unwrap_or("a watched value or flags");
                        format!("the data feed has {name} at {found:#x}, but {expected:#x} was recorded")
                    }
                }
            }
            Difference::Missing { launch } => match planned[launch].owner(0).0 {
                Some(op) => {
                    let kernel = &self.compiled.selection.choices[op].kernel;
                    format!("op {op} ({kernel}, {}) has no node", self.compiled.owner(op))
                }
                None => "a launch of the data feed has no node".into(),
            },
            Difference::Surplus { count } => format!("{count} nodes belong to no launch of the plan"),
        };
        ExecError::Graph { graph: role.name(self.compiled.plan.program.mode), why }
    }

    /// The slot of an operation that a word of one of its kernels belongs to: its own, or that which a pass took the
    /// address from.
    fn operations_slot(&self, op: usize, slot: usize, address: u64) -> usize {
        let row = self.row(op);
        if slot == FLAGS || row[slot] == address {
            return slot;
        }
        row[..FLAGS].iter().position(|a| *a == address).unwrap_or(slot)
    }

    /// The addresses among the parameters of libraries' nodes that belong to their operations. None where the driver is
    /// too old to report sizes of parameters.
    pub(super) fn library_words(&self, graph: &Graph, launches: &[&Launch]) -> Result<Vec<LibraryWord>, ExecError> {
        let mut out = Vec::new();
        if graph.library.is_empty() || !can_read() {
            return Ok(out);
        }
        let memory = self.memory();
        for (launch, nodes) in launches.iter().filter(|launch| self.asks_library(launch)).zip(&graph.library) {
            let op = launch.ops()[0];
            // SAFETY: the nodes belong to a graph that is alive.
            let found = unsafe { addresses_in(nodes, &memory) }.map_err(gpu_error)?;
            for (place, address) in found {
                match self.slot_of(op, address) {
                    Some(slot) => out.push(LibraryWord { place, address, op, slot }),
                    // Two short numbers side by side may look like an address.
                    None => {
                        log::debug!("op {op}: {address:#x} in a library's node is none of the operation's addresses")
                    }
                }
            }
        }
        Ok(out)
    }

    /// The slot of an operation in whose bytes an address is, or right behind which.
    fn slot_of(&self, op: usize, address: u64) -> Option<usize> {
        let row = self.row(op);
        let slots = self.compiled.plan.program.ops[op].kind.slots().iter().enumerate();
        let lies_in = |(slot, kind): (usize, &Slot)| {
            let (from, to) = extent(&self.compiled, op, slot, kind.dir)?;
            let start = row[slot];
            (start..=start + (to - from)).contains(&address).then_some((start, slot))
        };
        // An address on a border is the beginning of what follows.
        slots.filter_map(lies_in).max().map(|(_, slot)| slot)
    }

    /// Every live constant with the address that the node of its first reader holds; those that libraries alone read
    /// are left out. The nodes of the graph of one step were read, and hold what the plan has.
    pub(super) fn live_constants(&self) -> Vec<LiveConstant> {
        let plan = &self.compiled.plan;
        let mut out: Vec<LiveConstant> = Vec::new();
        for launch in self.planned_of(Role::One) {
            for (member, op) in launch.ops.iter().enumerate().filter_map(|(member, op)| Some((member, (*op)?))) {
                for (slot, kind) in plan.program.ops[op].kind.slots().iter().enumerate() {
                    let Some(place) = plan.argument(op, slot).filter(|_| kind.dir.is_read() && is_live(kind.name))
                    else {
                        continue;
                    };
                    let address = launch.args[member * MAX_ARGS + slot];
                    // A pass behind a library's product has slots of its own.
                    if address == self.row(op)[slot] && out.iter().all(|known| known.place != place) {
                        out.push(LiveConstant { op, slot, place, address });
                    }
                }
            }
        }
        out
    }
}

/// Libraries' nodes in which addresses were found.
fn library_nodes_read(graph: &Graph) -> usize {
    let nodes: HashSet<_> = graph.library_words.iter().map(|word| word.place.node).collect();
    nodes.len()
}
