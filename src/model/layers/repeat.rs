//! `repeat`: a block of layers, several times with the same weights; how often may be chosen at every step.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::choose::{Choice, Choose};
use crate::model::choose_field::{check_evaluation, choose_field, evaluate_field};
use crate::model::draw::Draw;
use crate::model::mistakes::FieldChecks;
use crate::model::one_list::one_list;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// `f` applied `times` times with the same weights, or as often as each step chooses: not at all up to `times` times.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub times: usize,
    pub layers: Vec<LayerSpec>,
    /// Nothing where every step applies it `times` times.
    pub choose: Option<Choose>,
    /// How often it is applied in evaluation; `times` times where nothing is said.
    pub evaluate: Option<usize>,
}

const WHAT: &str = "how often the layers are applied";

impl LayerType for Repeat {
    const KIND: LayerKind =
        LayerKind::new("repeat", "Repeat", "Applies the same layers, with the same weights, several times.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("times", lens!(times)).help("How often the block is applied, with the same weights."),
        choose_field!(optional)
            .help("How often each step applies it, from 0: cycle 1, 2 or random 0.2, 0.3, 0.5. Empty: `times` times."),
        evaluate_field!().help("How often evaluation applies it, where steps choose; usual is `times`."),
    ];
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { times: 2, layers: Vec::new(), choose: None, evaluate: None }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let times = draw.extreme_or(&[1, 5], |d| d.between(2, 3));
        Self { times, layers: Vec::new(), choose: None, evaluate: None }
    }

    one_list!();

    fn times(&self) -> Option<usize> {
        Some(self.times)
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        self.choose.iter().for_each(|choose| choose.check(self.times, WHAT, fields));
        check_evaluation(self.evaluate, self.choose.is_some(), (self.times, WHAT), fields);
    }

    fn takes_tokens(&self) -> bool {
        !self.must_keep_shape()
    }

    fn must_keep_shape(&self) -> bool {
        self.times > 1 || self.choose.is_some()
    }

    fn choice(&self) -> Option<Choice> {
        let how = self.choose.clone()?;
        Some(Choice { how, most: self.times, evaluation: self.evaluate.unwrap_or(self.times) })
    }

    fn list_at(&self, value: usize) -> Option<usize> {
        (value > 0).then_some(0)
    }

    fn draw_choice(&mut self, draw: &mut Draw) {
        self.choose = Some(draw.choose(self.times));
        self.evaluate = draw.coin(0.3).then(|| draw.between(0, self.times));
    }

    fn settled(&self, value: usize) -> Self {
        Self { times: value, choose: None, evaluate: None, ..self.clone() }
    }
}
