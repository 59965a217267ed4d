//! Reads and writes files and opens file dialogs, outside the thread that draws.
//!
//! One thread does the reading and writing in order; each dialog has its own, because it stays open for as long as the
//! user wants.

use crate::model::{Diagnostic, MAX_PRESET_BYTES, Preset, read_preset_file, write_preset};
use crate::studio::document::dialog::DialogPurpose;
use crate::studio::document::job_queue::JobQueue;
use crate::tensor::{write_advice, write_atomic};
use crate::train::export::Format;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The result of a file operation.
#[derive(Debug)]
pub enum FileEvent {
    /// A dialog was closed; `None` if it was cancelled.
    Chosen(DialogPurpose, Option<PathBuf>),
    /// The system has no dialogs: the path must be typed.
    NoDialog(DialogPurpose),
    Opened(PathBuf, Box<Result<Preset, String>>),
    Saved(PathBuf, Arc<Preset>),
    /// There is another file at the path for a preset or weights; nothing was written.
    Exists(DialogPurpose, PathBuf),
    /// Another program has changed the document's file since it was read or written here; nothing was written.
    Changed(PathBuf),
    /// There is no file at this path for weights.
    Free(PathBuf),
    Failed(String),
}

/// What may be lost by writing a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// An existing file, unless it is this one, the document's own, and unchanged.
    Own(Option<PathBuf>),
    /// Any existing file: the user agreed.
    Anything,
}

pub(super) enum Job {
    Read(PathBuf),
    Learn(PathBuf),
    Probe(PathBuf),
    Save(PathBuf, Arc<Preset>, Overwrite),
    Recover(PathBuf, Option<(Arc<Preset>, Option<PathBuf>)>),
}

/// The largest number of waiting jobs.
const BOUND: usize = 16;

/// The file thread. Reading and saving are its long jobs.
pub struct FileService(JobQueue<Job, FileEvent>);

impl FileService {
    /// Starts the thread; `wake` is called when there is an event.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(wake: Arc<dyn Fn() + Send + Sync>) -> std::io::Result<Self> {
        let mut worker = FileWorker::default();
        let is_long = |job: &Job| matches!(job, Job::Read(_) | Job::Save(..));
        JobQueue::spawn("stepgraph-files", BOUND, wake, is_long, move |job| worker.carry_out(job)).map(Self)
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<FileEvent> {
        self.0.poll()
    }

    /// True while a file is read or saved.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.is_busy()
    }

    /// Reads a preset; the answer is an event. Returns false if too many jobs are waiting.
    pub fn read(&self, path: PathBuf) -> bool {
        self.0.give(Job::Read(path))
    }

    /// Writes a preset, or reports what would be lost by it; the answer is an event. Returns false if too many jobs are
    /// waiting.
    pub fn save(&self, path: PathBuf, preset: Arc<Preset>, onto: Overwrite) -> bool {
        self.0.give(Job::Save(path, preset, onto))
    }

    /// Reports whether a path for weights is free; the answer is an event. Returns false if too many jobs are waiting.
    pub fn probe(&self, path: PathBuf) -> bool {
        self.0.give(Job::Probe(path))
    }

    /// Records the state of a file that was read elsewhere, so that later changes of it are noticed. Returns false if
    /// too many jobs are waiting.
    pub fn learn(&self, path: PathBuf) -> bool {
        self.0.give(Job::Learn(path))
    }

    /// Writes the recovery file, or removes it if there is nothing to recover. Returns false if too many jobs are
    /// waiting.
    pub fn recover(&self, path: PathBuf, edits: Option<(Arc<Preset>, Option<PathBuf>)>) -> bool {
        self.0.give(Job::Recover(path, edits))
    }

    /// Opens a system dialog on a separate thread.
    pub fn ask(&self, what: DialogPurpose, name: &str, folder: Option<&Path>) {
        let out = self.0.outbox();
        let mut dialog = match what {
            DialogPurpose::Open | DialogPurpose::SaveAs => rfd::FileDialog::new().add_filter("Preset", &["json"]),
            DialogPurpose::Weights => rfd::FileDialog::new().add_filter("Weights", &["safetensors"]),
            DialogPurpose::Data(_) | DialogPurpose::DataFolder(_) => rfd::FileDialog::new(),
            DialogPurpose::Export(Format::TensorBoard) => rfd::FileDialog::new(),
            DialogPurpose::Export(format) => rfd::FileDialog::new().add_filter(format.title(), &[format.extension()]),
            DialogPurpose::Capsule | DialogPurpose::Replay => {
                rfd::FileDialog::new().add_filter("Capsule", &["capsule"])
            }
        };
        if let Some(folder) = folder.filter(|f| f.is_dir()) {
            dialog = dialog.set_directory(folder);
        }
        dialog = match what {
            DialogPurpose::Open => dialog.set_title("Open a preset"),
            DialogPurpose::SaveAs => dialog.set_title("Save the preset").set_file_name(name),
            DialogPurpose::Weights => dialog.set_title("Save the weights").set_file_name(name),
            DialogPurpose::Data(_) => dialog.set_title("Choose a file of data"),
            DialogPurpose::DataFolder(_) => {
                dialog.set_title("Choose a folder with a subfolder of pictures for each class")
            }
            DialogPurpose::Export(_) => dialog.set_title("Export the run").set_file_name(name),
            DialogPurpose::Capsule => dialog.set_title("Make a capsule").set_file_name(name),
            DialogPurpose::Replay => dialog.set_title("Replay a capsule"),
        };
        let work = move || {
            /// Nobody cancels faster than this: the system has no dialog to show.
            const TOO_FAST: Duration = Duration::from_millis(400);
            let started = Instant::now();
            let path = match what {
                DialogPurpose::Open | DialogPurpose::Data(_) | DialogPurpose::Replay => dialog.pick_file(),
                DialogPurpose::DataFolder(_) => dialog.pick_folder(),
                DialogPurpose::SaveAs | DialogPurpose::Weights | DialogPurpose::Export(_) | DialogPurpose::Capsule => {
                    dialog.save_file()
                }
            };
            let missing = path.is_none() && started.elapsed() < TOO_FAST;
            // The window may be closed by now; then nobody needs the answer.
            out.send(if missing { FileEvent::NoDialog(what) } else { FileEvent::Chosen(what, path) });
        };
        if std::thread::Builder::new().name("stepgraph-dialog".into()).spawn(work).is_err() {
            self.0.outbox().offer(FileEvent::NoDialog(what));
        }
    }
}

impl Drop for FileService {
    fn drop(&mut self) {
        // The last save must be on the disk before the program ends.
        self.0.finish();
    }
}

/// Reads a preset file.
///
/// # Errors
/// Every mistake in it, one on each line, or why it cannot be read.
pub fn read(path: &Path) -> Result<Preset, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(MAX_PRESET_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| format!("{}: cannot be read: {e}. {}", path.display(), read_advice(&e)))?;
    let listed = |mistakes: Vec<Diagnostic>| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    read_preset_file(&bytes).map_err(|m| format!("{}:\n{}", path.display(), listed(m)))
}

/// What the user can do about a file that could not be read.
fn read_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "Check the path: the file may have been moved or renamed.",
        std::io::ErrorKind::PermissionDenied => "Check the permissions of the file.",
        std::io::ErrorKind::IsADirectory => "It is a folder; choose a preset in it, a .json file.",
        _ => "Check that the disk is connected, and try again.",
    }
}

/// What distinguishes one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// The current stamp of a file; `None` if it does not exist.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok().filter(|m| !m.is_dir())?;
        Some(Self { modified: found.modified().ok(), bytes: found.len() })
    }
}

/// The canonical name of a file, regardless of how its path is written.
pub fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The state of the file thread: the files as they were last read or written here.
#[derive(Default)]
pub(super) struct FileWorker {
    known: HashMap<PathBuf, Stamp>,
}

impl FileWorker {
    fn know(&mut self, path: &Path, stamp: Option<Stamp>) {
        match stamp {
            Some(stamp) => self.known.insert(real(path), stamp),
            None => self.known.remove(&real(path)),
        };
    }

    /// Why the user must be asked before a preset is written to `path`; `None` if nothing is lost by it.
    fn objection(&self, path: &Path, onto: &Overwrite) -> Option<FileEvent> {
        let Overwrite::Own(own) = onto else { return None };
        let found = Stamp::of(path)?;
        let name = real(path);
        if own.as_deref().is_none_or(|own| real(own) != name) {
            return Some(FileEvent::Exists(DialogPurpose::SaveAs, path.to_owned()));
        }
        // A file that was never read here cannot be compared with anything.
        let changed = self.known.get(&name).is_some_and(|known| *known != found);
        changed.then(|| FileEvent::Changed(path.to_owned()))
    }

    pub(super) fn carry_out(&mut self, job: Job) -> Option<FileEvent> {
        match job {
            Job::Read(path) => {
                // The stamp is taken first, so that a change during the reading is noticed.
                let stamp = Stamp::of(&path);
                let result = read(&path);
                if result.is_ok() {
                    self.know(&path, stamp);
                }
                Some(FileEvent::Opened(path, Box::new(result)))
            }
            Job::Learn(path) => {
                self.know(&path, Stamp::of(&path));
                None
            }
            Job::Probe(path) => Some(match Stamp::of(&path) {
                Some(_) => FileEvent::Exists(DialogPurpose::Weights, path),
                None => FileEvent::Free(path),
            }),
            Job::Save(path, preset, onto) => Some(self.save(path, preset, &onto)),
            Job::Recover(path, Some((preset, origin))) => {
                let origin = origin.map(|p| p.display().to_string());
                let text = serde_json::json!({ "origin": origin, "preset": write_preset(&preset) }).to_string();
                let failed = write_atomic(&path, text.as_bytes()).err()?;
                Some(FileEvent::Failed(format!(
                    "Unsaved edits cannot be kept safe in {}: {failed}. Save the preset soon.",
                    path.display()
                )))
            }
            Job::Recover(path, None) => {
                // A file that does not exist need not be removed.
                let _ = std::fs::remove_file(path);
                None
            }
        }
    }

    fn save(&mut self, path: PathBuf, preset: Arc<Preset>, onto: &Overwrite) -> FileEvent {
        if let Some(objection) = self.objection(&path, onto) {
            return objection;
        }
        match write_atomic(&path, write_preset(&preset).as_bytes()) {
            Ok(()) => {
                self.know(&path, Stamp::of(&path));
                FileEvent::Saved(path, preset)
            }
            Err(e) => {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                FileEvent::Failed(format!(
                    "{name} cannot be written: {e}; {}\nPath: {}",
                    write_advice(&e),
                    path.display()
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::document::presets::digits;
    use crate::tensor::temporary::temporary_file;

    #[test]
    fn a_saved_preset_can_be_read_back() {
        let (_folder, path) = temporary_file("a.json");
        let saved = FileWorker::default().carry_out(Job::Save(path.clone(), Arc::new(digits()), Overwrite::Own(None)));
        assert!(matches!(saved, Some(FileEvent::Saved(..))), "{saved:?}");
        assert_eq!(read(&path), Ok(digits()));
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().contains("name"));
    }

    #[test]
    fn nothing_is_overwritten_without_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, other) = (folder.path().join("mine.json"), folder.path().join("other.json"));
        let mut worker = FileWorker::default();
        let mut save = |path: &Path, onto: &Overwrite| {
            worker.carry_out(Job::Save(path.to_owned(), Arc::new(digits()), onto.clone())).unwrap()
        };
        let own = Overwrite::Own(Some(mine.clone()));
        assert!(matches!(save(&mine, &Overwrite::Own(None)), FileEvent::Saved(..)));
        // Saving twice is not a change by another program.
        assert!(matches!(save(&mine, &own), FileEvent::Saved(..)));
        std::fs::write(&other, "a letter").unwrap();
        assert!(matches!(save(&other, &own), FileEvent::Exists(DialogPurpose::SaveAs, p) if p == other));
        std::fs::write(&mine, "changed by another program").unwrap();
        assert!(matches!(save(&mine, &own), FileEvent::Changed(p) if p == mine));
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "changed by another program");
        assert!(matches!(save(&mine, &Overwrite::Anything), FileEvent::Saved(..)));
        assert!(matches!(save(&mine, &own), FileEvent::Saved(..)));
        std::fs::remove_file(&mine).unwrap();
        assert!(matches!(save(&mine, &own), FileEvent::Saved(..)));
        let lost = save(&folder.path().join("no/such/a.json"), &own);
        assert!(
            matches!(&lost, FileEvent::Failed(text) if text.contains("there is no folder") && !text.contains("space")),
            "{lost:?}"
        );
    }
}
