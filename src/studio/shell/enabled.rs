//! Which commands are possible now, and why others are not.

use crate::studio::commands::{PredictionsCommand, RunsCommand, Selection, TourMove, UiCommand, Weights};
use crate::studio::shell::state::Studio;
use crate::studio::view_models::network::Card;
use crate::studio::view_models::readiness::{EnabledCommands, Readiness};
use crate::train::RunState;
use crate::train::runs::RunEnd;

impl Studio {
    /// True if a command is possible now.
    #[must_use]
    pub fn is_enabled(&self, command: &UiCommand) -> bool {
        let transport = || self.training.transport(self.is_ready());
        let layer = || match self.selection.current() {
            Selection::Layer(path) => self.network.cards.iter().find(|c| c.path == *path),
            _ => None,
        };
        match command {
            UiCommand::Undo => self.document.can_undo() || self.draft_mistakes > 0,
            UiCommand::Redo => self.document.can_redo(),
            UiCommand::Duplicate | UiCommand::Remove => layer().is_some(),
            UiCommand::MoveUp => layer().is_some_and(Card::can_move_up),
            UiCommand::MoveDown => layer().is_some_and(Card::can_move_down),
            UiCommand::TrainOrPause => transport().train || transport().pause,
            UiCommand::Train => transport().train,
            UiCommand::Pause => transport().pause,
            UiCommand::Step => transport().step,
            UiCommand::Stop => transport().stop,
            UiCommand::SaveWeights | UiCommand::SaveWeightsByPath => self.training.has_weights(),
            UiCommand::Continue => self.training.is_stopped(),
            UiCommand::Reset => transport().reset,
            UiCommand::Prove(_) => self.is_ready(),
            UiCommand::StartWith(kernels) => self.devices.may_start_with(*kernels),
            UiCommand::MeasurePrices => self.is_ready() && !self.prices.is_busy(),
            UiCommand::CancelProofs => self.proofs.is_running(),
            UiCommand::TimeBothWays => self.training.has_weights() && !self.training.is_timing,
            UiCommand::Predictions(PredictionsCommand::Write(_)) => self.training.has_weights(),
            UiCommand::Predictions(PredictionsCommand::StopWriting) => self.training.writing.is_busy(),
            UiCommand::Runs(RunsCommand::Continue) => self.runs.first().is_some_and(|e| e.can_continue),
            UiCommand::Runs(RunsCommand::Delete) => self.runs.first().is_some() && self.objection(command).is_none(),
            UiCommand::Runs(command) => !command.needs_selection() || self.runs.first().is_some(),
            UiCommand::MeasureOps => self.runs_plan() && !self.measurements.is_measuring(),
            UiCommand::ComparePlans => self.is_planned() && !self.measurements.is_comparing(),
            UiCommand::FindFirstBad => self.runs_plan() && !self.measurements.is_looking(),
            UiCommand::ShowRecording(None) => self.recording.key().is_some(),
            UiCommand::ShowRecording(Some(_)) => self.can_show_recordings(),
            UiCommand::SelectLargestBuffer => self.plan.is_some(),
            UiCommand::ShowProblem => self.problems() > 0,
            UiCommand::Tour(TourMove::Dismiss) => self.tour.shown().is_some(),
            UiCommand::UseWeights(Weights::Run) => self.training.has_weights() || self.training.snapshot.is_some(),
            UiCommand::ShowNotice | UiCommand::DismissNotice => self.notice.is_some(),
            UiCommand::Back => self.selection.can_go_back(),
            UiCommand::Forward => self.selection.can_go_forward(),
            _ => true,
        }
    }

    /// True if the shown plan can be run for a measurement: it is the network's own, for a device that exists here.
    fn runs_plan(&self) -> bool {
        self.is_here() && self.is_planned() && !self.shows_recording()
    }

    /// Why a command that looks possible is not, and what to do about it; `None` if no explanation is needed.
    #[must_use]
    pub fn objection(&self, command: &UiCommand) -> Option<String> {
        match command {
            UiCommand::Runs(RunsCommand::Delete) => self.why_not_deleted(&self.runs.selected),
            UiCommand::MeasureOps | UiCommand::FindFirstBad if self.shows_recording() => {
                Some("This works only with the network's own plan. Show that plan, then try again.".into())
            }
            UiCommand::ShowRecording(Some(_)) => Some(
                "The run trains another network than the one on screen. Train this one to see its recordings.".into(),
            ),
            _ => None,
        }
    }

    /// Why these runs cannot be deleted now: one of them is being trained.
    #[must_use]
    pub fn why_not_deleted(&self, ids: &[String]) -> Option<String> {
        let own = self.training.writer.id();
        let is_training = self.training.is_running() || self.training.state == Some(RunState::Preparing);
        let of = |id: &String| {
            let name = self.runs.name(id);
            match own == Some(id.as_str()) {
                true => {
                    is_training.then(|| format!("{name} is being trained. Stop it on the Train tab, then delete it."))
                }
                false => (self.runs.entry(id)?.record.state == RunEnd::Running).then(|| {
                    format!("{name} is being trained by another window or command. Stop it there, then delete it.")
                }),
            }
        };
        ids.iter().find_map(of)
    }

    /// Whether the document could be trained now, otherwise the reason.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_ready() {
            Readiness::Ready
        } else if self.document.preset().layers.is_empty() {
            Readiness::Empty
        } else if self.problems() > 0 {
            Readiness::HasProblems
        } else if self.devices.current().trains() {
            Readiness::Compiling
        } else {
            Readiness::DeviceAbsent
        }
    }

    /// The commands of menus, palette and buttons that are possible now.
    #[must_use]
    pub fn enabled_commands(&self) -> EnabledCommands {
        let own = [UiCommand::Train, UiCommand::UseWeights(Weights::Run)];
        let all = UiCommand::listed().into_iter().chain(own);
        EnabledCommands::all_but(all.filter(|c| !self.is_enabled(c)).collect())
    }
}
