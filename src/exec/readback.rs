//! The content of captured graphs, read back from their nodes, and faults for testing the ledger.

use super::backend::{Fault, GraphRead, Undo};
use crate::exec::error::ExecError;
use crate::exec::step::Step;
use std::path::Path;

impl Step {
    /// The captured graphs that may be launched, as text; empty on a CPU, whose recording is a list of calls that every
    /// replay compares.
    #[must_use]
    pub fn graphs(&self) -> Vec<String> {
        self.backend.graphs()
    }

    /// Reads the nodes of a graph, given by its index in [`Self::graphs`], and compares their arguments with those of
    /// the plan. Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, or an error of the driver.
    pub fn read_graph(&self, graph: usize) -> Result<GraphRead, ExecError> {
        self.backend.read_graph(graph)
    }

    /// Performs the checks that precede a launch of this graph. Nothing is launched.
    ///
    /// # Errors
    /// What changed since the graph was captured.
    pub fn check_graph(&self, graph: usize) -> Result<(), ExecError> {
        self.backend.check_graph(graph)
    }

    /// Captures several steps in one graph, if the device can, also such that fetch their batches; returns false if it
    /// cannot.
    ///
    /// # Errors
    /// If the driver reports an error, or the graph is not the planned one.
    pub fn capture_several(&mut self, most: usize) -> Result<bool, ExecError> {
        self.backend.capture_several(most)
    }

    /// Writes the captured graph of one step in Graphviz's language, as the driver sees it; returns false if there are
    /// no graphs.
    ///
    /// # Errors
    /// If the step could not be captured, or the file cannot be written.
    pub fn write_graph(&self, path: &Path) -> Result<bool, ExecError> {
        self.backend.write_graph(path)
    }

    /// Changes a recording, so that a test can check that the ledger finds the change. Returns `None` if the recording
    /// has no such place.
    ///
    /// # Errors
    /// If the driver reports an error.
    pub fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError> {
        self.backend.inject(fault)
    }

    /// Undoes [`Self::inject`].
    ///
    /// # Errors
    /// If the driver reports an error.
    pub fn undo(&mut self, undo: Undo) -> Result<(), ExecError> {
        self.backend.undo(undo)
    }
}
