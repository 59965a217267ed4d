//! `repeat`: a block of layers, applied several times with the same weights; each step may choose how often.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::choose::Choice;
use crate::model::choose_field::{Choosing, choose_field, evaluate_field};
use crate::model::draw::Draw;
use crate::model::mistakes::FieldChecks;
use crate::model::one_list::one_list;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// `f` applied `times` times with the same weights, or as often as each step chooses, from 0 to `times` times.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub times: usize,
    pub layers: Vec<LayerSpec>,
    /// How often each step, and evaluation, applies it; `times` times by default.
    pub choosing: Choosing,
}

const WHAT: &str = "how often the layers are applied";

impl LayerType for Repeat {
    const KIND: LayerKind =
        LayerKind::new("repeat", "Repeat", "Applies the same layers, with the same weights, several times.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("times", lens!(times)).help("How often the block is applied, with the same weights."),
        choose_field!(optional)
            .help("How often each step applies it, from 0: cycle 1, 2 or random 0.2, 0.3, 0.5. Empty: `times` times."),
        evaluate_field!().help("How often evaluation applies it, if steps choose; usually `times`."),
    ];
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { times: 2, layers: Vec::new(), choosing: Choosing::default() }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let times = draw.extreme_or(&[1, 5], |d| d.between(2, 3));
        Self { times, layers: Vec::new(), choosing: Choosing::default() }
    }

    one_list!();

    fn times(&self) -> Option<usize> {
        Some(self.times)
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        self.choosing.check(self.times, WHAT, fields);
    }

    fn takes_tokens(&self) -> bool {
        !self.must_keep_shape()
    }

    fn must_keep_shape(&self) -> bool {
        self.times > 1 || self.choosing.how.is_some()
    }

    fn choice(&self) -> Option<Choice> {
        self.choosing.choice(self.times, self.times)
    }

    fn list_at(&self, value: usize) -> Option<usize> {
        (value > 0).then_some(0)
    }

    fn draw_choice(&mut self, draw: &mut Draw) {
        self.choosing = Choosing::drawn(draw, self.times);
    }

    fn settled(&self, value: usize) -> Self {
        Self { times: value, choosing: Choosing::default(), ..self.clone() }
    }
}
