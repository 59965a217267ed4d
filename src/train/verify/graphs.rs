//! The captured graphs of a GPU's step: their nodes are read again, and faults in nodes, memory, graphs and live
//! constants must be found.

use super::replay::{ReplayHarness, Trials};
use super::{Check, Culprit};
use crate::exec::cpu::Pool;
use crate::exec::{ExecError, Fault, GraphRead, Step};
use crate::ops::Dir;
use crate::tensor::counted;
use crate::train::TrainError;

impl ReplayHarness<'_> {
    /// The nodes of every graph that may be launched, read again and compared with the plan.
    pub(super) fn graph_nodes(&mut self) -> Result<Check, TrainError> {
        let why_no_evaluation = self.capture_all()?;
        let mut reads: Vec<GraphRead> = Vec::new();
        for step in self.graphs_steps() {
            for graph in 0..step.graphs().len() {
                reads.push(step.read_graph(graph)?);
            }
        }
        let mut figures = figures(&reads);
        if let Some(why) = why_no_evaluation {
            figures += &format!("; evaluations were not read: {why}");
        }
        self.rewind()?;
        Ok(Check::new(super::names::GRAPH_NODES, !reads.is_empty(), figures))
    }

    /// Captures the graphs that are otherwise captured when they are first needed. Returns the reason if there is none
    /// of an evaluation.
    fn capture_all(&mut self) -> Result<Option<String>, TrainError> {
        self.session.train.capture_several(usize::MAX)?;
        let made = self.session.make_evaluator();
        let evaluator = self.session.evaluator.as_ref();
        Ok(made.err().map(|error| error.to_string()).or_else(|| evaluator.and_then(|e| e.why_eager())))
    }

    /// The steps whose graphs are launched: the training step and the evaluation.
    fn graphs_steps(&mut self) -> Vec<&mut Step> {
        let evaluation = self.session.evaluator.as_mut().map(|evaluator| evaluator.step_mut());
        std::iter::once(&mut *self.session.train).chain(evaluation).collect()
    }

    /// A fault in every place that is read or checked, one at a time.
    pub(super) fn graph_faults(&mut self) -> Result<Trials, TrainError> {
        self.capture_all()?;
        let mut trials = Trials::default();
        let mut graphs = 0u64;
        for step in self.graphs_steps() {
            for (graph, name) in step.graphs().iter().enumerate() {
                argument_faults(step, graph, name, &mut trials)?;
                feed_fault(step, graph, name, &mut trials)?;
                graph_fault(step, graph, name, &mut trials)?;
                // With the last fault taken back, the graph must be the planned one again.
                step.read_graph(graph)?;
                graphs += 1;
            }
        }
        let nodes = trials.tried;
        let (train, pool) = (&mut self.session.train, &mut self.session.pool);
        replay_faults(train, pool, &mut trials)?;
        trials.about = format!(
            "faults found, {nodes} of them in nodes and instances of {}, {} at a replay (arena, instance, live constants)",
            counted(graphs, "graph"),
            trials.tried - nodes
        );
        if trials.unreadable > 0 {
            trials.about +=
                &format!("; operations in graphs without an address that can be recognised: {}", trials.unreadable);
        }
        if let Some(why) = &trials.refused {
            trials.about += &format!("; the driver refused to change some: {why}");
        }
        Ok(trials)
    }
}

/// What was read, in one line.
fn figures(reads: &[GraphRead]) -> String {
    let sum = |of: fn(&GraphRead) -> usize| reads.iter().map(of).sum::<usize>() as u64;
    let names: Vec<&str> = reads.iter().map(|read| read.name.as_str()).collect();
    let mut out = format!(
        "{} as captured ({}): {} in {} of {} equal the plan's",
        counted(reads.len() as u64, "graph"),
        names.join(", "),
        counted(sum(|r| r.arguments), "address"),
        sum(|r| r.kernels),
        counted(sum(|r| r.nodes), "node")
    );
    if sum(|r| r.library_nodes) > 0 {
        out += &format!(
            "; {} in {} of libraries: as at the capture",
            counted(sum(|r| r.library_arguments), "address"),
            counted(sum(|r| r.library_nodes), "node")
        );
    }
    if sum(|r| r.unread) > 0 {
        out += &format!("; nodes without an address that can be recognised: {}", sum(|r| r.unread));
    }
    out
}

/// The number of operations of a graph of several steps in which faults are tried: its nodes are those of one step,
/// repeated.
const TRIED_AGAIN: usize = 32;

/// One argument of every operation in turn, changed in the operation's last node: reading the nodes must name operation
/// and layer. In graphs of several steps it is done for some operations.
fn argument_faults(step: &mut Step, graph: usize, name: &str, trials: &mut Trials) -> Result<(), TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let ops = &compiled.plan.program.ops;
    let every = if graph == 0 { 1 } else { ops.len().div_ceil(TRIED_AGAIN).max(1) };
    for (op, bound) in ops.iter().enumerate().step_by(every) {
        let slots = bound.kind.slots().iter().zip(&bound.args).enumerate();
        let slots = slots.filter(|(_, (slot, arg))| slot.dir != Dir::Work && arg.is_some());
        let mut undo = None;
        for (slot, _) in slots {
            match step.inject(Fault::Argument { graph, op, slot }) {
                Ok(None) => {}
                // Nodes of libraries are not documented as changeable.
                Err(ExecError::Gpu(why)) => trials.refused = Some(why.to_string()),
                injected => {
                    undo = injected?;
                    break;
                }
            }
        }
        let Some(undo) = undo else {
            trials.unreadable += 1;
            continue;
        };
        let outcome = step.read_graph(graph).map(drop);
        step.undo(undo)?;
        trials.named(&compiled, op, outcome, &format!("in the graph of {name}"));
    }
    Ok(())
}

/// An argument of the data feed, changed in its node: reading the nodes must find it.
fn feed_fault(step: &mut Step, graph: usize, name: &str, trials: &mut Trials) -> Result<(), TrainError> {
    let Some(undo) = step.inject(Fault::Feed { graph })? else { return Ok(()) };
    let outcome = step.read_graph(graph).map(drop);
    step.undo(undo)?;
    let is_found = matches!(outcome, Err(ExecError::Graph { .. }));
    trials.found(is_found, &format!("an argument of the data feed in the graph of {name}"), None);
    Ok(())
}

/// Another instance of the graph, which was not there when its nodes were read: a launch must be refused.
fn graph_fault(step: &mut Step, graph: usize, name: &str, trials: &mut Trials) -> Result<(), TrainError> {
    let Some(undo) = step.inject(Fault::Instance { graph })? else { return Ok(()) };
    let outcome = step.check_graph(graph);
    step.undo(undo)?;
    let is_found = matches!(outcome, Err(ExecError::Graph { .. })) && step.check_graph(graph).is_ok();
    trials.found(is_found, &format!("another instance of the graph of {name}"), None);
    Ok(())
}

/// A change of what a replay checks: the replay must be refused.
fn replay_faults(train: &mut Step, pool: &mut Pool, trials: &mut Trials) -> Result<(), TrainError> {
    let constants = train.recording().live_constants;
    let faults = [Fault::Arena, Fault::Instance { graph: 0 }];
    for fault in faults.into_iter().chain((0..constants).map(Fault::LiveConstant)) {
        let Some(undo) = train.inject(fault)? else { continue };
        let outcome = train.replay(pool);
        train.undo(undo)?;
        let (is_found, culprit) = match (fault, &outcome) {
            (Fault::Arena, Err(ExecError::ArenaMoved { .. }))
            | (Fault::Instance { .. }, Err(ExecError::Graph { .. })) => (true, None),
            (Fault::LiveConstant(_), Err(ExecError::Ledger { op, .. })) => (true, Some(Culprit::Op(*op))),
            _ => (false, None),
        };
        trials.found(is_found, &format!("a replay with another {fault:?}"), culprit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_claim_what_was_read_and_no_more() {
        let own = GraphRead {
            name: "one step".into(),
            nodes: 12,
            kernels: 12,
            arguments: 50,
            library_nodes: 0,
            library_arguments: 0,
            unread: 0,
        };
        assert_eq!(
            figures(std::slice::from_ref(&own)),
            "1 graph as captured (one step): 50 addresses in 12 of 12 nodes equal the plan's"
        );
        let mixed = GraphRead {
            name: "one evaluation".into(),
            nodes: 9,
            kernels: 5,
            library_nodes: 4,
            library_arguments: 7,
            unread: 1,
            ..own.clone()
        };
        let text = figures(&[own, mixed]);
        assert!(text.contains("2 graphs as captured (one step, one evaluation): 100 addresses in 17 of 21 nodes"));
        assert!(text.ends_with(
            "7 addresses in 4 nodes of libraries: as at the capture; nodes without an address that can be recognised: 1"
        ));
    }
}
