//! A step's graphs: one step, several in a row, steps that gather their own batches.

use super::any_feed::MAX_STEPS;
use super::bound_ops::BoundOps;
use super::capture::capture;
use super::captured_graph::CapturedGraph;
use super::error::CudaError;
use super::feed_launch::FeedLaunches;
use super::graph_reader::{live_constants, planned};
use super::ledger::Ledger;
use super::recording::{Recording, Role};
use crate::exec::error::ExecError;

/// The largest number of nodes in a graph of several steps.
const MAX_NODES: usize = 2_000;

/// The graphs of a step, and the state that is checked before every launch.
pub(super) struct Graphs {
    /// One captured step, or why it cannot be captured.
    one: Result<CapturedGraph, CudaError>,
    /// Several steps in one graph.
    several: Option<(usize, CapturedGraph)>,
    /// Steps that gather their own batches, by the number of steps in a launch, in falling order.
    fed: Vec<(usize, CapturedGraph)>,
    pub(super) ledger: Ledger,
}

impl Graphs {
    /// No graph yet.
    pub(super) fn new(ops: &BoundOps) -> Self {
        Self { one: Err("not captured yet".into()), several: None, fed: Vec::new(), ledger: Ledger::new(ops) }
    }

    /// Captures one step.
    ///
    /// # Errors
    /// If the graph is not the planned one. A step that cannot be captured is not an error: it runs op by op.
    pub(super) fn capture_one(&mut self, ops: &BoundOps, recording: &Recording) -> Result<(), ExecError> {
        let launches = recording.of(Role::One);
        match capture(ops, Role::One, &launches, &[]) {
            Ok(graph) => {
                self.ledger.note(Role::One, &graph);
                self.ledger.live = live_constants(ops, &planned(ops, &launches, &[]));
                self.one = Ok(graph);
            }
            Err(ExecError::Gpu(why)) => {
                log::warn!("the step runs op by op: {why}");
                self.one = Err(why);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Captures as many steps in a row as one launch may make, at most `most`; returns false if that is one step, or
    /// they could not be captured.
    ///
    /// # Errors
    /// If the driver or a library reports an error, or the graph is not the planned one.
    pub(super) fn capture_several(
        &mut self,
        ops: &BoundOps,
        recording: &Recording,
        most: usize,
    ) -> Result<bool, ExecError> {
        let steps = self.one.as_ref().map_or(1, |g| (MAX_NODES / g.nodes().max(1)).clamp(1, MAX_STEPS)).min(most);
        if steps < 2 {
            return Ok(false);
        }
        if self.several.as_ref().is_none_or(|(k, _)| *k > most) {
            ops.gpu.enter()?;
            let role = Role::Several(steps);
            let graph = capture(ops, role, &recording.of(role), &[])?;
            self.ledger.forget(|role| matches!(role, Role::Several(_)));
            self.ledger.note(role, &graph);
            self.several = Some((steps, graph));
        }
        Ok(true)
    }

    /// Captures one step that gathers its own batch.
    ///
    /// # Errors
    /// As [`Self::capture_several`].
    pub(super) fn capture_one_fed(
        &self,
        ops: &BoundOps,
        recording: &Recording,
        feeds: &FeedLaunches,
    ) -> Result<CapturedGraph, ExecError> {
        capture(ops, Role::Fed(1), &recording.of(Role::Fed(1)), &feeds.of(1))
    }

    /// The largest number of steps in a launch of steps that gather their own batches.
    pub(super) fn most_fed(&self) -> usize {
        (MAX_NODES / (self.nodes() + 1)).clamp(1, MAX_STEPS)
    }

    /// Captures the launches of several steps that gather their own batches, unless they exist.
    ///
    /// # Errors
    /// As [`Self::capture_several`].
    pub(super) fn capture_several_fed(
        &mut self,
        ops: &BoundOps,
        recording: &Recording,
        feeds: &FeedLaunches,
    ) -> Result<(), ExecError> {
        let most = self.most_fed();
        for steps in [most, most / 8].into_iter().filter(|steps| *steps > 1) {
            if self.fed(steps).is_some() {
                continue;
            }
            let role = Role::Fed(steps);
            let graph = capture(ops, role, &recording.of(role), &feeds.of(steps))?;
            self.keep_fed(steps, graph);
        }
        Ok(())
    }

    /// Stores a graph of this many steps that gather their own batches.
    pub(super) fn keep_fed(&mut self, steps: usize, graph: CapturedGraph) {
        self.ledger.note(Role::Fed(steps), &graph);
        let at = self.fed.partition_point(|(others, _)| *others > steps);
        self.fed.insert(at, (steps, graph));
    }

    /// Drops the graphs of steps that gather their own batches.
    pub(super) fn drop_fed(&mut self) {
        self.fed = Vec::new();
        self.ledger.forget(|role| matches!(role, Role::Fed(_)));
    }

    /// The graph of one step.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn one(&self) -> Result<&CapturedGraph, &CudaError> {
        self.one.as_ref()
    }

    /// The number of nodes of the graph of one step; 0 if there is none.
    pub(super) fn nodes(&self) -> usize {
        self.one.as_ref().map_or(0, |g| g.nodes().max(g.kernels()))
    }

    /// The graph of several steps in a row, and the number of its steps.
    pub(super) fn several(&self) -> Option<(usize, &CapturedGraph)> {
        self.several.as_ref().map(|(steps, graph)| (*steps, graph))
    }

    /// The graph of this many steps that gather their own batches.
    pub(super) fn fed(&self, steps: usize) -> Option<&CapturedGraph> {
        self.fed.iter().find(|(s, _)| *s == steps).map(|(_, graph)| graph)
    }

    /// The numbers of steps in launches that gather their own batches, in falling order.
    pub(super) fn fed_sizes(&self) -> impl Iterator<Item = usize> {
        self.fed.iter().map(|(steps, _)| *steps)
    }

    /// The graphs that may be launched.
    pub(super) fn by_role(&self) -> Vec<(Role, &CapturedGraph)> {
        let one = self.one.as_ref().ok().map(|graph| (Role::One, graph));
        let several = self.several.as_ref().map(|(steps, graph)| (Role::Several(*steps), graph));
        let fed = self.fed.iter().map(|(steps, graph)| (Role::Fed(*steps), graph));
        one.into_iter().chain(several).chain(fed).collect()
    }

    /// A graph by its index among [`Self::by_role`].
    pub(super) fn numbered(&self, number: usize) -> Option<(Role, &CapturedGraph)> {
        self.by_role().get(number).copied()
    }

    /// Like [`Self::numbered`], mutable.
    pub(super) fn numbered_mut(&mut self, number: usize) -> Option<&mut CapturedGraph> {
        let one = self.one.as_mut().ok();
        let several = self.several.as_mut().map(|(_, graph)| graph);
        let fed = self.fed.iter_mut().map(|(_, graph)| graph);
        one.into_iter().chain(several).chain(fed).nth(number)
    }
}
