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

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};
    use crate::train::export::layers::{onnx, pytorch};
    use crate::train::export::onnx_graph::Writer;
    use crate::train::export::protobuf::decode::all;

    #[test]
    fn a_tied_layer_multiplies_by_the_transposed_weight_of_the_embedding() {
        let text = r#"{"version": 1, "name": "t", "input": {"type": "tokens", "shape": [4], "vocab": 9, "batch": 2},
            "layers": [{"type": "embedding", "units": 5}, {"type": "dense", "units": 9, "tied": "layers.0"}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        assert_eq!(pytorch(model.layer(model.roots[1]), model.roots[1]), "Tied(5, 9, bias=True, activation=None)");
        let mut w = Writer::default();
        let x = onnx(&mut w, &model, model.roots[0], "x".to_owned());
        onnx(&mut w, &model, model.roots[1], x);
        let graph = w.graph.into_bytes();
        let texts = |node: &[u8], field| all(node, field).iter().map(|t| t.text().to_owned()).collect::<Vec<_>>();
        let nodes: Vec<(String, Vec<String>)> =
            all(&graph, 1).iter().map(|n| (texts(n.bytes(), 4).remove(0), texts(n.bytes(), 1))).collect();
        let kinds: Vec<&str> = nodes.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["Gather", "Transpose", "MatMul", "Add"]);
        assert_eq!((&nodes[0].1[0], &nodes[1].1[0]), (&"layers.0.weight".to_owned(), &"layers.0.weight".to_owned()));
        assert_eq!(nodes[3].1[1], "layers.1.bias");
    }
}
