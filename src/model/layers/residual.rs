//! `residual`: a block of layers whose input is added to its output; steps may leave the layers out.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::choose::{Choice, Choose};
use crate::model::choose_field::{Choosing, choose_field, evaluate_field};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::mistakes::FieldChecks;
use crate::model::one_list::one_list;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, Range, lens};
use std::ops::Bound;

/// `x + f(x)`; `x` alone in steps that choose 0. With `keep` below 1, `x + f(x) / keep` in training with that
/// probability, and otherwise `x`: stochastic depth (Huang et al. 2016).
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    pub layers: Vec<LayerSpec>,
    /// Whether each step, and evaluation, runs the layers; all do by default.
    pub choosing: Choosing,
    /// The probability with which a step runs the layers; 1 if every step does.
    pub keep: f64,
}

const WHAT: &str = "1 to run the layers, 0 to return the input";
const KEEP: Range = Range::Real {
    from: Bound::Excluded(0.0),
    to: Bound::Included(1.0),
    help: "above 0 and at most 1, such as 0.8; for 0 use `choose`",
};

impl LayerType for Residual {
    const KIND: LayerKind = LayerKind::new("residual", "Residual", "Adds the block's input to its output.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        choose_field!(optional).help(
            "Which steps run the layers (1): cycle 1, 0 or random 0.2, 0.8 or schedule 1: 0, 100: 1. Empty: all.",
        ),
        FieldSpec::<Self>::real("keep", lens!(keep))
            .default(|_| FieldValue::Number(1.0))
            .within(KEEP)
            .help("Stochastic depth: the share of the steps that run the layers, whose output is divided by it."),
        evaluate_field!().help("0 if evaluation skips the layers, if steps choose; usually 1."),
    ];
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { layers: Vec::new(), choosing: Choosing::default(), keep: 1.0 }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        let (chooses, keeps) = (self.choosing.how.is_some(), self.keep != 1.0);
        // The probability `keep` is a choice too.
        match keeps {
            true => self.choosing.check_required(1, WHAT, fields),
            false => self.choosing.check(1, WHAT, fields),
        }
        if chooses && keeps && fields.are_sound(&["choose", "keep"]) {
            fields.fail("keep", "the layer has `choose` and `keep`", "remove one of the two: both choose");
        }
    }

    one_list!();

    fn must_keep_shape(&self) -> bool {
        true
    }

    fn choice(&self) -> Option<Choice> {
        let kept = || (self.keep < 1.0).then(|| Choose::Random(vec![1.0 - self.keep, self.keep]));
        let how = self.choosing.how.clone().or_else(kept);
        Choosing { how, ..self.choosing }.choice(1, 1)
    }

    fn list_at(&self, value: usize) -> Option<usize> {
        (value > 0).then_some(0)
    }

    fn draw_choice(&mut self, draw: &mut Draw) {
        if draw.coin(0.5) {
            self.choosing.how = Some(draw.choose(1));
        } else {
            self.keep = draw.extreme_or(&[0.01, 0.99], |d| d.number(0.3, 0.95).max(0.3));
        }
        self.choosing.evaluate = Choosing::drawn_evaluation(draw, 1);
    }

    fn settled(&self, _value: usize) -> Self {
        Self { choosing: Choosing::default(), ..self.clone() }
    }
}
