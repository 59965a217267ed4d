//! Elementwise functions, sums, views, and values kept for the backward pass.

use super::Lower;
use crate::ir::{Node, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::Layout;
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Scalar;

impl Lower for nodes::Activation {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = l.lowered(node.inputs[0]);
        let (len, layout) = (l.lv(x).shape.len(), l.lv(x).layout);
        let y = l.lower_value(node.outputs[0], layout);
        l.emit(OpKind::Act(ops::Act { func: self.func, len }), &[("x", Some(x)), ("y", Some(y))]);
    }
}

impl Lower for nodes::ActivationBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let saved = l.lowered(node.inputs[1]);
        let (len, layout) = (l.lv(saved).shape.len(), l.lv(saved).layout);
        let dy = l.lowered(node.inputs[0]);
        let dy = l.arranged(dy, layout);
        let dx = l.lower_value(node.outputs[0], layout);
        let bound = [("dy", Some(dy)), ("saved", Some(saved)), ("dx", Some(dx))];
        l.emit(OpKind::ActBwd(ops::ActBwd { func: self.func, len }), &bound);
    }
}

impl Lower for nodes::Dropout {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let (x, counter) = (l.lowered(node.inputs[0]), l.lowered(node.inputs[1]));
        let (len, layout) = (l.lv(x).shape.len(), l.lv(x).layout);
        let (y, mask) = (l.lower_value(node.outputs[0], layout), l.lower_value(node.outputs[1], Layout::Plain));
        let kind = OpKind::Dropout(ops::Dropout { len, rate: Scalar::new(self.rate), stream: self.stream });
        l.emit(kind, &[("x", Some(x)), ("counter", Some(counter)), ("y", Some(y)), ("mask", Some(mask))]);
    }
}

impl Lower for nodes::DropoutBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let (dy, mask) = (l.lowered(node.inputs[0]), l.lowered(node.inputs[1]));
        // The mask counts elements in the order of the forward output, which is that of its producer's output.
        let producer = l.graph.value(node.inputs[1]).producer.map(|p| l.graph.node(p).outputs[0]);
        let layout = producer.map_or(Layout::Plain, |y| l.lv(l.lowered(y)).layout);
        let dy = l.arranged(dy, layout);
        let len = l.lv(dy).shape.len();
        let dx = l.lower_value(node.outputs[0], layout);
        let kind = OpKind::DropoutBwd(ops::DropoutBwd { len, rate: Scalar::new(self.rate) });
        l.emit(kind, &[("dy", Some(dy)), ("mask", Some(mask)), ("dx", Some(dx))]);
    }
}

impl Lower for nodes::Flatten {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        view(l, node);
    }
}

impl Lower for nodes::FlattenBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        view(l, node);
    }
}

/// The output is the input's memory with another shape.
fn view(l: &mut Lowerer<'_>, node: &Node) {
    let x = l.lowered(node.inputs[0]);
    let y = l.updated(node.outputs[0], x);
    l.values[y.0 as usize].persistent = false;
}

impl Lower for nodes::Save {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = l.lowered(node.inputs[0]);
        l.set_lowered(node.outputs[0], x);
    }
}

impl Lower for nodes::Add {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        pairwise(l, node, |len| OpKind::Add(ops::Add { len }));
    }
}

impl Lower for nodes::GradAdd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        pairwise(l, node, |len| OpKind::Add(ops::Add { len }));
    }
}

impl Lower for nodes::Scale {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = l.lowered(node.inputs[0]);
        let (len, layout) = (l.lv(x).shape.len(), l.lv(x).layout);
        let y = l.lower_value(node.outputs[0], layout);
        let kind = OpKind::Scale(ops::Scale { len, factor: Scalar::new(self.factor) });
        l.emit(kind, &[("x", Some(x)), ("y", Some(y))]);
    }
}

/// An operation on two values of one shape, element by element, with this number of elements.
pub(super) fn pairwise(l: &mut Lowerer<'_>, node: &Node, kind: fn(usize) -> OpKind) {
    let a = l.lowered(node.inputs[0]);
    let b = l.lowered(node.inputs[1]);
    let (len, layout) = (l.lv(a).shape.len(), l.lv(a).layout);
    let b = l.arranged(b, layout);
    let y = l.lower_value(node.outputs[0], layout);
    l.emit(kind(len), &[("a", Some(a)), ("b", Some(b)), ("y", Some(y))]);
}
