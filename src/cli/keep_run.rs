//! `--keep`: keeps a run of the command line together with those of the studio.

use super::error::unwritable;
use super::output;
use crate::model::Preset;
use crate::train::runs::{
    FIRST_SAVE, LayerCurves, PlanDigest, Recorder, RunEnd, RunRecord, RunStore, SAVE_EVERY, SAVE_SHARE,
};
use crate::train::{Evaluation, Session, SessionSpec, StepReport};
use std::time::{Duration, Instant};

/// Time between two deliveries of steps.
const HAND_OVER_EVERY: Duration = Duration::from_millis(100);

/// A run that is being kept.
pub struct Keeper {
    recorder: Recorder,
    reports: Vec<StepReport>,
    handed: Instant,
    /// Whether it was reported that the run is no longer kept.
    reported: bool,
    preset: Preset,
    /// When the last checkpoint was written, and the time until the next one.
    saved: Instant,
    pause: Duration,
}

/// The folder of kept runs, after a check that it can be written to.
///
/// # Errors
/// If it cannot be written to; then no run starts.
pub fn folder_of_runs() -> anyhow::Result<RunStore> {
    let store = RunStore::of_user()?;
    let folder = store.folder();
    let probe = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    probe.map_err(|cause| {
        let help = "set STEPGRAPH_RUNS to a folder that you may write to, or train without --keep";
        let message = format!("{}: runs cannot be kept there: {cause}; {help}", folder.display());
        unwritable(cause, message)
    })?;
    Ok(store)
}

impl Keeper {
    /// Starts to keep a run that is prepared.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn begin(store: &RunStore, session: &Session, spec: &SessionSpec, device: &str) -> anyhow::Result<Self> {
        // The prepared session has the actual values, which may differ from the requested ones.
        let (seed, total) = (session.seed(), session.total());
        let (device, maybe_trained) = (device.to_owned(), session.is_maybe_trained());
        let record = RunRecord { seed, total, device, maybe_trained, ..RunRecord::of(spec) };
        let compiled = session.compiled();
        let layers = LayerCurves::of(&compiled.model);
        let mut recorder = Recorder::begin(store, record, &PlanDigest::of(compiled), layers)?;
        recorder.set_running(true);
        let (now, preset) = (Instant::now(), spec.preset.clone());
        Ok(Self { recorder, reports: Vec::new(), handed: now, reported: false, preset, saved: now, pause: FIRST_SAVE })
    }

    /// Records a step.
    pub fn step(&mut self, report: &StepReport, now: Instant) {
        self.reports.push(*report);
        if now.duration_since(self.handed) >= HAND_OVER_EVERY {
            self.handed = now;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.recorder.has_failed() {
            if !self.reported {
                self.reported = true;
                output::note(
                    "note: the run is no longer kept; training continues, what was kept remains, and the reason is \
                     reported at the end",
                );
            }
            self.reports.clear();
            return;
        }
        if !self.reports.is_empty() {
            self.recorder.steps(&self.reports);
            self.reports.clear();
        }
    }

    /// Records how far parameters moved, over ranges of steps.
    pub fn moved(&mut self, session: &mut Session) {
        if !self.recorder.has_failed() {
            self.recorder.moved(&session.take_updates());
        }
    }

    /// Records an evaluation after `step`.
    pub fn evaluated(&mut self, step: u64, found: &Evaluation) {
        self.hand_over();
        self.recorder.evaluated(step, found);
    }

    /// Writes a checkpoint if it is time for one.
    ///
    /// # Errors
    /// If it cannot be written; the previous one remains.
    pub fn save_in_time(&mut self, session: &Session) -> anyhow::Result<()> {
        if self.saved.elapsed() < self.pause {
            return Ok(());
        }
        let started = Instant::now();
        let saved = self.save(session);
        self.saved = Instant::now();
        self.pause = (started.elapsed() * SAVE_SHARE).clamp(SAVE_EVERY.0, SAVE_EVERY.1);
        saved
    }

    /// Writes a checkpoint, which replaces the previous one as soon as the curve on disk reaches it.
    fn save(&mut self, session: &Session) -> anyhow::Result<()> {
        self.hand_over();
        if let Some(path) = self.recorder.next_checkpoint().filter(|_| !self.recorder.has_failed()) {
            session.save_checkpoint(&path, &self.preset).map_err(|e| anyhow::anyhow!("{e}"))?;
            self.recorder.take_checkpoint();
        }
        Ok(())
    }

    /// Ends the run with this state, writes its checkpoint if its values are finite, and reports its id.
    ///
    /// # Errors
    /// What could not be kept.
    pub fn finish(mut self, state: RunEnd, error: Option<String>, session: &mut Session) -> anyhow::Result<()> {
        self.moved(session);
        self.hand_over();
        let saved = if state == RunEnd::Failed { Ok(()) } else { self.save(session) };
        self.recorder.set_state(state, error);
        let id = self.recorder.id().unwrap_or_default().to_owned();
        self.recorder.finish().map_err(|why| anyhow::anyhow!(why))?;
        saved?;
        output::note(&format!("kept as {id}"));
        Ok(())
    }
}
