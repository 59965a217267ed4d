//! `rms_norm`: each sample is divided by the root mean square of its last axis.

use super::layer_norm::{eps, scaled_by_feature};
use super::{LayerKind, LayerType, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// Divides each sample by the root mean square of its last axis (Zhang and Sennrich 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
}

impl LayerType for RmsNorm {
    const KIND: LayerKind = LayerKind::new(
        "rms_norm",
        "RmsNorm",
        "Divides each sample by the root mean square of its last axis, without centring it.",
    );
    const FIELDS: &'static [FieldSpec<Self>] =
        &[eps(lens!(eps), |_| FieldValue::Number(1e-6), "Added to the mean square.")];

    fn example() -> Self {
        Self { eps: 1e-6 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { eps: draw.eps() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        scaled_by_feature(cx)
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
