//! `early_exit`: a head with which some steps end before the later layers.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::choose::Choice;
use crate::model::choose_field::{Choosing, choose_field, evaluate_field};
use crate::model::draw::Draw;
use crate::model::infer::Join;
use crate::model::mistakes::FieldChecks;
use crate::model::one_list::one_list;
use crate::model::path::ListField;
use crate::model::schema::FieldSpec;
use crate::tensor::Shape;

/// A separate head: if 1 is chosen, its output is the network's, and the later layers are not run; if 0 is chosen, the
/// head is not run.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyExit {
    pub layers: Vec<LayerSpec>,
    /// Whether each step ends here, in every layer without mistakes; by default evaluation does not.
    pub choosing: Choosing,
}

const WHAT: &str = "1 where the step ends here, 0 where it continues";

impl LayerType for EarlyExit {
    const KIND: LayerKind = LayerKind::new(
        "early_exit",
        "EarlyExit",
        "Ends some steps here, with its own head instead of the layers after it.",
    );
    const FIELDS: &'static [FieldSpec<Self>] = &[
        choose_field!(required)
            .help("Which steps end here (1): cycle 0, 1 or random 0.2, 0.8 or schedule 1: 0, 100: 1."),
        evaluate_field!().help("1 where evaluation ends here; usual is 0."),
    ];
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { layers: Vec::new(), choosing: Choosing::example() }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { layers: Vec::new(), choosing: Choosing::drawn(draw, 1) }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        self.choosing.check_required(1, WHAT, fields);
    }

    fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        // Later layers receive its input; the checker compares the head's output with the network's.
        cx.input.cloned()
    }

    one_list!();

    fn must_keep_shape(&self) -> bool {
        true
    }

    fn choice(&self) -> Option<Choice> {
        self.choosing.choice(1, 0)
    }

    fn list_at(&self, value: usize) -> Option<usize> {
        (value > 0).then_some(0)
    }

    fn ends_at(&self, value: usize) -> bool {
        value > 0
    }
}
