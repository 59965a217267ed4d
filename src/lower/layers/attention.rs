//! Attention between positions, and its gradient.

use super::Lower;
use crate::ir::{Node, ValueId, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::Layout;
use crate::ops::{self, AttentionGeometry, OpKind, Scalar};

impl Lower for nodes::Attention {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let qkv = l.lowered(node.inputs[0]);
        let counter = node.inputs.get(1).map(|&v| l.lowered(v));
        let [y, lse] = [0, 1].map(|i| l.lower_value(node.outputs[i], Layout::Plain));
        let kind = OpKind::Attention(ops::Attention { geometry: self.geometry(l, node.outputs[0]) });
        l.emit(kind, &[("qkv", Some(qkv)), ("counter", counter), ("y", Some(y)), ("lse", Some(lse))]);
    }
}

impl Lower for nodes::AttentionBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let [dy, qkv, y, lse] = [0, 1, 2, 3].map(|i| l.lowered(node.inputs[i]));
        let dy = l.arranged(dy, Layout::Plain);
        let counter = node.inputs.get(4).map(|&v| l.lowered(v));
        let dx = l.lower_value(node.outputs[0], Layout::Plain);
        let kind = OpKind::AttentionBwd(ops::AttentionBwd { geometry: self.forward.geometry(l, node.inputs[2]) });
        let bound = [
            ("dy", Some(dy)),
            ("qkv", Some(qkv)),
            ("y", Some(y)),
            ("lse", Some(lse)),
            ("counter", counter),
            ("dx", Some(dx)),
        ];
        l.emit(kind, &bound);
    }
}

impl nodes::Attention {
    /// The dimensions, from the shape of the output.
    fn geometry(&self, l: &Lowerer<'_>, y: ValueId) -> AttentionGeometry {
        let [batch, positions, width] = l.graph.value(y).shape.0[..] else {
            unreachable!("the graph's verifier lets only positions through")
        };
        let Self { heads, kv_heads, causal, rotary, stream, .. } = *self;
        let (head_dim, dropout) = (width / heads, Scalar::new(self.dropout));
        AttentionGeometry { batch, positions, heads, kv_heads, head_dim, causal, rotary, dropout, stream }
    }
}
