//! `embedding`, `position` and `take`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{Embedding, Position, PositionKind, Take};
use crate::ops::AddSinusoids;
use crate::train::export::onnx_graph::{Attribute, Writer};

impl Exported for Embedding {
    fn pytorch(&self, layer: &Layer) -> String {
        let vocab = layer.content.vocab().unwrap_or(1);
        format!("nn.Embedding({vocab}, {})", self.units)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let weight = at.params().next().unwrap_or_default();
        w.node("Gather", &[weight, &at.x], &[Attribute::Int("axis", 0)])
    }
}

impl Exported for Position {
    fn pytorch(&self, layer: &Layer) -> String {
        let [positions, features] = sequence(layer);
        match self.kind {
            PositionKind::Learned => format!("Positions({positions}, {features})"),
            PositionKind::Sinusoidal => format!("Sinusoids({positions}, {features})"),
        }
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        if let Some(weight) = at.params().next() {
            return w.node("Add", &[&at.x, weight], &[]);
        }
        let name = format!("{}.sinusoids", at.layer.path.dotted());
        let [positions, cols] = sequence(at.layer);
        let values: Vec<f32> = sinusoids(positions, cols).collect();
        w.values(&name, &[positions, cols], &values);
        w.node("Add", &[&at.x, &name], &[])
    }
}

/// The rows that are added to a sequence.
fn sinusoids(positions: usize, cols: usize) -> impl Iterator<Item = f32> {
    let op = AddSinusoids { n: 1, positions, cols };
    (0..positions * cols).map(move |i| {
        let angle = (i / cols) as f64 * op.angle(i % cols / 2);
        (if (i % cols).is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
    })
}

impl Exported for Take {
    fn pytorch(&self, layer: &Layer) -> String {
        format!("Apply(lambda x: x[:, {}])", self.at.position(sequence(layer)[0]))
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let position = self.at.position(sequence(at.layer)[0]);
        let index = w.node("Constant", &[], &[Attribute::Int("value_int", position as i64)]);
        w.node("Gather", &[&at.x, &index], &[Attribute::Int("axis", 1)])
    }
}

/// The number of positions and of features of a layer's input.
fn sequence(layer: &Layer) -> [usize; 2] {
    [0, 1].map(|axis| layer.input.0.get(axis).copied().unwrap_or(1))
}
