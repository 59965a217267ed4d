//! `max_pool2d` and `avg_pool2d`: one value of each window over an image.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::mistakes::FieldChecks;
use crate::model::schema::{FieldSpec, Lens, Range, lens, pair_text};
use crate::tensor::Shape;

/// A window over an image, of which the maximum or the mean is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool<const MAX: bool> {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
}

pub type MaxPool2d = Pool<true>;
pub type AvgPool2d = Pool<false>;

/// The lens of a window's size: if the stride equals the size, it remains equal when the size changes.
macro_rules! window_size {
    () => {
        Lens {
            get: |layer| layer.size,
            set: |layer, size| {
                if layer.stride == layer.size {
                    layer.stride = size;
                }
                layer.size = size;
            },
        }
    };
}
pub(super) use window_size;

/// The number of windows of `kernel` taps over `size` elements (floor mode); `None` where not even one fits.
#[must_use]
pub fn window_output(size: usize, kernel: usize, stride: usize, padding: usize, dilation: usize) -> Option<usize> {
    let padded = padding.checked_mul(2)?.checked_add(size)?;
    let reach = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    Some(padded.checked_sub(reach)?.checked_div(stride)? + 1)
}

impl<const MAX: bool> Pool<MAX> {
    const SIZE: Lens<Self, [usize; 2]> = window_size!();
}

impl<const MAX: bool> LayerType for Pool<MAX> {
    const KIND: LayerKind = if MAX {
        LayerKind::new("max_pool2d", "MaxPool2d", "Keeps the largest value of each window.")
    } else {
        LayerKind::new("avg_pool2d", "AvgPool2d", "Keeps the mean of each window.")
    };
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::pair("size", Self::SIZE).help("Height and width of a window."),
        FieldSpec::<Self>::pair("stride", lens!(stride))
            .default(|l| FieldValue::Pair(l.size))
            .help("Pixels between windows."),
        FieldSpec::<Self>::pair("padding", lens!(padding))
            .default(|_| FieldValue::Pair([0, 0]))
            .within(Range::Any)
            .help("Pixels added on each side."),
    ];

    fn example() -> Self {
        Self { size: [2, 2], stride: [2, 2], padding: [0, 0] }
    }

    /// Windows of more than 256 elements need wider indices; the padding is at most half the window.
    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let size = [0, 1].map(|_| draw.extreme_or(&[5, 9, 17], |d| d.between(1, 3)));
        let stride =
            if draw.coin(0.3) { size } else { size.map(|s| draw.extreme_or(&[s + 1, s + 3, 64], |d| d.between(1, 3))) };
        Self { size, stride, padding: size.map(|s| draw.between(0, s / 2)) }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        if !fields.are_sound(&["size"]) {
            return;
        }
        if [0, 1].iter().any(|&a| self.padding[a] > self.size[a] / 2) {
            let found = format!("padding {} with windows of {}", pair_text(self.padding), pair_text(self.size));
            fields.fail("padding", found, "the padding may be at most half the window");
        }
        if self.size[0].saturating_mul(self.size[1]) > 65_536 {
            fields.fail("size", format!("found {}", pair_text(self.size)), "a window may hold at most 65536 elements");
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [channels, h, w] = cx.image("pooling")?;
        if !cx.fields.are_sound(&["size", "padding"]) {
            return None;
        }
        // A wrong stride does not affect whether one window fits.
        let out = [(0, h), (1, w)]
            .map(|(a, size)| window_output(size, self.size[a], self.stride[a].max(1), self.padding[a], 1));
        let [Some(ho), Some(wo)] = out else {
            let found = format!("windows of {} on an image of {h}x{w}", pair_text(self.size));
            cx.fail("size", found, "the window must fit into the image: use a smaller one");
            return None;
        };
        cx.fields.is_sound().then(|| Shape::from([channels, ho, wo]))
    }

    fn keep_shape(&mut self, _input: &Shape) {
        let size = self.size.map(|s| s | 1);
        *self = Self { size, stride: [1, 1], padding: size.map(|s| s / 2) };
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
