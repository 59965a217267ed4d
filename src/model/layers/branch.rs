//! `branch`: several lists of layers, one of which every step takes.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::choose::Choice;
use crate::model::choose_field::{Choosing, choose_field, evaluate_field};
use crate::model::draw::Draw;
use crate::model::infer::{Infer, Join};
use crate::model::mistakes::FieldChecks;
use crate::model::path::ListField;
use crate::model::schema::FieldSpec;
use crate::tensor::Shape;

/// One of several paths, chosen at every step.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchLayer {
    /// A path without layers returns its input.
    pub paths: Vec<Vec<LayerSpec>>,
    /// The path of each step, in every layer without mistakes; in evaluation the last one by default.
    pub choosing: Choosing,
}

const WHAT: &str = "the number of a path, from 0";

impl BranchLayer {
    fn most(&self) -> usize {
        self.paths.len().saturating_sub(1)
    }
}

impl LayerType for BranchLayer {
    const KIND: LayerKind = LayerKind::new("branch", "Branch", "Runs one of several paths, which every step chooses.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        choose_field!(required)
            .help("Which path each step takes: cycle 0, 1 or random 0.2, 0.8 or schedule 1: 0, 100: 1."),
        evaluate_field!().help("The path in evaluation; usual is the last one."),
    ];
    const LISTS: Option<ListField> = Some(ListField::Paths);
    const MAY_BE_EMPTY: bool = true;

    fn example() -> Self {
        Self { paths: vec![Vec::new(); 2], choosing: Choosing::example() }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let count = draw.extreme_or(&[1, 4], |d| d.between(2, 3));
        Self { paths: vec![Vec::new(); count], choosing: Choosing::drawn(draw, count - 1) }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        if self.paths.is_empty() {
            if fields.are_sound(&["paths"]) {
                fields.fail("paths", "there are no paths", "add at least one: [[...], [...]]");
            }
            return;
        }
        self.choosing.check_required(self.most(), WHAT, fields);
    }

    fn infer(&self, _cx: &mut Infer<'_>) -> Option<Shape> {
        unreachable!("the checker goes through the layers inside")
    }

    fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        let (first, others) = cx.outputs.split_first()?;
        for (number, other) in (1..).zip(others) {
            if other != first {
                let message = format!("this path gives {other}, and paths[0] gives {first}");
                let help = "all paths must give the same shape, since any of them may be the next layer's input";
                cx.fields.fail(&format!("paths[{number}]"), message, help);
                return None;
            }
        }
        Some(first.clone())
    }

    fn keep_shape(&mut self, input: &Shape) {
        self.paths.iter_mut().flatten().for_each(|layer| layer.keep_shape(input));
    }

    fn takes_tokens(&self) -> bool {
        true
    }

    fn lists(&self) -> Vec<&Vec<LayerSpec>> {
        self.paths.iter().collect()
    }

    fn lists_mut(&mut self) -> Vec<&mut Vec<LayerSpec>> {
        self.paths.iter_mut().collect()
    }

    fn insert_list(&mut self, number: usize) {
        self.paths.insert(number, Vec::new());
    }

    fn remove_list(&mut self, number: usize) {
        self.paths.remove(number);
    }

    fn choice(&self) -> Option<Choice> {
        self.choosing.choice(self.most(), self.most())
    }

    fn list_at(&self, value: usize) -> Option<usize> {
        Some(value)
    }
}
