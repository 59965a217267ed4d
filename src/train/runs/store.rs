//! The runs on disk: a folder each, which is there whole or says how far it came.
//!
//! | file | what it holds | written by |
//! |---|---|---|
//! | `run.json` | [`RunRecord`]: preset, seed, device, state, closing figures | the recorder, whole or not at all |
//! | `label.json` | [`Label`]: the person's name for it, and whether it is hidden | whoever renames |
//! | `plan.json` | [`PlanDigest`] | the recorder, once |
//! | `curve.bin` | [`Curves`] | the recorder, appended |
//! | `weights.safetensors` | the last weights that were kept | the run |
//! | `lock` | nothing; the recorder holds its lock, so a run that is `running` without it was cut off | |
//!
//! Deleted runs are moved to the folder `trash` and can be brought back until it is emptied.

use super::{Curves, PlanDigest, Quantity};
use crate::exec::Executor;
use crate::exec::cpu::host_target;
use crate::model::{Preset, read_preset, write_preset};
use crate::tensor::{write_advice, write_atomic};
use crate::train::SessionSpec;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What can go wrong with the runs on disk.
#[derive(Debug, Error)]
pub enum RunsError {
    #[error("{path} cannot be {what}: {cause}; {}", write_advice(.cause))]
    File { path: PathBuf, what: &'static str, cause: io::Error },
    #[error("{path} is damaged: {why}; delete the run, or bring the file back from a backup")]
    Damaged { path: PathBuf, why: String },
    #[error("no run is called {0}; `stepgraph runs` lists them")]
    Unknown(String),
    #[error("{0} names several runs: {1}; give more letters of one")]
    Ambiguous(String, String),
    #[error("run {0} is being written; stop it first")]
    Busy(String),
    #[error("there is no data folder on this system; name one with STEPGRAPH_RUNS")]
    NoFolder,
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> RunsError {
    let path = path.to_owned();
    move |cause| RunsError::File { path, what, cause }
}

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
    /// Its program ended before it could say so.
    Interrupted,
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
        }
    }
}

/// What is known of a run besides its curves. Times of day are milliseconds since 1970, UTC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    pub version: u32,
    pub preset_name: String,
    /// The preset's document, as [`write_preset`] writes it.
    pub preset: String,
    /// The folder that relative paths in the preset are taken from.
    pub base: PathBuf,
    pub seed: u64,
    pub device: String,
    pub precision: String,
    pub executor: String,
    pub threads: usize,
    /// Steps that were asked for.
    pub total: u64,
    /// The checksum of the plan: operations, kernels, offsets.
    pub plan_hash: String,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub state: RunEnd,
    /// Why it failed.
    pub error: Option<String>,
    /// The last step made.
    pub steps: u64,
    /// The mean of the last losses, at most 32 of them.
    pub loss: Option<f64>,
    pub held_out_loss: Option<f64>,
    pub held_out_accuracy: Option<f64>,
    /// The median host time of the last 4096 steps, in microseconds.
    pub step_us: Option<f64>,
}

impl RunRecord {
    /// The preset that was trained; `None` where a newer version wrote it.
    #[must_use]
    pub fn read_preset(&self) -> Option<Preset> {
        read_preset(&self.preset).ok()
    }

    /// The record of a run as it is asked for, on the device that it names or on this machine's CPU.
    #[must_use]
    pub fn of(spec: &SessionSpec) -> Self {
        let train = spec.preset.train;
        let mut record = Self {
            base: std::path::absolute(&spec.base).unwrap_or_else(|_| spec.base.clone()),
            seed: spec.seed.or(train.map(|t| t.seed)).unwrap_or(0),
            device: spec.machine.clone().unwrap_or_else(|| host_target(spec.threads)).name,
            executor: if spec.executor == Executor::Eager { "eager" } else { "replay" }.to_owned(),
            threads: spec.threads,
            total: train.map_or(1000, |t| t.steps as u64),
            ..Self::default()
        };
        record.set_preset(&spec.preset);
        record
    }

    /// Sets the preset and its name.
    pub fn set_preset(&mut self, preset: &Preset) {
        self.preset_name.clone_from(&preset.name);
        self.preset = write_preset(preset);
        preset.precision.name().clone_into(&mut self.precision);
    }

    /// Takes the closing figures from the curves.
    pub fn sum_up(&mut self, curves: &Curves) {
        self.steps = curves.last_step();
        self.loss = curves.recent_mean(Quantity::Loss).map(f64::from);
        self.step_us = curves.median(Quantity::StepUs).map(f64::from);
        if let Some(last) = curves.evaluations.last() {
            self.held_out_loss = Some(last.loss);
            self.held_out_accuracy = last.accuracy.is_finite().then_some(last.accuracy);
        }
    }
}

/// What a person says of a run.
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
    pub has_weights: bool,
    /// Bytes on disk.
    pub bytes: u64,
}

impl RunEntry {
    /// The person's name for it, or its preset's.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.name.as_deref().unwrap_or(&self.record.preset_name)
    }
}

/// The folder of all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStore {
    folder: PathBuf,
}

const TRASH: &str = "trash";

/// The time of day in milliseconds since 1970, UTC.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Year, month, day, hour, minute and second of a time of day in milliseconds, UTC, in the Gregorian calendar.
#[must_use]
pub fn calendar(ms: u64) -> [u64; 6] {
    let seconds = ms / 1000;
    // Days are counted from March of the year 0, so that leap days come last (Hinnant, "chrono-compatible low-level date algorithms").
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

/// The letters of a name that are sound in the name of a file anywhere.
fn plain(name: &str) -> String {
    let kept: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    kept.trim_matches('-').chars().take(40).collect()
}

impl RunStore {
    /// The runs in this folder, which need not be there yet.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The runs of this user: in the folder that `STEPGRAPH_RUNS` names, or in the user's data folder.
    ///
    /// # Errors
    /// Where neither is to be had.
    pub fn of_user() -> Result<Self, RunsError> {
        if let Some(folder) = std::env::var_os("STEPGRAPH_RUNS").filter(|f| !f.is_empty()) {
            return Ok(Self::at(folder));
        }
        let dirs = directories::ProjectDirs::from("", "", "stepgraph").ok_or(RunsError::NoFolder)?;
        Ok(Self::at(dirs.data_local_dir().join("runs")))
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a run.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// The file of a run's weights.
    #[must_use]
    pub fn weights(&self, id: &str) -> PathBuf {
        self.path(id).join("weights.safetensors")
    }

    /// Makes the folder of a new run and gives its id.
    ///
    /// # Errors
    /// Where nothing can be written there.
    pub fn create(&self, record: &RunRecord) -> Result<String, RunsError> {
        fs::create_dir_all(&self.folder).map_err(failed(&self.folder, "made"))?;
        let [y, mo, d, h, mi, s] = calendar(record.started_ms);
        let stem = format!("{y:04}{mo:02}{d:02}-{h:02}{mi:02}{s:02}-{}", plain(&record.preset_name));
        for number in 1.. {
            let id = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            // An id in the trash stays its run's own.
            if self.folder.join(TRASH).join(&id).exists() {
                continue;
            }
            match fs::create_dir(self.path(&id)) {
                Ok(()) => return Ok(id),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(&self.path(&id), "made")(e)),
            }
        }
        Err(RunsError::NoFolder)
    }

    /// Every run that can be read, the newest first. Folders that are no runs are passed over.
    ///
    /// # Errors
    /// Where the folder is there and cannot be read.
    pub fn list(&self) -> Result<Vec<RunEntry>, RunsError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&self.folder, "read")(e)),
        };
        let ids = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).filter(|n| n != TRASH);
        let mut out: Vec<RunEntry> = ids.filter_map(|id| self.entry(&id).ok()).collect();
        out.sort_by(|a, b| (b.record.started_ms, &b.id).cmp(&(a.record.started_ms, &a.id)));
        Ok(out)
    }

    /// One run. A run whose program is gone is `interrupted`, and its figures come from its curves.
    ///
    /// # Errors
    /// Where there is none, or its record is damaged.
    pub fn entry(&self, id: &str) -> Result<RunEntry, RunsError> {
        let path = self.path(id).join("run.json");
        let text = fs::read_to_string(&path).map_err(|_| RunsError::Unknown(id.to_owned()))?;
        let mut record: RunRecord =
            serde_json::from_str(&text).map_err(|e| RunsError::Damaged { path: path.clone(), why: e.to_string() })?;
        if record.state == RunEnd::Running && !self.is_busy(id) {
            record.state = RunEnd::Interrupted;
            if let Ok(curves) = self.curves(id) {
                record.sum_up(&curves);
                record.ended_ms.get_or_insert(record.started_ms + curves.total_ms() as u64);
            }
            // Reading all of it once is enough; where the folder cannot be written, it is read again next time.
            if let Ok(text) = serde_json::to_string_pretty(&record) {
                let _ = write_atomic(&path, text.as_bytes());
            }
        }
        let label = fs::read_to_string(self.path(id).join("label.json")).ok();
        let label = label.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        let size = |name: &str| fs::metadata(self.path(id).join(name)).map(|m| m.len());
        let weights = size("weights.safetensors");
        let bytes =
            ["run.json", "label.json", "plan.json", "curve.bin"].iter().filter_map(|n| size(n).ok()).sum::<u64>();
        let has_weights = weights.is_ok();
        Ok(RunEntry { id: id.to_owned(), record, label, has_weights, bytes: bytes + weights.unwrap_or(0) })
    }

    /// The one run that a person means: by its id, the first letters of it, its name, or `last` for the newest.
    ///
    /// # Errors
    /// Where it is none or several.
    pub fn find(&self, given: &str) -> Result<RunEntry, RunsError> {
        let all = self.list()?;
        if given == "last" {
            return all.into_iter().next().ok_or_else(|| RunsError::Unknown(given.to_owned()));
        }
        let by = |test: &dyn Fn(&RunEntry) -> bool| all.iter().filter(|e| test(e)).cloned().collect::<Vec<_>>();
        let mut found = by(&|e| e.id == given);
        if found.is_empty() {
            found = by(&|e| e.label.name.as_deref() == Some(given));
        }
        if found.is_empty() && !given.is_empty() {
            found = by(&|e| e.id.starts_with(given));
        }
        match found.len() {
            0 => Err(RunsError::Unknown(given.to_owned())),
            1 => Ok(found.swap_remove(0)),
            _ => {
                let ids = found.iter().map(|e| e.id.as_str()).collect::<Vec<_>>().join(", ");
                Err(RunsError::Ambiguous(given.to_owned(), ids))
            }
        }
    }

    /// True while a recorder writes this run.
    #[must_use]
    pub fn is_busy(&self, id: &str) -> bool {
        let lock = fs::File::open(self.path(id).join("lock"));
        lock.is_ok_and(|f| matches!(f.try_lock(), Err(fs::TryLockError::WouldBlock)))
    }

    /// The curves of a run; empty where it never made a step.
    ///
    /// # Errors
    /// Where the file cannot be read, or is no curve file.
    pub fn curves(&self, id: &str) -> Result<Curves, RunsError> {
        let path = self.path(id).join("curve.bin");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Curves::default()),
            Err(e) => return Err(failed(&path, "read")(e)),
        };
        Curves::read(&bytes).ok_or_else(|| RunsError::Damaged { path, why: "its first bytes are no curve's".into() })
    }

    /// The plan that a run was compiled to.
    ///
    /// # Errors
    /// Where the file is not there or damaged.
    pub fn plan(&self, id: &str) -> Result<PlanDigest, RunsError> {
        let path = self.path(id).join("plan.json");
        let text = fs::read_to_string(&path).map_err(failed(&path, "read"))?;
        serde_json::from_str(&text).map_err(|e| RunsError::Damaged { path, why: e.to_string() })
    }

    /// Sets what a person says of a run.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn set_label(&self, id: &str, label: &Label) -> Result<(), RunsError> {
        let path = self.path(id).join("label.json");
        let text = serde_json::to_string_pretty(label).unwrap_or_default();
        write_atomic(&path, text.as_bytes()).map_err(failed(&path, "written"))
    }

    /// Moves a run to the trash.
    ///
    /// # Errors
    /// Where it is being written, or cannot be moved.
    pub fn delete(&self, id: &str) -> Result<(), RunsError> {
        if self.is_busy(id) {
            return Err(RunsError::Busy(id.to_owned()));
        }
        self.entry(id)?;
        let trash = self.folder.join(TRASH);
        fs::create_dir_all(&trash).map_err(failed(&trash, "made"))?;
        fs::rename(self.path(id), trash.join(id)).map_err(failed(&self.path(id), "deleted"))
    }

    /// Brings a run back from the trash.
    ///
    /// # Errors
    /// Where it is not there.
    pub fn restore(&self, id: &str) -> Result<(), RunsError> {
        let from = self.folder.join(TRASH).join(id);
        if id.is_empty() || !from.is_dir() {
            return Err(RunsError::Unknown(id.to_owned()));
        }
        fs::rename(&from, self.path(id)).map_err(failed(&from, "brought back"))
    }

    /// Removes what is in the trash for good, and gives the number of runs removed.
    ///
    /// # Errors
    /// Where something cannot be removed.
    pub fn empty_trash(&self) -> Result<usize, RunsError> {
        let trash = self.folder.join(TRASH);
        let count = fs::read_dir(&trash).map_or(0, Iterator::count);
        match fs::remove_dir_all(&trash) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&trash, "removed")(e)),
            _ => Ok(count),
        }
    }
}
