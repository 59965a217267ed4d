//! `stepgraph bench --edits`: how long it takes from a change of one size of a network until its first replayed step.
//!
//! The preset trains first, so that everything that changes share is there. Each change is made to the preset as it is,
//! gives a size that was not there before, and counts from the document on: it is read, checked, compiled, recorded,
//! and makes one step on the preset's data where it names some, otherwise on one random batch.

use super::args::BenchArgs;
use super::error::wrong;
use super::output::{self, Distribution};
use super::presets::{Loaded, mistakes};
use crate::exec::ReadyTimes;
use crate::model::{check, read_value, write_preset};
use crate::select::Target;
use crate::train::{DataChoice, Session, SessionSpec, TrainError};
use serde::Serialize;
use serde_json::Value;
use std::time::Instant;

/// What `--json` prints for a preset.
#[derive(Serialize)]
pub struct Edits {
    preset: String,
    device: String,
    /// From the preset to its first replayed step, with whatever was not there yet, in microseconds.
    first_us: f64,
    /// From a change to the first replayed step, in microseconds.
    edit_us: Distribution,
    worst_us: f64,
    edits: Vec<Edit>,
}

/// One change.
#[derive(Serialize)]
struct Edit {
    /// The place in the document, as a JSON pointer, and its numbers before and after.
    place: String,
    from: u64,
    to: u64,
    us: f64,
    /// The stages until the step could be made.
    ready: ReadyTimes,
}

impl Edits {
    /// Makes `count` changes of a preset's sizes on a machine, one after another.
    ///
    /// # Errors
    /// Where the preset has no size to change, or a step cannot be made.
    pub fn measure(
        found: &Loaded,
        args: &BenchArgs,
        (target, device): (&Target, &str),
        count: u64,
    ) -> anyhow::Result<Self> {
        let document: Value = serde_json::from_str(&write_preset(&found.preset))?;
        let places = changeable(&document);
        if places.is_empty() {
            let name = &found.preset.name;
            return Err(wrong(format!("{name} has no units, filters or batch that --edits could change")));
        }
        let prepare = |document: &Value| prepare(found, args, target, document);
        let (mut last, first_us) = first_step(&document, prepare)?;
        let mut edits = Vec::new();
        for number in 0..count {
            let place = &places[(number % places.len() as u64) as usize];
            let (from, to) = (place.value, place.value + 1 + number / places.len() as u64);
            let mut changed = document.clone();
            if let Some(value) = changed.pointer_mut(&place.pointer) {
                *value = to.into();
            }
            let started = Instant::now();
            // What the window does: the network before it is gone when the next one is made.
            drop(last);
            let us = |more: f64| started.elapsed().as_secs_f64() * 1e6 - more;
            let dropped = us(0.0);
            let (session, took) = first_step(&changed, prepare)?;
            let ready = session.ready_times().clone();
            edits.push(Edit { place: place.pointer.clone(), from, to, us: dropped + took, ready });
            last = session;
        }
        let mut times: Vec<f64> = edits.iter().map(|edit| edit.us).collect();
        Ok(Self {
            preset: found.preset.name.clone(),
            device: device.to_owned(),
            first_us,
            edit_us: Distribution::of(&mut times),
            worst_us: times.last().copied().unwrap_or_default(),
            edits,
        })
    }

    /// As text, for people: the slowest change with its longest stages.
    #[must_use]
    pub fn text(&self) -> String {
        let [first, median, p90, worst] =
            [self.first_us, self.edit_us.median, self.edit_us.p90, self.worst_us].map(output::micros);
        let count = output::counted(self.edits.len() as u64, "change");
        let mut out = format!(
            "{}: {first} until the first replayed step; after {count} of one size: median {median}, p90 {p90}, worst \
             {worst}\n",
            self.preset
        );
        if let Some(slowest) = self.edits.iter().max_by(|a, b| a.us.total_cmp(&b.us)) {
            let stages = slowest.ready.longest();
            let stages = stages.iter().take(5).map(|(stage, us)| format!("{} {}", stage.name(), output::micros(*us)));
            let stages = stages.collect::<Vec<_>>().join(", ");
            let Edit { place, from, to, .. } = slowest;
            out.push_str(&format!("  slowest: {place} from {from} to {to}: {stages}\n"));
        }
        out
    }
}

/// A session of the document, which is read and checked as one that a person changed.
fn prepare(found: &Loaded, args: &BenchArgs, target: &Target, document: &Value) -> anyhow::Result<Session> {
    let preset = read_value(document).map_err(|found| mistakes(&document["name"].to_string(), &found))?;
    let threads = super::device::threads(args.cpu.threads, &found.model).count;
    let data = if preset.data.is_some() { DataChoice::Preset } else { DataChoice::Resident };
    let machine = Some(target.clone());
    let tuning = super::device::tuning(target);
    let spec = SessionSpec { threads, machine, data, tuning, ..SessionSpec::new(preset, found.base.clone()) };
    Ok(Session::prepare(&spec)?)
}

/// A session after its first step, and the microseconds until then.
fn first_step(document: &Value, prepare: impl Fn(&Value) -> anyhow::Result<Session>) -> anyhow::Result<(Session, f64)> {
    let started = Instant::now();
    let mut session = prepare(document)?;
    session.step()?;
    session.step_mut().0.synchronize().map_err(TrainError::from)?;
    Ok((session, started.elapsed().as_secs_f64() * 1e6))
}

/// A size that may be changed.
struct Place {
    pointer: String,
    value: u64,
}

/// The units and filters of all layers but the last one with such a number, which the targets ask for; then the batch.
/// A size that the checker refuses to grow is left out.
fn changeable(document: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    collect(&document["layers"], "/layers", &mut places);
    places.pop();
    collect(&document["input"], "/input", &mut places);
    let grows = |place: &Place| {
        let mut changed = document.clone();
        let Some(value) = changed.pointer_mut(&place.pointer) else { return false };
        *value = (place.value + 1).into();
        read_value(&changed).is_ok_and(|preset| check(&preset).model.is_some())
    };
    places.retain(grows);
    places
}

/// The sizes in a part of a document.
fn collect(part: &Value, pointer: &str, places: &mut Vec<Place>) {
    match part {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64().filter(|_| matches!(&name[..], "units" | "filters" | "batch")) {
                    Some(value) => places.push(Place { pointer: format!("{pointer}/{name}"), value }),
                    None => collect(field, &format!("{pointer}/{name}"), places),
                }
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| collect(item, &format!("{pointer}/{index}"), places));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_preset;

    #[test]
    fn sizes_that_targets_do_not_fix_may_be_changed() {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [8, 8, 1], "batch": 32}, "layers": [
            {"type": "residual", "layers": [{"type": "conv2d", "filters": 4, "kernel": [3, 3], "padding": "same"}],
             "shortcut": [{"type": "conv2d", "filters": 4, "kernel": [1, 1]}]},
            {"type": "flatten"}, {"type": "dense", "units": 100}, {"type": "dense", "units": 10}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let document: Value = serde_json::from_str(&write_preset(&read_preset(text).unwrap())).unwrap();
        let found: Vec<(String, u64)> = changeable(&document).into_iter().map(|p| (p.pointer, p.value)).collect();
        // Both paths of the block have as many filters.
        assert_eq!(found, [("/layers/2/units".to_owned(), 100), ("/input/batch".to_owned(), 32)]);
    }
}
