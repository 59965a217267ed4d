//! `embedding`: a row of a learned table for each token; weight `[V, units]`.

use super::{LayerKind, LayerType};
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    pub units: usize,
}

impl LayerType for Embedding {
    const KIND: LayerKind = LayerKind::new("embedding", "Embedding", "Turns each token into a learned row of numbers.");
    const FIELDS: &'static [FieldSpec<Self>] =
        &[FieldSpec::<Self>::count("units", lens!(units)).help("The number of values that represent a token.")];
    const OUTPUT_FIELD: Option<&'static str> = Some("units");

    fn example() -> Self {
        Self { units: 64 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { units: draw.extreme_or(&[1], |d| d.between(2, 20)) }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let Some(vocab) = cx.content.vocab() else {
            let help = "embedding takes tokens: put it first, and give the input \"type\": \"tokens\" and a \"vocab\"";
            cx.fail("", "the input is of numbers", help);
            return None;
        };
        if !cx.fields.is_sound() {
            return None;
        }
        cx.table([vocab, self.units]);
        let mut output = cx.input.clone();
        output.0.push(self.units);
        Some(output)
    }

    fn takes_tokens(&self) -> bool {
        true
    }
}
