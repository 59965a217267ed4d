//! What runs in the background: one list with a name, a progress and a way to end it for each, whatever tab began it.

use super::commands::{Command, Tab};
use super::lab::Found;
use super::state::Studio;
use super::view_models::format;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A kind of work; of each kind one job runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    Compile,
    Data,
    Measure,
    Compare,
    /// Looking at values in a private copy of the step.
    Values,
    /// Searching the step for a value that is not finite.
    Search,
    Prices,
    Verify,
    /// Timing the run's steps eagerly and replayed.
    Timing,
    Capsule,
    /// Writing a kept run to a file, or reading what it needs to continue.
    Runs,
    Files,
}

impl JobKind {
    /// The time after which a job is shown: what is mostly done at once would only flicker.
    const fn delay(self) -> Duration {
        match self {
            Self::Compile | Self::Data | Self::Values | Self::Runs | Self::Files => Duration::from_millis(300),
            _ => Duration::ZERO,
        }
    }

    /// True where it can be ended. A file is written whole or not at all, and a run times its steps within a second.
    const fn can_be_cancelled(self) -> bool {
        !matches!(self, Self::Timing | Self::Runs | Self::Files)
    }
}

/// Work in the background.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub kind: JobKind,
    pub name: String,
    /// From 0 to 1; `None` where that is not known.
    pub progress: Option<f32>,
    /// What ends it.
    pub cancel: Option<Command>,
}

impl Job {
    fn new(kind: JobKind, name: impl Into<String>, progress: Option<f32>) -> Self {
        let cancel = kind.can_be_cancelled().then_some(Command::CancelJob(kind));
        Self { kind, name: name.into(), progress, cancel }
    }

    /// The name with the progress: `Compare planners, 40%`.
    #[must_use]
    pub fn title(&self) -> String {
        match self.progress {
            Some(share) => format!("{}, {:.0}%", self.name, share * 100.0),
            None => self.name.clone(),
        }
    }
}

/// The jobs that are shown.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Every kind that runs, and since when.
    since: Vec<(JobKind, Instant)>,
    pub shown: Vec<Job>,
}

impl Jobs {
    /// Takes note of the jobs that run `now`.
    fn follow(&mut self, running: Vec<Job>, now: Instant) {
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

    /// Time until the window should be drawn again for their sake; `None` where nothing runs.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        const EVERY: Duration = Duration::from_millis(100);
        (!self.since.is_empty()).then_some(EVERY)
    }
}

impl Studio {
    /// Takes note of what runs in the background.
    pub(super) fn follow_jobs(&mut self) {
        let running = self.running();
        self.jobs.follow(running, Instant::now());
    }

    /// Everything that runs in the background now.
    fn running(&self) -> Vec<Job> {
        use JobKind as K;
        let mut out = Vec::new();
        let mut add = |is_running: bool, kind: K, name: &str, progress: Option<f32>| {
            if is_running {
                out.push(Job::new(kind, name, progress));
            }
        };
        let lab = &self.lab;
        add(self.is_compiling(), K::Compile, "Plan the step", None);
        add(self.samples.is_loading(), K::Data, "Load the data", None);
        add(lab.is_measuring(), K::Measure, "Measure operations", None);
        add(lab.is_comparing(), K::Compare, "Compare planners", lab.compared());
        add(lab.is_searching(), K::Search, "Find the first NaN", None);
        add(lab.is_looking() && !lab.is_searching(), K::Values, "Look at values", None);
        add(self.prices.is_busy(), K::Prices, "Measure what metrics cost", self.prices.progress());
        add(self.training.is_timing, K::Timing, "Measure eager", None);
        add(self.files.is_busy(), K::Files, "Read or write files", None);
        let verify = self.proofs.current.map_or_else(|| "Verify".to_owned(), |(_, name)| format!("Verify: {name}"));
        add(self.proofs.is_running(), K::Verify, &verify, self.proofs.progress());
        if let Some(desk) = &self.runs.desk {
            let step = format!("Capsule: step {}", format::exact(desk.progress.load(Ordering::Relaxed)));
            add(desk.is_busy(), K::Capsule, &step, None);
            add(desk.is_writing(), K::Runs, "Read or write a run", None);
        }
        out
    }

    /// Ends what runs in the background: its answer is not waited for any more.
    pub(super) fn cancel_job(&mut self, kind: JobKind) {
        match kind {
            JobKind::Compile => self.cancel_compile(),
            JobKind::Data => self.samples.cancel(),
            JobKind::Measure | JobKind::Compare | JobKind::Values | JobKind::Search => self.lab.cancel(kind),
            JobKind::Prices => self.prices.cancel(),
            JobKind::Verify => self.proofs.cancel(),
            JobKind::Capsule => self.runs.desk.iter().for_each(super::runs::Desk::cancel),
            JobKind::Timing | JobKind::Runs | JobKind::Files => {}
        }
        self.follow_jobs();
    }

    /// Reports what was found out on request where its tab is not shown, with a button that shows the tab.
    pub(super) fn report_found(&mut self) {
        let Some(found) = self.lab.found.take() else { return };
        let (text, tab) = match found {
            Found::Times => ("Every operation of the step is measured.", Tab::StepGraph),
            Found::Comparison => ("Planners and precisions are side by side on the Arena tab.", Tab::Arena),
        };
        if !self.shown.contains(&tab) {
            self.offer(text, vec![Command::ShowTab(tab)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_at_once_is_not_shown() {
        let begun = Instant::now();
        let job = |kind| Job::new(kind, "job", None);
        let mut jobs = Jobs::default();
        jobs.follow(vec![job(JobKind::Compile), job(JobKind::Compare)], begun);
        let shown = |jobs: &Jobs| jobs.shown.iter().map(|j| j.kind).collect::<Vec<_>>();
        assert_eq!(shown(&jobs), [JobKind::Compare]);
        assert!(jobs.until_next().is_some());
        jobs.follow(vec![job(JobKind::Compile)], begun + Duration::from_millis(400));
        assert_eq!(shown(&jobs), [JobKind::Compile]);
        // Another one of the same kind has its own time.
        jobs.follow(Vec::new(), begun + Duration::from_millis(500));
        jobs.follow(vec![job(JobKind::Compile)], begun + Duration::from_millis(600));
        assert!(jobs.shown.is_empty());
        jobs.follow(Vec::new(), begun + Duration::from_millis(700));
        assert!(jobs.until_next().is_none());
    }

    #[test]
    fn a_job_says_how_far_it_is_and_how_to_end_it() {
        let job = Job::new(JobKind::Compare, "Compare planners", Some(0.4));
        assert_eq!(job.title(), "Compare planners, 40%");
        assert_eq!(job.cancel, Some(Command::CancelJob(JobKind::Compare)));
        let writing = Job::new(JobKind::Files, "Read or write files", None);
        assert_eq!((writing.title().as_str(), writing.cancel), ("Read or write files", None));
    }
}
