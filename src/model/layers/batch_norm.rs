//! `batch_norm`: each channel, or feature, is normalised over the batch.

use super::{EPS_HELP, LayerKind, LayerType, NORM_EPS, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Range, lens};
use crate::tensor::Shape;
use std::ops::Bound;

/// Normalises each channel (rank 3) or feature (rank 1) over the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Share of the batch's statistics in the running ones.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

const MOMENTUM: Range = Range::Real { from: Bound::Included(0.0), to: Bound::Included(1.0), help: "from 0 to 1" };

impl LayerType for BatchNorm {
    const KIND: LayerKind =
        LayerKind::new("batch_norm", "BatchNorm", "Centres and scales each channel by its statistics over the batch.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::real("momentum", lens!(momentum))
            .default(|_| FieldValue::Number(0.1))
            .within(MOMENTUM)
            .help("Share of the batch's statistics in the running ones."),
        FieldSpec::<Self>::real("eps", lens!(eps))
            .default(|_| FieldValue::Number(1e-5))
            .within(NORM_EPS)
            .help(EPS_HELP),
    ];

    fn example() -> Self {
        Self { momentum: 0.1, eps: 1e-5 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let momentum = draw.extreme_or(&[0.0, 0.999, 1.0], |d| if d.coin(0.3) { 0.1 } else { d.number(0.05, 0.5) });
        Self { momentum, eps: draw.eps() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let input = cx.input.clone();
        let (channels, spots) = match input.0[..] {
            [features] => (features, 1),
            [c, h, w] => (c, h * w),
            _ => {
                let help = match input.rank() {
                    2 => "batch_norm takes [features] or [C, H, W]; use layer_norm or rms_norm on sequences",
                    _ => "batch_norm takes [features] or [C, H, W]",
                };
                cx.fail("", format!("found an input of shape {input}"), help);
                return None;
            }
        };
        if cx.batch * spots < 2 {
            cx.fail(
                "",
                "batch statistics of a single value",
                "batch_norm needs a batch of at least 2, or more than one pixel",
            );
        }
        cx.constant(ParamKind::Gamma, channels, 1.0);
        cx.constant(ParamKind::Beta, channels, 0.0);
        cx.constant(ParamKind::RunningMean, channels, 0.0);
        cx.constant(ParamKind::RunningVar, channels, 1.0);
        Some(input)
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
