//! `layer_norm`: each sample is normalised over its last axis.

use super::{EPS_HELP, LayerKind, LayerType, NORM_EPS, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// Normalises each sample over its last axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
}

impl LayerType for LayerNorm {
    const KIND: LayerKind =
        LayerKind::new("layer_norm", "LayerNorm", "Centres and scales each sample over its last axis.");
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::real("eps", lens!(eps))
        .default(|_| FieldValue::Number(1e-5))
        .within(NORM_EPS)
        .help(EPS_HELP)];

    fn example() -> Self {
        Self { eps: 1e-5 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { eps: draw.eps() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let input = cx.input.clone();
        let features = *input.0.last()?;
        cx.constant(ParamKind::Gamma, features, 1.0);
        cx.constant(ParamKind::Beta, features, 0.0);
        Some(input)
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
