//! `softmax_cross_entropy`: the cross entropy of the softmax of logits with a class.

use super::loss_type::{LossRule, LossType, Targets};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Range, lens};
use crate::tensor::Shape;
use std::ops::Bound;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftmaxCrossEntropy {
    pub label_smoothing: f64,
}

const SMOOTHING: Range = Range::Real { from: Bound::Included(0.0), to: Bound::Included(1.0), help: "from 0 to 1" };

impl LossType for SoftmaxCrossEntropy {
    const NAME: &'static str = "softmax_cross_entropy";
    const TITLE: &'static str = "softmax cross entropy";
    const ABOUT: &'static str = "For one class out of several.";
    const FIELDS: &'static [FieldSpec<Self>] =
        &[FieldSpec::<Self>::real("loss.label_smoothing", lens!(label_smoothing))
            .default(|_| FieldValue::Number(0.0))
            .within(SMOOTHING)
            .label("label smoothing")
            .help("Share of the target spread over all classes.")];
    const TARGETS: Targets = Targets::Classes;

    fn example() -> Self {
        Self { label_smoothing: 0.0 }
    }

    fn drawn(draw: &mut Draw) -> Self {
        let usual = |d: &mut Draw| if d.coin(0.3) { d.number(0.01, 0.3) } else { 0.0 };
        Self { label_smoothing: draw.extreme_or(&[0.999, 1.0], usual) }
    }

    fn cost(&self) -> usize {
        1 + usize::from(self.label_smoothing != 0.0)
    }

    fn rule(&self) -> LossRule {
        LossRule::SoftmaxCrossEntropy { smoothing: self.label_smoothing }
    }

    fn refusal(output: &Shape) -> Option<&'static str> {
        let help = "it takes [classes], or [T, classes] with a target for each position: end with flatten and dense, \
                    or global_avg_pool and dense";
        (!matches!(output.rank(), 1 | 2)).then_some(help)
    }

    fn pytorch(&self, is_plain: bool) -> String {
        if is_plain {
            return "F.cross_entropy(output, y)".into();
        }
        format!("F.cross_entropy(output, y, label_smoothing={:?})", self.label_smoothing)
    }
}
