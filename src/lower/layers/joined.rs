//! Concatenated values, parts of them, and elementwise products.

use super::Lower;
use super::pointwise::pairwise;
use crate::ir::{Node, ValueId, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;

/// A value in the layout in which its rows are concatenated: for an image, its pixels with the channels last.
fn rows(l: &mut Lowerer<'_>, id: LValueId) -> LValueId {
    if l.lv(id).shape.rank() == 4 { l.image(id) } else { l.arranged(id, Layout::Plain) }
}

/// A value of the graph in that layout.
fn layout(l: &Lowerer<'_>, id: ValueId) -> Layout {
    match l.graph.value(id).shape.0[..] {
        [_, c, h, w] => Layout::image(c, h, w),
        _ => Layout::Plain,
    }
}

/// The rows of a value of the graph, and their width along an axis.
fn measures(l: &Lowerer<'_>, id: ValueId, axis: usize) -> (usize, usize) {
    let shape = &l.graph.value(id).shape;
    let width = shape.0[axis];
    (shape.len() / width.max(1), width)
}

// Every concatenation that a node allows is possible in one operation.
const _: () = assert!(nodes::MOST_JOINED == ops::Concat::MOST);

impl Lower for nodes::Concat {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let widths: Vec<usize> = node.inputs.iter().map(|&id| measures(l, id, self.axis).1).collect();
        let (count, _) = measures(l, node.outputs[0], self.axis);
        let mut bound = Vec::with_capacity(widths.len() + 1);
        for (&slot, &id) in ops::Concat::SOURCES.iter().zip(&node.inputs) {
            let source = l.lowered(id);
            bound.push((ops::slot::concat::SLOTS[slot].name, Some(rows(l, source))));
        }
        let layout = layout(l, node.outputs[0]);
        bound.push(("y", Some(l.lower_value(node.outputs[0], layout))));
        l.emit(OpKind::Concat(ops::Concat { rows: count, widths }), &bound);
    }
}

impl Lower for nodes::ConcatBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let dy = l.lowered(node.inputs[0]);
        let dy = rows(l, dy);
        let (_, cols) = measures(l, node.inputs[0], self.axis);
        let (count, width) = measures(l, node.outputs[0], self.axis);
        let layout = layout(l, node.outputs[0]);
        let dx = l.lower_value(node.outputs[0], layout);
        let kind = OpKind::Slice(ops::Slice { rows: count, cols, from: self.from, width });
        l.emit(kind, &[("x", Some(dy)), ("y", Some(dx))]);
    }
}

impl Lower for nodes::Multiply {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        pairwise(l, node, |len| OpKind::Multiply(ops::Multiply { len }));
    }
}
