//! Measures the stages of a preparation.

use crate::exec::{ReadyStage, ReadyTimes};
use std::time::Instant;

/// Measures one stage after the other, and logs each, for finding slow stages.
pub(super) struct Stopwatch {
    started: Instant,
    since: Instant,
    times: ReadyTimes,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), since: Instant::now(), times: ReadyTimes::default() }
    }

    /// Records the time of `stage`, which ends here; the next one begins.
    pub(super) fn report(&mut self, stage: ReadyStage) {
        log::debug!("{}: {:.1?}", stage.name(), self.since.elapsed());
        self.times.add(stage, self.since.elapsed());
        self.since = Instant::now();
    }

    /// Records the stages of a part that ends here, as it measured them itself.
    pub(super) fn report_parts(&mut self, parts: &ReadyTimes) {
        for (stage, us) in &parts.stages {
            log::debug!("{}: {us:.0} us", stage.name());
        }
        self.times.add_part(parts);
        self.since = Instant::now();
    }

    /// All stages, and the time since the start.
    pub(super) fn stop(mut self) -> ReadyTimes {
        self.times.total_us = self.started.elapsed().as_secs_f64() * 1e6;
        self.times
    }
}
