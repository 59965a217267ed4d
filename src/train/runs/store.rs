//! The runs on disk: a folder for each, which is complete or records how far the run got.
//!
//! | file | what it holds | written by |
//! |---|---|---|
//! | `run.json` | [`RunRecord`]: preset, seed, device, state, closing figures | the recorder, whole or not at all |
//! | `label.json` | [`Label`]: the user's name for it, and whether it is hidden | whoever renames |
//! | `plan.json` | [`PlanDigest`] | the recorder, once |
//! | `curve.bin` | [`Curves`] | the recorder, appended |
//! | `checkpoint.safetensors` | the last checkpoint, with the weights | the run |
//! | `lock` | nothing; the recorder holds its lock, so a run that is `running` without it was cut off | |
//!
//! A checkpoint is named `checkpoint.next` until the curve reaches it. Runs of the first versions have only
//! `weights.safetensors`.
//!
//! Deleted runs are moved to the folder `trash` and can be restored until it is emptied.

use super::chunks::HEAD;
use super::curve::{MAGIC, first_chunk_ends};
use super::differences::add_changes;
use super::record::started_of;
use super::{Curves, Label, PlanDigest, RunEnd, RunEntry, RunRecord, RunsError, calendar};
use crate::model::nearest;
use crate::tensor::{plural, write_atomic};
use crate::train::{check_header, checkpoint_step, read_tensors};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> RunsError {
    let path = path.to_owned();
    move |cause| RunsError::File { path, what, cause }
}

/// Opens a regular file; something else may have no end, or block until there is a writer.
fn open(path: &Path) -> io::Result<fs::File> {
    if fs::metadata(path)?.is_file() {
        return fs::File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a folder, a device or a pipe"))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_text(path: &Path) -> io::Result<String> {
    open(path).and_then(io::read_to_string)
}

fn not_curves(path: PathBuf) -> RunsError {
    RunsError::Damaged { path, why: "its first bytes are not those of a file of curves".into() }
}

/// The folder of all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStore {
    folder: PathBuf,
}

const TRASH: &str = "trash";
/// The size of the start of a curve file, with the header of the first chunk.
const HEAD_BYTES: u64 = (MAGIC.len() + HEAD) as u64;

/// The characters of a name that are allowed in file names on all systems.
fn plain(name: &str) -> String {
    let kept: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    kept.trim_matches('-').chars().take(40).collect()
}

/// A name from a file, without control characters, which would break a list.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The error of a name that no run has, with a similar name.
fn unknown(given: &str, all: &[RunEntry]) -> RunsError {
    let given_names = all.iter().filter(|e| e.title != e.record.preset_name).map(|e| e.title.as_str());
    match nearest(given, given_names.chain(all.iter().map(|e| e.id.as_str())).chain(["last"])) {
        Some(near) => RunsError::Misspelt { given: given.to_owned(), near: near.to_owned() },
        None => RunsError::Unknown(given.to_owned()),
    }
}

impl RunStore {
    /// The runs in this folder, which need not exist yet.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The runs of this user: in the folder that `STEPGRAPH_RUNS` names, or in the user's data folder.
    ///
    /// # Errors
    /// If there is neither.
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

    /// Checks whether runs can be kept here, without changing anything.
    ///
    /// # Errors
    /// If the folder cannot be made, or nothing can be written in it.
    pub fn check_place(&self) -> Result<(), RunsError> {
        let there = self.folder.ancestors().find(|f| f.exists()).filter(|f| !f.as_os_str().is_empty());
        let there = there.unwrap_or_else(|| Path::new("."));
        tempfile::tempfile_in(there).map(drop).map_err(|e| {
            let cause = format!("no file can be written in {}", there.display());
            failed(&self.folder, "a folder of runs")(io::Error::new(e.kind(), cause))
        })
    }

    /// The folder of a run.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// The file of a run's checkpoint.
    #[must_use]
    pub fn checkpoint(&self, id: &str) -> PathBuf {
        self.path(id).join("checkpoint.safetensors")
    }

    /// The file that holds a run's weights: its checkpoint, or the weights alone in runs of the first versions.
    #[must_use]
    pub fn weights(&self, id: &str) -> PathBuf {
        let checkpoint = self.checkpoint(id);
        if checkpoint.is_file() { checkpoint } else { self.path(id).join("weights.safetensors") }
    }

    /// Makes the folder of a new run and returns its id.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn create(&self, record: &RunRecord) -> Result<String, RunsError> {
        fs::create_dir_all(&self.folder).map_err(failed(&self.folder, "made"))?;
        let [y, mo, d, h, mi, s] = calendar(record.span.started_ms);
        let stem = format!("{y:04}{mo:02}{d:02}-{h:02}{mi:02}{s:02}-{}", plain(&record.preset_name));
        for number in 1.. {
            let id = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            // A run in the trash keeps its id.
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

    /// Every run, the newest first, each under a distinct name if its network distinguishes it. Folders that are not
    /// runs are skipped.
    ///
    /// # Errors
    /// If the folder exists and cannot be read.
    pub fn list(&self) -> Result<Vec<RunEntry>, RunsError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&self.folder, "read")(e)),
        };
        let ids = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).filter(|n| n != TRASH);
        let mut out: Vec<RunEntry> = ids.filter_map(|id| self.entry(&id).ok()).collect();
        out.sort_by(|a, b| (b.record.span.started_ms, &b.id).cmp(&(a.record.span.started_ms, &a.id)));
        add_changes(&mut out);
        Ok(out)
    }

    /// One run. A run whose program has ended is `interrupted`, one with files that cannot be read is `damaged`, and
    /// the metrics of both come from the valid parts.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn entry(&self, id: &str) -> Result<RunEntry, RunsError> {
        let mut record = match self.record(id) {
            Ok(record) => record,
            Err(error) => self.damaged_record(id, &error)?,
        };
        record.preset_name = one_line(&record.preset_name);
        let broken = self.check_curves(id, &record);
        // If the first part of its curves is valid, it can still continue.
        let continues = record.state != RunEnd::Damaged
            && (broken.is_ok() || self.curves(id).is_ok_and(|curves| !curves.is_empty()));
        if record.state == RunEnd::Running && broken.is_ok() && !self.is_busy(id) {
            record.state = RunEnd::Interrupted;
            if let Ok(curves) = self.curves(id) {
                record.sum_up(&curves);
                record.curve_bytes = fs::metadata(self.path(id).join("curve.bin")).map_or(0, |m| m.len());
                record.span.ended_ms.get_or_insert(record.span.started_ms + curves.total_ms() as u64);
            }
            // It is enough to read all of it once; if the folder cannot be written, it is read again next time.
            if let Ok(text) = serde_json::to_string_pretty(&record) {
                let _ = write_atomic(&self.path(id).join("run.json"), text.as_bytes());
            }
        }
        let weights = self.weights(id);
        let checked = if weights.is_file() { check_header(&weights) } else { Ok(()) };
        let has_damaged_weights = checked.is_err();
        let checked = checked.map_err(|why| RunsError::Damaged { path: weights, why });
        let continues = continues && checked.is_ok();
        if let Err(error) = broken.and(checked) {
            (record.state, record.error) = (RunEnd::Damaged, Some(error.to_string()));
        }
        let label = read_text(&self.path(id).join("label.json")).ok();
        let label: Label = label.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        let size = |name: &str| fs::metadata(self.path(id).join(name)).map_or(0, |m| m.len());
        let (checkpoint, weights) = (size("checkpoint.safetensors"), size("weights.safetensors"));
        let others = ["run.json", "label.json", "plan.json", "curve.bin"].map(size).iter().sum::<u64>();
        let can_continue = checkpoint > 0 && continues;
        let cut_off = can_continue && record.state == RunEnd::Interrupted;
        Ok(RunEntry {
            id: id.to_owned(),
            title: label.name.as_deref().map_or_else(|| record.preset_name.clone(), one_line),
            has_weights: checkpoint + weights > 0,
            has_damaged_weights,
            can_continue,
            checkpoint_step: cut_off.then(|| checkpoint_step(&self.checkpoint(id)).ok()).flatten(),
            record,
            label,
            bytes: others + checkpoint + weights,
        })
    }

    /// The run after its weights and curves were read completely, which takes as long as reading them: they may contain
    /// a wrong bit.
    #[must_use]
    pub fn read_whole(&self, mut entry: RunEntry) -> RunEntry {
        let is_sound = !matches!(entry.record.state, RunEnd::Running | RunEnd::Damaged);
        let at = self.curves(&entry.id).map_or(u64::MAX, |c| c.last_step());
        if is_sound && at < entry.record.steps {
            let path = self.path(&entry.id).join("curve.bin");
            let why = format!("its curves can be read up to step {at} of {}", entry.record.steps);
            let error = RunsError::Damaged { path, why }.to_string();
            (entry.record.state, entry.record.error) = (RunEnd::Damaged, Some(error));
        }
        if entry.has_weights
            && !entry.has_damaged_weights
            && let Err(error) = read_tensors(&self.weights(&entry.id))
        {
            (entry.has_damaged_weights, entry.can_continue, entry.checkpoint_step) = (true, false, None);
            if entry.record.state != RunEnd::Damaged {
                (entry.record.state, entry.record.error) = (RunEnd::Damaged, Some(error.to_string()));
            }
        }
        entry
    }

    /// The record of a run.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn record(&self, id: &str) -> Result<RunRecord, RunsError> {
        let path = self.path(id).join("run.json");
        // Any other path would be outside the folder of runs, and a file is not a run.
        if Path::new(id).file_name() != Some(id.as_ref()) || !self.path(id).is_dir() {
            return Err(RunsError::Unknown(id.to_owned()));
        }
        let text = read_text(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound if !self.path(id).join("curve.bin").is_file() => RunsError::Unknown(id.to_owned()),
            io::ErrorKind::NotFound => RunsError::Damaged { path: path.clone(), why: "it does not exist".into() },
            _ => RunsError::Damaged { path: path.clone(), why: e.to_string() },
        })?;
        serde_json::from_str(&text).map_err(|e| RunsError::Damaged { path, why: e.to_string() })
    }

    /// A replacement for a damaged record, from its valid fields, the run's id and its curves.
    fn damaged_record(&self, id: &str, error: &RunsError) -> Result<RunRecord, RunsError> {
        // A recorder that has just made the folder will write the record very soon.
        if matches!(error, RunsError::Unknown(_)) || self.is_busy(id) {
            return Err(RunsError::Unknown(id.to_owned()));
        }
        let text = read(&self.path(id).join("run.json")).unwrap_or_default();
        let mut record = RunRecord::salvage(&String::from_utf8_lossy(&text));
        if record.preset_name.is_empty() {
            id.splitn(3, '-').last().unwrap_or(id).clone_into(&mut record.preset_name);
        }
        if let Some(started_ms) = started_of(id) {
            record.span.started_ms = started_ms;
        } else if record.span.started_ms == 0 {
            let made = fs::metadata(self.path(id)).and_then(|m| m.modified()).ok();
            let since = made.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            record.span.started_ms = since.map_or(0, |d| d.as_millis() as u64);
        }
        if let Ok(curves) = self.curves(id) {
            record.sum_up(&curves);
        }
        (record.state, record.error) = (RunEnd::Damaged, Some(error.to_string()));
        Ok(record)
    }

    /// Checks the first bytes of a run's curve file, and its length if the record was written after it.
    fn check_curves(&self, id: &str, record: &RunRecord) -> Result<(), RunsError> {
        let path = self.path(id).join("curve.bin");
        let mut head = Vec::new();
        let looked = open(&path).and_then(|f| {
            let bytes = f.metadata()?.len();
            f.take(HEAD_BYTES).read_to_end(&mut head).map(|_| bytes)
        });
        let (steps, is_curve) = (record.steps, head.starts_with(MAGIC));
        // If only the magic number is left, there are no steps; and if the first chunk ends after the end of the file,
        // it is not valid.
        let first = first_chunk_ends(&head).unwrap_or(MAGIC.len() as u64 + 1);
        let expected = if steps > 0 { record.curve_bytes.max(first) } else { 0 };
        match looked {
            Err(e) if e.kind() == io::ErrorKind::NotFound && steps == 0 => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !self.is_busy(id) => Err(RunsError::Damaged {
                path,
                why: format!("its curves are missing, and it made {steps} {}", plural(steps, "step")),
            }),
            // A run that was interrupted has what was written in time.
            Ok(bytes) if is_curve && (bytes >= expected || record.state == RunEnd::Running) => Ok(()),
            Ok(_) if is_curve && !self.is_busy(id) => {
                let at = self.curves(id).map_or(0, |c| c.last_step());
                let why = if at < steps {
                    format!("its curves end at step {at} of {steps}")
                } else {
                    format!("its curves are cut off after step {at}")
                };
                Err(RunsError::Damaged { path, why })
            }
            // A recorder that has just made the file will write to it very soon.
            _ if self.is_busy(id) => Ok(()),
            Err(e) => Err(failed(&path, "read")(e)),
            Ok(_) => Err(not_curves(path)),
        }
    }

    /// The single run that the user means: by its id, the first letters of it, its name, or `last` for the newest whose
    /// record can be read.
    ///
    /// # Errors
    /// If there is none, or several.
    pub fn find(&self, given: &str) -> Result<RunEntry, RunsError> {
        let all = self.list()?;
        if given == "last" {
            let none = if all.is_empty() { RunsError::Unknown(given.to_owned()) } else { RunsError::NoLast };
            return all.into_iter().find(|e| self.record(&e.id).is_ok()).ok_or(none);
        }
        let by = |test: &dyn Fn(&RunEntry) -> bool| all.iter().filter(|e| test(e)).cloned().collect::<Vec<_>>();
        let mut found = by(&|e| e.id == given);
        if found.is_empty() {
            found = by(&|e| e.title == given && e.title != e.record.preset_name);
        }
        if found.is_empty() && !given.is_empty() {
            found = by(&|e| e.id.starts_with(given));
        }
        match found.len() {
            0 => Err(unknown(given, &all)),
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
        let lock = open(&self.path(id).join("lock"));
        lock.is_ok_and(|f| matches!(f.try_lock(), Err(fs::TryLockError::WouldBlock)))
    }

    /// The curves of a run; empty if it never made a step.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a curve file.
    pub fn curves(&self, id: &str) -> Result<Curves, RunsError> {
        self.sound_curves(id).map(|(curves, _)| curves)
    }

    /// The curves of a run, and the number of valid bytes of their file.
    ///
    /// # Errors
    /// As [`Self::curves`].
    pub fn sound_curves(&self, id: &str) -> Result<(Curves, u64), RunsError> {
        let path = self.path(id).join("curve.bin");
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Curves::default(), 0)),
            Err(e) => return Err(failed(&path, "read")(e)),
        };
        Curves::read_sound(&bytes).ok_or_else(|| not_curves(path))
    }

    /// The plan that a run was compiled to.
    ///
    /// # Errors
    /// If the file does not exist or is damaged.
    pub fn plan(&self, id: &str) -> Result<PlanDigest, RunsError> {
        let path = self.path(id).join("plan.json");
        let text = read_text(&path).map_err(failed(&path, "read"))?;
        serde_json::from_str(&text).map_err(|e| RunsError::Damaged { path, why: e.to_string() })
    }

    /// Stores what the user added to a run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_label(&self, id: &str, label: &Label) -> Result<(), RunsError> {
        if let Some(name) = label.name.as_ref().filter(|n| n.chars().any(char::is_control)) {
            return Err(RunsError::Name(name.clone()));
        }
        let is_id =
            |name: &str| name != id && Path::new(name).file_name() == Some(name.as_ref()) && self.path(name).is_dir();
        if let Some(name) = label.name.as_ref().filter(|n| n.eq_ignore_ascii_case("last") || is_id(n)) {
            return Err(RunsError::Taken(name.clone()));
        }
        let path = self.path(id).join("label.json");
        let text = serde_json::to_string_pretty(label).unwrap_or_default();
        write_atomic(&path, text.as_bytes()).map_err(failed(&path, "written"))
    }

    /// Moves a run to the trash.
    ///
    /// # Errors
    /// If it is being written, or cannot be moved.
    pub fn delete(&self, id: &str) -> Result<(), RunsError> {
        if self.is_busy(id) {
            let is_over = self.record(id).is_ok_and(|r| r.state != RunEnd::Running);
            return Err(if is_over { RunsError::Held(id.to_owned()) } else { RunsError::Busy(id.to_owned()) });
        }
        self.entry(id)?;
        let trash = self.folder.join(TRASH);
        fs::create_dir_all(&trash).map_err(failed(&trash, "made"))?;
        fs::rename(self.path(id), trash.join(id)).map_err(failed(&self.path(id), "deleted"))
    }

    /// The runs in the trash.
    #[must_use]
    pub fn trash(&self) -> Self {
        Self::at(self.folder.join(TRASH))
    }

    /// Restores a run from the trash.
    ///
    /// # Errors
    /// If it does not exist, or another run has its id now.
    pub fn restore(&self, id: &str) -> Result<(), RunsError> {
        let from = self.trash().path(id);
        if Path::new(id).file_name() != Some(id.as_ref()) || !from.is_dir() {
            return Err(RunsError::NotInTrash(id.to_owned()));
        }
        fs::rename(&from, self.path(id)).map_err(failed(&from, "brought back"))
    }

    /// Deletes one run in the trash permanently.
    ///
    /// # Errors
    /// If it does not exist, or cannot be removed.
    pub fn remove_from_trash(&self, id: &str) -> Result<(), RunsError> {
        let path = self.trash().path(id);
        if Path::new(id).file_name() != Some(id.as_ref()) || !path.is_dir() {
            return Err(RunsError::NotInTrash(id.to_owned()));
        }
        fs::remove_dir_all(&path).map_err(failed(&path, "removed"))
    }

    /// Deletes all runs in the trash permanently, and returns the number of runs removed.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn empty_trash(&self) -> Result<usize, RunsError> {
        let trash = self.folder.join(TRASH);
        let count = fs::read_dir(&trash).map_or(0, Iterator::count);
        match fs::remove_dir_all(&trash) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&trash, "removed")(e)),
            _ => Ok(count),
        }
    }
}
