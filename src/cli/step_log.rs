//! The log of a run: one JSON object a step.
//!
//! It grows as `FILE.part` beside its final name and is renamed when the run is over, so that `FILE` is always a whole run; what a killed run
//! had written stays in `FILE.part`. A run that goes on from a checkpoint goes on in the log of the part before it, and one that makes no step
//! leaves it as it is. Steps are only formatted into memory; the file is written a few times a second.

use super::error::{unwritable, wrong};
use super::output;
use super::places::{Kind, part_of, replaceable};
use crate::train::StepReport;
use crate::train::export::write_line;
use anyhow::Context;
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between writes to the file.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// A log that is being written.
pub struct StepLog {
    out: BufWriter<File>,
    part: PathBuf,
    path: PathBuf,
    flushed: Instant,
    /// Bytes of the old lines that stay, until the first new line follows them.
    keeps: Option<u64>,
    /// True where the unfinished log was there before.
    is_left: bool,
}

impl StepLog {
    /// Opens the log beside its final name, which is no link. A run that goes on from step `from` goes on with the log that is there; another one
    /// replaces it when it is over. Nothing but a log is replaced.
    ///
    /// # Errors
    /// Where that folder cannot be written to, another run writes that log, what is there is no log, or it ends before the run goes on.
    pub fn open(path: &Path, from: Option<u64>) -> anyhow::Result<Self> {
        let part = part_of(path);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&part);
        let mut file = opened.map_err(|cause| {
            let message = format!("{} cannot be written: {cause}; give another name for the log", part.display());
            unwritable(cause, message)
        })?;
        // A system without locks cannot tell; where it can, two runs never write into each other's lines.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let what = format!("the log {} is being written by another run; give another name", path.display());
            return Err(wrong(what));
        }
        let unwritten = || format!("{} cannot be written", part.display());
        // What a killed run left is newer than what has its final name.
        let is_left = file.metadata().is_ok_and(|m| m.len() > 0);
        let old = if is_left { part.clone() } else { path.to_owned() };
        let end = match from {
            Some(step) if step > 0 && old.is_file() => end_of(&old, step),
            _ => [&part, path].into_iter().try_for_each(|p| replaceable(p, "the log", Kind::Log)).map(|()| 0),
        };
        let keeps = end.inspect_err(|_| {
            if !is_left {
                drop(std::fs::remove_file(&part));
            }
        })?;
        if keeps > 0 && !is_left {
            let from = File::open(&old).with_context(|| format!("{} cannot be read", old.display()))?;
            std::io::copy(&mut from.take(keeps), &mut file).with_context(unwritten)?;
        }
        let is_old = |p: &Path| p.metadata().is_ok_and(|m| m.len() > 0);
        if keeps == 0 && (is_left || is_old(path)) {
            let help = "--resume goes on from a checkpoint and its log; another name keeps both";
            output::note(&match is_left {
                true => format!("note: {} of a run that was ended is begun anew; {help}", part.display()),
                false => format!(
                    "note: the log {} of an earlier run is replaced when this one is over; {help}",
                    path.display()
                ),
            });
        }
        let out = BufWriter::with_capacity(1 << 18, file);
        Ok(Self { out, part, path: path.to_owned(), flushed: Instant::now(), keeps: Some(keeps), is_left })
    }

    /// Adds one step; `now` tells when to write.
    ///
    /// # Errors
    /// Where the disk is full.
    pub fn add(&mut self, report: &StepReport, now: Instant) -> anyhow::Result<()> {
        if let Some(keeps) = self.keeps.take() {
            self.write(|out| {
                out.get_ref().set_len(keeps)?;
                out.seek(SeekFrom::Start(keeps)).map(|_| ())
            })?;
        }
        self.write(|out| write_line(out, report))?;
        if now.duration_since(self.flushed) >= FLUSH_EVERY {
            self.flushed = now;
            self.write(Write::flush)?;
        }
        Ok(())
    }

    fn write(&mut self, work: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> anyhow::Result<()> {
        work(&mut self.out)
            .with_context(|| format!("the log {} cannot be written; free some space", self.part.display()))
    }

    /// Gives the log its name. Where no step was made, the log stays as it was, and there is no new one.
    ///
    /// # Errors
    /// Where the rest cannot be written.
    pub fn finish(mut self) -> anyhow::Result<Option<PathBuf>> {
        if self.keeps.is_some() {
            if !self.is_left {
                drop(std::fs::remove_file(&self.part));
            }
            return Ok(None);
        }
        self.write(Write::flush)?;
        self.out.get_ref().sync_all().with_context(|| format!("the log {} cannot be written", self.part.display()))?;
        std::fs::rename(&self.part, &self.path)
            .with_context(|| format!("the log cannot be named {}", self.path.display()))?;
        Ok(Some(self.path.clone()))
    }
}

/// Where the line of `step` ends in a log: what follows is made again.
fn end_of(path: &Path, step: u64) -> anyhow::Result<u64> {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
    }
    let file = File::open(path).with_context(|| format!("the log {} cannot be read", path.display()))?;
    let (mut lines, mut line) = (BufReader::with_capacity(1 << 18, file), Vec::new());
    let (mut end, mut last) = (0u64, 0);
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line).with_context(|| format!("the log {}", path.display()))?;
        if length == 0 || line.last() != Some(&b'\n') {
            break;
        }
        let Ok(found) = serde_json::from_slice::<Line>(&line) else { break };
        (end, last) = (end + length as u64, found.step);
        if last >= step {
            break;
        }
    }
    if last == step {
        return Ok(end);
    }
    let path = path.display();
    let found = if last == 0 {
        format!("{path} is no log of a run")
    } else if last > step {
        format!("the log {path} has no line of step {step}")
    } else {
        format!("the log {path} ends with step {last}")
    };
    Err(wrong(format!(
        "{found}, and this run goes on from step {step}; give another name for the log, or move the old one away"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_never_share_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut first = StepLog::open(&path, None).unwrap();
        first.add(&StepReport { step: 1, ..StepReport::default() }, Instant::now()).unwrap();
        let told = StepLog::open(&path, None).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("being written by another run"), "{told}");
        assert_eq!(first.finish().unwrap(), Some(path.clone()));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        // The name is free again.
        StepLog::open(&path, None).unwrap();
    }

    #[test]
    fn a_run_that_goes_on_appends_to_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let write = |from: Option<u64>, steps: std::ops::RangeInclusive<u64>| {
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
        write(Some(10), 11..=15).finish().unwrap();
        assert_eq!(steps(), (1..=15).collect::<Vec<_>>());
        // What was made after the checkpoint is made again.
        write(Some(12), 13..=14).finish().unwrap();
        assert_eq!(steps(), (1..=14).collect::<Vec<_>>());
        // A killed run leaves its part, with half a line at the end.
        let mut killed = write(Some(14), 15..=20);
        killed.write(|out| out.write_all(b"{\"step\": 2")).unwrap();
        killed.write(Write::flush).unwrap();
        drop(killed);
        write(Some(18), 19..=19).finish().unwrap();
        assert_eq!(steps(), (1..=19).collect::<Vec<_>>());
        let told = StepLog::open(&path, Some(30)).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("ends with step 19") && told.contains("another name"), "{told}");
        std::fs::write(&path, "a letter\n").unwrap();
        let told = StepLog::open(&path, Some(3)).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("is no log") && std::fs::read_dir(folder.path()).unwrap().count() == 1, "{told}");
    }

    #[test]
    fn nothing_but_a_log_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        for name in ["run.jsonl", "run.jsonl.part"] {
            let other = folder.path().join(name);
            std::fs::write(&other, "a letter\n").unwrap();
            let told = StepLog::open(&path, None).map(|_| ()).unwrap_err().to_string();
            assert!(told.contains(name) && told.contains("another name"), "{told}");
            assert_eq!(std::fs::read_to_string(&other).unwrap(), "a letter\n");
            std::fs::remove_file(&other).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        // An empty file, as other programs make to have a name.
        std::fs::write(&path, "").unwrap();
        let mut log = StepLog::open(&path, None).unwrap();
        log.add(&StepReport { step: 1, ..StepReport::default() }, Instant::now()).unwrap();
        log.finish().unwrap();
    }

    #[test]
    fn a_log_is_as_it_was_where_no_step_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let untouched = |names: &[&str]| {
            let before: Vec<_> = names.iter().map(|n| std::fs::read(folder.path().join(n)).unwrap()).collect();
            for from in [None, Some(3)] {
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
        killed.write(Write::flush).unwrap();
        drop(killed);
        untouched(&["run.jsonl", "run.jsonl.part"]);
    }
}
