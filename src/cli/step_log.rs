//! The log of a run: one JSON object for each step.
//!
//! It is written as `FILE.part` beside its final name and renamed at the end of the run, so that `FILE` is always a
//! complete run; the log of a killed run remains in `FILE.part`. A resumed run continues the log of the part before it;
//! if it makes no step, the log is not changed. Steps are only formatted into memory; the file is written a few times a
//! second, and before every checkpoint, so that a checkpoint is never ahead of its log.

use super::error::{unwritable, wrong};
use super::log_lines::{Continuation, Kept, kept_lines};
use super::output;
use super::result_places::{Kind, part_of, replaceable};
use crate::tensor::sync_folder;
use crate::train::export::{HeldOutFigures, write_line};
use crate::train::{Evaluation, Names, StepReport};
use anyhow::Context;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between writes to the file.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Size of the buffered lines, in bytes, above which the file is written at once.
const BUFFER: usize = 1 << 20;

/// A log that is being written.
pub struct StepLog {
    file: File,
    /// Lines that are not in the file yet, and their position in the file.
    pending: Vec<u8>,
    at: u64,
    /// The newest step, and the position of its line.
    newest: Option<(StepReport, u64)>,
    part: PathBuf,
    path: PathBuf,
    flushed: Instant,
    /// Bytes of the old lines that are kept, until the first new line follows them.
    keeps: Option<u64>,
    /// The number of lines after those, which the first new line removes; then the number of removed lines, until it is
    /// reported.
    later: u64,
    removed: Option<u64>,
    /// Whether evaluations use samples that may have been trained on before.
    maybe_trained: bool,
    /// The names that reports refer to by number.
    names: Names,
    /// True if the unfinished log existed before.
    is_left: bool,
    /// Whether the name of the unfinished log survives a power failure.
    is_named: bool,
}

impl StepLog {
    /// Opens the log beside its final name, which must not be a link. A resumed run continues the existing log; another
    /// run replaces it at its end. Only a log is ever replaced.
    ///
    /// # Errors
    /// If the folder cannot be written to, another run writes that log, the existing file is not a log, it ends before
    /// the step that the run resumes from, or it is the log of another run.
    pub fn open(path: &Path, from: Option<Continuation>) -> anyhow::Result<Self> {
        let part = part_of(path);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&part);
        let mut file = opened.map_err(|cause| {
            let message = format!("{} cannot be written: {cause}; give another name for the log", part.display());
            unwritable(cause, message)
        })?;
        // Some systems have no file locks; if there are locks, two runs never write to the same log.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let what = format!("the log {} is being written by another run; give another name", path.display());
            return Err(wrong(what));
        }
        let unwritten = || format!("{} cannot be written", part.display());
        let is_left = file.metadata().is_ok_and(|m| m.len() > 0);
        let found = match from {
            Some(from) if from.step > 0 => kept_lines(path, &part, is_left, from),
            _ => [&part, path].into_iter().try_for_each(|p| replaceable(p, "the log", Kind::Log)).map(|()| None),
        };
        let found = found.inspect_err(|_| {
            if !is_left {
                drop(std::fs::remove_file(&part));
            }
        })?;
        let (keeps, later) = found.as_ref().map_or((0, 0), |kept| (kept.end, kept.later));
        if let Some(Kept { path: old, .. }) = found.filter(|kept| kept.path == path) {
            let from = File::open(old).with_context(|| format!("{} cannot be read", old.display()))?;
            file.set_len(0).and_then(|()| std::io::copy(&mut from.take(keeps), &mut file)).with_context(unwritten)?;
        }
        let is_old = |p: &Path| p.metadata().is_ok_and(|m| m.len() > 0);
        if keeps == 0 && (is_left || is_old(path)) {
            let help = "--resume continues from a checkpoint and its log; another name keeps both";
            output::note(&match is_left {
                true => format!("note: {} of a run that was killed is replaced; {help}", part.display()),
                false => format!(
                    "note: the log {} of an earlier run is replaced when this one is over; {help}",
                    path.display()
                ),
            });
        }
        Ok(Self {
            file,
            pending: Vec::new(),
            at: keeps,
            newest: None,
            part,
            path: path.to_owned(),
            flushed: Instant::now(),
            keeps: Some(keeps),
            later,
            removed: None,
            maybe_trained: false,
            names: Names::default(),
            is_left,
            is_named: false,
        })
    }

    /// Sets the name of evaluations in the log, depending on whether their samples may have been trained on before.
    pub const fn set_maybe_trained(&mut self, maybe_trained: bool) {
        self.maybe_trained = maybe_trained;
    }

    /// Sets the names that reports refer to by number.
    pub fn set_names(&mut self, names: Names) {
        self.names = names;
    }

    /// How many lines of the old log the first new line removed; reported only once.
    pub fn take_removed(&mut self) -> Option<String> {
        let (count, path) = (self.removed.take()?, self.path.display());
        let lines = if count == 1 { "1 later line was" } else { &format!("{} later lines were", output::count(count)) };
        let are = if count == 1 { "it is" } else { "they are" };
        Some(format!("note: {path}: {lines} removed, {are} from after the checkpoint"))
    }

    /// Adds one step; `now` determines whether the file is written. The newest line is kept in memory, because an
    /// evaluation may be added to it.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn add(&mut self, report: &StepReport, now: Instant) -> anyhow::Result<()> {
        if let Some(keeps) = self.keeps.take() {
            let cut = self.file.set_len(keeps).and_then(|()| self.file.seek(SeekFrom::Start(keeps)));
            self.checked(cut.map(drop))?;
            self.removed = Some(std::mem::take(&mut self.later)).filter(|count| *count > 0);
        }
        self.write_in_time(now)?;
        self.newest = Some((*report, self.at + self.pending.len() as u64));
        let formatted = write_line(&mut self.pending, report, None, &self.names);
        self.checked(formatted)
    }

    /// Adds the results of an evaluation after the newest step to the line of that step.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn evaluated(&mut self, step: u64, found: &Evaluation) -> anyhow::Result<()> {
        let Some((report, begins)) = self.newest.filter(|(report, _)| report.step == step) else { return Ok(()) };
        if begins < self.at {
            // The line is already in the file: one write replaces it by a longer one, so that a killed run never loses
            // it.
            self.write()?;
            let moved = self.file.seek(SeekFrom::Start(begins));
            self.checked(moved.map(drop))?;
            self.at = begins;
        }
        self.pending.truncate((begins - self.at) as usize);
        let (loss, accuracy) = (found.loss, found.accuracy.unwrap_or(f64::NAN));
        let figures = HeldOutFigures { loss, accuracy, maybe_trained: self.maybe_trained };
        let formatted = write_line(&mut self.pending, &report, Some(figures), &self.names);
        self.checked(formatted)
    }

    /// Writes the buffered lines if it is time.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn write_in_time(&mut self, now: Instant) -> anyhow::Result<()> {
        if now.duration_since(self.flushed) < FLUSH_EVERY && self.pending.len() < BUFFER {
            return Ok(());
        }
        self.flushed = now;
        self.write()
    }

    /// Writes the buffered lines, and returns when they are on the disk, so that a checkpoint that is written next is
    /// not ahead of the log.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn sync(&mut self) -> anyhow::Result<()> {
        if self.keeps.is_some() {
            // No step was made: the old log contains all steps up to the checkpoint that the run was resumed from.
            return Ok(());
        }
        self.write()?;
        let synced = self.file.sync_data();
        self.checked(synced)?;
        if !std::mem::replace(&mut self.is_named, true) {
            sync_folder(output::folder_of(&self.part));
        }
        Ok(())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let written = self.file.write_all(&self.pending);
        self.checked(written)?;
        self.at += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn checked(&self, outcome: std::io::Result<()>) -> anyhow::Result<()> {
        outcome.with_context(|| format!("the log {} cannot be written; free some space", self.part.display()))
    }

    /// Renames the log to its final name. If no step was made, the old log stays as it was, and there is no new one.
    ///
    /// # Errors
    /// If the remaining lines cannot be written.
    pub fn finish(mut self) -> anyhow::Result<Option<PathBuf>> {
        if self.keeps.is_some() {
            if !self.is_left {
                drop(std::fs::remove_file(&self.part));
            }
            return Ok(None);
        }
        self.sync()?;
        std::fs::rename(&self.part, &self.path)
            .with_context(|| format!("the log cannot be named {}", self.path.display()))?;
        sync_folder(output::folder_of(&self.path));
        Ok(Some(self.path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    /// A run in these tests continues from `step`, and the loss is 0 in every line.
    fn from(step: u64) -> Option<Continuation> {
        Some(Continuation { step, loss: Some(0.0) })
    }

    #[test]
    fn two_runs_never_share_a_log() {
        let (_folder, path) = temporary_file("run.jsonl");
        let mut first = StepLog::open(&path, None).unwrap();
        first.add(&StepReport { step: 1, ..StepReport::default() }, Instant::now()).unwrap();
        let message = StepLog::open(&path, None).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("being written by another run"), "{message}");
        assert_eq!(first.finish().unwrap(), Some(path.clone()));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        // The name can be used again.
        StepLog::open(&path, None).unwrap();
    }

    #[test]
    fn a_run_that_continues_appends_to_its_log() {
        let (folder, path) = temporary_file("run.jsonl");
        let write = |from: Option<Continuation>, steps: std::ops::RangeInclusive<u64>| {
            let mut log = StepLog::open(&path, from).unwrap();
            steps.for_each(|step| log.add(&StepReport { step, ..StepReport::default() }, Instant::now()).unwrap());
            log
        };
        let steps = || -> Vec<u64> {
            let text = std::fs::read_to_string(&path).unwrap();
            text.lines()
                .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["step"].as_u64().unwrap())
                .collect()
        };
        write(None, 1..=20).finish().unwrap();
        write(None, 1..=10).finish().unwrap();
        write(from(10), 11..=15).finish().unwrap();
        assert_eq!(steps(), (1..=15).collect::<Vec<_>>());
        // Steps after the checkpoint are repeated.
        write(from(12), 13..=14).finish().unwrap();
        assert_eq!(steps(), (1..=14).collect::<Vec<_>>());
        // A killed run leaves its unfinished log, with an incomplete line at the end.
        let mut killed = write(from(14), 15..=20);
        killed.pending.extend(b"{\"step\": 2");
        killed.write().unwrap();
        drop(killed);
        write(from(18), 19..=19).finish().unwrap();
        assert_eq!(steps(), (1..=19).collect::<Vec<_>>());
        let message = StepLog::open(&path, from(30)).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("ends with step 19") && message.contains("another name"), "{message}");
        std::fs::write(&path, "a letter\n").unwrap();
        let message = StepLog::open(&path, from(3)).map(|_| ()).unwrap_err().to_string();
        assert!(
            message.contains("is not the log") && std::fs::read_dir(folder.path()).unwrap().count() == 1,
            "{message}"
        );
    }

    #[test]
    fn an_evaluation_is_in_the_line_of_its_step() {
        let (_folder, path) = temporary_file("run.jsonl");
        let mut log = StepLog::open(&path, None).unwrap();
        let found = Evaluation { samples: 3, loss: 0.5, accuracy: Some(0.75), exact: None, confusion: Vec::new() };
        for step in 1..=4u64 {
            log.add(&StepReport { step, ..StepReport::default() }, Instant::now()).unwrap();
            if step == 3 {
                // The line is in the file already.
                log.sync().unwrap();
            }
            if step >= 2 {
                log.evaluated(step, &found).unwrap();
            }
            log.evaluated(9, &found).unwrap();
        }
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let losses: Vec<Option<f64>> = lines.iter().map(|l| l["held_out_loss"].as_f64()).collect();
        assert_eq!(losses, [None, Some(0.5), Some(0.5), Some(0.5)], "{text}");
        assert!(lines.iter().enumerate().all(|(i, l)| l["step"] == i as u64 + 1), "{text}");
        assert_eq!(lines[1]["held_out_accuracy"], 0.75);
    }

    #[test]
    fn a_log_is_never_behind_a_checkpoint_after_it() {
        let (_folder, path) = temporary_file("run.jsonl");
        let mut log = StepLog::open(&path, None).unwrap();
        (1..=7).for_each(|step| log.add(&StepReport { step, ..StepReport::default() }, Instant::now()).unwrap());
        log.sync().unwrap();
        // Here the program is killed.
        drop(log);
        assert!(StepLog::open(&path, from(7)).is_ok());
        // The program was killed while it copied the first lines of the complete log, which still exists under its
        // final name.
        std::fs::rename(part_of(&path), &path).unwrap();
        std::fs::write(part_of(&path), "{\"step\":1,\"lo").unwrap();
        let mut log = StepLog::open(&path, from(7)).unwrap();
        log.add(&StepReport { step: 8, ..StepReport::default() }, Instant::now()).unwrap();
        log.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 8);
    }

    #[test]
    fn nothing_but_a_log_is_replaced() {
        let (folder, path) = temporary_file("run.jsonl");
        for name in ["run.jsonl", "run.jsonl.part"] {
            let other = folder.path().join(name);
            std::fs::write(&other, "a letter\n").unwrap();
            let message = StepLog::open(&path, None).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("another name"), "{message}");
            assert_eq!(std::fs::read_to_string(&other).unwrap(), "a letter\n");
            std::fs::remove_file(&other).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        // An empty file, as other programs create to reserve a name.
        std::fs::write(&path, "").unwrap();
        let mut log = StepLog::open(&path, None).unwrap();
        log.add(&StepReport { step: 1, ..StepReport::default() }, Instant::now()).unwrap();
        log.finish().unwrap();
    }

    #[test]
    fn a_log_is_unchanged_if_no_step_is_made() {
        let (folder, path) = temporary_file("run.jsonl");
        let untouched = |names: &[&str]| {
            let before: Vec<_> = names.iter().map(|n| std::fs::read(folder.path().join(n)).unwrap()).collect();
            for from in [None, from(3)] {
                assert_eq!(StepLog::open(&path, from).unwrap().finish().unwrap(), None);
                let after: Vec<_> = names.iter().map(|n| std::fs::read(folder.path().join(n)).unwrap()).collect();
                assert_eq!((after, std::fs::read_dir(folder.path()).unwrap().count()), (before.clone(), names.len()));
            }
        };
        let write = |steps: u64| {
            let mut log = StepLog::open(&path, None).unwrap();
            (1..=steps)
                .for_each(|step| log.add(&StepReport { step, ..StepReport::default() }, Instant::now()).unwrap());
            log
        };
        untouched(&[]);
        write(9).finish().unwrap();
        untouched(&["run.jsonl"]);
        let mut killed = write(6);
        killed.write().unwrap();
        drop(killed);
        untouched(&["run.jsonl", "run.jsonl.part"]);
    }

    #[test]
    fn the_log_of_another_run_is_refused_and_unchanged() {
        let (folder, path) = temporary_file("run.jsonl");
        let write = |steps: u64, loss: f32| {
            let mut log = StepLog::open(&path, None).unwrap();
            let report = |step| StepReport { step, loss, ..StepReport::default() };
            (1..=steps).for_each(|step| log.add(&report(step), Instant::now()).unwrap());
            log
        };
        let loss = 0.1f32 + 0.2;
        let at = |step, loss| Some(Continuation { step, loss: Some(loss) });
        write(9, loss).finish().unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = |from: Option<Continuation>| StepLog::open(&path, from).map(|_| ()).unwrap_err().to_string();
        let message = refused(at(5, f32::from_bits(loss.to_bits() + 1)));
        assert!(message.contains("belongs to another run: its line of step 5 has loss 0.3"), "{message}");
        assert!(message.contains("another name"), "{message}");
        assert_eq!(
            (std::fs::read(&path).unwrap(), std::fs::read_dir(folder.path()).unwrap().count()),
            (before.clone(), 1)
        );
        // A checkpoint of an older version contains no loss.
        let mut log = StepLog::open(&path, Some(Continuation { step: 5, loss: None })).unwrap();
        log.add(&StepReport { step: 6, loss, ..StepReport::default() }, Instant::now()).unwrap();
        assert_eq!(
            (log.take_removed().unwrap().contains("4 later lines were removed"), log.take_removed()),
            (true, None)
        );
        drop(log);
        std::fs::remove_file(part_of(&path)).unwrap();
        // The unfinished log of another killed run is not overwritten.
        let mut left = write(3, 7.0);
        left.write().unwrap();
        drop(left);
        let others = std::fs::read(part_of(&path)).unwrap();
        for step in [2, 5] {
            assert!(refused(at(step, loss)).contains("run.jsonl.part"));
            assert_eq!(
                (std::fs::read(&path).unwrap(), std::fs::read(part_of(&path)).unwrap()),
                (before.clone(), others.clone())
            );
        }
    }
}
