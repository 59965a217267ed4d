//! The fields `choose` and `evaluate` of layers that choose: how they are read, checked and edited.

use super::choose::{Choice, Choose};
use super::draw::Draw;
use super::field_value::{FieldValue, NumberOrName};
use super::mistakes::FieldChecks;
use super::spec::{Fields, describe};
use crate::tensor::plural;
use serde_json::Value;

/// The name of a layer's default value in evaluation.
pub(super) const USUAL: &[&str] = &["usual"];
const EXAMPLE: &str = r#"{"by": "cycle", "values": [0, 1]}"#;
/// The largest number of entries of a list.
const MOST_ENTRIES: usize = 1 << 16;

impl Choose {
    /// Reads the field with this name; `None` if it is missing or wrong. If `is_required`, a missing field is a
    /// mistake.
    pub(super) fn read(f: &mut Fields<'_>, name: &'static str, is_required: bool) -> Option<Self> {
        let map = f.object(name, is_required.then_some(EXAMPLE))?;
        let (at, owner) = (f.at(name), f.layer().cloned());
        let mut g = Fields::new(map, at, owner, f.sink());
        let by = g.choice("by", &[("cycle", 0), ("random", 1), ("schedule", 2)], true)?;
        let found = match by {
            0 => list(&mut g, "values", "a list of whole numbers, such as [0, 1]", whole).map(Self::Cycle),
            1 => list(&mut g, "weights", "a list of numbers, such as [0.2, 0.8]", Value::as_f64).map(Self::Random),
            _ => {
                let pair = |value: &Value| match value.as_array()?.as_slice() {
                    [step, value] => Some([whole(step)?, whole(value)?]),
                    _ => None,
                };
                list(&mut g, "at", "a list of [first step, value], such as [[1, 0], [100, 1]]", pair)
                    .map(Self::Schedule)
            }
        };
        g.finish();
        found
    }

    /// Reports mistakes in the field `choose` of a layer whose values are 0 to `most`; `what` describes them.
    pub(super) fn check(&self, most: usize, what: &str, fields: &mut FieldChecks<'_>) {
        let allowed = format!("expected 0 to {most}: {what}");
        match self {
            Self::Cycle(values) => {
                if values.is_empty() {
                    fields.fail("choose.values", "the list is empty", "add at least one value, such as [0, 1]");
                }
                for (number, value) in values.iter().enumerate().filter(|(_, value)| **value > most) {
                    fields.fail(&format!("choose.values[{number}]"), format!("found {value}"), allowed.clone());
                }
            }
            Self::Random(weights) => check_weights(weights, most, what, fields),
            Self::Schedule(at) => {
                if at.is_empty() {
                    fields.fail("choose.at", "the list is empty", "add at least one entry, such as [1, 0]");
                }
                if at.first().is_some_and(|[first, _]| *first > 1) {
                    let message = format!("found {}, and the first step is 1", at[0][0]);
                    fields.fail("choose.at[0]", message, "expected the first entry to begin at step 1");
                }
                for (number, [_, value]) in at.iter().enumerate().filter(|(_, [_, value])| *value > most) {
                    fields.fail(&format!("choose.at[{number}]"), format!("found the value {value}"), allowed.clone());
                }
                for (number, pair) in at.windows(2).enumerate().filter(|(_, pair)| pair[1][0] <= pair[0][0]) {
                    let message = format!("begins at step {}, and the entry before it at {}", pair[1][0], pair[0][0]);
                    let help = "expected steps that rise from entry to entry";
                    fields.fail(&format!("choose.at[{}]", number + 1), message, help);
                }
            }
        }
    }
}

fn check_weights(weights: &[f64], most: usize, what: &str, fields: &mut FieldChecks<'_>) {
    if weights.len() != most + 1 {
        let help = format!("expected {}, one for each value from 0 to {most}: {what}", most + 1);
        let found = format!("found {} {}", weights.len(), plural(weights.len() as u64, "weight"));
        fields.fail("choose.weights", found, help);
        return;
    }
    let is_weight = |weight: &f64| weight.is_finite() && *weight >= 0.0;
    for (number, weight) in weights.iter().enumerate().filter(|(_, weight)| !is_weight(weight)) {
        fields.fail(&format!("choose.weights[{number}]"), format!("found {weight}"), "expected 0 or more");
    }
    let sum: f64 = weights.iter().filter(|weight| is_weight(weight)).sum();
    if weights.iter().all(is_weight) && !(sum > 0.0 && sum.is_finite()) {
        fields.fail("choose.weights", format!("their sum is {sum}"), "expected at least one weight above 0");
    }
}

/// A required list, whose entries `read` reads.
fn list<T>(
    g: &mut Fields<'_>,
    name: &'static str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<T>> {
    let Some(value) = g.raw(name) else {
        g.fail(name, "is missing", format!("add \"{name}\": {expected}"));
        return None;
    };
    let Some(items) = value.as_array() else {
        g.wrong(name, value, expected);
        return None;
    };
    if items.len() > MOST_ENTRIES {
        g.fail(name, format!("found {} entries", items.len()), format!("expected at most {MOST_ENTRIES}"));
        return None;
    }
    let mut out = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        match read(item) {
            Some(entry) => out.push(entry),
            None => {
                let (message, help) = (format!("found {}", describe(item)), format!("expected {expected}"));
                g.fail(&format!("{name}[{number}]"), message, help);
                return None;
            }
        }
    }
    Some(out)
}

fn whole(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}

/// The value in evaluation as a field: a number, or the layer's default.
#[must_use]
pub(super) fn evaluation_field(evaluate: Option<usize>) -> NumberOrName {
    evaluate.map_or(NumberOrName::Name(USUAL[0]), NumberOrName::Number)
}

/// The value in evaluation of a field's number or name.
#[must_use]
pub(super) const fn evaluation_of(value: NumberOrName) -> Option<usize> {
    match value {
        NumberOrName::Number(number) => Some(number),
        NumberOrName::Name(_) => None,
    }
}

/// The field's value if a layer uses its default.
pub(super) const fn usual_evaluation() -> FieldValue {
    FieldValue::Named(NumberOrName::Name(USUAL[0]), USUAL)
}

/// What a layer does at each step if it chooses, and in evaluation. Its values are 0 to `most`; `what` describes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choosing {
    /// How each step chooses; `None` if all steps do the same.
    pub how: Option<Choose>,
    /// The value in evaluation; `None` for the layer's default.
    pub evaluate: Option<usize>,
}

impl Choosing {
    /// Two values, alternating.
    pub(super) fn example() -> Self {
        Self { how: Some(Choose::Cycle(vec![0, 1])), evaluate: None }
    }

    /// A drawn way to choose, and sometimes a value in evaluation.
    pub(super) fn drawn(draw: &mut Draw, most: usize) -> Self {
        Self { how: Some(draw.choose(most)), evaluate: Self::drawn_evaluation(draw, most) }
    }

    /// Sometimes a value in evaluation.
    pub(super) fn drawn_evaluation(draw: &mut Draw, most: usize) -> Option<usize> {
        draw.coin(0.3).then(|| draw.between(0, most))
    }

    /// What the layer chooses, if it does; `usual` is its value in evaluation if none is given.
    pub(super) fn choice(&self, most: usize, usual: usize) -> Option<Choice> {
        Some(Choice { how: self.how.clone()?, most, evaluation: self.evaluate.unwrap_or(usual) })
    }

    /// Reports mistakes in both fields of a layer that may choose.
    pub(super) fn check(&self, most: usize, what: &str, fields: &mut FieldChecks<'_>) {
        self.how.iter().for_each(|how| how.check(most, what, fields));
        if self.evaluate.is_some() && self.how.is_none() {
            let help = "add `choose`, or leave `evaluate` out";
            fields.fail("evaluate", "the layer chooses nothing", help);
        } else {
            self.check_evaluation(most, what, fields);
        }
    }

    /// Reports mistakes in both fields of a layer that always chooses. If `choose` is missing, this is reported by the
    /// reader.
    pub(super) fn check_required(&self, most: usize, what: &str, fields: &mut FieldChecks<'_>) {
        self.how.iter().for_each(|how| how.check(most, what, fields));
        self.check_evaluation(most, what, fields);
    }

    fn check_evaluation(&self, most: usize, what: &str, fields: &mut FieldChecks<'_>) {
        if let Some(value) = self.evaluate.filter(|value| *value > most) {
            fields.fail("evaluate", format!("found {value}"), format!("expected 0 to {most}: {what}"));
        }
    }
}

/// The field `choose` of a layer with a field `choosing`.
macro_rules! choose_field {
    (required) => {
        $crate::model::choose_field::choose_field!(@ true).required()
    };
    (optional) => {
        $crate::model::choose_field::choose_field!(@ false)
            .default(|_| $crate::model::field_value::FieldValue::Choose(None))
    };
    (@ $is_required:literal) => {
        $crate::model::schema::FieldSpec::<Self>::own(
            "choose",
            $crate::model::schema::Own {
                get: |layer| $crate::model::field_value::FieldValue::Choose(layer.choosing.how.clone()),
                set: |layer, value| match value {
                    $crate::model::field_value::FieldValue::Choose(choose) => {
                        layer.choosing.how.clone_from(choose);
                        true
                    }
                    _ => false,
                },
                read: |layer, f, name| {
                    layer.choosing.how = $crate::model::choose::Choose::read(f, name, $is_required);
                },
                json: |layer| layer.choosing.how.as_ref().map($crate::model::choose::Choose::json),
                options: &[],
            },
        )
    };
}
pub(super) use choose_field;

/// The field `evaluate` of a layer with a field `choosing`.
macro_rules! evaluate_field {
    () => {
        $crate::model::schema::FieldSpec::<Self>::named(
            "evaluate",
            $crate::model::choose_field::USUAL,
            $crate::model::schema::Lens {
                get: |layer| $crate::model::choose_field::evaluation_field(layer.choosing.evaluate),
                set: |layer, value| layer.choosing.evaluate = $crate::model::choose_field::evaluation_of(value),
            },
        )
        .default(|_| $crate::model::choose_field::usual_evaluation())
        .within($crate::model::schema::Range::Any)
    };
}
pub(super) use evaluate_field;
