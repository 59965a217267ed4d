//! The log of a run: one JSON object a step.
//!
//! It grows as `FILE.part` beside its final name and is renamed when the run is over, so that `FILE` is always a whole run; what a killed run
//! had written stays in `FILE.part`. Steps are only formatted into memory; the file is written a few times a second.

use super::error::wrong;
use super::places::part_of;
use crate::train::StepReport;
use crate::train::export::write_line;
use anyhow::Context;
use std::fs::{File, TryLockError};
use std::io::{BufWriter, Write};
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
}

impl StepLog {
    /// Opens the log beside its final name, which is no link.
    ///
    /// # Errors
    /// Where that folder cannot be written to, or another run writes that log.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let part = part_of(path);
        let opened = File::options().write(true).create(true).truncate(false).open(&part);
        let file = opened.with_context(|| format!("{} cannot be written", part.display()))?;
        // A system without locks cannot tell; where it can, two runs never write into each other's lines.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let what = format!("the log {} is being written by another run; give another name", path.display());
            return Err(wrong(what));
        }
        file.set_len(0).with_context(|| format!("{} cannot be written", part.display()))?;
        Ok(Self { out: BufWriter::with_capacity(1 << 18, file), part, path: path.to_owned(), flushed: Instant::now() })
    }

    /// Adds one step; `now` tells when to write.
    ///
    /// # Errors
    /// Where the disk is full.
    pub fn add(&mut self, report: &StepReport, now: Instant) -> anyhow::Result<()> {
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

    /// Gives the log its name.
    ///
    /// # Errors
    /// Where the rest cannot be written.
    pub fn finish(mut self) -> anyhow::Result<PathBuf> {
        self.write(Write::flush)?;
        self.out.get_ref().sync_all().with_context(|| format!("the log {} cannot be written", self.part.display()))?;
        std::fs::rename(&self.part, &self.path)
            .with_context(|| format!("the log cannot be named {}", self.path.display()))?;
        Ok(self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_never_share_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut first = StepLog::create(&path).unwrap();
        first.add(&StepReport { step: 1, ..StepReport::default() }, Instant::now()).unwrap();
        let told = StepLog::create(&path).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("being written by another run"), "{told}");
        assert_eq!(first.finish().unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        // The name is free again.
        StepLog::create(&path).unwrap();
    }
}
