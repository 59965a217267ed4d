//! `conv1d`: learned filters over the positions of a sequence; weight `[filters, C / groups, k]`.

use super::conv2d::{check_groups, check_input_groups};
use super::{ACTIVATION_HELP, LayerKind, LayerType};
use crate::model::activation::Activation;
use crate::model::draw::Draw;
use crate::model::field_value::{FieldValue, NumberOrName};
use crate::model::infer::Infer;
use crate::model::mistakes::FieldChecks;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Lens, MAX_MEASURE, Range, lens};
use crate::tensor::Shape;

/// Zeros before and after a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding1d {
    /// This many on each side.
    Fixed(usize),
    /// `dilation * (kernel - 1) / 2` for odd kernels: with stride 1 the output is as long as the input.
    Same,
    /// None.
    Valid,
    /// `dilation * (kernel - 1)` before the sequence, none after it: no output depends on a later position.
    Causal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    pub filters: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: Padding1d,
    pub dilation: usize,
    pub groups: usize,
    pub bias: bool,
    pub activation: Option<Activation>,
}

impl Conv1d {
    /// Zeros before and after the sequence.
    #[must_use]
    pub const fn pad(&self) -> [usize; 2] {
        let reach = self.dilation.saturating_mul(self.kernel.saturating_sub(1));
        match self.padding {
            Padding1d::Fixed(p) => [p, p],
            Padding1d::Valid => [0, 0],
            Padding1d::Same => [reach / 2, reach / 2],
            Padding1d::Causal => [reach, 0],
        }
    }

    /// The positions of the output; `None` where not even one window fits.
    fn windows(&self, positions: usize) -> Option<usize> {
        let [before, behind] = self.pad();
        let padded = positions.checked_add(before)?.checked_add(behind)?;
        let reach = self.kernel.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)?;
        // A wrong stride does not affect whether one window fits.
        Some(padded.checked_sub(reach)? / self.stride.max(1) + 1)
    }
}

const NAMES: &[&str] = &["same", "valid", "causal"];
const NAMED: [Padding1d; 3] = [Padding1d::Same, Padding1d::Valid, Padding1d::Causal];
const PADDING: Lens<Conv1d, NumberOrName> = Lens {
    get: |l| match l.padding {
        Padding1d::Fixed(p) => NumberOrName::Number(p),
        Padding1d::Same => NumberOrName::Name(NAMES[0]),
        Padding1d::Valid => NumberOrName::Name(NAMES[1]),
        Padding1d::Causal => NumberOrName::Name(NAMES[2]),
    },
    set: |l, value| {
        l.padding = match value {
            NumberOrName::Number(p) => Padding1d::Fixed(p),
            NumberOrName::Name(name) => {
                NAMES.iter().position(|n| *n == name).map_or(Padding1d::Valid, |place| NAMED[place])
            }
        }
    },
};
const ACTIVATION: Lens<Conv1d, usize> =
    Lens { get: |l| Activation::option(l.activation), set: |l, i| l.activation = Activation::of_option(i) };

/// A distance in positions; 1 by default.
const fn distance(name: &'static str, lens: Lens<Conv1d, usize>) -> FieldSpec<Conv1d> {
    FieldSpec::count(name, lens).default(|_| FieldValue::Count(1)).within(Range::MEASURE).unit("positions")
}

impl LayerType for Conv1d {
    const KIND: LayerKind =
        LayerKind::new("conv1d", "Conv1d", "Slides small learned filters over the positions of a sequence.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("filters", lens!(filters)).help("Output channels."),
        FieldSpec::<Self>::count("kernel", lens!(kernel))
            .within(Range::MEASURE)
            .unit("positions")
            .help("Positions that a filter covers."),
        distance("stride", lens!(stride)).help("Positions between windows."),
        FieldSpec::<Self>::named("padding", NAMES, PADDING)
            .default(|_| FieldValue::Named(NumberOrName::Number(0), NAMES))
            .within(Range::Whole { least: 0, most: MAX_MEASURE, help: None })
            .unit("positions")
            .help("Zeros around the sequence: a number for both ends, same, valid or causal."),
        distance("dilation", lens!(dilation)).help("Positions between a filter's taps."),
        FieldSpec::<Self>::count("groups", lens!(groups))
            .default(|_| FieldValue::Count(1))
            .help("Channels are divided into this many independent groups."),
        FieldSpec::<Self>::flag("bias", lens!(bias))
            .default(|_| FieldValue::Flag(true))
            .help("Adds a learned offset to each channel."),
        FieldSpec::<Self>::option("activation", &Activation::OPTIONS, ACTIVATION).help(ACTIVATION_HELP),
    ];
    const OUTPUT_FIELD: Option<&'static str> = Some("filters");

    fn example() -> Self {
        let (activation, padding) = (Some(Activation::Relu), Padding1d::Same);
        Self { filters: 16, kernel: 3, stride: 1, padding, dilation: 1, groups: 1, bias: true, activation }
    }

    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let channels = input.0.last().copied().unwrap_or(1);
        let divisors: Vec<usize> = (1..=channels).filter(|d| channels.is_multiple_of(*d)).collect();
        let groups = if draw.coin(0.4) { draw.pick(&divisors) } else { 1 };
        let filters = groups * draw.between(1, (12 / groups).max(1));
        let kernel = draw.extreme_or(&[5, 9], |d| d.between(1, 4));
        let stride = draw.extreme_or(&[7, 64], |d| d.between(1, 3));
        let dilation = if draw.coin(0.3) { draw.between(2, 4) } else { 1 };
        let padding = match draw.between(0, 3) {
            0 => Padding1d::Valid,
            1 if kernel % 2 == 1 => Padding1d::Same,
            2 => Padding1d::Causal,
            _ => Padding1d::Fixed(draw.between(0, dilation * kernel)),
        };
        let (bias, activation) = (draw.coin(0.6), draw.activation());
        Self { filters, kernel, stride, padding, dilation, groups, bias, activation }
    }

    fn check(&self, fields: &mut FieldChecks<'_>) {
        if self.padding == Padding1d::Same && fields.are_sound(&["kernel"]) && self.kernel.is_multiple_of(2) {
            let found = format!("\"same\" with a kernel of {}", self.kernel);
            let help = "\"same\" needs an odd kernel; use an odd kernel, \"causal\", or give the padding as a number";
            fields.fail("padding", found, help);
        }
        check_groups(fields, self.groups, self.filters);
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [positions, channels] = cx.sequence("conv1d")?;
        check_input_groups(cx, self.groups, channels);
        let is_known = cx.fields.are_sound(&["kernel", "padding", "dilation"]);
        let windows = if is_known { self.windows(positions) } else { None };
        if is_known && windows.is_none() {
            let reach = self.dilation.saturating_mul(self.kernel.saturating_sub(1)).saturating_add(1);
            let found = format!("a window of {reach} on {positions} positions");
            cx.fail("kernel", found, "the window must fit: use a smaller kernel or dilation, or more padding");
        }
        let outputs = windows.filter(|_| cx.fields.is_sound())?;
        let depth = channels / self.groups;
        let fan_in = depth.saturating_mul(self.kernel);
        let fan_out = (self.filters / self.groups).saturating_mul(self.kernel);
        cx.weight(ParamKind::Weight, [self.filters, depth, self.kernel], fan_in, fan_out);
        if self.bias {
            cx.constant(ParamKind::Bias, self.filters, 0.0);
        }
        Some(Shape::from([outputs, self.filters]))
    }

    fn keep_shape(&mut self, input: &Shape) {
        let [_, channels] = input.0[..] else { return };
        (self.filters, self.stride) = (channels, 1);
        if self.padding != Padding1d::Causal {
            self.kernel |= 1;
            self.padding = Padding1d::Same;
        }
        if !channels.is_multiple_of(self.groups.max(1)) {
            self.groups = 1;
        }
    }

    fn activation(&self) -> Option<Activation> {
        self.activation
    }
}

#[cfg(test)]
mod tests {
    use crate::model::checked_network;
    use crate::model::{Checked, read_preset};

    fn checked(input: &str, layers: &str) -> Checked {
        checked_network(&format!("{input}, \"batch\": 2"), layers, "mse")
    }

    /// The outputs of all layers.
    fn shapes(input: &str, layers: &str) -> Vec<Vec<usize>> {
        let checked = checked(input, layers);
        assert_eq!(checked.diagnostics, []);
        checked.facts.into_iter().map(|fact| fact.output.unwrap().0).collect()
    }

    fn mistake(input: &str, layers: &str) -> (String, String) {
        let first = checked(input, layers).diagnostics.remove(0);
        (first.path, format!("{}; {}", first.message, first.help))
    }

    const NUMBERS: &str = r#""shape": [14, 6]"#;
    const TOKENS: &str = r#""type": "tokens", "shape": [7], "vocab": 11"#;

    #[test]
    fn layers_over_positions_have_the_expected_shapes() {
        let layers = r#"{"type": "conv1d", "filters": 8, "kernel": 3, "padding": "causal", "dilation": 2},
            {"type": "max_pool1d", "size": 2}, {"type": "conv1d", "filters": 4, "kernel": 3, "padding": "same",
            "groups": 2}, {"type": "avg_pool1d", "size": 3, "stride": 2, "padding": 1}, {"type": "position"},
            {"type": "layer_norm"}, {"type": "take", "at": 3}"#;
        let expected = [&[14, 8][..], &[7, 8], &[7, 4], &[4, 4], &[4, 4], &[4, 4], &[4]];
        assert_eq!(shapes(NUMBERS, layers), expected);
        let layers = r#"{"type": "embedding", "units": 5}, {"type": "position", "kind": "sinusoidal"},
            {"type": "dense", "units": 9}, {"type": "conv1d", "filters": 2, "kernel": 2, "stride": 3},
            {"type": "global_avg_pool"}"#;
        assert_eq!(shapes(TOKENS, layers), [&[7, 5][..], &[7, 5], &[7, 9], &[2, 2], &[2]]);
        assert_eq!(shapes(NUMBERS, r#"{"type": "flatten"}, {"type": "dense", "units": 2}"#), [vec![84], vec![2]]);
    }

    #[test]
    fn fields_that_do_not_fit_a_sequence_are_refused_with_help() {
        let of = |layer: &str| mistake(NUMBERS, layer);
        let (path, text) = of(r#"{"type": "conv1d", "filters": 4, "kernel": 4, "padding": "same"}"#);
        assert!(path == "layers[0].padding" && text.contains("odd kernel") && text.contains("causal"), "{text}");
        let (path, text) = of(r#"{"type": "conv1d", "filters": 4, "kernel": 9, "dilation": 2}"#);
        assert!(path == "layers[0].kernel" && text.starts_with("a window of 17 on 14 positions"), "{text}");
        let (path, text) = of(r#"{"type": "conv1d", "filters": 4, "kernel": 3, "groups": 4}"#);
        assert!(path == "layers[0].groups" && text.starts_with("4 groups for 6 input channels"), "{text}");
        let (path, text) = of(r#"{"type": "take", "at": 14}"#);
        assert!(path == "layers[0].at" && text.contains("from 0 to 13"), "{text}");
        let (_, text) = of(r#"{"type": "batch_norm"}"#);
        assert!(text.contains("layer_norm"), "{text}");
        let (_, text) = of(r#"{"type": "embedding", "units": 4}"#);
        assert!(text.contains("tokens"), "{text}");
        let (_, text) = mistake(r#""shape": [3, 4, 4]"#, r#"{"type": "conv1d", "filters": 4, "kernel": 3}"#);
        assert!(text.contains("[T, D]"), "{text}");
        let names = read_preset(
            r#"{"version": 1, "name": "t", "input": {"shape": [4, 2], "batch": 2}, "layers": [{"type": "take",
            "at": "middle"}], "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#,
        );
        let text = names.unwrap_err().iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains("\"last\", \"first\""), "{text}");
    }
}
