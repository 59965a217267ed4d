//! Pooling over images and its gradients.

use super::Lower;
use crate::ir::{Node, PoolKind, Window, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::Layout;
use crate::ops;
use crate::ops::OpKind;
use crate::ops::PoolGeometry;

impl Lower for nodes::Pool {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { pool, window } = *self;
        let x = l.lowered_image(node.inputs[0]);
        let y_dims = l.graph_dims4(node.outputs[0]);
        let geometry = pool_geometry(l.dims4(x), y_dims, window);
        let layout = l.image_layout(node.outputs[0]);
        let y = Some(l.lower_value(node.outputs[0], layout));
        let index = node.outputs.get(1).copied().map(|i| l.lower_value(i, layout));
        let kind = match pool {
            PoolKind::Max => OpKind::MaxPool(ops::MaxPool { geometry }),
            PoolKind::Avg => OpKind::AvgPool(ops::AvgPool { geometry }),
        };
        l.emit(kind, &[("x", Some(x)), ("y", y), ("index", index)]);
    }
}

impl Lower for nodes::PoolBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { pool, window } = *self;
        let dy = l.lowered_image(node.inputs[0]);
        let x_dims = l.graph_dims4(node.outputs[0]);
        let geometry = pool_geometry(x_dims, l.dims4(dy), window);
        let layout = l.image_layout(node.outputs[0]);
        let dx = Some(l.lower_value(node.outputs[0], layout));
        match pool {
            PoolKind::Max => {
                let index = Some(l.lowered(node.inputs[1]));
                l.emit(
                    OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }),
                    &[("dy", Some(dy)), ("index", index), ("dx", dx)],
                );
            }
            PoolKind::Avg => l.emit(OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }), &[("dy", Some(dy)), ("dx", dx)]),
        }
    }
}

fn pool_geometry(x: [usize; 4], y: [usize; 4], window: Window) -> PoolGeometry {
    let ([n, c, h, w], [.., ho, wo]) = (x, y);
    PoolGeometry { n, h, w, c, size: window.size, stride: window.stride, padding: window.padding, ho, wo }
}

impl Lower for nodes::GlobalAvgPool {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let x = l.lowered_image(node.inputs[0]);
        let [n, c, h, w] = l.dims4(x);
        let y = l.lower_value(node.outputs[0], Layout::Plain);
        l.emit(OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw: h * w, c }), &[("x", Some(x)), ("y", Some(y))]);
    }
}

impl Lower for nodes::GlobalAvgPoolBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let dy = l.lowered(node.inputs[0]);
        let dy = l.arranged(dy, Layout::Plain);
        let [n, c, h, w] = l.graph_dims4(node.outputs[0]);
        let layout = l.image_layout(node.outputs[0]);
        let dx = l.lower_value(node.outputs[0], layout);
        l.emit(
            OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw: h * w, c }),
            &[("dy", Some(dy)), ("dx", Some(dx))],
        );
    }
}
