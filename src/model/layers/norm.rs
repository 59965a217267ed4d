//! `batch_norm` and `layer_norm`.

use super::super::Fields;
use super::super::check::{Infer, ParamKind};
use super::super::mistakes::FieldChecks;
use super::super::random::Draw;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Normalises each channel (rank 3) or feature (rank 1) over the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Share of the batch's statistics in the running ones.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

/// Normalises each sample over its last axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { momentum: 0.1, eps: 1e-5 }
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self { eps: 1e-5 }
    }
}

fn check_eps(eps: f64, fields: &mut FieldChecks<'_>) {
    if !(eps > 0.0 && eps <= 1.0) {
        fields.fail("eps", format!("found {eps}"), "expected a number above 0 and at most 1, such as 1e-5");
    }
}

fn drawn_eps(draw: &mut Draw) -> f64 {
    draw.extreme_or(&[1e-12, 1e-8, 0.1, 1.0], |d| if d.coin(0.7) { 1e-5 } else { d.magnitude(-6, -2) })
}

impl BatchNorm {
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let d = Self::default();
        Self { momentum: f.number("momentum", Some(d.momentum)), eps: f.number("eps", Some(d.eps)) }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        let d = Self::default();
        if self.momentum != d.momentum {
            map.insert("momentum".into(), self.momentum.into());
        }
        if self.eps != d.eps {
            map.insert("eps".into(), self.eps.into());
        }
    }

    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        check_eps(self.eps, fields);
        if !(0.0..=1.0).contains(&self.momentum) {
            fields.fail("momentum", format!("found {}", self.momentum), "expected a number from 0 to 1");
        }
    }

    pub(super) fn drawn(draw: &mut Draw) -> Self {
        let momentum = draw.extreme_or(&[0.0, 0.999, 1.0], |d| if d.coin(0.3) { 0.1 } else { d.number(0.05, 0.5) });
        Self { momentum, eps: drawn_eps(draw) }
    }

    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let input = cx.input.clone();
        let (channels, spots) = match input.0[..] {
            [features] => (features, 1),
            [c, h, w] => (c, h * w),
            _ => {
                cx.fail("", format!("found an input of shape {input}"), "batch_norm takes [features] or [C, H, W]");
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
}

impl LayerNorm {
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        Self { eps: f.number("eps", Some(Self::default().eps)) }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        if *self != Self::default() {
            map.insert("eps".into(), self.eps.into());
        }
    }

    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        check_eps(self.eps, fields);
    }

    pub(super) fn drawn(draw: &mut Draw) -> Self {
        Self { eps: drawn_eps(draw) }
    }

    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let input = cx.input.clone();
        let features = *input.0.last()?;
        cx.constant(ParamKind::Gamma, features, 1.0);
        cx.constant(ParamKind::Beta, features, 0.0);
        Some(input)
    }
}
