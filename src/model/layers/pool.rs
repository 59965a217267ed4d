//! `max_pool2d`, `avg_pool2d`, `global_avg_pool`.

use super::super::Fields;
use super::super::check::Infer;
use super::super::mistakes::FieldChecks;
use super::super::random::Draw;
use super::pair_value;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// A pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
}

/// The number of windows of `kernel` taps over `size` elements (floor mode); `None` where not even one fits.
#[must_use]
pub fn window_output(size: usize, kernel: usize, stride: usize, padding: usize, dilation: usize) -> Option<usize> {
    let padded = padding.checked_mul(2)?.checked_add(size)?;
    let reach = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    Some(padded.checked_sub(reach)?.checked_div(stride)? + 1)
}

impl Pool {
    /// Square windows side by side.
    #[must_use]
    pub const fn square(size: usize) -> Self {
        Self { size: [size, size], stride: [size, size], padding: [0, 0] }
    }

    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let size = f.pair("size", None);
        Self { size, stride: f.pair("stride", Some(size)), padding: f.pair("padding", Some([0, 0])) }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        map.insert("size".into(), pair_value(self.size));
        if self.stride != self.size {
            map.insert("stride".into(), pair_value(self.stride));
        }
        if self.padding != [0, 0] {
            map.insert("padding".into(), pair_value(self.padding));
        }
    }

    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        fields.measures("size", &self.size);
        fields.measures("stride", &self.stride);
        if !fields.are_sound(&["size"]) {
            return;
        }
        if [0, 1].iter().any(|&a| self.padding[a] > self.size[a] / 2) {
            let found = format!("padding {} with windows of {}", pair_value(self.padding), pair_value(self.size));
            fields.fail("padding", found, "the padding may be at most half the window");
        }
        if self.size[0].saturating_mul(self.size[1]) > 65_536 {
            fields.fail("size", format!("found {}", pair_value(self.size)), "a window may hold at most 65536 elements");
        }
    }

    /// Windows of more than 256 elements need wider indices; the padding goes up to its limit, half the window.
    pub(super) fn drawn(draw: &mut Draw) -> Self {
        let size = [0, 1].map(|_| draw.extreme_or(&[5, 9, 17], |d| d.between(1, 3)));
        let stride =
            if draw.coin(0.3) { size } else { size.map(|s| draw.extreme_or(&[s + 1, s + 3, 64], |d| d.between(1, 3))) };
        Self { size, stride, padding: size.map(|s| draw.between(0, s / 2)) }
    }

    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [channels, h, w] = cx.image("pooling")?;
        if !cx.fields.are_sound(&["size", "padding"]) {
            return None;
        }
        // A stride that is wrong changes nothing about whether one window fits.
        let out = [(0, h), (1, w)]
            .map(|(a, size)| window_output(size, self.size[a], self.stride[a].max(1), self.padding[a], 1));
        let [Some(ho), Some(wo)] = out else {
            let found = format!("windows of {} on an image of {h}x{w}", pair_value(self.size));
            cx.fail("size", found, "the window must fit into the image: use a smaller one");
            return None;
        };
        cx.fields.is_sound().then(|| Shape::from([channels, ho, wo]))
    }
}

pub(super) fn infer_global(cx: &mut Infer<'_>) -> Option<Shape> {
    let [channels, ..] = cx.image("global_avg_pool")?;
    Some(Shape::from([channels]))
}
