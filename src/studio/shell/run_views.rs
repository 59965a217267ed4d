//! What the panels show of runs, data, devices and checks, from the state of the window.

use crate::studio::commands::Side;
use crate::studio::commands::{RunsCommand, Selection, UiCommand};
use crate::studio::run::samples::RETRY_AFTER;
use crate::studio::shell::state::Studio;
use crate::studio::view_models::panels::data::DataPanelView;
use crate::studio::view_models::panels::help::HelpView;
use crate::studio::view_models::panels::modals::ModalsView;
use crate::studio::view_models::panels::predictions::PredictionsPanelView;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
use crate::studio::view_models::panels::runs::RunsPanelView;
use crate::studio::view_models::panels::top_bar::{DeviceView, TopBarView, TransportView};
use crate::studio::view_models::panels::train::{MetricPrices, MetricsView, PlotsView, RunView, TrainView};
use crate::studio::view_models::panels::verify::VerifyView;
use crate::studio::view_models::predictions::asked_part;
use crate::studio::view_models::readiness::EnabledCommands;
use crate::train::{RunState, perplexity};
use std::sync::atomic::Ordering;

impl Studio {
    /// What the top bar shows in a window of this width.
    #[must_use]
    pub fn top_bar_view<'a>(&'a self, width: f32, enabled: &'a EnabledCommands) -> TopBarView<'a> {
        let (document, settings, devices) = (&self.document, &self.settings, &self.devices);
        let (machine, run) = (devices.current(), &self.training);
        TopBarView {
            title: document.title(),
            place: document.path().map(|p| p.display().to_string()),
            is_dirty: document.is_dirty(),
            recent: &settings.recent,
            hides_network: !settings.shows(Side::Network, width),
            hides_inspector: !settings.shows(Side::Inspector, width),
            state: run.state.as_ref(),
            runs_on: run.device.filter(|choice| run.is_alive() && *choice != machine.choice),
            device: DeviceView {
                name: &machine.name,
                about: &machine.about,
                precision: document.preset().precision.name(),
                chosen: settings.device,
                all: devices.list().iter().map(|m| (m.name.as_str(), m.about.as_str(), m.choice)).collect(),
                why_no_gpu: devices.why_no_gpu.as_deref(),
                cpu_only: devices.cpu_only.as_deref(),
            },
            starts_with: Some(settings.first_kernels).filter(|_| machine.has_kinds_of_kernels()),
            transport: TransportView {
                allowed: run.transport(self.is_ready()),
                next: self.next(),
                is_running: run.is_running(),
                is_stopped: run.is_stopped(),
                is_recording: run.writer.is_recording(),
            },
            enabled,
        }
    }

    /// What the Train tab shows.
    #[must_use]
    pub fn train_view(&self) -> TrainView<'_> {
        let run = &self.training;
        let preset = self.document.preset();
        let is_over = !run.failure_applies(preset);
        let failure = match &run.state {
            Some(RunState::Failed(error)) if !is_over => Some(error.as_str()),
            _ => None,
        };
        let has_nothing = matches!(run.state, Some(RunState::Failed(_))) && is_over && run.done() == 0;
        TrainView {
            readiness: self.readiness(),
            preset,
            failure,
            problem: run.problem.as_deref(),
            has_run: run.state.is_some() && !has_nothing,
            is_stale: self.is_stale(),
            run: self.run_view(),
            plots: self.plots_view(),
            metrics: self.metrics_view(),
        }
    }

    /// What the Recordings tab shows.
    #[must_use]
    pub fn recordings_view(&self) -> RecordingsPanelView<'_> {
        let recordings = &self.training.recordings;
        RecordingsPanelView {
            readiness: self.readiness(),
            seen: recordings.seen.as_deref(),
            names: &recordings.names,
            shown: self.recording.key(),
            on_screen: self.recording_on_screen(),
            can_show: self.can_show_recordings(),
            kinds: &recordings.kinds,
            chosen: &recordings.chosen,
            difference: recordings.difference.as_deref(),
        }
    }

    fn run_view(&self) -> RunView<'_> {
        let run = &self.training;
        let rates = &run.rates.statistics;
        RunView {
            state: run.state.as_ref(),
            preset: run.preset.as_deref(),
            history: &run.history,
            shows_previous: run.shows_previous,
            done: run.done(),
            total: run.total,
            lr: run.lr,
            smoothing: run.smoothing(),
            obeys: run.obeys(),
            evaluated_every: run.evaluated_every,
            maybe_trained: run.maybe_trained,
            predicts_tokens: run.compiled.as_ref().is_some_and(|c| perplexity(&c.model, 0.0).is_some()),
            steps_per_s: rates.steps_per_s,
            median_us: rates.median_us,
            p99_us: rates.p99_us,
        }
    }

    fn plots_view(&self) -> PlotsView<'_> {
        let (run, settings) = (&self.training, &self.settings);
        let marked = match self.selection.current() {
            Selection::Layer(path) => run.history.layers.paths.iter().position(|p| p == path),
            _ => None,
        };
        PlotsView {
            log_axis: settings.log_axis,
            plot_log: &settings.plot_log,
            hidden: &settings.hidden_plots,
            marked,
            baseline: self.runs.baseline.run.as_deref().map(|pinned| (self.runs.name(&pinned.id), pinned)),
            is_timed_on_device: run.recording.as_ref().is_some_and(|r| r.steps_a_launch > 0),
            kinds: &run.recordings.kinds,
            recordings: run.recordings.list(),
            names: &run.recordings.names,
            times: &run.rates.times,
            both_ways: run.both_ways.as_ref(),
            is_timing: run.is_timing,
            can_time: self.is_enabled(&UiCommand::TimeBothWays),
        }
    }

    fn metrics_view(&self) -> MetricsView<'_> {
        let prices = self.prices.prices.filter(|p| p.revision == self.document.revision());
        MetricsView {
            metrics: self.settings.metrics(),
            has_classes: self.document.preset().loss.has_accuracy(),
            prices: prices.map(|p| MetricPrices { step_us: p.all_us, added_us: p.added_us() }),
            is_measuring: self.prices.is_busy(),
            can_measure: self.is_enabled(&UiCommand::MeasurePrices),
            problem: self.prices.problem.as_deref(),
        }
    }

    /// What the Data tab shows.
    #[must_use]
    pub fn data_view(&self) -> DataPanelView<'_> {
        let samples = &self.samples;
        DataPanelView {
            section: self.network.sections.iter().find(|s| s.title == "Data"),
            source: self.document.preset().data.as_ref().map(|d| &d.source),
            loaded: samples.view.as_deref(),
            is_current: samples.is_current,
            has_problem: samples.problem.is_some(),
            retry_after: RETRY_AFTER,
            generation: samples.generation,
        }
    }

    /// What the Predictions tab shows.
    #[must_use]
    pub fn predictions_view(&self) -> PredictionsPanelView<'_> {
        let (run, own) = (&self.training, &self.predictions);
        let selected = match self.selection.current() {
            Selection::Layer(path) => Some(path),
            _ => None,
        };
        let page = own.page();
        PredictionsPanelView {
            readiness: self.readiness(),
            facts: &own.facts,
            page,
            answers: own.view.as_deref(),
            inside: own.inside.as_deref(),
            sample: own.sample(run),
            part: run.data.as_ref().map_or("", |(_, split)| asked_part(split).1),
            layer: page.and_then(|page| own.facts.layer(page, selected)),
            head: own.head,
            writing: &run.writing,
            can_write: run.has_weights(),
            generation: own.generation,
            state: run.state.as_ref(),
            is_running: run.is_running(),
            is_stale: self.is_stale(),
            has_data: run.preset.as_ref().is_none_or(|p| p.data.is_some()),
            can_step: self.is_enabled(&UiCommand::Step),
        }
    }

    /// What the Verify tab shows.
    #[must_use]
    pub fn verify_view(&self) -> VerifyView<'_> {
        let (proofs, revision) = (&self.proofs, self.document.revision());
        VerifyView {
            readiness: self.readiness(),
            can_prove: self.is_enabled(&UiCommand::Prove(None)),
            revision,
            proved: &proofs.proved,
            is_running: proofs.is_running(),
            current: proofs.current,
            seconds: proofs.seconds(),
            problem: proofs.problem.as_deref(),
            replays: self.settings.replays,
            estimate: proofs.estimate(revision, self.settings.replays),
            is_estimating: proofs.is_pricing(),
        }
    }

    /// What the Runs tab shows.
    #[must_use]
    pub fn runs_view<'a>(&'a self, enabled: &'a EnabledCommands) -> RunsPanelView<'a> {
        let (runs, training) = (&self.runs, &self.training);
        let store = runs.store.as_ref().zip(runs.first());
        let capsule = runs.service.as_ref().filter(|s| s.is_busy());
        RunsPanelView {
            table: &runs.view,
            entries: &runs.entries,
            problem: runs.problem.as_deref(),
            selected: &runs.selected,
            folder: store.map(|(store, run)| store.path(&run.id).display().to_string()),
            order: runs.order,
            by_time: runs.by_time,
            log_axis: self.settings.log_axis,
            loaded: &runs.loaded,
            baseline: runs.baseline.id.as_deref(),
            differences: &runs.differences,
            replayed: runs.replayed.as_ref().map(|(path, report)| (path.as_path(), &**report)),
            shows_trash: runs.trash.is_shown,
            trash: runs.trash.runs.as_ref(),
            capsule_step: capsule.map(|s| s.progress.load(Ordering::Relaxed)),
            paused: training.writer.id().filter(|_| training.state == Some(RunState::Paused)),
            enabled,
            why_not_deleted: self.objection(&UiCommand::Runs(RunsCommand::Delete)),
        }
    }

    /// The names in questions.
    #[must_use]
    pub fn modals_view(&self) -> ModalsView<'_> {
        ModalsView {
            document: self.document.title(),
            steps_done: self.training.done(),
            trained_run: self.training.writer.id(),
            runs: &self.runs.entries,
            trash: self.runs.trash.runs.as_ref(),
        }
    }

    /// What the Help menu's pages show.
    #[must_use]
    pub fn help_view(&self) -> HelpView<'_> {
        let machine = self.devices.current();
        HelpView { device: &machine.name, device_about: &machine.about }
    }
}
