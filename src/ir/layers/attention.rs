//! `attention`: a product that computes queries, keys and values, the attention of every head, and a product that mixes
//! the heads.

use super::affine::{Params, projection};
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes;
use crate::ir::value::ValueId;
use crate::model::ParamKind;
use crate::model::layers::Attention;
use crate::tensor::Shape;

const IN: Params =
    Params { weight: ParamKind::InWeight, bias: ParamKind::InBias, gradients: ["gW.in", "gB.in", "gA"], zeros: None };
const OUT: Params = Params {
    weight: ParamKind::OutWeight,
    bias: ParamKind::OutBias,
    gradients: ["gW.out", "gB.out", "gA.heads"],
    zeros: None,
};

impl Forward for Attention {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let Self { heads, kv_heads, causal, rotary, .. } = *self;
        let [batch, positions, width] = at.out.0[..] else { unreachable!("the checker lets only positions through") };
        let counter = b.drawn_by().filter(|_| self.dropout > 0.0);
        let dropout = if counter.is_some() { self.dropout } else { 0.0 };
        // Without dropout, equal layers are equal operations, which share kernels and times.
        let stream = if dropout > 0.0 { b.streams } else { 0 };
        b.streams += 1;
        let node = nodes::Attention { heads, kv_heads, causal, rotary, dropout, stream };
        let keys = width / heads * kv_heads;
        let packed = Shape::from([batch, positions, width + 2 * keys]);
        // An offset of all keys adds the same number to every score of a query, which does not change the softmax. With
        // rotary embedding, the rotated offset differs from key to key.
        let zeros = (!rotary).then_some([width, width + keys]);
        let qkv = projection(b, at, at.x, Params { zeros, ..IN }, ("qkv", packed));
        let (qkv_saved, y) = (b.save(qkv), b.real("heads", at.out.clone()));
        let lse = b.real("lse", Shape::from([batch, heads, positions]));
        b.node(node.clone(), std::iter::once(qkv).chain(counter).collect(), vec![y, lse]);
        let y_saved = b.save(y);
        b.record(Attended { node, qkv: qkv_saved, y: y_saved, lse, counter });
        projection(b, at, y, OUT, ("y", at.out.clone()))
    }
}

struct Attended {
    node: nodes::Attention,
    qkv: ValueId,
    y: ValueId,
    lse: ValueId,
    counter: Option<ValueId>,
}

impl Derivative for Attended {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let shape = b.shape(self.qkv);
        let dx = b.real("gA.qkv", shape);
        let inputs = [at.dy, self.qkv, self.y, self.lse].into_iter().chain(self.counter).collect();
        b.node(nodes::AttentionBwd { forward: self.node.clone() }, inputs, vec![dx]);
        Some(dx)
    }
}
