//! The training step as one graph of meanings: forward, loss, backward, optimizer and metrics.
//!
//! The graph is in single assignment: every value is produced once, by a node that stands before its readers. Shapes are logical (`[N, C, H, W]`);
//! there is no memory, no layout and no kernel here. [`build`] makes it from a model, [`verify`] checks it by rules of its own.

mod build;
mod graph;
mod mode;
mod print;
mod verify;

pub use build::build;
pub use graph::{Graph, Node, NodeId, NodeKind, OptimizerRule, Phase, PoolKind, Role, Value, ValueId, Window};
pub use mode::{Metrics, Mode};
pub(crate) use print::phase_fill;
pub use verify::{IrError, verify};
