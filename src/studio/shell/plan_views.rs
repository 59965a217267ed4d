//! What the panels show of the network and its plan, from the state of the window.

use crate::studio::commands::{Tab, UiCommand, Weights};
use crate::studio::shell::state::Studio;
use crate::studio::view_models::format::exact;
use crate::studio::view_models::panels::arena::ArenaPanelView;
use crate::studio::view_models::panels::capture::CapturePanelView;
use crate::studio::view_models::panels::inspector::InspectorPanelView;
use crate::studio::view_models::panels::network::NetworkPanelView;
use crate::studio::view_models::panels::plan::PlanOnScreen;
use crate::studio::view_models::panels::status::{DifferenceView, StatusView};
use crate::studio::view_models::panels::tour::{LargestBuffer, TourView};
use crate::studio::view_models::panels::values::ValuesView;
use crate::studio::view_models::recordings::reason;
use crate::studio::view_models::status::{plan_text, recorded_text, recording_text};
use crate::train::KernelChange;

impl Studio {
    /// The plan with the selection in it.
    #[must_use]
    pub fn plan_on_screen(&self) -> PlanOnScreen<'_> {
        PlanOnScreen {
            plan: self.plan_shown().map(|plan| &**plan),
            readiness: self.readiness(),
            revision: self.revision_shown(),
            recording: self.recording_on_screen(),
            is_stale: self.is_plan_stale() && !self.shows_recording(),
            is_outdated: self.is_plan_outdated() && !self.shows_recording(),
            selection: self.selection.current(),
            related: &self.related,
            kernel_change: self.kernel_change(),
            measured: self.measurements.measured(self.revision_shown()),
            is_measuring: self.measurements.is_measuring(),
            can_measure: self.is_enabled(&UiCommand::MeasureOps),
        }
    }

    /// How far the run is with the change to kernels for its sizes, if it trains the network on screen.
    fn kernel_change(&self) -> KernelChange {
        let run = &self.training;
        // Recordings are planned separately, and those of evaluations keep their kernels.
        let is_shown = !self.is_stale() && !self.shows_recording();
        match run.kernel_change {
            KernelChange::Changed if is_shown => KernelChange::Changed,
            change if is_shown && run.goes_on() => change,
            _ => KernelChange::Keeps,
        }
    }

    /// How the step is recorded, as text.
    fn recorded_text(&self) -> String {
        let run = &self.training;
        let ready_us = run.ready_times.as_ref().map(|times| times.total_us);
        // A run goes on, on its own device, if another one is chosen.
        let trains = self.devices.current().trains() || run.is_alive();
        let text = recorded_text(run.recording.as_ref(), ready_us, run.state.as_ref(), trains, self.readiness());
        match run.changed_kernels_at {
            Some(step) => format!("{text}, kernels for these sizes since step {}", exact(step)),
            None => text,
        }
    }

    /// What the Capture plan tab shows.
    #[must_use]
    pub fn capture_view(&self) -> CapturePanelView<'_> {
        let seen = self.recording_seen().filter(|_| self.shows_recording());
        CapturePanelView {
            shown: self.plan_on_screen(),
            network: &self.network,
            rows: &self.rows,
            made_of: (self.revision_shown(), self.document.revision(), self.folds.revision()),
            recorded: seen.map_or_else(|| self.recorded_text(), reason),
            recording: seen.map_or_else(|| recording_text(self.training.recording.as_ref()), |seen| seen.key.clone()),
        }
    }

    /// The values of the selection.
    #[must_use]
    fn values_view(&self) -> ValuesView<'_> {
        let (measurements, snapshot) = (&self.measurements, self.training.snapshot.as_ref());
        let values = &measurements.values;
        let of_plan = values.first_bad.as_ref().filter(|(revision, _)| *revision == self.revision_shown());
        let of_own = "Values are shown only for the network's own plan. Show that plan to see them.";
        ValuesView {
            is_on: values.on,
            is_looking: measurements.is_looking(),
            is_outdated: self.is_plan_outdated() && !self.shows_recording(),
            readiness: self.readiness(),
            plan: self.plan_shown().map(|plan| &**plan),
            buffer: self.looked_at(),
            part: values.cut.part,
            weights: measurements.weights(snapshot.is_some()),
            can_use_run: self.is_enabled(&UiCommand::UseWeights(Weights::Run)),
            snapshot_step: snapshot.map(|s| s.step),
            values: self.values_shown(),
            problem: if self.shows_recording() { Some(of_own) } else { values.problem.as_deref() },
            first_bad: of_plan.map(|(_, found)| found.as_ref()),
            can_search: self.is_enabled(&UiCommand::FindFirstBad),
        }
    }

    /// What the inspector shows.
    #[must_use]
    pub fn inspector_view(&self) -> InspectorPanelView<'_> {
        InspectorPanelView {
            page: &self.inspector,
            shown: self.plan_on_screen(),
            values: self.values_view(),
            can_go_back: self.selection.can_go_back(),
            can_go_forward: self.selection.can_go_forward(),
        }
    }

    /// What the Arena tab shows.
    #[must_use]
    pub fn arena_view(&self) -> ArenaPanelView<'_> {
        ArenaPanelView {
            shown: self.plan_on_screen(),
            values: self.values_view(),
            scrub: self.measurements.scrub,
            changes: self.last_edit.changes.as_deref().filter(|_| !self.shows_recording()),
            is_still: self.settings.is_still(self.motion.is_reduced()),
            comparison: self.measurements.comparison(self.revision_shown()),
            is_comparing: self.measurements.is_comparing(),
            can_compare: self.is_enabled(&UiCommand::ComparePlans),
        }
    }

    /// What the network's panel shows.
    #[must_use]
    pub fn network_view(&self) -> NetworkPanelView<'_> {
        NetworkPanelView {
            network: &self.network,
            rows: &self.rows,
            folds: &self.folds,
            revision: self.document.revision(),
            selection: self.selection.current(),
            related: &self.related,
            is_data_shown: self.shown.contains(&Tab::Data),
        }
    }

    /// What the status line shows.
    #[must_use]
    pub fn status_view(&self) -> StatusView<'_> {
        let problems = self.problems();
        let stale = if self.is_plan_stale() && problems > 0 { " (before the problem)" } else { "" };
        let changes = self.last_edit.changes.as_deref();
        StatusView {
            notice: self.notice.as_ref(),
            jobs: &self.jobs.shown,
            recorded: self.recorded_text(),
            run: self.training.progress().map_or_else(String::new, |p| p.text()),
            problems,
            plan: self.plan.as_ref().map(|plan| format!("{}{stale}", plan_text(plan))),
            difference: self.last_edit.difference.as_deref().map(|text| DifferenceView {
                text,
                took: self.last_edit.took,
                changes,
            }),
            is_plan_outdated: self.is_plan_outdated(),
        }
    }

    /// What the tour's card shows, if the tour is active.
    #[must_use]
    pub fn tour_view(&self) -> Option<TourView> {
        let (step, is_done) = self.tour.shown()?;
        let arena = self.plan.as_ref().map(|p| &p.arena);
        let largest = arena.and_then(|arena| {
            let rect = arena.rect(*arena.largest.first()?)?;
            let share = rect.bytes as f64 / arena.arena_bytes.max(1) as f64;
            Some(LargestBuffer { name: rect.name.clone(), bytes: rect.bytes, share })
        });
        let can_offer = step.offer().is_some_and(|(_, command)| self.is_enabled(&command));
        Some(TourView { step, is_done, can_offer, largest })
    }
}
