//! The losses, one file for each: fields, defaults, ranges, the targets they take and the outputs they apply to.
//!
//! A new loss is a file with a struct that implements [`LossType`], and its name in the list of `each_loss!`. Names,
//! definitions and defaults are PyTorch's.

mod binary_cross_entropy;
mod huber;
mod l1;
mod loss_type;
mod mse;
mod point_fn;
mod softmax_cross_entropy;

pub use binary_cross_entropy::BinaryCrossEntropy;
pub use huber::Huber;
pub use l1::L1;
pub use loss_type::{LossRule, LossType, Targets};
pub use mse::Mse;
pub use point_fn::PointFn;
pub use softmax_cross_entropy::SoftmaxCrossEntropy;

use self::loss_type::{
    about_of, fields_of, findings, name_of, read_into, redrawn, refusal_of, targets_of, title_of, write_into,
};
use super::draw::Draw;
use super::field_value::FieldValue;
use super::schema::{FieldView, fields_by_name, names};
use super::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// The list of losses, in the order in which they are offered, for code that must be generated for each of them.
///
/// `each_loss!(spec, loss => expression)` is the value of the expression with `loss` bound to the struct that a
/// [`LossSpec`] holds.
macro_rules! each_loss {
    (@all [define] $($Name:ident)*) => {
        $crate::model::schema::family! {
            /// The loss, averaged over the batch. Names of fields are whole paths.
            LossSpec: $($Name)*
        }
    };
    (@all [$spec:expr, $loss:ident => $body:expr] $($Name:ident)*) => {
        match $spec {
            $($crate::model::LossSpec::$Name($loss) => $body,)*
        }
    };
    ($($args:tt)*) => {
        $crate::model::losses::each_loss! {
            @all [$($args)*] SoftmaxCrossEntropy Mse BinaryCrossEntropy L1 Huber
        }
    };
}
pub(crate) use each_loss;

each_loss!(define);

impl LossSpec {
    /// Softmax with cross entropy, without smoothing.
    pub const SOFTMAX_CROSS_ENTROPY: Self = Self::SoftmaxCrossEntropy(SoftmaxCrossEntropy { label_smoothing: 0.0 });
    /// The mean squared error.
    pub const MSE: Self = Self::Mse(Mse {});

    names!(each_loss, name_of, title_of);

    /// One line that says what it is for.
    #[must_use]
    pub fn about(&self) -> &'static str {
        each_loss!(self, loss => about_of(loss))
    }

    #[must_use]
    pub fn targets(&self) -> Targets {
        each_loss!(self, loss => targets_of(loss))
    }

    /// Whether its targets are classes; otherwise they are values of the output's shape.
    #[must_use]
    pub fn wants_classes(&self) -> bool {
        self.targets() == Targets::Classes
    }

    /// Whether the step can compute the share of its correct answers.
    #[must_use]
    pub fn has_accuracy(&self) -> bool {
        self.targets() != Targets::Values
    }

    #[must_use]
    pub fn rule(&self) -> LossRule {
        each_loss!(self, loss => loss.rule())
    }

    /// The required shape of an output for one sample, if this one is not suitable.
    #[must_use]
    pub fn refusal(&self, output: &Shape) -> Option<&'static str> {
        each_loss!(self, loss => refusal_of(loss, output))
    }

    fields_by_name!(each_loss, fields_of);

    /// The expression in Python, of `output` and `y`; `is_plain` omits what belongs only to training.
    #[must_use]
    pub fn pytorch(&self, is_plain: bool) -> String {
        each_loss!(self, loss => loss.pytorch(is_plain))
    }

    /// The distance from the simplest loss.
    pub(super) fn cost(&self) -> usize {
        each_loss!(self, loss => loss.cost())
    }

    /// Every mistake of its fields: the field, what was found, and what is allowed.
    pub(super) fn findings(&self) -> Vec<(&'static str, String, String)> {
        each_loss!(self, loss => findings(loss))
    }

    /// Reads a loss; `None` if the document names none or an unknown one.
    pub(super) fn read(f: &mut Fields<'_>) -> Option<Self> {
        let kind = f.choice("type", &Self::NAMES.map(|name| (name, name)), true)?;
        let mut loss = Self::example(kind)?;
        each_loss!(&mut loss, loss => read_into(loss, f));
        f.finish_ref();
        Some(loss)
    }

    /// The loss as it is in a preset.
    pub(super) fn write(&self) -> Value {
        let mut map = Map::new();
        map.insert("type".into(), self.name().into());
        each_loss!(self, loss => write_into(loss, &mut map));
        Value::Object(map)
    }

    /// The loss of this name with drawn fields.
    pub(super) fn drawn(name: &str, draw: &mut Draw) -> Self {
        let mut loss = Self::example(name).unwrap_or(Self::MSE);
        each_loss!(&mut loss, loss => redrawn(loss, draw));
        loss
    }

    /// The loss of one sample, or of any other values that the mean is taken over, in f64. `None` for a loss on
    /// classes.
    #[must_use]
    pub fn of_values(&self, output: &[f32], target: &[f32]) -> Option<f64> {
        let of = |(y, t): (&f32, &f32)| match self.rule() {
            LossRule::SoftmaxCrossEntropy { .. } => None,
            // Like the step, it subtracts in f32.
            LossRule::SquaredError => Some(f64::from(y - t).powi(2)),
            LossRule::Pointwise { func, delta } => Some(func.value(f64::from(*y), f64::from(*t), delta)),
        };
        let sum: Option<f64> = output.iter().zip(target).map(of).sum();
        sum.map(|sum| sum / output.len().max(1) as f64)
    }
}

/// Whether an output agrees with a target of 0 or 1: above 0 means 1. False for NaN.
#[must_use]
pub fn is_right(output: f32, target: f32) -> bool {
    answer(output) == Some(target > 0.5)
}

/// The answer of a logit: yes if its probability is above one half. `None` for NaN.
#[must_use]
pub fn answer(logit: f32) -> Option<bool> {
    (!logit.is_nan()).then_some(logit > 0.0)
}

/// The class that a row of scores predicts: that of the largest score, and of the first among equals. `None` if a score
/// is NaN.
#[must_use]
pub fn predicted_class(scores: &[f32]) -> Option<usize> {
    let largest = scores.iter().enumerate().fold(0, |best, (i, &score)| if score > scores[best] { i } else { best });
    scores.iter().all(|score| !score.is_nan()).then_some(largest)
}

/// Replaces the scores of the classes by their probabilities, the softmax. All are NaN if a score is.
pub fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|v| f64::from(v - largest).exp()).sum();
    scores.iter_mut().for_each(|v| *v = (f64::from(*v - largest).exp() / sum) as f32);
}

/// The probability of yes for a logit: its sigmoid. NaN for NaN.
#[must_use]
pub fn probability(logit: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_pytorch() {
        // The values of torch.nn.functional for output [-3, 0.25, 40] and target [0, 1, 0]; huber with delta 0.5.
        let (output, target) = ([-3.0, 0.25, 40.0], [0.0, 1.0, 0.0]);
        let of = |name: &str| {
            let mut loss = LossSpec::example(name).unwrap();
            loss.set("loss.delta", &FieldValue::Number(0.5));
            loss.of_values(&output, &target).unwrap()
        };
        for (name, expected) in [
            ("binary_cross_entropy", 13.541_508_923_817_53),
            ("l1", 14.583_333_333_333_334),
            ("huber", 7.166_666_666_666_667),
            ("mse", 536.520_833_333_333_5),
        ] {
            assert!((of(name) - expected).abs() < 1e-12 * expected, "{name}: {}", of(name));
        }
        assert_eq!(LossSpec::SOFTMAX_CROSS_ENTROPY.of_values(&output, &target), None);
    }

    #[test]
    fn a_yes_or_no_prediction_is_correct_on_its_side_of_zero() {
        assert!(is_right(0.1, 1.0) && is_right(0.0, 0.0) && !is_right(0.0, 1.0) && !is_right(0.1, 0.0));
        assert!(!is_right(f32::NAN, 0.0) && !is_right(f32::NAN, 1.0));
    }

    #[test]
    fn probabilities_of_classes_sum_to_one() {
        let mut row = [1000.0, 1000.0 - 3.0f32.ln(), f32::NEG_INFINITY];
        softmax(&mut row);
        assert!((row[0] - 0.75).abs() < 1e-4 && (row[0] + row[1] - 1.0).abs() < 1e-6 && row[2] == 0.0, "{row:?}");
        let mut row = [0.0, f32::NAN];
        softmax(&mut row);
        assert!(row.iter().all(|p| p.is_nan()));
    }

    #[test]
    fn a_row_of_scores_predicts_the_first_of_the_largest() {
        assert_eq!([[0.0, 2.0, 2.0], [-1.0, -2.0, -3.0]].map(|row| predicted_class(&row)), [Some(1), Some(0)]);
        assert_eq!(predicted_class(&[f32::NEG_INFINITY, f32::INFINITY]), Some(1));
        assert_eq!([[f32::NAN, 1.0], [1.0, f32::NAN]].map(|row| predicted_class(&row)), [None, None]);
        assert_eq!((answer(f32::NAN), answer(1e-30), answer(0.0)), (None, Some(true), Some(false)));
    }

    #[test]
    fn a_probability_is_the_sigmoid_of_a_logit() {
        // The values of torch.sigmoid in float64.
        for (logit, expected) in [(0.0, 0.5), (2.0, 0.880_797_1), (-20.0, 2.061_153_7e-9), (-1e4, 0.0), (1e4, 1.0)] {
            assert!((probability(logit) - expected).abs() <= 1e-7 * expected, "{logit}: {}", probability(logit));
        }
        assert!(probability(f32::NAN).is_nan());
    }
}
