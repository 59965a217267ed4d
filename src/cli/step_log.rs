//! The log of a run: one JSON object a step.
//!
//! It grows as `FILE.part` beside its final name and is renamed when the run is over, so that `FILE` is always a whole run; what a killed run
//! had written stays in `FILE.part`. Steps are only formatted into memory; the file is written a few times a second.

use super::places::part_of;
use crate::train::StepReport;
use crate::train::export::write_line;
use anyhow::Context;
use std::fs::File;
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
    /// Where that folder cannot be written to.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let part = part_of(path);
        let file = File::create(&part).with_context(|| format!("{} cannot be written", part.display()))?;
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
