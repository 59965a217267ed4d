//! What the user can select; all views share one selection.

use crate::ir::NodeId;
use crate::model::LayerPath;
use crate::plan::BufferId;

/// The selected item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    #[default]
    Nothing,
    Layer(LayerPath),
    /// An operation, by its index in the step.
    Op(usize),
    Buffer(BufferId),
    /// A part of a flat vector, by its index there: one parameter, gradient or moment.
    Part(BufferId, usize),
    /// A node of the graph before lowering.
    Node(NodeId),
    /// A lowered operation, before fusion, by its index.
    Lowered(usize),
    /// A kernel, by its id: every operation that runs it.
    Kernel(String),
    /// A call of the recording (a node of a GPU's graph), by its index.
    Call(usize),
    /// Bytes `[from, to)` of the arena.
    Bytes([u64; 2]),
}
