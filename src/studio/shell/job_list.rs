//! Background jobs: one list with a name, a progress and a way to cancel each, from all tabs.

use crate::data::tokenized_share;
use crate::studio::commands::UiCommand;
use crate::studio::commands::choices::JobKind;
use crate::studio::commands::tab::Tab;
use crate::studio::jobs::measurements::Finding;
use crate::studio::shell::state::Studio;
use crate::studio::view_models::format;
use crate::studio::view_models::job::Job;
use crate::train::{kernels_ahead_share, stop_kernels_ahead};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Studio {
    /// Updates the list of background jobs.
    pub(super) fn follow_jobs(&mut self) {
        let running = self.running();
        self.jobs.follow(running, Instant::now());
    }

    /// All background jobs that run now.
    fn running(&self) -> Vec<Job> {
        use crate::studio::commands::JobKind as K;
        let mut out = Vec::new();
        let mut add = |is_running: bool, kind: K, name: &str, progress: Option<f32>| {
            if is_running {
                out.push(Job::new(kind, name, progress));
            }
        };
        let measurements = &self.measurements;
        add(self.is_compiling(), K::Compile, "Plan the step", None);
        add(self.recording.is_planning(), K::Recording, "Plan the recording", None);
        let share = tokenized_share();
        let loading = if share.is_some() { "Make the tokens of the text" } else { "Load the data" };
        add(self.samples.is_loading(), K::Data, loading, share);
        add(measurements.is_measuring(), K::Measure, "Measure operations", None);
        add(measurements.is_comparing(), K::Compare, "Compare planners", measurements.compared());
        add(measurements.is_searching(), K::Search, "Find the first NaN", None);
        add(measurements.is_looking() && !measurements.is_searching(), K::Values, "Look at values", None);
        add(self.prices.is_busy(), K::Prices, "Measure what metrics cost", self.prices.progress());
        add(self.training.is_timing, K::Timing, "Measure eager", None);
        add(self.files.is_busy(), K::Files, "Read or write files", None);
        let verify = self.proofs.current.map_or_else(|| "Verify".to_owned(), |(_, name)| format!("Verify: {name}"));
        add(self.proofs.is_running(), K::Verify, &verify, self.proofs.progress());
        if let Some(service) = &self.runs.service {
            let step = format!("Capsule: step {}", format::exact(service.progress.load(Ordering::Relaxed)));
            add(service.is_busy(), K::Capsule, &step, None);
            add(service.is_writing(), K::Runs, "Read or write a run", None);
        }
        let share = kernels_ahead_share();
        add(share.is_some(), K::Kernels, "Compile kernels for later networks", share);
        out
    }

    /// Cancels a background job.
    pub(super) fn cancel_job(&mut self, kind: JobKind) {
        match kind {
            JobKind::Compile => self.cancel_compile(),
            JobKind::Recording => self.show_recording(None),
            JobKind::Data => self.samples.cancel(),
            JobKind::Measure | JobKind::Compare | JobKind::Values | JobKind::Search => self.measurements.cancel(kind),
            JobKind::Prices => self.prices.cancel(),
            JobKind::Verify => self.proofs.cancel(),
            JobKind::Capsule => {
                self.runs.service.iter().for_each(crate::studio::run::kept::service::RunService::cancel)
            }
            JobKind::Kernels => stop_kernels_ahead(),
            JobKind::Timing | JobKind::Runs | JobKind::Files => {}
        }
        self.follow_jobs();
    }

    /// Reports a result if its tab is not shown, with a button that shows the tab.
    pub(super) fn report_found(&mut self) {
        let Some(found) = self.measurements.found.take() else { return };
        let (text, tab) = match found {
            Finding::Times => ("Every operation of the step is measured.", Tab::StepGraph),
            Finding::Comparison => ("Planners and precisions are side by side on the Arena tab.", Tab::Arena),
        };
        if !self.shown.contains(&tab) {
            self.offer(text, vec![UiCommand::ShowTab(tab)]);
        }
    }
}
