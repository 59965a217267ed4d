//! `attention`: every position of `[T, D]` becomes a weighted mean of the values of the positions that it attends to.

use super::{LayerKind, LayerType};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Range, lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub heads: usize,
    /// Whether a position attends to itself and earlier ones only.
    pub causal: bool,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Whether queries and keys are rotated by angles that are proportional to their position (rotary embedding).
    pub rotary: bool,
    pub bias: bool,
    /// The share of probabilities that is dropped during training.
    pub dropout: f64,
}

const HEADS: Range = Range::Whole { least: 1, most: usize::MAX, help: Some("attention needs at least 1 head") };

impl LayerType for Attention {
    const KIND: LayerKind = LayerKind::new(
        "attention",
        "Attention",
        "Every position looks at the others, and takes from those that suit it.",
    );
    const FIELDS: &'static [FieldSpec<Self>] = &[
        FieldSpec::<Self>::count("heads", lens!(heads))
            .within(HEADS)
            .help("Parts that attend independently; they share the features."),
        FieldSpec::<Self>::flag("causal", lens!(causal))
            .default(|_| FieldValue::Flag(false))
            .help("A position attends to itself and earlier ones only."),
        FieldSpec::<Self>::count("kv_heads", lens!(kv_heads))
            .label("kv heads")
            .default(|l| FieldValue::Count(l.heads))
            .help("Heads of keys and values, each shared by as many heads of queries."),
        FieldSpec::<Self>::flag("rotary", lens!(rotary))
            .default(|_| FieldValue::Flag(false))
            .help("Turns queries and keys by angles that grow with their position."),
        FieldSpec::<Self>::flag("bias", lens!(bias))
            .default(|_| FieldValue::Flag(true))
            .help("Adds learned offsets before and after the attention."),
        FieldSpec::<Self>::real("dropout", lens!(dropout))
            .default(|_| FieldValue::Number(0.0))
            .within(Range::SHARE)
            .help("Share of the attention that is dropped while training, below 1."),
    ];

    fn example() -> Self {
        Self { heads: 4, causal: false, kv_heads: 4, rotary: false, bias: true, dropout: 0.0 }
    }

    fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let width = input.0.last().copied().unwrap_or(1);
        let heads = divisor(draw, width, 6);
        let kv_heads = if draw.coin(0.5) { heads } else { divisor(draw, heads, heads) };
        let (causal, rotary) = (draw.coin(0.5), draw.coin(0.4) && (width / heads).is_multiple_of(2));
        let dropout = if draw.coin(0.7) { 0.0 } else { draw.number(0.01, 0.6) };
        Self { heads, causal, kv_heads, rotary, bias: draw.coin(0.7), dropout }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [_, width] = cx.input.0[..] else {
            let found = format!("found an input of shape {}", cx.input);
            let help = "attention takes a sequence [T, D]; give the input two dimensions, or put an embedding before \
                        it where the input is tokens";
            cx.fail("", found, help);
            return None;
        };
        if !self.divides(cx, width) {
            return None;
        }
        let packed = width + 2 * width / self.heads * self.kv_heads;
        cx.inner_weight(ParamKind::InWeight, width, packed);
        if self.bias {
            cx.constant(ParamKind::InBias, packed, 0.0);
        }
        cx.weight(ParamKind::OutWeight, [width, width], width, width);
        if self.bias {
            cx.constant(ParamKind::OutBias, width, 0.0);
        }
        Some(cx.input.clone())
    }

    fn is_random(&self) -> bool {
        self.dropout > 0.0
    }
}

impl Attention {
    /// Whether the heads share the features evenly and pairs of features can be rotated; reports a mistake otherwise.
    fn divides(&self, cx: &mut Infer<'_>, width: usize) -> bool {
        let Self { heads, kv_heads, .. } = *self;
        if !cx.fields.are_sound(&["heads"]) {
            return false;
        }
        let mut is_right = true;
        if !width.is_multiple_of(heads) {
            let found = format!("found {heads} heads for {width} features");
            cx.fail("heads", found, format!("the number of heads must divide the number of features, {width}"));
            is_right = false;
        }
        if cx.fields.are_sound(&["kv_heads"]) && !heads.is_multiple_of(kv_heads) {
            let found = format!("found {kv_heads} heads of keys and values for {heads} heads");
            let help = format!("kv_heads must divide the number of heads, {heads}; omit it to use one for each head");
            cx.fail("kv_heads", found, help);
            is_right = false;
        }
        if is_right && self.rotary && !(width / heads).is_multiple_of(2) {
            let found = format!("found heads of {} features each", width / heads);
            let help = "rotary turns pairs of features: choose heads so that each has an even number of them";
            cx.fail("rotary", found, help);
            is_right = false;
        }
        is_right && cx.fields.is_sound()
    }
}

/// A divisor of `n`, at most `most`.
fn divisor(draw: &mut Draw, n: usize, most: usize) -> usize {
    let divisors: Vec<usize> = (1..=most.clamp(1, n.max(1))).filter(|d| n.is_multiple_of(*d)).collect();
    draw.pick(&divisors)
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};

    fn mistakes(shape: &str, layer: &str) -> Vec<(String, String)> {
        let text = format!(
            r#"{{"version": 1, "name": "a", "input": {{"shape": {shape}, "batch": 2}},
            "layers": [{{"type": "attention", {layer}}}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let diagnostics = match read_preset(&text) {
            Ok(preset) => check(&preset).diagnostics,
            Err(diagnostics) => diagnostics,
        };
        diagnostics.into_iter().map(|d| (d.path, d.message)).collect()
    }

    #[test]
    fn samples_without_positions_are_refused() {
        for shape in ["[12]", "[3, 4, 4]"] {
            let found = mistakes(shape, r#""heads": 4"#);
            assert!(found.iter().any(|(path, _)| path == "layers[0]"), "{shape}: {found:?}");
        }
    }

    #[test]
    fn heads_that_do_not_divide_the_features_are_reported() {
        assert_eq!(mistakes("[5, 12]", r#""heads": 4"#), []);
        assert_eq!(mistakes("[5, 12]", r#""heads": 6, "kv_heads": 2, "rotary": true, "causal": true"#), []);
        let table = [
            (r#""heads": 5"#, "heads", "found 5 heads for 12 features"),
            (r#""heads": 0, "kv_heads": 1"#, "heads", "found 0"),
            (r#""heads": 4, "kv_heads": 3"#, "kv_heads", "found 3 heads of keys and values for 4 heads"),
            (r#""heads": 4, "kv_heads": 0"#, "kv_heads", "found 0"),
            (r#""heads": 2, "kv_heads": 4"#, "kv_heads", "found 4 heads of keys and values for 2 heads"),
            (r#""heads": 4, "rotary": true"#, "rotary", "found heads of 3 features each"),
            (r#""heads": 4, "dropout": 1"#, "dropout", "found 1"),
        ];
        for (fields, field, message) in table {
            let expected = (format!("layers[0].{field}"), message.to_owned());
            assert_eq!(mistakes("[5, 12]", fields), [expected], "{fields}");
        }
    }

    #[test]
    fn parameters_have_their_names_and_shapes() {
        let text = r#"{"version": 1, "name": "a", "input": {"shape": [5, 12], "batch": 2},
            "layers": [{"type": "attention", "heads": 6, "kv_heads": 2}], "loss": {"type": "mse"},
            "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let found: Vec<(&str, &[usize])> = model.params.iter().map(|p| (p.name.as_str(), &p.shape.0[..])).collect();
        let expected: [(&str, &[usize]); 4] = [
            ("layers.0.in_weight", &[12, 20]),
            ("layers.0.in_bias", &[20]),
            ("layers.0.out_weight", &[12, 12]),
            ("layers.0.out_bias", &[12]),
        ];
        assert_eq!(found, expected);
    }
}
