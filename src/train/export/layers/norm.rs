//! `batch_norm`, `layer_norm` and `rms_norm`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{BatchNorm, LayerNorm, RmsNorm};
use crate::train::export::onnx_graph::{Attribute, Writer};

impl Exported for BatchNorm {
    fn pytorch(&self, layer: &Layer) -> String {
        let rank = if layer.input.rank() == 3 { "2d" } else { "1d" };
        let Self { eps, momentum } = self;
        format!("nn.BatchNorm{rank}({}, eps={eps:?}, momentum={momentum:?})", layer.input.0[0])
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        w.node("BatchNormalization", &at.inputs(), &[Attribute::Float("epsilon", self.eps as f32)])
    }
}

impl Exported for LayerNorm {
    fn pytorch(&self, layer: &Layer) -> String {
        format!("nn.LayerNorm({}, eps={:?})", layer.input.0.last().copied().unwrap_or(1), self.eps)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let attributes = [Attribute::Int("axis", -1), Attribute::Float("epsilon", self.eps as f32)];
        w.node("LayerNormalization", &at.inputs(), &attributes)
    }
}

impl Exported for RmsNorm {
    fn pytorch(&self, layer: &Layer) -> String {
        format!("nn.RMSNorm({}, eps={:?})", layer.input.0.last().copied().unwrap_or(1), self.eps)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        // Opset 17 has no node for the whole operation.
        let eps = w.node("Constant", &[], &[Attribute::Float("value_float", self.eps as f32)]);
        let squares = w.node("Mul", &[&at.x, &at.x], &[]);
        let mean = w.node("ReduceMean", &[&squares], &[Attribute::Ints("axes", vec![-1])]);
        let sum = w.node("Add", &[&mean, &eps], &[]);
        let root = w.node("Sqrt", &[&sum], &[]);
        let normalised = w.node("Div", &[&at.x, &root], &[]);
        at.params().fold(normalised, |x, weight| w.node("Mul", &[&x, weight], &[]))
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};
    use crate::train::export::layers::{onnx, pytorch};
    use crate::train::export::onnx_graph::Writer;
    use crate::train::export::protobuf::decode::all;

    #[test]
    fn root_mean_square_normalisation_is_a_module_and_basic_nodes() {
        let text = r#"{"version": 1, "name": "rms", "input": {"shape": [16], "batch": 2},
            "layers": [{"type": "rms_norm"}, {"type": "rms_norm", "eps": 0.25}, {"type": "dense", "units": 3}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let modules = [0, 1].map(|i| pytorch(model.layer(model.roots[i]), model.roots[i]));
        assert_eq!(modules, ["nn.RMSNorm(16, eps=1e-6)", "nn.RMSNorm(16, eps=0.25)"]);
        let mut w = Writer::default();
        let output = onnx(&mut w, &model, model.roots[1], "x".to_owned());
        let graph = w.graph.into_bytes();
        let nodes = all(&graph, 1);
        let texts = |node: &[u8], field| all(node, field).iter().map(|t| t.text().to_owned()).collect::<Vec<_>>();
        let kinds: Vec<String> = nodes.iter().flat_map(|n| texts(n.bytes(), 4)).collect();
        assert_eq!(kinds, ["Constant", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]);
        let eps = all(nodes[0].bytes(), 5)[0].bytes();
        assert_eq!((all(eps, 1)[0].text(), all(eps, 2)[0].float()), ("value_float", 0.25));
        let [squares, root, last] = [1, 5, 6].map(|i: usize| texts(nodes[i].bytes(), 1));
        assert_eq!((squares, root[0].as_str(), last[1].as_str()), (vec!["x".into(); 2], "x", "layers.1.weight"));
        assert_eq!(texts(nodes[6].bytes(), 2), [output]);
    }
}
