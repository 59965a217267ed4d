//! What captured graphs hold, read back from their nodes, and faults that show that the ledger finds them.

use super::backend::{Fault, GraphRead, Undo};
use crate::exec::error::ExecError;
use crate::exec::step::Step;
use std::path::Path;

impl Step {
    /// The captured graphs that may be launched, in words; none on a CPU, whose recording is a list of calls that every
    /// replay compares.
    #[must_use]
    pub fn graphs(&self) -> Vec<String> {
        self.backend.graphs()
    }

    /// Reads the nodes of a graph, by its place among [`Self::graphs`], and compares their arguments with the plan's.
    /// Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, and what the driver says.
    pub fn read_graph(&self, graph: usize) -> Result<GraphRead, ExecError> {
        self.backend.read_graph(graph)
    }

    /// Checks what a launch of this graph checks. Nothing is launched.
    ///
    /// # Errors
    /// What changed since it was captured.
    pub fn check_graph(&self, graph: usize) -> Result<(), ExecError> {
        self.backend.check_graph(graph)
    }

    /// Captures several steps in one graph, where a device can; false where it cannot.
    ///
    /// # Errors
    /// What the driver says, and where the graph is not the planned one.
    pub fn capture_several(&mut self, most: usize) -> Result<bool, ExecError> {
        self.backend.capture_several(most)
    }

    /// Writes the captured graph of one step in Graphviz's language, as the driver sees it; false where there are no
    /// graphs.
    ///
    /// # Errors
    /// Where the step could not be captured, or the file cannot be written.
    pub fn write_graph(&self, path: &Path) -> Result<bool, ExecError> {
        self.backend.write_graph(path)
    }

    /// Changes a recording, so that a test can see the ledger find it. Nothing where the recording has no such place.
    ///
    /// # Errors
    /// What the driver says.
    pub fn inject(&mut self, fault: Fault) -> Result<Option<Undo>, ExecError> {
        self.backend.inject(fault)
    }

    /// Takes back what [`Self::inject`] changed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn undo(&mut self, undo: Undo) -> Result<(), ExecError> {
        self.backend.undo(undo)
    }
}
