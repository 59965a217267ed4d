//! `flatten`.

use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::layers::Flatten;
use crate::tensor::Shape;

impl Forward for Flatten {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let y = b.real("y", at.out.clone());
        b.node(nodes::Flatten {}, vec![at.x], vec![y]);
        let input = b.shape(at.x);
        b.record(Flattened { input });
        y
    }
}

struct Flattened {
    input: Shape,
}

impl Derivative for Flattened {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        b.input_gradient(at, nodes::FlattenBwd {}, vec![at.dy], self.input.clone())
    }
}
