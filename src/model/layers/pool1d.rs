//! `max_pool1d` and `avg_pool1d`: one value of each window over the positions of a sequence.

use super::pool::{window_output, window_size};
use super::{LayerKind, LayerType, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::mistakes::FieldChecks;
use crate::model::schema::{FieldSpec, Lens, MAX_MEASURE, Range, lens};
use crate::tensor::Shape;

/// A window over positions, of which the maximum or the mean is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool1d<const MAX: bool> {
    pub size: usize,
    pub stride: usize,
    pub padding: usize,
}

pub type MaxPool1d = Pool1d<true>;
pub type AvgPool1d = Pool1d<false>;

impl<const MAX: bool> Pool1d<MAX> {
    const SIZE: Lens<Self, usize> = window_size!();
}

impl<const MAX: bool> LayerType for Pool1d<MAX> {
    const KIND: LayerKind = if MAX {
        LayerKind::new("max_pool1d", "MaxPool1d", "Keeps the largest value of each window of positions.")
    } else {
        LayerKind::new("avg_pool1d", "AvgPool1d", "Keeps the mean of each window of positions.")
    };
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("size", Self::SIZE)
            .within(Range::MEASURE)
            .unit("positions")
            .help("Positions in a window."),
        FieldSpec::<Self>::count("stride", lens!(stride))
            .default(|l| FieldValue::Count(l.size))
            .within(Range::MEASURE)
            .unit("positions")
            .help("Positions between windows."),
        FieldSpec::<Self>::count("padding", lens!(padding))
            .default(|_| FieldValue::Count(0))
            .within(Range::Whole { least: 0, most: MAX_MEASURE, help: None })
            .unit("positions")
            .help("Positions added at each end."),
    ];

    fn example() -> Self {
        Self { size: 2, stride: 2, padding: 0 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let size = draw.extreme_or(&[5, 9], |d| d.between(1, 4));
        let stride = if draw.coin(0.3) { size } else { draw.extreme_or(&[size + 1, 64], |d| d.between(1, 3)) };
        Self { size, stride, padding: draw.between(0, size / 2) }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        if fields.are_sound(&["size"]) && self.padding > self.size / 2 {
            let found = format!("padding {} with windows of {}", self.padding, self.size);
            fields.fail("padding", found, "the padding may be at most half the window");
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [positions, channels] = cx.sequence(Self::KIND.type_name)?;
        if !cx.fields.are_sound(&["size", "padding"]) {
            return None;
        }
        // A wrong stride does not affect whether one window fits.
        let Some(outputs) = window_output(positions, self.size, self.stride.max(1), self.padding, 1) else {
            let found = format!("windows of {} on {positions} positions", self.size);
            cx.fail("size", found, "the window must fit into the sequence: use a smaller one");
            return None;
        };
        cx.fields.is_sound().then(|| Shape::from([outputs, channels]))
    }

    fn keep_shape(&mut self, _input: &Shape) {
        let size = self.size | 1;
        *self = Self { size, stride: 1, padding: size / 2 };
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
