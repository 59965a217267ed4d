//! `take`: one position of a sequence.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::{FieldValue, NumberOrName};
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, Lens};
use crate::tensor::Shape;

/// Which position is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeAt {
    Last,
    First,
    /// Counted from 0.
    Position(usize),
}

impl TakeAt {
    /// The index for a sequence of this length.
    #[must_use]
    pub const fn position(self, positions: usize) -> usize {
        match self {
            Self::Last => positions.saturating_sub(1),
            Self::First => 0,
            Self::Position(position) => position,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    pub at: TakeAt,
}

const NAMES: &[&str] = &["last", "first"];
const AT: Lens<Take, NumberOrName> = Lens {
    get: |l| match l.at {
        TakeAt::Last => NumberOrName::Name(NAMES[0]),
        TakeAt::First => NumberOrName::Name(NAMES[1]),
        TakeAt::Position(position) => NumberOrName::Number(position),
    },
    set: |l, value| {
        l.at = match value {
            NumberOrName::Number(position) => TakeAt::Position(position),
            NumberOrName::Name(name) if name == NAMES[1] => TakeAt::First,
            NumberOrName::Name(_) => TakeAt::Last,
        }
    },
};

impl LayerType for Take {
    const KIND: LayerKind = LayerKind::new("take", "Take", "Keeps one position of a sequence.");
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::named("at", NAMES, AT)
        .default(|_| FieldValue::Named(NumberOrName::Name(NAMES[0]), NAMES))
        .help("The position that is kept: last, first, or a number from 0.")];

    fn example() -> Self {
        Self { at: TakeAt::Last }
    }

    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let at = match draw.between(0, 2) {
            0 => TakeAt::Last,
            1 => TakeAt::First,
            _ => TakeAt::Position(draw.between(0, input.0[0].saturating_sub(1))),
        };
        Self { at }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [positions, features] = cx.sequence("take")?;
        if !cx.fields.is_sound() {
            return None;
        }
        if self.at.position(positions) >= positions {
            let found = format!("position {} of {positions}", self.at.position(positions));
            cx.fail("at", found, format!("expected a position from 0 to {}, first or last", positions - 1));
            return None;
        }
        Some(Shape::from([features]))
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
