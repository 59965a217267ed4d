//! Lowers each node: to the operations of layers, of the loss and of the update.

mod affine;
mod attention;
mod joined;
mod loss;
mod norm;
mod pointwise;
mod pool;
mod recurrence;
mod sequence;
mod update;

use super::lowerer::Lowerer;
use crate::ir::{Node, each_node};

/// The lowering of one kind of node.
trait Lower {
    /// Adds the operations of `node`, which is of this kind, and maps its outputs.
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node);
}

/// Adds the operations of a node.
pub(super) fn lower_node(l: &mut Lowerer<'_>, node: &Node) {
    each_node!(&node.kind, kind => kind.lower(l, node));
}
