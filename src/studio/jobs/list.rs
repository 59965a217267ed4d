//! Background jobs: every kind with its start time, and the jobs that are shown.

use crate::studio::commands::choices::JobKind;
use crate::studio::view_models::job::Job;
use std::time::{Duration, Instant};

/// The jobs that are shown.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Every kind that runs, and its start time.
    since: Vec<(JobKind, Instant)>,
    pub shown: Vec<Job>,
}

impl Jobs {
    /// Updates the list with the jobs that run `now`.
    pub fn follow(&mut self, running: Vec<Job>, now: Instant) {
        self.since.retain(|(kind, _)| running.iter().any(|j| j.kind == *kind));
        for job in &running {
            if !self.since.iter().any(|(kind, _)| *kind == job.kind) {
                self.since.push((job.kind, now));
            }
        }
        let since = &self.since;
        let is_due = |j: &Job| since.iter().any(|(k, at)| *k == j.kind && now.duration_since(*at) >= k.delay());
        self.shown = running.into_iter().filter(is_due).collect();
    }

    /// Time until the window should be drawn again for their sake; `None` if no job runs. Kernels are compiled for
    /// minutes while nobody waits for them.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let is_slow = self.since.iter().all(|(kind, _)| *kind == JobKind::Kernels);
        let every = Duration::from_millis(if is_slow { 1_000 } else { 100 });
        (!self.since.is_empty()).then_some(every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_not_shown() {
        let begun = Instant::now();
        let job = |kind| Job::new(kind, "job", None);
        let mut jobs = Jobs::default();
        jobs.follow(vec![job(JobKind::Compile), job(JobKind::Compare)], begun);
        let shown = |jobs: &Jobs| jobs.shown.iter().map(|j| j.kind).collect::<Vec<_>>();
        assert_eq!(shown(&jobs), [JobKind::Compare]);
        assert!(jobs.until_next().is_some());
        jobs.follow(vec![job(JobKind::Compile)], begun + Duration::from_millis(400));
        assert_eq!(shown(&jobs), [JobKind::Compile]);
        // A new job of the same kind has a new start time.
        jobs.follow(Vec::new(), begun + Duration::from_millis(500));
        jobs.follow(vec![job(JobKind::Compile)], begun + Duration::from_millis(600));
        assert!(jobs.shown.is_empty());
        jobs.follow(vec![job(JobKind::Kernels)], begun + Duration::from_millis(650));
        assert_eq!(jobs.until_next(), Some(Duration::from_secs(1)));
        jobs.follow(Vec::new(), begun + Duration::from_millis(700));
        assert!(jobs.until_next().is_none());
    }
}
