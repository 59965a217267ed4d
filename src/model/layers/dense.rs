//! `dense`: `y = x W + b` over the last axis; weight `[in, units]`, or the transposed table of an embedding.

use super::{ACTIVATION_HELP, LayerKind, LayerType};
use crate::model::activation::Activation;
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Lens, Range, lens};
use crate::tensor::Shape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    pub units: usize,
    pub activation: Option<Activation>,
    pub bias: bool,
    /// The path of the embedding whose transposed table is the weight, as the user typed it; empty if the layer has its
    /// own weight.
    pub tied: String,
}

const UNITS: Range = Range::Whole { least: 1, most: usize::MAX, help: Some("a dense layer needs at least 1 unit") };
const ACTIVATION: Lens<Dense, usize> =
    Lens { get: |l| Activation::option(l.activation), set: |l, i| l.activation = Activation::of_option(i) };

const TIED: Lens<Dense, String> = Lens { get: |l| l.tied.clone(), set: |l, text| l.tied = text };

impl LayerType for Dense {
    const KIND: LayerKind =
        LayerKind::new("dense", "Dense", "Every output is a weighted sum of every input, plus a bias.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("units", lens!(units)).within(UNITS).help("Outputs of the layer."),
        FieldSpec::<Self>::option("activation", &Activation::OPTIONS, ACTIVATION).help(ACTIVATION_HELP),
        FieldSpec::<Self>::flag("bias", lens!(bias))
            .default(|_| FieldValue::Flag(true))
            .help("Adds a learned offset to each output."),
        FieldSpec::<Self>::text("tied", TIED).help(
            "The embedding whose weight, transposed, this layer uses: layers.0. Empty: the layer has its own weight.",
        ),
    ];
    const OUTPUT_FIELD: Option<&'static str> = Some("units");

    fn example() -> Self {
        Self { units: 64, activation: Some(Activation::Relu), bias: true, tied: String::new() }
    }

    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let most = if input.rank() == 3 { 9 } else { draw.size().sample / 12 };
        let units = draw.extreme_or(&[1], |d| d.between(1, most));
        Self { units, activation: draw.activation(), bias: draw.coin(0.7), tied: String::new() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        if !cx.fields.is_sound() {
            return None;
        }
        let mut output = cx.input.clone();
        let inputs = std::mem::replace(output.0.last_mut()?, self.units);
        // The table of an embedding is one of its parameters, and is initialised as such.
        if self.tied.is_empty() {
            cx.weight(ParamKind::Weight, [inputs, self.units], inputs, self.units);
        }
        if self.bias {
            cx.constant(ParamKind::Bias, self.units, 0.0);
        }
        Some(output)
    }

    fn keep_shape(&mut self, input: &Shape) {
        self.units = input.0.last().copied().unwrap_or(self.units);
    }

    fn activation(&self) -> Option<Activation> {
        self.activation
    }

    fn tied(&self) -> Option<&str> {
        Some(self.tied.as_str()).filter(|place| !place.is_empty())
    }
}
