//! `position`: adds a row to each position of a sequence, so that positions can be distinguished.

use super::{LayerKind, LayerType};
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, Lens};
use crate::tensor::Shape;

/// The rows that are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionKind {
    /// A learned row; weight `[T, D]`.
    Learned,
    /// Sines in even columns and cosines in odd ones, with wavelengths that grow to 10,000 turns (Vaswani et al. 2017).
    Sinusoidal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub kind: PositionKind,
}

const KINDS: [PositionKind; 2] = [PositionKind::Learned, PositionKind::Sinusoidal];
const KIND: Lens<Position, usize> = Lens {
    get: |l| usize::from(l.kind == PositionKind::Sinusoidal),
    set: |l, i| l.kind = KINDS.get(i).copied().unwrap_or(l.kind),
};

impl LayerType for Position {
    const KIND: LayerKind =
        LayerKind::new("position", "Position", "Adds a different row to each position of a sequence.");
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::option("kind", &["learned", "sinusoidal"], KIND)
        .help("Learned rows, or fixed sines and cosines.")];

    fn example() -> Self {
        Self { kind: PositionKind::Learned }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { kind: draw.pick(&KINDS) }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let sequence = cx.sequence("position")?;
        if self.kind == PositionKind::Learned {
            cx.table(sequence);
        }
        Some(cx.input.clone())
    }
}
