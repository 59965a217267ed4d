//! `embedding`, `position` and `take`.

use super::unary::unary;
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::ParamKind;
use crate::model::layers::{Embedding, Position, PositionKind, Take};

impl Forward for Embedding {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let weight = b.param_value(at.layer, ParamKind::Weight);
        let y = b.real("y", at.out.clone());
        b.node(nodes::Embedding {}, std::iter::once(at.x).chain(weight).collect(), vec![y]);
        b.record(Embedded { tokens: at.x });
        b.trained_before = true;
        y
    }
}

struct Embedded {
    tokens: ValueId,
}

/// Tokens have no gradient.
impl Derivative for Embedded {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let (before, dweight) = b.param_grad(at.layer, ParamKind::Weight, "gW");
        let inputs = [Some(self.tokens), Some(at.dy), before].into_iter().flatten().collect();
        b.node(nodes::EmbeddingBwd { accumulate: before.is_some() }, inputs, dweight.into_iter().collect());
        None
    }
}

impl Forward for Position {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let y = b.real("y", at.out.clone());
        match self.kind {
            PositionKind::Learned => {
                let weight = b.param_value(at.layer, ParamKind::Weight);
                b.node(nodes::AddPositions {}, std::iter::once(at.x).chain(weight).collect(), vec![y]);
                b.record(Positioned);
                b.trained_before = true;
            }
            // The added values are constant, so that the gradient passes unchanged.
            PositionKind::Sinusoidal => b.node(nodes::AddSinusoids {}, vec![at.x], vec![y]),
        }
        y
    }
}

struct Positioned;

impl Derivative for Positioned {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let (before, dweight) = b.param_grad(at.layer, ParamKind::Weight, "gW");
        let inputs = std::iter::once(at.dy).chain(before).collect();
        b.node(nodes::AddPositionsBwd { accumulate: before.is_some() }, inputs, dweight.into_iter().collect());
        at.input_grad.then_some(at.dy)
    }
}

impl Forward for Take {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let at_position = self.at.position(b.shape(at.x).0[1]);
        unary(b, at, nodes::Take { at: at_position }, nodes::TakeBwd { at: at_position })
    }
}
