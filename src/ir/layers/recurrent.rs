//! `rnn`, `gru` and `lstm`: one product for the input part of all positions, then a loop over them.

use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes::{self, Direction};
use crate::ir::value::ValueId;
use crate::model::layers::{Gru, Lstm, Recurrent, Rnn};
use crate::model::{Layer, ParamKind};
use crate::tensor::Shape;

impl Forward for Rnn {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        recurrent(b, at, self.recurrent())
    }
}

impl Forward for Gru {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        recurrent(b, at, self.recurrent())
    }
}

impl Forward for Lstm {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        recurrent(b, at, self.recurrent())
    }
}

/// One direction after the other; the second one also concatenates the outputs.
fn recurrent(b: &mut Builder<'_>, at: &At<'_>, layer: Recurrent) -> ValueId {
    let x = b.save(at.x);
    let (mut walks, mut output) = (Vec::new(), None);
    for (index, params) in layer.directions().iter().enumerate() {
        let Recurrent { cell, bidirectional, last, .. } = layer;
        let direction = Direction { cell, reverse: index == 1, bidirectional, last };
        let walk = walk(b, at, layer.units, (direction, params), output);
        output = Some(walk.y);
        walks.push(walk);
    }
    b.record(Walks { x, walks });
    b.trained_before = true;
    output.unwrap_or(at.x)
}

/// What one direction stores for its derivative.
struct Walk {
    direction: Direction,
    params: &'static [ParamKind; 4],
    y: ValueId,
    gates: ValueId,
    inner: Option<ValueId>,
    before: ValueId,
}

/// The suffix of the names of a direction's values.
fn suffix(direction: Direction) -> &'static str {
    if direction.reverse { "_reverse" } else { "" }
}

/// The nodes of one direction; `other` is the output of the other direction, if that was built before.
fn walk(
    b: &mut Builder<'_>,
    at: &At<'_>,
    units: usize,
    (direction, params): (Direction, &'static [ParamKind; 4]),
    other: Option<ValueId>,
) -> Walk {
    let positions = &b.shape(at.x).0[..2];
    let of_width = |width: usize| Shape([positions, &[width]].concat());
    let (wide, narrow) = (of_width(direction.cell.gates() * units), of_width(units));
    let end = suffix(direction);
    let [weight_ih, weight_hh, bias_ih, bias_hh] = params.map(|kind| b.param_value(at.layer, kind));
    let input = b.real(&format!("input{end}"), wide.clone());
    let inputs = [Some(at.x), weight_ih, bias_ih].into_iter().flatten().collect();
    b.node(nodes::Linear { bias: true, tied: false }, inputs, vec![input]);
    let is_output = direction.reverse || !direction.bidirectional;
    let shape = match (is_output, direction.last) {
        (true, _) => at.out.clone(),
        (false, true) => Shape::from([positions[0], units]),
        (false, false) => narrow.clone(),
    };
    let y = b.real(if is_output { "y" } else { "y_forward" }, shape);
    let gates = b.real(&format!("gates{end}"), wide);
    let inner = direction.cell.keeps_inner().then(|| b.real(&format!("inner{end}"), narrow.clone()));
    let before = b.real(&format!("before{end}"), narrow);
    let inputs = [Some(input), weight_hh, bias_hh, other].into_iter().flatten().collect();
    let outputs = [Some(y), Some(gates), inner, Some(before)].into_iter().flatten().collect();
    b.node(nodes::Recurrence { direction }, inputs, outputs);
    Walk { direction, params, y, gates, inner, before }
}

struct Walks {
    x: ValueId,
    walks: Vec<Walk>,
}

/// The gradients of the directions are added at the input.
impl Derivative for Walks {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let shape = b.shape(self.x);
        let mut sum = None;
        for walk in self.walks.iter().rev() {
            let dx = walk.backward(b, at, self.x);
            sum = match (sum, dx) {
                (Some(sum), Some(dx)) => {
                    let both = b.real("gA", shape.clone());
                    b.node(nodes::GradAdd {}, vec![dx, sum], vec![both]);
                    Some(both)
                }
                (sum, dx) => sum.or(dx),
            };
        }
        sum
    }
}

impl Walk {
    /// The backward loop, and the products of its gradients; returns the gradient of the input if it is needed.
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>, x: ValueId) -> Option<ValueId> {
        let (direction, end) = (self.direction, suffix(self.direction));
        let [weight_ih, weight_hh, bias_ih, bias_hh] = *self.params;
        let wide = b.shape(self.gates);
        let dinput = b.real(&format!("gInput{end}"), wide.clone());
        let dhidden = direction.cell.has_hidden_gradient().then(|| b.real(&format!("gHidden{end}"), wide));
        let w = b.param_value(at.layer, weight_hh);
        let before = dhidden.map(|_| self.before);
        let inputs = [Some(at.dy), w, Some(self.gates), self.inner, before].into_iter().flatten().collect();
        b.node(nodes::RecurrenceBwd { direction }, inputs, [Some(dinput), dhidden].into_iter().flatten().collect());
        linear(b, at.layer, (dhidden.unwrap_or(dinput), self.before), [weight_hh, bias_hh], None);
        let dx = at.input_grad.then(|| {
            let name = if direction.bidirectional {
                format!("gA{}", if end.is_empty() { "_forward" } else { end })
            } else {
                "gA".into()
            };
            let shape = b.shape(x);
            b.real(&name, shape)
        });
        linear(b, at.layer, (dinput, x), [weight_ih, bias_ih], dx);
        dx
    }
}

/// The gradients of a product's weight and bias, and of its input `x` if there is a value for it.
fn linear(
    b: &mut Builder<'_>,
    layer: &Layer,
    (dy, x): (ValueId, ValueId),
    [weight, bias]: [ParamKind; 2],
    dx: Option<ValueId>,
) {
    let w = b.param_value(layer, weight);
    let (w_before, dw) = b.param_grad(layer, weight, &format!("g_{}", weight.file_name()));
    let (b_before, db) = b.param_grad(layer, bias, &format!("g_{}", bias.file_name()));
    let inputs = [Some(dy), Some(x), w, w_before, b_before].into_iter().flatten().collect();
    let outputs = [dw, db, dx].into_iter().flatten().collect();
    let (input_grad, accumulate) = (dx.is_some(), w_before.is_some());
    b.node(nodes::LinearBwd { bias: true, input_grad, accumulate, tied: false, zeros: None }, inputs, outputs);
}
