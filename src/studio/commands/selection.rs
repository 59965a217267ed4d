//! What the user can point at, one selection for all views.

use crate::ir::NodeId;
use crate::model::LayerPath;
use crate::plan::BufferId;

/// What the user pointed at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    #[default]
    Nothing,
    Layer(LayerPath),
    /// An operation, by its place in the step.
    Op(usize),
    Buffer(BufferId),
    /// A part of a flat vector, by its place there: one parameter, gradient or moment.
    Part(BufferId, usize),
    /// A node of the graph before lowering.
    Node(NodeId),
    /// An operation as lowered, before fusion, by its place there.
    Lowered(usize),
    /// A kernel, by its id: every operation that runs it.
    Kernel(String),
    /// A call of the recording (a node of a GPU's graph), by its place.
    Call(usize),
    /// Bytes `[from, to)` of the arena.
    Bytes([u64; 2]),
}
