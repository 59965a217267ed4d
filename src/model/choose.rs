//! How a layer chooses what it does at every step.

use crate::tensor::random_words;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How the value of each step is chosen. Steps are counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Choose {
    /// One value after the other, cyclically.
    Cycle(Vec<usize>),
    /// At random, value `i` with a probability in proportion to weight `i`.
    Random(Vec<f64>),
    /// Each value from a step on, until the step of the next one.
    Schedule(Vec<[usize; 2]>),
}

/// The choice that a layer makes at every step.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub how: Choose,
    /// The largest value; the smallest is 0.
    pub most: usize,
    /// The value in evaluation.
    pub evaluation: usize,
}

/// The first random stream of choices, after those of layers that draw random numbers.
const STREAMS: u32 = 1 << 31;

impl Choose {
    const NAMES: [&'static str; 3] = ["cycle", "random", "schedule"];

    fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Cycle(_) => 0,
            Self::Random(_) => 1,
            Self::Schedule(_) => 2,
        }]
    }

    /// The value at a step, counted from 1. `chooser` is the number of the choosing layer in its network, so that each
    /// layer draws its own numbers. It is the same on every machine and does not depend on earlier steps.
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
                // Because of rounding, the sum of the fractions may be below their total.
                found.or_else(|| weights.iter().rposition(|weight| *weight > 0.0)).unwrap_or(0)
            }
            Self::Schedule(at) => {
                let begun = at.iter().rfind(|[first, _]| *first as u64 <= step);
                begun.or(at.first()).map_or(0, |[_, value]| *value)
            }
        }
    }

    /// The values that some step takes, in the order of their first use; random ones in rising order.
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

    /// The length of a cycle in steps; 1 if there is none, and `None` if the choice is random.
    pub(super) fn period(&self) -> Option<u64> {
        match self {
            Self::Cycle(values) => Some(values.len() as u64),
            Self::Random(_) => None,
            Self::Schedule(_) => Some(1),
        }
    }

    /// The steps at which the choice changes, including the first one.
    pub(super) fn begins(&self) -> Vec<u64> {
        match self {
            Self::Schedule(at) => std::iter::once(1).chain(at.iter().skip(1).map(|[first, _]| *first as u64)).collect(),
            Self::Cycle(_) | Self::Random(_) => vec![1],
        }
    }

    /// The text that the user types: `cycle 0, 1`, `random 0.2, 0.8`, `schedule 1: 0, 100: 1`.
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

    /// Parses the text of [`Self::text`].
    ///
    /// # Errors
    /// What is allowed.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(choose: &Choose, steps: u64) -> Vec<usize> {
        (1..=steps).map(|step| choose.value(step, 7, 0)).collect()
    }

    #[test]
    fn a_cycle_repeats_and_a_schedule_keeps_its_last_value() {
        assert_eq!(values(&Choose::Cycle(vec![0, 0, 1]), 7), [0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(values(&Choose::Schedule(vec![[1, 2], [3, 0], [6, 1]]), 8), [2, 2, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn random_values_have_their_probabilities_and_do_not_depend_on_earlier_steps() {
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
    fn a_printed_choice_can_be_parsed() {
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
