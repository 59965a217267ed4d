//! Layers of one node: derivatives that need only the gradient of the output, or one saved value in addition.

use crate::ir::builder::{At, Backward, Builder, Derivative};
use crate::ir::nodes::NodeKind;
use crate::ir::value::ValueId;
use crate::tensor::Shape;

/// `y = node(x)`, with `dx = gradient(dy)`.
pub(super) fn unary(
    b: &mut Builder<'_>,
    at: &At<'_>,
    node: impl Into<NodeKind>,
    gradient: impl Into<NodeKind>,
) -> ValueId {
    let y = b.real("y", at.out.clone());
    b.node(node, vec![at.x], vec![y]);
    let input = b.shape(at.x);
    b.record(Unary { gradient: gradient.into(), input });
    y
}

struct Unary {
    gradient: NodeKind,
    input: Shape,
}

impl Derivative for Unary {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        b.input_gradient(at, self.gradient.clone(), vec![at.dy], self.input.clone())
    }
}

/// The derivative of a layer whose output has the shape of its input: `dx = gradient(dy, saved)`.
pub(super) struct WithSaved {
    pub gradient: NodeKind,
    pub saved: ValueId,
}

impl Derivative for WithSaved {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let shape = b.shape(at.dy);
        b.input_gradient(at, self.gradient.clone(), vec![at.dy, self.saved], shape)
    }
}
