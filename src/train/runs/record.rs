//! What is known about a kept run other than its curves, and what the user added.

use super::{Curves, Quantity};
use crate::exec::Executor;
use crate::model::{Preset, TrainSpec, read_preset, write_preset};
use crate::tensor::path_text;
use crate::train::SessionSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a run ended, or that it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// It is being written now.
    #[default]
    Running,
    Finished,
    Stopped,
    Failed,
    /// Its program ended before it could record the end.
    Interrupted,
    /// Its files cannot be read completely; valid parts are shown.
    Damaged,
}

impl RunEnd {
    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Damaged => "damaged",
        }
    }
}

/// When a run began and ended, in milliseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpan {
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
}

/// What is known about a run other than its curves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    pub version: u32,
    pub preset_name: String,
    /// The preset's document, as [`write_preset`] writes it.
    pub preset: String,
    /// The folder that relative paths in the preset are relative to.
    #[serde(with = "path_text")]
    pub base: PathBuf,
    pub seed: u64,
    pub device: String,
    pub precision: String,
    pub executor: String,
    pub threads: usize,
    /// The requested number of steps.
    pub total: u64,
    /// The checksum of the plan: operations, kernels, offsets.
    pub plan_hash: String,
    #[serde(flatten)]
    pub span: RunSpan,
    pub state: RunEnd,
    /// Why it failed, or what is damaged.
    pub error: Option<String>,
    /// The last step made.
    pub steps: u64,
    /// Bytes of the curve file when this was written; 0 if a first version wrote it.
    pub curve_bytes: u64,
    /// The mean of the last losses, at most 32 of them.
    pub loss: Option<f64>,
    pub held_out_loss: Option<f64>,
    pub held_out_accuracy: Option<f64>,
    /// Whether the held-out samples may have been trained on before: the run was resumed with other samples, or started
    /// from the weights of another run. Then its metrics are the next two fields, and not the two above.
    pub maybe_trained: bool,
    pub maybe_trained_loss: Option<f64>,
    pub maybe_trained_accuracy: Option<f64>,
    /// The median host time of the last 4096 steps, in microseconds.
    pub step_us: Option<f64>,
}

impl RunRecord {
    /// The preset that was trained, with the run's seed and steps; `None` if a newer version wrote it.
    #[must_use]
    pub fn read_preset(&self) -> Option<Preset> {
        let mut preset = read_preset(&self.preset).ok()?;
        let steps = usize::try_from(self.total).unwrap_or(usize::MAX);
        preset.train = Some(TrainSpec { steps, seed: self.seed, ..preset.train.unwrap_or_default() });
        Some(preset)
    }

    /// The record of a requested run, on the device that it names or on this machine's CPU.
    #[must_use]
    pub fn of(spec: &SessionSpec) -> Self {
        let mut record = Self {
            base: std::path::absolute(&spec.base).unwrap_or_else(|_| spec.base.clone()),
            seed: spec.seed(),
            device: spec.trains_on().name,
            executor: if spec.executor == Executor::Eager { "eager" } else { "replay" }.to_owned(),
            threads: spec.shared_by(),
            total: spec.total(None),
            ..Self::default()
        };
        let train = spec.preset.train.map(|t| TrainSpec { seed: record.seed, ..t });
        record.set_preset(&Preset { train, ..spec.preset.clone() });
        record
    }

    /// The valid fields of a damaged record.
    #[must_use]
    pub fn salvage(text: &str) -> Self {
        let mut sound = serde_json::to_value(Self::default()).unwrap_or_default();
        let given = serde_json::from_str(text).unwrap_or_default();
        if let (Value::Object(given), Value::Object(sound)) = (given, &mut sound) {
            for (key, value) in given {
                let old = sound.insert(key.clone(), value);
                if Self::deserialize(Value::Object(sound.clone())).is_err() {
                    match old {
                        Some(old) => drop(sound.insert(key, old)),
                        None => drop(sound.remove(&key)),
                    }
                }
            }
        }
        Self::deserialize(sound).unwrap_or_default()
    }

    /// Sets the preset and its name.
    pub fn set_preset(&mut self, preset: &Preset) {
        self.preset_name.clone_from(&preset.name);
        self.preset = write_preset(preset);
        preset.precision.name().clone_into(&mut self.precision);
    }

    /// Computes the closing metrics from the curves.
    pub fn sum_up(&mut self, curves: &Curves) {
        self.steps = curves.last_step();
        self.loss = curves.recent_mean(Quantity::Loss).map(f64::from);
        self.step_us = curves.median(Quantity::StepUs).map(f64::from);
        if let Some(last) = curves.evaluations.last() {
            let found = (Some(last.loss), last.accuracy.is_finite().then_some(last.accuracy));
            if self.maybe_trained {
                (self.maybe_trained_loss, self.maybe_trained_accuracy) = found;
                (self.held_out_loss, self.held_out_accuracy) = (None, None);
            } else {
                (self.held_out_loss, self.held_out_accuracy) = found;
            }
        }
    }
}

/// What the user added to a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Label {
    pub name: Option<String>,
    pub hidden: bool,
}

/// A run as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEntry {
    /// The name of its folder.
    pub id: String,
    pub record: RunRecord,
    pub label: Label,
    /// The user's name for it, or its preset's; a list adds what distinguishes it from others of that preset.
    pub title: String,
    pub has_weights: bool,
    /// Whether the file of its weights is damaged.
    pub has_damaged_weights: bool,
    /// Whether it has a checkpoint, from which it can continue.
    pub can_continue: bool,
    /// The step of that checkpoint, if the run was interrupted and may have continued after it.
    pub checkpoint_step: Option<u64>,
    /// Bytes on disk.
    pub bytes: u64,
}

impl RunEntry {
    /// Its name, as lists and legends show it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.title
    }
}

/// The current time, in milliseconds since 1970, UTC.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// The start time of a run, from the first characters of its id: `20260314-120100-xor`. Milliseconds since 1970, UTC.
pub(super) fn started_of(id: &str) -> Option<u64> {
    let number = |text: Option<&str>| text.filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?.parse::<u64>().ok();
    let date = (id.get(8..9)? == "-").then(|| number(id.get(..8))).flatten()?;
    let time = number(id.get(9..15))?;
    let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
    let (hour, minute, second) = (time / 10_000, time / 100 % 100, time % 100);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59
    {
        return None;
    }
    // Years begin in March, as in `calendar`.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

/// Year, month, day, hour, minute and second of a time in milliseconds since 1970, UTC, in the Gregorian calendar.
#[must_use]
pub fn calendar(ms: u64) -> [u64; 6] {
    let seconds = ms / 1000;
    // Days are counted from March of the year 0, so that leap days come last (Hinnant, "chrono-compatible low-level
    // date algorithms").
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60]
}
