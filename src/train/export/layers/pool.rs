//! `max_pool2d`, `avg_pool2d`, the same over positions, and `global_avg_pool`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{GlobalAvgPool, Pool, Pool1d};
use crate::train::export::onnx_graph::{Attribute, Writer, ints};
use crate::train::export::python::pair;

impl<const MAX: bool> Exported for Pool<MAX> {
    fn pytorch(&self, _layer: &Layer) -> String {
        let class = if MAX { "MaxPool2d" } else { "AvgPool2d" };
        let [size, stride, padding] = [self.size, self.stride, self.padding].map(pair);
        format!("nn.{class}({size}, stride={stride}, padding={padding})")
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let [top, left] = self.padding;
        let mut attributes = vec![
            Attribute::Ints("kernel_shape", ints(&self.size)),
            Attribute::Ints("strides", ints(&self.stride)),
            Attribute::Ints("pads", ints(&[top, left, top, left])),
        ];
        if !MAX {
            attributes.push(Attribute::Int("count_include_pad", 1));
        }
        w.node(if MAX { "MaxPool" } else { "AveragePool" }, &[&at.x], &attributes)
    }
}

impl<const MAX: bool> Exported for Pool1d<MAX> {
    fn pytorch(&self, _layer: &Layer) -> String {
        let class = if MAX { "MaxPool1d" } else { "AvgPool1d" };
        format!("OverPositions(nn.{class}({}, stride={}, padding={}))", self.size, self.stride, self.padding)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let mut attributes = vec![
            Attribute::Ints("kernel_shape", ints(&[self.size])),
            Attribute::Ints("strides", ints(&[self.stride])),
            Attribute::Ints("pads", ints(&[self.padding, self.padding])),
        ];
        if !MAX {
            attributes.push(Attribute::Int("count_include_pad", 1));
        }
        let x = w.swapped(&at.x);
        let y = w.node(if MAX { "MaxPool" } else { "AveragePool" }, &[&x], &attributes);
        w.swapped(&y)
    }
}

impl Exported for GlobalAvgPool {
    fn pytorch(&self, layer: &Layer) -> String {
        let axes = if layer.input.rank() == 2 { "1" } else { "(-2, -1)" };
        format!("Apply(lambda x: x.mean(dim={axes}))")
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        if at.layer.input.rank() == 2 {
            let attributes = [Attribute::Ints("axes", vec![1]), Attribute::Int("keepdims", 0)];
            return w.node("ReduceMean", &[&at.x], &attributes);
        }
        let mean = w.node("GlobalAveragePool", &[&at.x], &[]);
        w.node("Flatten", &[&mean], &[Attribute::Int("axis", 1)])
    }
}
