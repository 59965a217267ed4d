//! `conv2d`: learned filters over an image; weight `[filters, C / groups, kh, kw]`.

use super::pool::window_output;
use super::{ACTIVATION_HELP, LayerKind, LayerType, written};
use crate::model::activation::Activation;
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::mistakes::FieldChecks;
use crate::model::padding::Padding;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Lens, lens, pair_text};
use crate::tensor::Shape;
use serde_json::{Map, Value};

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

    /// The rows and columns of the output, or a mistake if not even one window fits.
    fn windows(&self, cx: &mut Infer<'_>, [h, w]: [usize; 2]) -> Option<[usize; 2]> {
        let pad = self.pad();
        // A wrong stride does not affect whether one window fits.
        let out = [(0, h), (1, w)]
            .map(|(a, size)| window_output(size, self.kernel[a], self.stride[a].max(1), pad[a], self.dilation[a]));
        if let [Some(ho), Some(wo)] = out {
            return Some([ho, wo]);
        }
        let reach = [0, 1].map(|a| self.dilation[a].saturating_mul(self.kernel[a] - 1).saturating_add(1));
        let found =
            format!("a window of {}x{} on an image of {h}x{w} with padding {}", reach[0], reach[1], pair_text(pad));
        cx.fail("kernel", found, "the window must fit: use a smaller kernel or dilation, or more padding");
        None
    }
}

const ACTIVATION: Lens<Conv2d, usize> =
    Lens { get: |l| Activation::option(l.activation), set: |l, i| l.activation = Activation::of_option(i) };

/// Checks that groups divide the filters.
pub(super) fn check_groups(fields: &mut FieldChecks<'_>, groups: usize, filters: usize) {
    if fields.are_sound(&["filters", "groups"]) && !filters.is_multiple_of(groups) {
        let found = format!("{groups} groups for {filters} filters");
        fields.fail("groups", found, "the number of groups must divide the number of filters");
    }
}

/// Checks that groups divide the channels of the input.
pub(super) fn check_input_groups(cx: &mut Infer<'_>, groups: usize, channels: usize) {
    if cx.fields.are_sound(&["groups"]) && !channels.is_multiple_of(groups) {
        let found = format!("{groups} groups for {channels} input channels");
        cx.fail("groups", found, "the number of groups must divide the number of input channels");
    }
}

impl LayerType for Conv2d {
    const KIND: LayerKind = LayerKind::new("conv2d", "Conv2d", "Slides small learned filters over an image.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("filters", lens!(filters)).help("Output channels."),
        FieldSpec::<Self>::pair("kernel", lens!(kernel)).help("Height and width of a filter."),
        FieldSpec::<Self>::pair("stride", lens!(stride))
            .default(|_| FieldValue::Pair([1, 1]))
            .help("Pixels between windows."),
        FieldSpec::<Self>::padding("padding", lens!(padding))
            .default(|_| FieldValue::Padding(Padding::Fixed([0, 0])))
            .help("Zeros around the image: a number, h, w, same or valid."),
        FieldSpec::<Self>::pair("dilation", lens!(dilation))
            .default(|_| FieldValue::Pair([1, 1]))
            .help("Pixels between a filter's taps."),
        FieldSpec::<Self>::count("groups", lens!(groups))
            .default(|_| FieldValue::Count(1))
            .help("Channels are divided into this many independent groups."),
        FieldSpec::<Self>::option("activation", &Activation::OPTIONS, ACTIVATION).help(ACTIVATION_HELP),
        FieldSpec::<Self>::flag("bias", lens!(bias))
            .default(|_| FieldValue::Flag(true))
            .help("Adds a learned offset to each channel."),
    ];
    const OUTPUT_FIELD: Option<&'static str> = Some("filters");

    fn example() -> Self {
        Self::same(16, 3, Some(Activation::Relu))
    }

    /// Windows may be larger than the image, strides larger than windows, and the padding wide enough for windows that
    /// contain only zeros.
    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let channels = input.0[0];
        let divisors: Vec<usize> = (1..=channels).filter(|d| channels.is_multiple_of(*d)).collect();
        let groups = if draw.coin(0.4) { draw.pick(&divisors) } else { 1 };
        let widest = if draw.size().sample > 1_000 { 16 } else { 6 };
        let filters = groups * draw.between(1, widest / groups);
        let both = |draw: &mut Draw, extremes: &[usize], most: usize| {
            [0, 1].map(|_| draw.extreme_or(extremes, |d| d.between(1, most)))
        };
        let kernel = both(draw, &[5, 7], 4);
        let stride = both(draw, &[5, 9, 64], 3);
        let dilation = if draw.coin(0.3) { both(draw, &[4, 7], 3) } else { [1, 1] };
        let padding = match draw.between(0, 2) {
            0 => Padding::Valid,
            1 if kernel.iter().all(|k| k % 2 == 1) => Padding::Same,
            _ => Padding::Fixed([0, 1].map(|a| {
                let reach = dilation[a] * (kernel[a] - 1) + 1;
                draw.extreme_or(&[reach - 1, reach, reach + 1], |d| d.between(0, 3))
            })),
        };
        let (bias, activation) = (draw.coin(0.6), draw.activation());
        Self { filters, kernel, stride, padding, dilation, groups, bias, activation }
    }

    /// As in every layer, the activation comes last.
    fn write(&self, map: &mut Map<String, Value>) {
        written(self, map);
        if let Some(activation) = map.shift_remove("activation") {
            map.insert("activation".into(), activation);
        }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        let is_even = self.kernel.iter().any(|k| k % 2 == 0);
        if self.padding == Padding::Same && fields.are_sound(&["kernel"]) && is_even {
            let found = format!("\"same\" with a kernel of {}", pair_text(self.kernel));
            let help = "\"same\" needs odd kernel sizes; use an odd kernel or give the padding as numbers";
            fields.fail("padding", found, help);
        }
        check_groups(fields, self.groups, self.filters);
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [channels, h, w] = cx.image("conv2d")?;
        check_input_groups(cx, self.groups, channels);
        let is_known = cx.fields.are_sound(&["kernel", "padding", "dilation"]);
        let out = if is_known { self.windows(cx, [h, w]) } else { None };
        let [ho, wo] = out.filter(|_| cx.fields.is_sound())?;
        let depth = channels / self.groups;
        let taps = self.kernel[0].saturating_mul(self.kernel[1]);
        let (fan_in, fan_out) = (depth.saturating_mul(taps), (self.filters / self.groups).saturating_mul(taps));
        cx.weight(ParamKind::Weight, [self.filters, depth, self.kernel[0], self.kernel[1]], fan_in, fan_out);
        if self.bias {
            cx.constant(ParamKind::Bias, self.filters, 0.0);
        }
        Some(Shape::from([self.filters, ho, wo]))
    }

    fn keep_shape(&mut self, input: &Shape) {
        let [channels, _, _] = input.0[..] else { return };
        (self.filters, self.stride) = (channels, [1, 1]);
        self.kernel = self.kernel.map(|k| k | 1);
        self.padding = Padding::Same;
        if !channels.is_multiple_of(self.groups.max(1)) {
            self.groups = 1;
        }
    }

    fn activation(&self) -> Option<Activation> {
        self.activation
    }
}
