//! Functions of each element, as layers or after a product.

use super::unary::WithSaved;
use crate::ir::builder::{At, Builder, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::Activation;
use crate::model::layers::ActivationLayer;
use crate::tensor::Shape;

impl Forward for ActivationLayer {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        activation(b, self.function, at.x, at.out.clone())
    }
}

/// `y = f(x)`.
pub(super) fn activation(b: &mut Builder<'_>, func: Activation, x: ValueId, out: Shape) -> ValueId {
    let before = if func.saves_output() { None } else { Some(b.save(x)) };
    let y = b.real("y", out);
    b.node(nodes::Activation { func }, vec![x], vec![y]);
    // The output or the input, as the function needs it.
    let saved = before.unwrap_or_else(|| b.save(y));
    b.record(WithSaved { gradient: nodes::ActivationBwd { func }.into(), saved });
    y
}
