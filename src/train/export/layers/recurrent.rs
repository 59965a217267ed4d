//! `rnn`, `gru` and `lstm`.

use super::{At, Exported};
use crate::model::layers::{Gru, Lstm, Recurrent, Rnn};
use crate::model::{Cell, Layer};
use crate::train::export::onnx_graph::{Attribute, Writer};
use crate::train::export::python::flag;

impl Exported for Rnn {
    fn pytorch(&self, layer: &Layer) -> String {
        pytorch(self.recurrent(), layer)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        onnx(self.recurrent(), w, &at)
    }
}

impl Exported for Gru {
    fn pytorch(&self, layer: &Layer) -> String {
        pytorch(self.recurrent(), layer)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        onnx(self.recurrent(), w, &at)
    }
}

impl Exported for Lstm {
    fn pytorch(&self, layer: &Layer) -> String {
        pytorch(self.recurrent(), layer)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        onnx(self.recurrent(), w, &at)
    }
}

/// The name of the family, which is that of PyTorch's module and of ONNX's node.
const fn family(cell: Cell) -> &'static str {
    match cell {
        Cell::RnnTanh | Cell::RnnRelu => "RNN",
        Cell::Gru => "GRU",
        Cell::Lstm => "LSTM",
    }
}

fn pytorch(of: Recurrent, layer: &Layer) -> String {
    let inputs = layer.input.0.last().copied().unwrap_or(1);
    let (name, both, last) = (family(of.cell), flag(of.bidirectional), flag(of.last));
    let function = if of.cell == Cell::RnnRelu { ", nonlinearity=\"relu\"" } else { "" };
    format!("{name}({inputs}, {}, bidirectional={both}, last={last}{function})", of.units)
}

/// The order of ONNX's gates, as indices of PyTorch's: `z r h`, and `i o f c`.
const fn gate_order(cell: Cell) -> &'static [i64] {
    match cell {
        Cell::RnnTanh | Cell::RnnRelu => &[0],
        Cell::Gru => &[1, 0, 2],
        Cell::Lstm => &[0, 3, 1, 2],
    }
}

/// A parameter whose last axis counts gates of units, with the gates in ONNX's order on the second of three axes: `[1,
/// gates, units]` for a bias, otherwise `[1, gates units, values]`.
fn gates_first(w: &mut Writer, name: &str, of: Recurrent, is_bias: bool) -> String {
    let units = of.units as i64;
    let turned =
        if is_bias { name.to_owned() } else { w.node("Transpose", &[name], &[Attribute::Ints("perm", vec![1, 0])]) };
    let by_gate = w.integers(&[1, of.cell.gates() as i64, units, -1]);
    let cut = w.node("Reshape", &[&turned, &by_gate], &[]);
    let order = w.integers(gate_order(of.cell));
    let ordered = w.node("Gather", &[&cut, &order], &[Attribute::Int("axis", 1)]);
    let shape = [1, of.cell.gates() as i64 * units, -1];
    let joined = w.integers(if is_bias { &[1, -1] } else { &shape });
    w.node("Reshape", &[&ordered, &joined], &[])
}

/// ONNX's nodes take `[T, batch, values]`, because not every runtime supports their other layout.
fn onnx(of: Recurrent, w: &mut Writer, at: &At<'_>) -> String {
    let names: Vec<&str> = at.params().collect();
    let mut parts: [Vec<String>; 3] = Default::default();
    for params in names.chunks_exact(4) {
        let [weight_ih, weight_hh] = [params[0], params[1]].map(|name| gates_first(w, name, of, false));
        let [bias_ih, bias_hh] = [params[2], params[3]].map(|name| gates_first(w, name, of, true));
        let bias = w.node("Concat", &[&bias_ih, &bias_hh], &[Attribute::Int("axis", 1)]);
        [weight_ih, weight_hh, bias].into_iter().zip(&mut parts).for_each(|(part, list)| list.push(part));
    }
    let [weight, state_weight, bias] = parts.map(|list| match list.as_slice() {
        [one] => one.clone(),
        list => {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            w.node("Concat", &list, &[Attribute::Int("axis", 0)])
        }
    });
    let x = w.node("Transpose", &[&at.x], &[Attribute::Ints("perm", vec![1, 0, 2])]);
    let direction = if of.bidirectional { "bidirectional" } else { "forward" };
    let mut attributes = vec![Attribute::Int("hidden_size", of.units as i64), Attribute::Text("direction", direction)];
    match of.cell {
        Cell::RnnRelu => attributes.push(Attribute::Texts("activations", vec!["Relu"; of.directions().len()])),
        Cell::Gru => attributes.push(Attribute::Int("linear_before_reset", 1)),
        Cell::RnnTanh | Cell::Lstm => {}
    }
    // The node's outputs are all states, [T, directions, batch, units], and the final ones, without T.
    let y = w.output_at(usize::from(of.last), family(of.cell), &[&x, &weight, &state_weight, &bias], &attributes);
    let order = if of.last { vec![1, 0, 2] } else { vec![2, 0, 1, 3] };
    let by_sample = w.node("Transpose", &[&y], &[Attribute::Ints("perm", order)]);
    let shape = w.integers(if of.last { &[0, -1] } else { &[0, 0, -1] });
    w.node("Reshape", &[&by_sample, &shape], &[])
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};
    use crate::train::export::layers::{onnx, pytorch};
    use crate::train::export::onnx_graph::Writer;
    use crate::train::export::protobuf::decode::all;

    #[test]
    fn recurrent_layers_are_modules_and_nodes_of_their_names() {
        let text = r#"{"version": 1, "name": "r", "input": {"shape": [5, 3], "batch": 2},
            "layers": [{"type": "rnn", "units": 4, "nonlinearity": "relu"},
            {"type": "gru", "units": 6, "bidirectional": true}, {"type": "lstm", "units": 2, "return": "last"}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let modules = [0, 1, 2].map(|i: usize| pytorch(model.layer(model.roots[i]), model.roots[i]));
        let wanted = [
            "RNN(3, 4, bidirectional=False, last=False, nonlinearity=\"relu\")",
            "GRU(4, 6, bidirectional=True, last=False)",
            "LSTM(12, 2, bidirectional=False, last=True)",
        ];
        assert_eq!(modules, wanted);
        let mut w = Writer::default();
        let output = onnx(&mut w, &model, model.roots[2], "x".to_owned());
        let graph = w.graph.into_bytes();
        let texts = |node: &[u8], field| all(node, field).iter().map(|t| t.text().to_owned()).collect::<Vec<_>>();
        let nodes = all(&graph, 1);
        let node = nodes.iter().find(|n| texts(n.bytes(), 4) == ["LSTM"]).unwrap();
        // The final state is the second output.
        let outputs = texts(node.bytes(), 2);
        assert_eq!((outputs.len(), outputs[0].as_str()), (2, ""));
        assert_eq!(texts(nodes.last().unwrap().bytes(), 2), [output]);
    }
}
