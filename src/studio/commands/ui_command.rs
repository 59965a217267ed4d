//! Commands of the user, from which menus, shortcuts, tooltips and the command palette are made.

use crate::ir::Metrics;
use crate::model::{LayerKind, LayerPath};
use crate::studio::commands::choices::{DeviceChoice, FirstKernels, JobKind, TourMove, Weights};
use crate::studio::commands::fold::FoldCommand;
use crate::studio::commands::predictions::PredictionsCommand;
use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::side::Side;
use crate::studio::commands::tab::Tab;
use crate::studio::document::dialog::DataField;
use crate::studio::document::edit::Edit;
use crate::studio::document::presets;
use crate::train::Proof;
use std::path::PathBuf;

/// A command of the user.
#[derive(Clone, Debug, PartialEq)]
pub enum UiCommand {
    New,
    NewFromPreset(usize),
    Open,
    OpenByPath,
    /// Opens one of the recent files.
    OpenRecent(PathBuf),
    Save,
    SaveAs,
    SaveByPath,
    SaveWeights,
    SaveWeightsByPath,
    Quit,
    Undo,
    Redo,
    AddLayer,
    /// Adds a layer of this kind after the selected one.
    AddKind(LayerKind),
    Duplicate,
    Remove,
    MoveUp,
    MoveDown,
    TrainOrPause,
    Train,
    Pause,
    Step,
    Stop,
    /// Continues the run that was stopped.
    Continue,
    Reset,
    Back,
    Forward,
    ShowTab(Tab),
    FitArena,
    FollowPlots,
    ToggleLogAxis,
    ToggleTheme,
    Palette,
    /// A change to the document by a separate control.
    Edit(Edit),
    Select(Selection),
    /// Selects a layer for an action from its menu.
    OnLayer(LayerPath, Box<UiCommand>),
    ChooseDevice(DeviceChoice),
    SetLr(f32),
    SetSmoothing(f32),
    DismissNotice,
    /// Shows the notice with its whole text.
    ShowNotice,
    /// Restores the original layout of the tabs.
    ResetLayout,
    /// Runs this check on the document's step, or all checks.
    Prove(Option<Proof>),
    CancelProofs,
    /// Cancels a background job.
    CancelJob(JobKind),
    /// How often the step is replayed to check that it is deterministic; `None` replays it as often as a few seconds
    /// allow.
    SetReplays(Option<u64>),
    /// Times eager and replayed steps of the run side by side.
    TimeBothWays,
    /// Selects a recording of the run, by its number, for comparison with another one, or deselects it.
    CompareRecording(u32),
    /// Makes every view show the plan of the run's recording with this key; `None` for the network's own plan.
    ShowRecording(Option<String>),
    /// Linear or logarithmic, for one plot.
    SetPlotLog(&'static str, bool),
    /// Shows or hides a plot.
    ShowPlot(&'static str, bool),
    /// Times the step with and without its metrics.
    MeasurePrices,
    /// Opens a dialog for the file or the folder of a field of the data.
    ChooseData(DataField),
    ChooseDataFolder(DataField),
    /// Which metrics the next run computes inside its step.
    SetMetrics(Metrics),
    StartWith(FirstKernels),
    /// Folds and unfolds the list of layers.
    Fold(FoldCommand),
    ShowSide(Side),
    /// A command of the Predictions tab.
    Predictions(PredictionsCommand),
    /// A command for kept runs.
    Runs(RunsCommand),
    /// Times every operation of the step on a thread.
    MeasureOps,
    /// Compares every planner and every precision.
    ComparePlans,
    /// Moves the scrubber of the arena, or removes it.
    Scrub(Option<usize>),
    ShowValues,
    /// Which picture along the leading axes of a value is shown.
    ShowSlice(usize),
    /// Which part of a flat vector is shown.
    ShowPart(usize),
    UseWeights(Weights),
    FindFirstBad,
    SelectLargestBuffer,
    /// Selects the layer with the first mistake.
    ShowProblem,
    ReduceMotion,
    Tour(TourMove),
    ShowShortcuts,
    ShowAbout,
}

impl UiCommand {
    /// The commands in the palette, in the order of the menus. Commands whose arguments come from a separate control
    /// are not included.
    #[must_use]
    pub fn listed() -> Vec<Self> {
        let mut out = vec![Self::New, Self::Open, Self::OpenByPath, Self::Save, Self::SaveAs, Self::SaveByPath];
        out.extend([Self::SaveWeights, Self::SaveWeightsByPath]);
        out.extend((0..presets::count()).map(Self::NewFromPreset));
        out.extend([
            Self::Undo,
            Self::Redo,
            Self::AddLayer,
            Self::Duplicate,
            Self::Remove,
            Self::MoveUp,
            Self::MoveDown,
        ]);
        out.extend([Self::Fold(FoldCommand::All), Self::Fold(FoldCommand::Nothing)]);
        out.extend(LayerKind::ALL.map(Self::AddKind));
        out.extend([Self::TrainOrPause, Self::Step, Self::Stop, Self::Continue, Self::Reset]);
        out.extend([Self::Back, Self::Forward]);
        out.extend(Tab::ALL.map(Self::ShowTab));
        out.extend([Side::Network, Side::Inspector].map(Self::ShowSide));
        out.extend(
            [DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Gpu(0), DeviceChoice::Absent].map(Self::ChooseDevice),
        );
        out.extend([FirstKernels::AtOnce, FirstKernels::Fastest].map(Self::StartWith));
        out.extend([Self::FitArena, Self::FollowPlots, Self::ToggleLogAxis, Self::ToggleTheme, Self::Quit]);
        out.extend([Self::ResetLayout, Self::TimeBothWays, Self::MeasurePrices, Self::Prove(None)]);
        out.extend(Proof::ALL.map(|p| Self::Prove(Some(p))));
        out.extend([Self::CancelProofs, Self::Predictions(PredictionsCommand::StopWriting)]);
        out.extend(RunsCommand::listed().into_iter().map(Self::Runs));
        out.extend([
            Self::MeasureOps,
            Self::ComparePlans,
            Self::ShowValues,
            Self::FindFirstBad,
            Self::ShowRecording(None),
        ]);
        out.extend([
            Self::SelectLargestBuffer,
            Self::ShowProblem,
            Self::ReduceMotion,
            Self::ShowNotice,
            Self::DismissNotice,
        ]);
        out.extend([Self::Tour(TourMove::Start), Self::Tour(TourMove::Dismiss), Self::ShowShortcuts, Self::ShowAbout]);
        out
    }

    /// The number of bundled presets that [`Self::NewFromPreset`] opens.
    #[must_use]
    pub const fn preset_count() -> usize {
        presets::count()
    }

    /// The name of a bundled preset.
    #[must_use]
    pub fn preset_name(index: usize) -> &'static str {
        presets::name(index)
    }

    /// The name in the palette: unlike `Info::label`, it includes its object.
    #[must_use]
    pub fn title(&self) -> String {
        let (kind, own) = self.kind_and_name();
        if kind.is_empty() { own } else { format!("{kind} {own}") }
    }

    /// The name in two parts: the action, if it exists for several objects, and the name of the object.
    #[must_use]
    pub fn kind_and_name(&self) -> (&'static str, String) {
        match self {
            Self::NewFromPreset(index) => ("New from preset:", presets::name(*index).to_owned()),
            Self::AddKind(kind) => ("Add layer:", kind.class.to_owned()),
            Self::ShowTab(tab) => ("Show", tab.title().to_owned()),
            Self::ChooseDevice(choice) => ("Device:", choice.label()),
            Self::Prove(Some(proof)) => ("Verify:", proof.name().to_owned()),
            Self::Runs(RunsCommand::Export(format)) => ("Export run:", format!("{}…", format.title())),
            other => ("", other.info().label.to_owned()),
        }
    }
}

/// The commands of the panels during a frame.
#[derive(Debug, Default)]
pub struct CommandQueue(Vec<UiCommand>);

impl CommandQueue {
    pub fn push(&mut self, command: UiCommand) {
        self.0.push(command);
    }

    pub fn extend(&mut self, commands: impl IntoIterator<Item = UiCommand>) {
        self.0.extend(commands);
    }

    /// All commands, in order.
    pub fn take(&mut self) -> Vec<UiCommand> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn no_two_commands_share_a_shortcut_or_a_title() {
        let mut keys: HashMap<String, String> = HashMap::new();
        let mut titles = std::collections::HashSet::new();
        for command in UiCommand::listed() {
            assert!(titles.insert(command.title()), "{}", command.title());
            if let Some(s) = command.info().shortcut {
                let other = keys.insert(format!("{s:?}"), command.title());
                assert_eq!(other, None, "{}", command.title());
            }
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in UiCommand::listed() {
            let info = command.info();
            assert!(
                info.about.len() > 8 && !info.about.ends_with('.') || matches!(command, UiCommand::AddKind(_)),
                "{}",
                command.title()
            );
        }
    }
}
