//! `residual` and `repeat`: blocks of layers.

use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::layers::{Repeat, Residual};

impl Forward for Residual {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let block = b.layer;
        b.record(Begin);
        let inner = (at.inside)(b, at.layer, at.x);
        b.layer = block;
        let y = b.real("y", at.out.clone());
        // The inner value is first: an addition in place overwrites it and leaves the input to its other readers.
        b.node(nodes::Add {}, vec![inner, at.x], vec![y]);
        b.record(End);
        y
    }
}

struct Begin;
struct End;

/// The gradient goes through the layers inside, and around them.
impl Derivative for End {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        b.around.push(at.input_grad.then_some(at.dy));
        Some(at.dy)
    }
}

/// The two gradients meet.
impl Derivative for Begin {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let skip = b.around.pop().flatten().filter(|_| at.input_grad)?;
        let shape = b.shape(at.dy);
        let sum = b.real("gA", shape);
        b.node(nodes::GradAdd {}, vec![at.dy, skip], vec![sum]);
        Some(sum)
    }
}

impl Forward for Repeat {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let outer = b.pass;
        let mut v = at.x;
        for time in 0..self.times {
            b.pass = outer * self.times as u32 + time as u32;
            v = (at.inside)(b, at.layer, v);
        }
        b.pass = outer;
        v
    }
}
