//! `residual` and `repeat`: blocks of layers; and the blocks that do not exist in the model of a path.

use crate::ir::Mode;
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward, Tape};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::layers::{BranchLayer, EarlyExit, Repeat, Residual};

impl Forward for Residual {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let input_grad = b.trained_before;
        let (inside, inner) = b.apart(|b| (at.inside)(b, at.layer, 0, at.x));
        // Stochastic depth: the result of layers that run in a share of the steps is divided by that share.
        let factor = (b.mode == Mode::Train && self.keep < 1.0).then(|| 1.0 / self.keep);
        let inner = factor.map_or(inner, |factor| scaled(b, "scaled", inner, factor));
        let y = b.real("y", at.out.clone());
        // The inner value is the first operand: an addition in place overwrites it and leaves the input for its other
        // readers.
        b.node(nodes::Add {}, vec![inner, at.x], vec![y]);
        b.record(Around { inside, input_grad, factor });
        y
    }
}

/// A value times a factor.
fn scaled(b: &mut Builder<'_>, name: &str, x: ValueId, factor: f64) -> ValueId {
    let shape = b.shape(x);
    let y = b.real(name, shape);
    b.node(nodes::Scale { factor }, vec![x], vec![y]);
    y
}

/// The gradient passes through the layers inside, and around them.
struct Around {
    inside: Tape,
    /// Whether the block's input needs a gradient.
    input_grad: bool,
    /// The factor of the output of the layers inside, if there is one.
    factor: Option<f64>,
}

impl Derivative for Around {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let grad = self.factor.map_or(at.dy, |factor| scaled(b, "gScaled", at.dy, factor));
        let inner = b.back_over(&self.inside, grad);
        if !self.input_grad {
            return None;
        }
        // If all layers inside take inputs of the network by name, only the gradient around them remains.
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

impl Forward for BranchLayer {
    fn forward(&self, _b: &mut Builder<'_>, _at: &At<'_>) -> ValueId {
        unreachable!("the graph is made of the layers of a path")
    }
}

impl Forward for EarlyExit {
    fn forward(&self, _b: &mut Builder<'_>, _at: &At<'_>) -> ValueId {
        unreachable!("the graph is made of the layers of a path")
    }
}
