//! `conv2d`: learned filters over an image; weight `[filters, C / groups, kh, kw]`.

use super::super::check::{Infer, MAX_MEASURE, ParamKind};
use super::super::spec::pair_of;
use super::super::{Activation, Fields};
use super::pool::window_output;
use super::{pair_value, read_activation, write_activation};
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Zeros around the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows and columns on each side.
    Fixed([usize; 2]),
    /// `dilation * (kernel - 1) / 2` for odd kernels: with stride 1 the output is as large as the input.
    Same,
    /// None.
    Valid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    pub filters: usize,
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: Padding,
    pub dilation: [usize; 2],
    pub groups: usize,
    pub bias: bool,
    pub activation: Option<Activation>,
}

impl Conv2d {
    /// Square kernels with stride 1 that keep the image's size.
    #[must_use]
    pub const fn same(filters: usize, kernel: usize, activation: Option<Activation>) -> Self {
        let kernel = [kernel, kernel];
        Self {
            filters,
            kernel,
            stride: [1, 1],
            padding: Padding::Same,
            dilation: [1, 1],
            groups: 1,
            bias: true,
            activation,
        }
    }

    /// Rows and columns of zeros on each side.
    #[must_use]
    pub fn pad(&self) -> [usize; 2] {
        match self.padding {
            Padding::Fixed(p) => p,
            Padding::Valid => [0, 0],
            Padding::Same => [0, 1].map(|a| self.dilation[a] * self.kernel[a].saturating_sub(1) / 2),
        }
    }

    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let padding = match f.raw("padding") {
            None => Padding::Fixed([0, 0]),
            Some(Value::String(s)) if s == "same" => Padding::Same,
            Some(Value::String(s)) if s == "valid" => Padding::Valid,
            Some(v) => pair_of(v).map_or_else(
                || {
                    f.fail("padding", format!("found {v}"), "expected a whole number, [h, w], \"same\" or \"valid\"");
                    Padding::Valid
                },
                Padding::Fixed,
            ),
        };
        Self {
            filters: f.count("filters", None),
            kernel: f.pair("kernel", None),
            stride: f.pair("stride", Some([1, 1])),
            padding,
            dilation: f.pair("dilation", Some([1, 1])),
            groups: f.count("groups", Some(1)),
            bias: f.flag("bias", true),
            activation: read_activation(f),
        }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        map.insert("filters".into(), self.filters.into());
        map.insert("kernel".into(), pair_value(self.kernel));
        if self.stride != [1, 1] {
            map.insert("stride".into(), pair_value(self.stride));
        }
        match self.padding {
            Padding::Fixed([0, 0]) => {}
            Padding::Fixed(p) => drop(map.insert("padding".into(), pair_value(p))),
            Padding::Same => drop(map.insert("padding".into(), "same".into())),
            Padding::Valid => drop(map.insert("padding".into(), "valid".into())),
        }
        if self.dilation != [1, 1] {
            map.insert("dilation".into(), pair_value(self.dilation));
        }
        if self.groups != 1 {
            map.insert("groups".into(), self.groups.into());
        }
        if !self.bias {
            map.insert("bias".into(), false.into());
        }
        write_activation(map, self.activation);
    }

    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [channels, h, w] = cx.image("conv2d")?;
        let mut sound = cx.at_least_one("filters", &[self.filters]);
        sound &= cx.measures("kernel", &self.kernel);
        sound &= cx.measures("stride", &self.stride);
        sound &= cx.measures("dilation", &self.dilation);
        sound &= cx.at_least_one("groups", &[self.groups]);
        if let Padding::Fixed(padding) = self.padding {
            sound &= cx.at_most("padding", &padding, MAX_MEASURE);
        }
        if !sound {
            return None;
        }
        if self.padding == Padding::Same && self.kernel.iter().any(|k| k % 2 == 0) {
            let found = format!("\"same\" with a kernel of {}", pair_value(self.kernel));
            cx.fail(
                "padding",
                found,
                "\"same\" needs odd kernel sizes; use an odd kernel or give the padding as numbers",
            );
            return None;
        }
        if !channels.is_multiple_of(self.groups) || !self.filters.is_multiple_of(self.groups) {
            let found = format!("{} groups for {channels} input channels and {} filters", self.groups, self.filters);
            cx.fail("groups", found, "the number of groups must divide both");
            return None;
        }
        let pad = self.pad();
        let out = [(0, h), (1, w)]
            .map(|(a, size)| window_output(size, self.kernel[a], self.stride[a], pad[a], self.dilation[a]));
        let [Some(ho), Some(wo)] = out else {
            let reach = [0, 1].map(|a| self.dilation[a].saturating_mul(self.kernel[a] - 1).saturating_add(1));
            let found = format!(
                "a window of {}x{} on an image of {h}x{w} with padding {}",
                reach[0],
                reach[1],
                pair_value(pad)
            );
            cx.fail("kernel", found, "the window must fit: use a smaller kernel or dilation, or more padding");
            return None;
        };
        let depth = channels / self.groups;
        let taps = self.kernel[0].saturating_mul(self.kernel[1]);
        let (fan_in, fan_out) = (depth.saturating_mul(taps), (self.filters / self.groups).saturating_mul(taps));
        cx.weight(ParamKind::Weight, [self.filters, depth, self.kernel[0], self.kernel[1]], fan_in, fan_out);
        if self.bias {
            cx.constant(ParamKind::Bias, self.filters, 0.0);
        }
        Some(Shape::from([self.filters, ho, wo]))
    }
}
