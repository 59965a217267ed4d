//! The training step as one semantic graph: forward, loss, backward, optimizer and metrics.
//!
//! The graph is in single assignment form: every value is produced once, by a node that comes before its readers.
//! Shapes are logical (`[N, C, H, W]`); there is no memory, no layout and no kernel here. [`build`] makes it from a
//! model, and [`verify`] checks it independently. The forward pass and the derivative of each layer are side by side in
//! `layers/`; the nodes are defined in [`nodes`].

mod build;
mod builder;
mod graph;
mod layers;
mod loss;
mod mode;
pub mod nodes;
mod print;
mod update;
mod value;
mod verify;

pub use build::{build, build_share};
pub use graph::{Graph, Input, InputKind, Inputs, Node, Phase};
pub use mode::{Metrics, Mode, Share};
pub(crate) use nodes::each_node;
pub use nodes::{NodeKind, Over, PoolKind, Window};
pub(crate) use print::phase_fill;
pub use value::{NodeId, Role, Value, ValueId};
pub use verify::{IrError, verify};
