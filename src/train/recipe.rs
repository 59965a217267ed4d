//! The recipe of a run: everything in its preset that determines what a step computes, and how a resumed run treats a
//! field that differs from its checkpoint's.
//!
//! `RULES` is the table for that; `docs/resume.md` documents it, and a test compares the two.

use super::runs::preset_differences;
use crate::model::{Preset, write_preset};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::Path;

/// How a resumed run treats a field whose value differs from the checkpoint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The run uses the new value from its next step on, and reports both.
    Applied,
    /// The run is refused, with both values and this reason.
    Refused(&'static str),
}

/// The policy for a field and everything inside it. If two rules apply, the longer field decides.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub field: &'static str,
    pub policy: Policy,
}

const fn applied(field: &'static str) -> Rule {
    Rule { field, policy: Policy::Applied }
}

const fn refused(field: &'static str, why: &'static str) -> Rule {
    Rule { field, policy: Policy::Refused(why) }
}

const NETWORK: &str = "its parameters belong to that network";
const LOSS: &str = "it was trained with that loss";
const SAMPLES: &str = "its position in the data refers to those samples";
const DIVISION: &str = "samples that it was trained on would be held out";

/// Every field of a recipe.
const RULES: [Rule; 22] = [
    refused("input", NETWORK),
    refused("inputs", NETWORK),
    refused("input.batch", "its position in the data is counted in batches of that size"),
    refused("layers", NETWORK),
    refused("loss", LOSS),
    refused("optimizer.type", "its moments belong to that optimizer"),
    applied("optimizer.lr"),
    applied("optimizer.weight_decay"),
    applied("optimizer.betas"),
    applied("optimizer.eps"),
    applied("optimizer.momentum"),
    applied("optimizer.nesterov"),
    applied("optimizer.schedule"),
    applied("optimizer.clip_norm"),
    applied("optimizer.decay"),
    applied("precision"),
    refused("data", SAMPLES),
    applied("data.files"),
    refused("data.held_out", DIVISION),
    refused("data.split", DIVISION),
    refused("train.seed", "batches, split and dropout follow from it"),
    refused("train.accumulate", "its steps were made of that number of batches"),
];

/// The length of the run, which a checkpoint of an earlier version does not contain.
const STEPS: Rule = applied("train.steps");
const FILES: &str = "data.files";

/// A preset's fields that determine what a step computes, with the actual seed and number of steps of the run. Names
/// and descriptions are not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recipe(Value);

/// A field in which a run differs from the checkpoint that it resumes.
#[derive(Clone, Debug, PartialEq)]
pub struct RecipeChange {
    /// `optimizer.lr`.
    pub field: String,
    /// The value in the checkpoint, and that of this run.
    pub was: String,
    pub is: String,
    pub policy: Policy,
}

impl RecipeChange {
    /// The change that the run applies, as text for the user.
    #[must_use]
    pub fn note(&self) -> String {
        format!("{}: the checkpoint has {}, and this run continues with {}", self.field, self.was, self.is)
    }

    /// Like [`Self::note`], for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        json!({ "field": self.field, "checkpoint": value(&self.was), "run": value(&self.is) })
    }
}

impl Recipe {
    /// The recipe of a run of this preset. `uses_data` is false if the batches of a file replace the preset's data.
    #[must_use]
    pub fn of(preset: &Preset, seed: u64, uses_data: bool) -> Self {
        let mut doc = serde_json::from_str::<Map<String, Value>>(&write_preset(preset)).unwrap_or_default();
        ["version", "name", "about"].iter().for_each(|field| drop(doc.remove(*field)));
        let mut train = json!({ "seed": seed });
        // As in a preset, one batch is the default and is omitted.
        if let Some(spec) = preset.train.filter(|train| train.accumulate != 1) {
            train["accumulate"] = spec.accumulate.into();
        }
        doc.insert("train".into(), train);
        if !uses_data {
            doc.insert("data".into(), json!({ "type": "batches" }));
        } else if let (Some(data), Some(Value::Object(fields))) = (&preset.data, doc.get_mut("data")) {
            let files = data.source.paths();
            let is_file =
                |v: &Value| v.is_array() || v.as_str().is_some_and(|s| files.iter().any(|f| f == Path::new(s)));
            fields.retain(|_, value| !is_file(value));
            if !files.is_empty() {
                fields.insert("files".into(), json!(files));
            }
            if data.held_out == 0.0 {
                // It does not matter which samples would be held out.
                fields.remove("split");
            }
        }
        Self(Value::Object(doc))
    }

    /// The recipe of a run of this many steps.
    #[must_use]
    pub fn of_steps(mut self, steps: u64) -> Self {
        if let Some(train) = self.0.get_mut("train").and_then(Value::as_object_mut) {
            train.insert("steps".into(), steps.into());
        }
        self
    }

    /// The number of steps of its run, if it contains it.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        self.0["train"]["steps"].as_u64()
    }

    /// The differences of a run that resumes this recipe's checkpoint.
    #[must_use]
    pub fn changes(&self, run: &Self) -> Vec<RecipeChange> {
        let found = preset_differences(&[&self.0.to_string(), &run.0.to_string()]);
        let reported = found.into_iter().filter_map(|difference| {
            let [was, is] = <[String; 2]>::try_from(difference.values).ok()?;
            Some(RecipeChange { policy: policy(&difference.field), field: difference.field, was, is })
        });
        let has_steps = [self, run].iter().all(|r| r.0["train"]["steps"].is_u64());
        reported
            .filter(|c| has_steps || c.field != STEPS.field)
            .filter(|c| c.field != FILES || !self.has_files_of(run))
            .collect()
    }

    /// Whether both name the same files, possibly relative to different folders: `data/a.csv` and `a.csv`.
    fn has_files_of(&self, other: &Self) -> bool {
        let [own, other] = [self, other].map(|r| r.0["data"]["files"].as_array().cloned().unwrap_or_default());
        let is_same = |(a, b): (&Value, &Value)| match (a.as_str().map(Path::new), b.as_str().map(Path::new)) {
            (Some(a), Some(b)) => a.ends_with(b) || b.ends_with(a),
            _ => false,
        };
        own.len() == other.len() && own.iter().zip(&other).all(is_same)
    }

    /// Whether the momentum of this recipe needs no memory.
    #[must_use]
    pub fn is_without_momentum(&self) -> bool {
        self.0["optimizer"]["momentum"].as_f64().unwrap_or(0.0) == 0.0
    }
}

/// The policy for a field, by the longest rule that names it or an object that contains it.
fn policy(field: &str) -> Policy {
    let names =
        |rule: &&Rule| field.strip_prefix(rule.field).is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']));
    let rules = RULES.iter().chain([&STEPS]).filter(names);
    rules.max_by_key(|r| r.field.len()).map_or(Policy::Refused("the run depends on it"), |r| r.policy)
}

/// The differences that a resumed run must not have, one on each line; `None` if there are none.
#[must_use]
pub fn refusal(changes: &[RecipeChange]) -> Option<String> {
    /// If there are more, their number is given.
    const SHOWN: usize = 8;
    let lines: Vec<String> = changes
        .iter()
        .filter_map(|c| match c.policy {
            Policy::Refused(why) => {
                Some(format!("\n  {} is {} in the checkpoint and {} here ({why})", c.field, c.was, c.is))
            }
            Policy::Applied => None,
        })
        .collect();
    let more = lines.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    (!lines.is_empty()).then(|| lines[..lines.len().min(SHOWN)].concat() + &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BUNDLED, DataSource, OptimizerSpec, read_preset};

    fn recipe(text: &str) -> Recipe {
        Recipe::of(&read_preset(text).unwrap(), 0, true)
    }

    const TABLE: &str = r#"{"version": 1, "name": "n", "input": {"shape": [4], "batch": 8},
        "layers": [{"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"},
        "optimizer": {"type": "sgd", "lr": 0.1}, "data": {"type": "csv", "path": "a.csv"}}"#;

    #[test]
    fn every_field_of_every_bundled_preset_has_a_rule() {
        for preset in BUNDLED {
            let found = recipe(preset.text).of_steps(5);
            let none = Recipe(json!({}));
            for change in found.changes(&none).iter().chain(&none.changes(&found)) {
                assert_ne!(change.policy, Policy::Refused("the run depends on it"), "{}", change.field);
            }
        }
    }

    #[test]
    fn every_field_of_every_optimizer_has_a_rule() {
        for optimizer in OptimizerSpec::NAMES.iter().filter_map(|name| OptimizerSpec::example(name)) {
            for field in optimizer.fields() {
                assert!(RULES.iter().any(|rule| rule.field == field.name), "{} of {}", field.name, optimizer.name());
            }
        }
    }

    #[test]
    fn the_documented_table_equals_that_of_the_code() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/resume.md");
        let page = std::fs::read_to_string(page).unwrap();
        for rule in RULES.iter().chain([&STEPS]) {
            let row = page.lines().find(|l| l.contains(&format!("`{}`", rule.field)) && l.starts_with('|'));
            let row = row.unwrap_or_else(|| panic!("{} is not in docs/resume.md", rule.field));
            let word = if rule.policy == Policy::Applied { "applied" } else { "refused" };
            assert!(row.contains(word), "{row}");
        }
    }

    #[test]
    fn files_in_another_folder_are_the_same_files() {
        let own = recipe(TABLE);
        let moved = |to: &str| own.changes(&recipe(&TABLE.replace("a.csv", to)));
        assert_eq!((moved("a.csv"), moved("some/folder/a.csv")), (Vec::new(), Vec::new()));
        let found = moved("b.csv");
        assert_eq!((found[0].field.as_str(), found[0].policy), (FILES, Policy::Applied));
        // The names of arrays are not files.
        let mut preset = read_preset(TABLE).unwrap();
        let mut npz = |x: &str| {
            let (path, x, y) = ("a.npz".into(), x.to_owned(), "y".to_owned());
            preset.data.as_mut().unwrap().source = DataSource::Npz { path, x, y };
            Recipe::of(&preset, 0, true)
        };
        let changes = npz("x").changes(&npz("z"));
        assert_eq!((changes[0].field.as_str(), changes[0].policy), ("data.x", Policy::Refused(SAMPLES)));
    }

    #[test]
    fn a_refusal_names_both_values_and_nothing_that_is_applied() {
        let own = recipe(TABLE);
        let other = TABLE.replace("\"batch\": 8", "\"batch\": 16").replace("0.1", "0.2");
        let changes = own.changes(&recipe(&other));
        let message = refusal(&changes).unwrap();
        assert!(
            message.contains("input.batch is 8 there and 16 here (") && !message.contains("optimizer.lr"),
            "{message}"
        );
        let lr = changes.iter().find(|c| c.field == "optimizer.lr").unwrap();
        assert_eq!(lr.note(), "optimizer.lr: the checkpoint has 0.1, and this run continues with 0.2");
        assert_eq!(lr.to_json(), json!({ "field": "optimizer.lr", "checkpoint": 0.1, "run": 0.2 }));
        assert_eq!(refusal(std::slice::from_ref(lr)), None);
    }

    #[test]
    fn the_split_matters_only_if_samples_are_held_out() {
        let with = |fields: &str| recipe(&TABLE.replace("\"a.csv\"", &format!("\"a.csv\", {fields}")));
        let none = with("\"held_out\": 0");
        assert_eq!(none.changes(&with("\"held_out\": 0, \"split\": \"last\"")), []);
        let changes = with("\"held_out\": 0.1").changes(&with("\"held_out\": 0.1, \"split\": \"last\""));
        assert!(refusal(&changes).unwrap().contains("data.split is shuffled there and last here"));
        // A checkpoint of an earlier version does not say how many steps its run had.
        assert_eq!(none.changes(&none.clone().of_steps(9)), []);
        assert_eq!(none.clone().of_steps(8).changes(&none.of_steps(9))[0].policy, Policy::Applied);
    }
}
