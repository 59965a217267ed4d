//! The common part of `rnn`, `gru` and `lstm`: fields, shape rule and parameters.

use crate::model::cell::Cell;
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::infer::Infer;
use crate::model::param::ParamKind;
use crate::model::schema::{FieldSpec, Lens, Range};
use crate::tensor::Shape;

/// A recurrent layer of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent {
    pub cell: Cell,
    pub units: usize,
    /// Whether a second direction reads from the end.
    pub bidirectional: bool,
    /// Whether only the final state of each direction is returned.
    pub last: bool,
}

/// The parameters of a direction, in order: those of the input, then those of the state; weights before biases.
const FORWARD: [ParamKind; 4] = [ParamKind::WeightIh, ParamKind::WeightHh, ParamKind::BiasIh, ParamKind::BiasHh];
const REVERSE: [ParamKind; 4] =
    [ParamKind::WeightIhReverse, ParamKind::WeightHhReverse, ParamKind::BiasIhReverse, ParamKind::BiasHhReverse];

impl Recurrent {
    /// The parameters of each direction, first the one that reads from the beginning: `weight_ih`, `weight_hh`,
    /// `bias_ih`, `bias_hh`.
    #[must_use]
    pub fn directions(self) -> &'static [[ParamKind; 4]] {
        const BOTH: [[ParamKind; 4]; 2] = [FORWARD, REVERSE];
        &BOTH[..1 + usize::from(self.bidirectional)]
    }

    /// The number of values of a position's output.
    #[must_use]
    pub const fn outputs(self) -> usize {
        if self.bidirectional { self.units.saturating_mul(2) } else { self.units }
    }

    /// The output of a sample `[T, D]`, with the parameters reported to `cx`.
    pub(super) fn infer(self, cx: &mut Infer<'_>) -> Option<Shape> {
        let [positions, inputs] = cx.input.0[..] else {
            let found = format!("found an input of shape {}", cx.input);
            let help = "a recurrent layer takes a sequence [T, D]; give the input two dimensions, or put an embedding \
                        before it where the input is tokens";
            cx.fail("", found, help);
            return None;
        };
        if !cx.fields.is_sound() {
            return None;
        }
        let wide = self.units.saturating_mul(self.cell.gates());
        for &[weight_ih, weight_hh, bias_ih, bias_hh] in self.directions() {
            cx.recurrent(weight_ih, [inputs, wide], self.units);
            cx.recurrent(weight_hh, [self.units, wide], self.units);
            cx.recurrent(bias_ih, [wide], self.units);
            cx.recurrent(bias_hh, [wide], self.units);
        }
        Some(if self.last { Shape::from([self.outputs()]) } else { Shape::from([positions, self.outputs()]) })
    }

    /// The layer for random networks: units, both directions, and which states are returned.
    pub(super) fn drawn(draw: &mut Draw, cell: Cell) -> Self {
        let most = draw.size().sample / 40;
        let units = draw.extreme_or(&[1], |d| d.between(1, most));
        Self { cell, units, bidirectional: draw.coin(0.3), last: draw.coin(0.4) }
    }

    /// The same with the shape of its input; two directions need an even number of values.
    pub(super) fn kept(self, input: &Shape) -> Self {
        let Some(&width) = input.0.last() else { return self };
        let bidirectional = self.bidirectional && width.is_multiple_of(2);
        Self { units: if bidirectional { width / 2 } else { width }, bidirectional, last: false, ..self }
    }
}

const UNITS: Range = Range::Whole { least: 1, most: usize::MAX, help: Some("a recurrent layer needs at least 1 unit") };
const RETURNED: [&str; 2] = ["sequence", "last"];

pub(super) const fn units<T>(lens: Lens<T, usize>) -> FieldSpec<T> {
    FieldSpec::<T>::count("units", lens).within(UNITS).help("Values of the state, which are the output of a position.")
}

pub(super) const fn bidirectional<T>(lens: Lens<T, bool>) -> FieldSpec<T> {
    FieldSpec::<T>::flag("bidirectional", lens)
        .default(|_| FieldValue::Flag(false))
        .help("A second direction reads the sequence from its end; the outputs are side by side.")
}

/// Which states are returned, by index in [`RETURNED`]: each position's state, or the last one of each direction.
pub(super) const fn returned<T>(lens: Lens<T, usize>) -> FieldSpec<T> {
    FieldSpec::<T>::option("return", &RETURNED, lens).help("The state at every position, or the final one alone.")
}

/// The lens of the field that [`returned`] describes.
macro_rules! last {
    () => {
        $crate::model::schema::Lens { get: |l| usize::from(l.last), set: |l, i| l.last = i == 1 }
    };
}
pub(super) use last;

#[cfg(test)]
mod tests {
    use crate::model::{check, init_values, read_preset};
    use crate::tensor::Shape;

    fn preset(layer: &str, shape: &str) -> String {
        format!(
            r#"{{"version": 1, "name": "r", "input": {{"shape": [{shape}], "batch": 2}}, "layers": [{layer}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        )
    }

    #[test]
    fn outputs_and_parameters_follow_from_the_fields() {
        let text = r#"{"type": "lstm", "units": 4, "bidirectional": true, "return": "last"}"#;
        let model = check(&read_preset(&preset(text, "5, 3")).unwrap()).model.unwrap();
        assert_eq!(model.output, Shape::from([8]));
        let wanted: Vec<(String, Shape)> = ["", "_reverse"]
            .into_iter()
            .flat_map(|end| {
                let named = |name: &str, shape: &[usize]| (format!("layers.0.{name}{end}"), Shape(shape.to_vec()));
                let biases = ["bias_ih", "bias_hh"].map(|name| named(name, &[16]));
                [named("weight_ih", &[3, 16]), named("weight_hh", &[4, 16])].into_iter().chain(biases)
            })
            .collect();
        let found: Vec<(String, Shape)> = model.params.iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
        assert_eq!(found, wanted);
        for (index, param) in model.params.iter().enumerate() {
            let values = init_values(param, index, 3);
            let largest = values.iter().fold(0.0f32, |max, v| max.max(v.abs()));
            assert!(largest <= 0.5 && largest > 0.3, "{}: {largest}", param.name);
        }
        for (layer, width) in [(r#"{"type": "rnn", "units": 4}"#, 4), (r#"{"type": "gru", "units": 3}"#, 3)] {
            let model = check(&read_preset(&preset(layer, "5, 3")).unwrap()).model.unwrap();
            assert_eq!(model.output, Shape::from([5, width]));
        }
    }

    #[test]
    fn an_input_without_positions_is_a_mistake() {
        for (shape, found) in [("12", "[12]"), ("2, 3, 4", "[2, 3, 4]")] {
            let checked = check(&read_preset(&preset(r#"{"type": "gru", "units": 4}"#, shape)).unwrap());
            let mistake = &checked.diagnostics[0];
            assert_eq!(mistake.path, "layers[0]");
            assert!(mistake.message.ends_with(found) && mistake.help.contains("[T, D]"), "{mistake:?}");
        }
        let checked = check(&read_preset(&preset(r#"{"type": "rnn", "units": 0}"#, "5, 3")).unwrap());
        assert!(checked.diagnostics[0].help.contains("at least 1 unit"), "{:?}", checked.diagnostics);
    }
}
