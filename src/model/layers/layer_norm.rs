//! `layer_norm`: each sample is normalised over its last axis.

use super::{EPS_HELP, LayerKind, LayerType, NORM_EPS, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Lens, lens};
use crate::tensor::Shape;

/// The eps of a normalisation over the last axis.
pub(super) const fn eps<T>(lens: Lens<T, f64>, default: fn(&T) -> FieldValue, help: &'static str) -> FieldSpec<T> {
    FieldSpec::real("eps", lens).default(default).within(NORM_EPS).help(help)
}

/// The parameter that scales each feature of the last axis; the shape does not change.
pub(super) fn scaled_by_feature(cx: &mut Infer<'_>) -> Option<Shape> {
    let input = cx.input.clone();
    cx.constant(ParamKind::Gamma, *input.0.last()?, 1.0);
    Some(input)
}

/// Normalises each sample over its last axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
}

impl LayerType for LayerNorm {
    const KIND: LayerKind =
        LayerKind::new("layer_norm", "LayerNorm", "Centres and scales each sample over its last axis.");
    const FIELDS: &'static [FieldSpec<Self>] = &[eps(lens!(eps), |_| FieldValue::Number(1e-5), EPS_HELP)];

    fn example() -> Self {
        Self { eps: 1e-5 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { eps: draw.eps() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let shape = scaled_by_feature(cx)?;
        cx.constant(ParamKind::Beta, *shape.0.last()?, 0.0);
        Some(shape)
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
