//! `dense`, `conv2d` and `conv1d`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{Conv1d, Conv2d, Dense, LayerType};
use crate::train::export::onnx_graph::{Attribute, Writer, ints};
use crate::train::export::python::{activation, flag, pair};

impl Exported for Dense {
    fn pytorch(&self, layer: &Layer) -> String {
        let inputs = layer.input.0.last().copied().unwrap_or(1);
        let Self { units, bias, activation: function, .. } = *self;
        let (class, bias) = (if self.tied().is_some() { "Tied" } else { "Dense" }, flag(bias));
        format!("{class}({inputs}, {units}, bias={bias}, activation={})", activation(function))
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let mut params = at.params();
        let weight = params.next().unwrap_or_default();
        let turned = self.tied().map(|_| w.node("Transpose", &[weight], &[Attribute::Ints("perm", vec![1, 0])]));
        let mut y = w.node("MatMul", &[&at.x, turned.as_deref().unwrap_or(weight)], &[]);
        if let Some(bias) = params.next() {
            y = w.node("Add", &[&y, bias], &[]);
        }
        w.activation(y, self.activation)
    }
}

impl Exported for Conv2d {
    fn pytorch(&self, layer: &Layer) -> String {
        format!(
            "Conv2d({}, {}, {}, stride={}, padding={}, dilation={}, groups={}, bias={}, activation={})",
            layer.input.0[0],
            self.filters,
            pair(self.kernel),
            pair(self.stride),
            pair(self.pad()),
            pair(self.dilation),
            self.groups,
            flag(self.bias),
            activation(self.activation)
        )
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let [height, width] = self.pad();
        let attributes = [
            Attribute::Ints("kernel_shape", ints(&self.kernel)),
            Attribute::Ints("strides", ints(&self.stride)),
            Attribute::Ints("pads", ints(&[height, width, height, width])),
            Attribute::Ints("dilations", ints(&self.dilation)),
            Attribute::Int("group", self.groups as i64),
        ];
        let y = w.node("Conv", &at.inputs(), &attributes);
        w.activation(y, self.activation)
    }
}

impl Exported for Conv1d {
    fn pytorch(&self, layer: &Layer) -> String {
        let Self { filters, kernel, stride, dilation, groups, .. } = *self;
        let channels = layer.input.0.last().copied().unwrap_or(1);
        let ([before, behind], bias, function) = (self.pad(), flag(self.bias), activation(self.activation));
        format!(
            "Conv1d({channels}, {filters}, {kernel}, pad=({before}, {behind}), stride={stride}, dilation={dilation}, \
             groups={groups}, bias={bias}, activation={function})"
        )
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let attributes = [
            Attribute::Ints("kernel_shape", ints(&[self.kernel])),
            Attribute::Ints("strides", ints(&[self.stride])),
            Attribute::Ints("pads", ints(&self.pad())),
            Attribute::Ints("dilations", ints(&[self.dilation])),
            Attribute::Int("group", self.groups as i64),
        ];
        let x = w.swapped(&at.x);
        let inputs: Vec<&str> = std::iter::once(x.as_str()).chain(at.params()).collect();
        let y = w.node("Conv", &inputs, &attributes);
        let y = w.swapped(&y);
        w.activation(y, self.activation)
    }
}
