//! A step's graphs: one step, several in a row, steps that gather their own batches. No graph is there to be launched
//! whose nodes were not read.

use super::bind::{Row, Work, launch_phase};
use super::gpu::{Gpu, Kernel};
use super::graph::Graph;
use super::group::Launch;
use super::library_nodes::Marks;
use super::overlap::Range;
use super::readback::Planned;
use super::step::{MAX_NODES, MAX_STEPS, Step, gpu_error};
use crate::exec::ExecError;
use crate::ir::Mode;
use std::collections::HashSet;
use std::sync::Arc;

/// Which of a step's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One step.
    One,
    /// So many steps in a row, on one batch.
    Several(usize),
    /// So many steps that gather their own batches.
    Fed(usize),
}

impl Role {
    /// What the graph does, in words.
    pub(super) fn name(self, mode: Mode) -> String {
        match (self, mode) {
            (Self::One, Mode::Train) => "one step".into(),
            (Self::One, Mode::Eval) => "one evaluation".into(),
            (Self::Several(steps), _) => format!("{steps} steps in a row"),
            (Self::Fed(steps), _) => format!("{steps} steps with their batches"),
        }
    }
}

/// A launch of the data feed; the metrics of the step in front may ride on it.
pub(super) struct FeedLaunch {
    pub(super) kernel: Arc<Kernel>,
    pub(super) args: Vec<u64>,
    /// The operation whose arguments stand behind the feed's own.
    pub(super) metrics: Option<usize>,
}

/// The launches of the data feed: in front of the first step, between two steps, and behind the last.
pub(super) struct FeedLaunches {
    pub(super) first: FeedLaunch,
    pub(super) next: FeedLaunch,
    pub(super) last: FeedLaunch,
}

impl FeedLaunches {
    /// Those of a graph of so many steps, in order.
    pub(super) fn of(&self, steps: usize) -> Vec<&FeedLaunch> {
        let between = std::iter::repeat_n(&self.next, steps.saturating_sub(1));
        std::iter::once(&self.first).chain(between).chain([&self.last]).collect()
    }

    /// The feed's own arguments, which are the same in each.
    pub(super) fn row(&self) -> &[u64] {
        &self.first.args
    }
}

impl FeedLaunch {
    fn put(&self, gpu: &Gpu) -> Result<(), String> {
        launch_phase(gpu, self.kernel.phases[0], self.kernel.threads, &self.args)
    }
}

impl Step {
    /// Captures one step.
    ///
    /// # Errors
    /// Where the graph is not the planned one. A step that cannot be captured is no error: it runs op by op.
    pub(super) fn capture(&mut self) -> Result<(), ExecError> {
        let launches: Vec<&Launch> = self.launches.iter().collect();
        match self.capture_graph(Role::One, &launches, &[]) {
            Ok(graph) => {
                self.ledger.note(Role::One, &graph);
                self.ledger.live = self.live_constants();
                self.graph = Ok(graph);
            }
            Err(ExecError::Gpu(why)) => {
                log::warn!("the step runs op by op: {why}");
                self.graph = Err(why);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Captures these launches, a data feed in front of each step and behind the last where there is one, and reads the
    /// graph's nodes.
    ///
    /// # Errors
    /// What the driver and the libraries say, and where the graph is not the planned one.
    pub(super) fn capture_graph(
        &self,
        role: Role,
        launches: &[&Launch],
        feeds: &[&FeedLaunch],
    ) -> Result<Graph, ExecError> {
        let marks = Marks::default();
        let graph = Graph::capture(&self.gpu, &marks, || {
            let Some((last, feeds)) = feeds.split_last() else { return self.put_all(&marks, launches) };
            let each = (launches.len() / feeds.len().max(1)).max(1);
            for (feed, step) in feeds.iter().zip(launches.chunks(each)) {
                feed.put(&self.gpu)?;
                self.put_all(&marks, step)?;
            }
            last.put(&self.gpu)
        });
        let mut graph = graph.map_err(gpu_error)?;
        let planned = self.planned(launches, feeds);
        graph.own = self.read_nodes(role, &graph, &planned)?;
        // Passes behind a library's product are our kernels.
        let own: HashSet<_> = graph.own.iter().copied().collect();
        graph.library.iter_mut().for_each(|nodes| nodes.retain(|node| !own.contains(node)));
        graph.library_words = self.library_words(&graph, launches)?;
        graph.arguments = planned.iter().map(Planned::addresses).sum::<usize>() + graph.library_words.len();
        Ok(graph)
    }

    /// The launches of a graph's steps, in order.
    pub(super) fn launches_of(&self, role: Role) -> Vec<&Launch> {
        match role {
            Role::One => self.launches.iter().collect(),
            Role::Several(steps) => self.chain.steps(&self.launches, steps),
            Role::Fed(steps) => self.chain.fed(&self.launches).repeat(steps),
        }
    }

    /// Captures as many steps in a row as one launch may make, `most` at most; false where one step is all, or could
    /// not be captured.
    ///
    /// # Errors
    /// What the driver and the libraries say, and where the graph is not the planned one.
    pub fn capture_several(&mut self, most: usize) -> Result<bool, ExecError> {
        let steps = self.graph.as_ref().map_or(1, |g| (MAX_NODES / g.nodes().max(1)).clamp(1, MAX_STEPS)).min(most);
        if steps < 2 {
            return Ok(false);
        }
        if self.many.as_ref().is_none_or(|(k, _)| *k > most) {
            self.gpu.enter().map_err(gpu_error)?;
            let role = Role::Several(steps);
            let graph = self.capture_graph(role, &self.launches_of(role), &[])?;
            self.ledger.forget(|role| matches!(role, Role::Several(_)));
            self.ledger.note(role, &graph);
            self.many = Some((steps, graph));
        }
        Ok(true)
    }

    /// Puts launches on a stream that is captured.
    fn put_all(&self, marks: &Marks, launches: &[&Launch]) -> Result<(), String> {
        launches.iter().try_for_each(|launch| {
            let put = || self.put(launch).map_err(|e| e.to_string());
            if self.asks_library(launch) { marks.library(&self.gpu, put) } else { put() }
        })
    }

    /// Whether a launch is a library's.
    pub(super) fn asks_library(&self, launch: &Launch) -> bool {
        let ours = |op: &usize| self.calls[*op].iter().all(|work| matches!(work, Work::Kernel { .. }));
        matches!(launch, Launch::Single { op, .. } if !ours(op))
    }

    /// The memory that the step may touch.
    pub(super) fn memory(&self) -> Vec<Range> {
        let memory = [Some(&self.env.memory), self.env.shared.as_ref()];
        memory.into_iter().flatten().map(|m| (m.base(), m.base() + m.bytes() as u64)).collect()
    }

    /// The planned addresses of an operation's arguments, worked out from the plan.
    pub(super) fn row(&self, op: usize) -> Row {
        self.env.row(&self.compiled.plan, op)
    }
}
