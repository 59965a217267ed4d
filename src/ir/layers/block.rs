//! `residual` and `repeat`: blocks of layers.

use crate::ir::builder::{At, Backward, Builder, Derivative, Forward, Tape};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::layers::{Repeat, Residual};

impl Forward for Residual {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let input_grad = b.trained_before;
        let (inside, inner) = b.apart(|b| (at.inside)(b, at.layer, 0, at.x));
        let y = b.real("y", at.out.clone());
        // The inner value is first: an addition in place overwrites it and leaves the input to its other readers.
        b.node(nodes::Add {}, vec![inner, at.x], vec![y]);
        b.record(Around { inside, input_grad });
        y
    }
}

/// The gradient goes through the layers inside, and around them.
struct Around {
    inside: Tape,
    /// Whether the block's input needs a gradient.
    input_grad: bool,
}

impl Derivative for Around {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let inner = b.back_over(&self.inside, at.dy);
        if !self.input_grad {
            return None;
        }
        // Layers inside that all take inputs of the network by name leave the gradient that goes around them.
        let Some(inner) = inner else { return Some(at.dy) };
        let shape = b.shape(inner);
        let sum = b.real("gA", shape);
        b.node(nodes::GradAdd {}, vec![inner, at.dy], vec![sum]);
        Some(sum)
    }
}

impl Forward for Repeat {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let outer = b.pass;
        let mut v = at.x;
        for time in 0..self.times {
            b.pass = outer * self.times as u32 + time as u32;
            v = (at.inside)(b, at.layer, 0, v);
        }
        b.pass = outer;
        v
    }
}
