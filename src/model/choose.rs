//! How a layer chooses at every step what it does: the field `choose`, and the fields beside it.

use super::field_value::{FieldValue, NumberOrName};
use super::mistakes::FieldChecks;
use super::spec::{Fields, describe};
use crate::tensor::{plural, random_words};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How the value of each step is chosen. Steps count from 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Choose {
    /// One value after the other, from the first again behind the last.
    Cycle(Vec<usize>),
    /// At random, value `i` with a probability in proportion to weight `i`.
    Random(Vec<f64>),
    /// Each value from a step on, up to the step of the next one.
    Schedule(Vec<[usize; 2]>),
}

/// The choice that a layer makes at every step.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub how: Choose,
    /// The largest value that there is; the least is 0.
    pub most: usize,
    /// The value in evaluation.
    pub evaluation: usize,
}

/// The random streams of choices begin here, where those of layers that draw random numbers have ended.
const STREAMS: u32 = 1 << 31;

/// The name of the value in evaluation that a layer has by itself.
pub(super) const USUAL: &[&str] = &["usual"];
const EXAMPLE: &str = r#"{"by": "cycle", "values": [0, 1]}"#;
/// Entries of a list, at most.
const MOST_ENTRIES: usize = 1 << 16;

impl Choose {
    const NAMES: [&'static str; 3] = ["cycle", "random", "schedule"];

    fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Cycle(_) => 0,
            Self::Random(_) => 1,
            Self::Schedule(_) => 2,
        }]
    }

    /// The value of a step, counted from 1. `chooser` is the number of the choosing layer in its network, so that each
    /// draws numbers of its own. The same on every machine, whatever steps were made before.
    #[must_use]
    pub fn value(&self, step: u64, seed: u64, chooser: u32) -> usize {
        match self {
            Self::Cycle(values) => values[(step.max(1) - 1) as usize % values.len()],
            Self::Random(weights) => {
                let word = random_words(seed as i64, STREAMS + chooser, step as i64, 0)[0];
                let total: f64 = weights.iter().sum();
                let wanted = f64::from(word) / (1u64 << 32) as f64 * total;
                let mut sum = 0.0;
                let found = weights.iter().position(|weight| {
                    sum += weight;
                    wanted < sum
                });
                // Sums of fractions may end below their total.
                found.or_else(|| weights.iter().rposition(|weight| *weight > 0.0)).unwrap_or(0)
            }
            Self::Schedule(at) => {
                let begun = at.iter().rfind(|[first, _]| *first as u64 <= step);
                begun.or(at.first()).map_or(0, |[_, value]| *value)
            }
        }
    }

    /// The values that some step takes, in the order in which steps take them first; of random ones, by number.
    #[must_use]
    pub fn values(&self) -> Vec<usize> {
        let all: Vec<usize> = match self {
            Self::Cycle(values) => values.clone(),
            Self::Random(weights) => (0..weights.len()).filter(|i| weights[*i] > 0.0).collect(),
            Self::Schedule(at) => at.iter().map(|[_, value]| *value).collect(),
        };
        let mut seen = Vec::new();
        all.into_iter().for_each(|value| {
            if !seen.contains(&value) {
                seen.push(value);
            }
        });
        seen
    }

    /// Steps after which a cycle begins again; 1 where there is none, and nothing where chance decides.
    pub(super) fn period(&self) -> Option<u64> {
        match self {
            Self::Cycle(values) => Some(values.len() as u64),
            Self::Random(_) => None,
            Self::Schedule(_) => Some(1),
        }
    }

    /// The steps from which on it chooses otherwise than before, with the first one.
    pub(super) fn begins(&self) -> Vec<u64> {
        match self {
            Self::Schedule(at) => std::iter::once(1).chain(at.iter().skip(1).map(|[first, _]| *first as u64)).collect(),
            Self::Cycle(_) | Self::Random(_) => vec![1],
        }
    }

    /// As a person types it: `cycle 0, 1`, `random 0.2, 0.8`, `schedule 1: 0, 100: 1`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = self.name().to_owned();
        let mut entry = |number: usize, text: String| {
            // Writing to a text cannot fail.
            let _ = write!(out, "{}{text}", if number == 0 { " " } else { ", " });
        };
        match self {
            Self::Cycle(values) => values.iter().enumerate().for_each(|(i, v)| entry(i, v.to_string())),
            Self::Random(weights) => weights.iter().enumerate().for_each(|(i, w)| entry(i, w.to_string())),
            Self::Schedule(at) => at.iter().enumerate().for_each(|(i, [s, v])| entry(i, format!("{s}: {v}"))),
        }
        out
    }

    /// Reads what [`Self::text`] prints.
    ///
    /// # Errors
    /// What is allowed here.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const HELP: &str = "expected cycle 0, 1 or random 0.2, 0.8 or schedule 1: 0, 100: 1";
        let text = text.trim();
        let (by, rest) = text.split_once(' ').ok_or(HELP)?;
        let entries = || rest.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let pair = |entry: &str| {
            let (step, value) = entry.split_once(':')?;
            Some([step.trim().parse().ok()?, value.trim().parse().ok()?])
        };
        let weight = |entry: &str| entry.parse().ok().filter(|w: &f64| w.is_finite());
        let found = match by {
            "cycle" => entries().map(|entry| entry.parse().ok()).collect::<Option<_>>().map(Self::Cycle),
            "random" => entries().map(weight).collect::<Option<_>>().map(Self::Random),
            "schedule" => entries().map(pair).collect::<Option<_>>().map(Self::Schedule),
            _ => None,
        };
        found.ok_or(HELP)
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Cycle(values) => json!({ "by": self.name(), "values": values }),
            Self::Random(weights) => json!({ "by": self.name(), "weights": weights }),
            Self::Schedule(at) => json!({ "by": self.name(), "at": at }),
        }
    }

    /// Reads the field of this name; nothing where it is left out or wrong. `is_required` makes it a mistake to leave
    /// it out.
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

    /// Reports what is wrong in the field `choose` of a layer whose values are 0 to `most`, of which `what` says what
    /// they are.
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

/// A list of entries that `read` reads; required.
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

/// The value in evaluation as a field: a number, or the layer's usual one.
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

/// The field's value where a layer has its usual one.
pub(super) const fn usual_evaluation() -> FieldValue {
    FieldValue::Named(NumberOrName::Name(USUAL[0]), USUAL)
}

/// Reports a value in evaluation that a layer does not have, or that says nothing because it does not choose.
pub(super) fn check_evaluation(
    evaluate: Option<usize>,
    chooses: bool,
    (most, what): (usize, &str),
    fields: &mut FieldChecks<'_>,
) {
    let Some(value) = evaluate else { return };
    if !chooses {
        let help = "add `choose`, or leave `evaluate` out";
        fields.fail("evaluate", "the layer chooses nothing", help);
    } else if value > most {
        fields.fail("evaluate", format!("found {value}"), format!("expected 0 to {most}: {what}"));
    }
}

/// The field `choose` of a layer with a field of this name and type `Option<Choose>`.
macro_rules! choose_field {
    (required) => {
        $crate::model::choose::choose_field!(@ true).required()
    };
    (optional) => {
        $crate::model::choose::choose_field!(@ false)
            .default(|_| $crate::model::field_value::FieldValue::Choose(None))
    };
    (@ $is_required:literal) => {
        $crate::model::schema::FieldSpec::<Self>::own(
            "choose",
            $crate::model::schema::Own {
                get: |layer| $crate::model::field_value::FieldValue::Choose(layer.choose.clone()),
                set: |layer, value| match value {
                    $crate::model::field_value::FieldValue::Choose(choose) => {
                        layer.choose.clone_from(choose);
                        true
                    }
                    _ => false,
                },
                read: |layer, f, name| {
                    layer.choose = $crate::model::choose::Choose::read(f, name, $is_required);
                },
                json: |layer| layer.choose.as_ref().map($crate::model::choose::Choose::json),
                options: &[],
            },
        )
    };
}
pub(super) use choose_field;

/// The field `evaluate` of a layer with a field of this name and type `Option<usize>`.
macro_rules! evaluate_field {
    () => {
        $crate::model::schema::FieldSpec::<Self>::named(
            "evaluate",
            $crate::model::choose::USUAL,
            $crate::model::schema::Lens {
                get: |layer| $crate::model::choose::evaluation_field(layer.evaluate),
                set: |layer, value| layer.evaluate = $crate::model::choose::evaluation_of(value),
            },
        )
        .default(|_| $crate::model::choose::usual_evaluation())
        .within($crate::model::schema::Range::Any)
    };
}
pub(super) use evaluate_field;

#[cfg(test)]
mod tests {
    use super::*;

    fn values(choose: &Choose, steps: u64) -> Vec<usize> {
        (1..=steps).map(|step| choose.value(step, 7, 0)).collect()
    }

    #[test]
    fn a_cycle_begins_again_and_a_schedule_ends_with_its_last_value() {
        assert_eq!(values(&Choose::Cycle(vec![0, 0, 1]), 7), [0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(values(&Choose::Schedule(vec![[1, 2], [3, 0], [6, 1]]), 8), [2, 2, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn random_values_have_their_shares_and_follow_from_the_step_alone() {
        let choose = Choose::Random(vec![0.2, 0.0, 0.8]);
        let found = values(&choose, 20_000);
        let share = |value| found.iter().filter(|v| **v == value).count() as f64 / 20_000.0;
        assert!((share(0) - 0.2).abs() < 0.01 && share(1) == 0.0, "{}", share(0));
        assert_eq!(choose.value(12_345, 7, 0), found[12_344]);
        let other = |seed, chooser| (1..=64).map(|step| choose.value(step, seed, chooser)).collect::<Vec<_>>();
        assert!(other(7, 0) == found[..64] && other(8, 0) != other(7, 0) && other(7, 1) != other(7, 0));
        assert_eq!(Choose::Random(vec![0.0, 1.0]).value(3, 0, 0), 1);
    }

    #[test]
    fn a_text_reads_back() {
        for text in ["cycle 0, 1, 1", "random 0.2, 0.8", "schedule 1: 0, 100: 1"] {
            assert_eq!(Choose::parse(text).map(|choose| choose.text()), Ok(text.to_owned()));
        }
        for text in ["", "cycle", "cycle 0, x", "random a", "schedule 1, 2", "often 1"] {
            assert!(Choose::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_in_the_order_of_their_first_use() {
        assert_eq!(Choose::Cycle(vec![2, 0, 2, 1]).values(), [2, 0, 1]);
        assert_eq!(Choose::Random(vec![0.5, 0.0, 0.5]).values(), [0, 2]);
        assert_eq!(Choose::Schedule(vec![[1, 1], [5, 0], [9, 1]]).values(), [1, 0]);
    }
}
