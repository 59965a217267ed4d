//! `attention`: a separate module in PyTorch, products and a softmax in ONNX.

use super::{At, Exported};
use crate::model::layers::Attention;
use crate::model::{Layer, ParamKind};
use crate::ops::{AttentionGeometry, Scalar};
use crate::train::export::onnx_graph::{Attribute, Writer, ints};
use crate::train::export::python::flag;

impl Exported for Attention {
    fn pytorch(&self, layer: &Layer) -> String {
        let Self { heads, causal, kv_heads, rotary, bias, dropout } = *self;
        let width = layer.input.0.last().copied().unwrap_or(1);
        format!(
            "Attention({width}, {heads}, causal={}, kv_heads={kv_heads}, rotary={}, bias={}, dropout={dropout:?})",
            flag(causal),
            flag(rotary),
            flag(bias)
        )
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let model = at.model;
        let name = |kind: ParamKind| {
            let found = at.layer.params.iter().map(|p| model.param(*p)).find(|p| p.kind == kind);
            found.map(|p| p.name.as_str())
        };
        let product = |w: &mut Writer, x: &str, weight: ParamKind, bias: ParamKind| {
            let y = w.node("MatMul", &[x, name(weight).unwrap_or_default()], &[]);
            name(bias).map_or(y.clone(), |bias| w.node("Add", &[&y, bias], &[]))
        };
        let g = self.geometry(at.layer);
        let packed = product(w, &at.x, ParamKind::InWeight, ParamKind::InBias);
        let heads = Heads { g, packed, angles: format!("{}.rotation", at.layer.path) };
        let rows = heads.attended(w);
        product(w, &rows, ParamKind::OutWeight, ParamKind::OutBias)
    }
}

impl Attention {
    /// The dimensions for one sample.
    fn geometry(&self, layer: &Layer) -> AttentionGeometry {
        let [positions, width] = [0, 1].map(|axis| layer.input.0.get(axis).copied().unwrap_or(1));
        let Self { heads, kv_heads, causal, rotary, .. } = *self;
        let (dropout, stream) = (Scalar::new(0.0), 0);
        let head_dim = width / heads;
        AttentionGeometry { batch: 1, positions, heads, kv_heads, head_dim, causal, rotary, dropout, stream }
    }
}

/// The attention of all heads, as nodes. Heads are `[batch, kv_heads, group, positions, head_dim]`.
struct Heads {
    g: AttentionGeometry,
    /// The name of the packed values.
    packed: String,
    /// The prefix of the names of the constants.
    angles: String,
}

impl Heads {
    /// Returns the name of the output, `[batch, positions, width]`.
    fn attended(&self, w: &mut Writer) -> String {
        let g = &self.g;
        let [q, k, v] = [(0, g.heads), (g.heads, g.kv_heads), (g.heads + g.kv_heads, g.kv_heads)]
            .map(|(first, count)| self.part(w, first, count));
        let [q, k] = [q, k].map(|x| self.turned(w, x));
        let k = w.node("Transpose", &[&k], &[Attribute::Ints("perm", vec![0, 1, 2, 4, 3])]);
        let scores = w.node("MatMul", &[&q, &k], &[]);
        let scale = w.node("Constant", &[], &[Attribute::Float("value_float", g.scale() as f32)]);
        let mut scores = w.node("Mul", &[&scores, &scale], &[]);
        if g.causal {
            let later = self.later(w);
            scores = w.node("Add", &[&scores, &later], &[]);
        }
        let weights = w.node("Softmax", &[&scores], &[Attribute::Int("axis", -1)]);
        let y = w.node("MatMul", &[&weights, &v], &[]);
        let y = w.node("Transpose", &[&y], &[Attribute::Ints("perm", vec![0, 3, 1, 2, 4])]);
        let shape = w.numbers(&[0, g.positions as i64, g.width() as i64]);
        w.node("Reshape", &[&y, &shape], &[])
    }

    /// This many heads from `first` on, out of the packed values.
    fn part(&self, w: &mut Writer, first: usize, count: usize) -> String {
        let g = &self.g;
        let columns = [first, first + count].map(|head| (head * g.head_dim) as i64);
        let x = self.slice(w, &self.packed, columns, 2);
        let group = count / g.kv_heads;
        let sizes = ints(&[0, g.positions, g.kv_heads, group, g.head_dim]);
        let shape = w.numbers(&sizes);
        let x = w.node("Reshape", &[&x, &shape], &[]);
        w.node("Transpose", &[&x], &[Attribute::Ints("perm", vec![0, 2, 3, 1, 4])])
    }

    fn slice(&self, w: &mut Writer, x: &str, [from, to]: [i64; 2], axis: i64) -> String {
        let [from, to, axes] = [from, to, axis].map(|number| w.numbers(&[number]));
        w.node("Slice", &[x, &from, &to, &axes], &[])
    }

    /// Pairs of features rotated by their position's angles.
    fn turned(&self, w: &mut Writer, x: String) -> String {
        let g = &self.g;
        if !g.rotary {
            return x;
        }
        let half = g.head_dim / 2;
        let names = ["cos", "sin"].map(|which| format!("{}.{which}", self.angles));
        for (which, name) in names.iter().enumerate() {
            let of = |i: usize| g.rotation(i / half, i % half)[which] as f32;
            let values: Vec<f32> = (0..g.positions * half).map(of).collect();
            w.values(name, &[g.positions, half], &values);
        }
        let ends = [0, half, 2 * half].map(|end| end as i64);
        let (a, b) = (self.slice(w, &x, [ends[0], ends[1]], 4), self.slice(w, &x, [ends[1], ends[2]], 4));
        let mut times = |x: &str, which: usize| w.node("Mul", &[x, &names[which]], &[]);
        let [a_cos, a_sin, b_cos, b_sin] = [times(&a, 0), times(&a, 1), times(&b, 0), times(&b, 1)];
        let first = w.node("Sub", &[&a_cos, &b_sin], &[]);
        let second = w.node("Add", &[&b_cos, &a_sin], &[]);
        w.node("Concat", &[&first, &second], &[Attribute::Int("axis", -1)])
    }

    /// Minus infinity if a key comes after its query, otherwise zero.
    fn later(&self, w: &mut Writer) -> String {
        let positions = self.g.positions as i64;
        let none = w.node("Constant", &[], &[Attribute::Float("value_float", f32::NEG_INFINITY)]);
        let shape = w.numbers(&[positions, positions]);
        let all = w.node("Expand", &[&none, &shape], &[]);
        let above = w.node("Constant", &[], &[Attribute::Int("value_int", 1)]);
        w.node("Trilu", &[&all, &above], &[Attribute::Int("upper", 1)])
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};
    use crate::train::export::layers::{onnx, pytorch};
    use crate::train::export::onnx_graph::Writer;
    use crate::train::export::protobuf::decode::all;

    #[test]
    fn attention_is_a_module_and_products_around_a_softmax() {
        let text = r#"{"version": 1, "name": "a", "input": {"shape": [5, 12], "batch": 2},
            "layers": [{"type": "attention", "heads": 6, "kv_heads": 2, "rotary": true, "causal": true},
            {"type": "attention", "heads": 3, "bias": false, "dropout": 0.1}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let modules = [0, 1].map(|i| pytorch(model.layer(model.roots[i]), model.roots[i]));
        let expected = [
            "Attention(12, 6, causal=True, kv_heads=2, rotary=True, bias=True, dropout=0.0)",
            "Attention(12, 3, causal=False, kv_heads=3, rotary=False, bias=False, dropout=0.1)",
        ];
        assert_eq!(modules, expected);
        for (root, products, others) in [(0, 4, ["Trilu", "Concat", "Add"].as_slice()), (1, 4, &[])] {
            let mut w = Writer::default();
            let output = onnx(&mut w, &model, model.roots[root], "x".to_owned());
            let graph = w.graph.into_bytes();
            let texts = |node: &[u8], field| all(node, field).iter().map(|t| t.text().to_owned()).collect::<Vec<_>>();
            let kinds: Vec<String> = all(&graph, 1).iter().flat_map(|n| texts(n.bytes(), 4)).collect();
            let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
            assert_eq!((count("MatMul"), count("Softmax")), (products, 1));
            for other in ["Trilu", "Concat", "Add"] {
                assert_eq!(count(other) > 0, others.contains(&other), "{other} in {kinds:?}");
            }
            let mut known: Vec<String> = all(&graph, 5).iter().flat_map(|t| texts(t.bytes(), 8)).collect();
            known.extend(model.params.iter().map(|p| p.name.clone()).chain(["x".into()]));
            for node in all(&graph, 1) {
                assert!(texts(node.bytes(), 1).iter().all(|input| known.contains(input)));
                known.extend(texts(node.bytes(), 2));
            }
            assert_eq!(known.last(), Some(&output));
        }
    }
}
