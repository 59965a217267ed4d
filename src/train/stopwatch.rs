//! How long the stages of a preparation take, for those who look into a slow one.

use std::time::Instant;

/// Measures one stage after the other and logs each.
pub(super) struct Stopwatch {
    since: Instant,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { since: Instant::now() }
    }

    /// Logs how long `stage` took, which ends here; the next one begins.
    pub(super) fn report(&mut self, stage: &str) {
        log::debug!("{stage}: {:.1?}", self.since.elapsed());
        self.since = Instant::now();
    }
}
