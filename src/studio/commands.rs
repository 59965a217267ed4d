//! Everything a person can do, once: menus, shortcuts, tooltips and the command palette are made from it.

use super::devices::DeviceChoice;
use super::document::Edit;
use super::folds::FoldCommand;
use super::icons;
use super::jobs::JobKind;
use super::lab::Weights;
use super::runs::RunsCommand;
use super::selection::Selection;
pub(super) use super::shortcuts::keys_text;
use super::sides::Side;
pub use super::tabs::Tab;
use super::tour::TourMove;
use crate::ir::Metrics;
use crate::model::{LayerKind, LayerPath};
use crate::train::Proof;
use egui::{Key, KeyboardShortcut, Modifiers};
use std::path::PathBuf;

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    New,
    NewFromPreset(usize),
    Open,
    OpenByPath,
    OpenFile(PathBuf),
    Save,
    SaveAs,
    SaveByPath,
    SaveFile(PathBuf),
    SaveWeights,
    SaveWeightsByPath,
    SaveWeightsFile(PathBuf),
    Quit,
    Undo,
    Redo,
    AddLayer,
    /// A new layer of this kind behind the selected one.
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
    /// A change to the document that comes from a control of its own.
    Edit(Edit),
    Select(Selection),
    /// Selects a layer to do something with it from its own menu.
    OnLayer(LayerPath, Box<Command>),
    ChooseDevice(DeviceChoice),
    SetLr(f32),
    SetSmoothing(f32),
    DismissNotice,
    /// Shows the notice with its whole text.
    ShowNotice,
    /// Puts every tab back to where it was at the first start.
    ResetLayout,
    /// Proves this of the document's step, or everything.
    Prove(Option<Proof>),
    CancelProofs,
    /// Ends what runs in the background.
    CancelJob(JobKind),
    /// How often the step is replayed to prove it deterministic; `None` takes what a few seconds allow.
    SetReplays(Option<u64>),
    /// Times eager and replayed steps of the run side by side.
    TimeBothWays,
    /// Linear or logarithmic, for one plot.
    SetPlotLog(&'static str, bool),
    /// Shows or hides a plot.
    ShowPlot(&'static str, bool),
    /// Times the step with and without its metrics.
    MeasurePrices,
    /// Asks for the file, or the folder, that a field of the data names.
    ChooseData(&'static str),
    ChooseDataFolder(&'static str),
    /// Has a field of the data name this file or folder.
    UseData(&'static str, PathBuf),
    /// Which metrics the next run computes inside its step.
    SetMetrics(Metrics),
    /// Folds and unfolds the list of layers.
    Fold(FoldCommand),
    ShowSide(Side),
    /// Something with kept runs.
    Runs(RunsCommand),
    /// Times every operation of the step on a thread.
    MeasureOps,
    /// Every planner and every precision, side by side.
    ComparePlans,
    /// Moves the scrubber of the arena, or takes it away.
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

/// How a command looks.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// What it does, as in a menu; an ellipsis where a dialog follows.
    pub label: &'static str,
    pub icon: &'static str,
    pub shortcut: Option<KeyboardShortcut>,
    /// The tooltip.
    pub about: &'static str,
}

pub(super) const fn keys(modifiers: Modifiers, key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(modifiers, key))
}

pub(super) const CTRL: Modifiers = Modifiers::COMMAND;
const CTRL_SHIFT: Modifiers = Modifiers { shift: true, ..Modifiers::COMMAND };
pub(super) const NONE: Modifiers = Modifiers::NONE;
const ALT: Modifiers = Modifiers::ALT;

impl Command {
    /// What the palette lists, in the order of the menus. Commands that carry an argument of their own control are not among them.
    #[must_use]
    pub fn listed() -> Vec<Self> {
        let mut out = vec![Self::New, Self::Open, Self::OpenByPath, Self::Save, Self::SaveAs, Self::SaveByPath];
        out.extend([Self::SaveWeights, Self::SaveWeightsByPath]);
        out.extend((0..super::presets::count()).map(Self::NewFromPreset));
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
        out.extend([Self::FitArena, Self::FollowPlots, Self::ToggleLogAxis, Self::ToggleTheme, Self::Quit]);
        out.extend([Self::ResetLayout, Self::TimeBothWays, Self::MeasurePrices, Self::Prove(None)]);
        out.extend(Proof::ALL.map(|p| Self::Prove(Some(p))));
        out.push(Self::CancelProofs);
        out.extend(RunsCommand::listed().into_iter().map(Self::Runs));
        out.extend([Self::MeasureOps, Self::ComparePlans, Self::ShowValues, Self::FindFirstBad]);
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

    /// The name as the palette shows it: unlike [`Info::label`], it names what it is about.
    #[must_use]
    pub fn title(&self) -> String {
        let (kind, own) = self.kind_and_name();
        if kind.is_empty() { own } else { format!("{kind} {own}") }
    }

    /// The name in two parts: what it does with things of a kind, where it is one of several such, and the thing's own name.
    #[must_use]
    pub fn kind_and_name(&self) -> (&'static str, String) {
        match self {
            Self::NewFromPreset(index) => ("New from preset:", super::presets::name(*index).to_owned()),
            Self::AddKind(kind) => ("Add layer:", kind.class.to_owned()),
            Self::ShowTab(tab) => ("Show", tab.title().to_owned()),
            Self::ChooseDevice(choice) => ("Device:", choice.label()),
            Self::Prove(Some(proof)) => ("Verify:", proof.name().to_owned()),
            Self::Runs(RunsCommand::Export(format)) => ("Export run:", format!("{}…", format.title())),
            other => ("", other.info().label.to_owned()),
        }
    }

    /// How the command looks.
    #[must_use]
    pub fn info(&self) -> Info {
        let of = |label, icon, shortcut, about| Info { label, icon, shortcut, about };
        match self {
            Self::New => of("New", icons::FILE_NEW, keys(CTRL, Key::N), "A network without layers"),
            Self::NewFromPreset(_) => {
                of("New from preset", icons::FILE, None, "A bundled network, to look at and to change")
            }
            Self::Open => of("Open…", icons::OPEN, keys(CTRL, Key::O), "Opens a preset file"),
            Self::OpenByPath => {
                of("Open by path…", icons::OPEN, keys(CTRL_SHIFT, Key::O), "Opens a preset whose path is typed")
            }
            Self::OpenFile(_) => of("Open recent", icons::RECENT, None, "Opens this file again"),
            Self::Save => of("Save", icons::SAVE, keys(CTRL, Key::S), "Writes the preset to its file"),
            Self::SaveAs => of("Save as…", icons::SAVE, keys(CTRL_SHIFT, Key::S), "Writes the preset to another file"),
            Self::SaveByPath | Self::SaveFile(_) => {
                of("Save by path…", icons::SAVE, None, "Writes the preset to a file whose path is typed")
            }
            Self::SaveWeights => {
                of("Save weights…", icons::SAVE, None, "Writes the weights of the run to a safetensors file")
            }
            Self::SaveWeightsByPath | Self::SaveWeightsFile(_) => {
                of("Save weights by path…", icons::SAVE, None, "Writes the weights to a file whose path is typed")
            }
            Self::Quit => {
                of("Quit", icons::QUIT, keys(CTRL, Key::Q), "Closes the window; unsaved changes are asked about")
            }
            Self::Undo => of("Undo", icons::UNDO, keys(CTRL, Key::Z), "Takes back the last edit"),
            Self::Redo => of("Redo", icons::REDO, keys(CTRL_SHIFT, Key::Z), "Makes the edit that was taken back"),
            Self::AddLayer => {
                of("Add layer…", icons::ADD, keys(CTRL, Key::L), "Chooses a layer to put behind the selected one")
            }
            Self::AddKind(kind) => of("Add layer", icons::ADD, None, kind.about),
            Self::Duplicate => of("Duplicate", icons::COPY, keys(CTRL, Key::D), "Copies the selected layer"),
            Self::Remove => of("Remove", icons::TRASH, keys(CTRL, Key::Backspace), "Removes the selected layer"),
            Self::MoveUp => {
                of("Move up", icons::UP, keys(ALT, Key::ArrowUp), "Moves the selected layer before the one above")
            }
            Self::MoveDown => {
                of("Move down", icons::DOWN, keys(ALT, Key::ArrowDown), "Moves the selected layer behind the one below")
            }
            Self::TrainOrPause => {
                of("Train or pause", icons::PLAY, keys(NONE, Key::F5), "Trains on, or pauses after the current step")
            }
            Self::Train => {
                of("Train", icons::PLAY, keys(NONE, Key::F5), "Replays the recorded step until the run is over")
            }
            Self::Pause => {
                of("Pause", icons::PAUSE, keys(NONE, Key::F5), "Stops after the current step and keeps everything")
            }
            Self::Step => of("Step", icons::STEP, keys(NONE, Key::F10), "Makes a single step"),
            Self::Stop => of("Stop", icons::STOP, keys(Modifiers::SHIFT, Key::F5), "Ends the run; Continue resumes it"),
            Self::Continue => of("Continue", icons::PLAY, keys(CTRL, Key::F5), "Resumes the run that was stopped"),
            Self::Reset => of(
                "Reset",
                icons::RESET,
                keys(CTRL_SHIFT, Key::F5),
                "Forgets the run; the next one starts from new weights",
            ),
            Self::Back => of("Back", icons::BACK, keys(ALT, Key::ArrowLeft), "To the selection before"),
            Self::Forward => of("Forward", icons::FORWARD, keys(ALT, Key::ArrowRight), "To the selection after"),
            Self::ShowTab(Tab::Train) => {
                of("Train", icons::TRAIN, keys(CTRL, Key::Num1), "Curves and numbers of the run")
            }
            Self::ShowTab(Tab::StepGraph) => {
                of("Step graph", icons::STEPS, keys(CTRL, Key::Num2), "The operations of a step with their kernels")
            }
            Self::ShowTab(Tab::Arena) => {
                of("Arena", icons::ARENA, keys(CTRL, Key::Num3), "Where every buffer is, and when")
            }
            Self::ShowTab(Tab::Capture) => of(
                "Capture plan",
                icons::CAPTURE,
                keys(CTRL, Key::Num4),
                "Buffers by layer; what is frozen and what is live",
            ),
            Self::ShowTab(Tab::Data) => {
                of("Data", icons::DATA, keys(CTRL, Key::Num5), "Samples, classes and features, and what is held out")
            }
            Self::ShowTab(Tab::Predictions) => of(
                "Predictions",
                icons::PREDICTIONS,
                keys(CTRL, Key::Num6),
                "What the network answers, and where it errs",
            ),
            Self::ShowTab(Tab::Verify) => {
                of("Verify", icons::CHECK, keys(CTRL, Key::Num8), "Proofs that the step is right, with figures")
            }
            Self::ShowTab(Tab::Runs) => {
                of("Runs", icons::RECENT, keys(CTRL, Key::Num7), "Every run that was kept, to compare and to export")
            }
            Self::FitArena => of("Fit arena", icons::FIT, keys(CTRL, Key::Num0), "Shows the whole arena"),
            Self::FollowPlots => of("Follow", icons::FOLLOW, None, "Keeps the whole run in view"),
            Self::ToggleLogAxis => {
                of("Logarithmic axes", icons::TRAIN, None, "Shows loss, time and update on logarithmic axes")
            }
            Self::ToggleTheme => of("Switch theme", icons::THEME, None, "Light or dark"),
            Self::Palette => of("Command palette…", icons::PALETTE, keys(CTRL, Key::K), "Finds any command by name"),
            Self::Edit(_) => of("Edit", icons::FILE, None, "Changes the document"),
            Self::Select(_) => of("Select", icons::FIT, None, "Shows this in every view"),
            Self::OnLayer(_, command) => command.info(),
            Self::ChooseDevice(_) => {
                of("Choose device", icons::DEVICE, None, "What the network is planned for and trained on")
            }
            Self::SetLr(_) => {
                of("Set learning rate", icons::LIVE, None, "Changes the learning rate of the run from the next step on")
            }
            Self::SetSmoothing(_) => {
                of("Set smoothing", icons::TRAIN, None, "Share of the past in the smoothed curves")
            }
            Self::ResetLayout => {
                of("Reset layout", icons::RESET, None, "Puts every tab back to where it was at the first start")
            }
            Self::Prove(None) => {
                of("Verify everything", icons::CHECK, None, "Runs every proof on the step of the document")
            }
            Self::Prove(Some(proof)) => of(proof.name(), icons::CHECK, None, proof.about()),
            Self::CancelProofs => {
                of("Cancel verification", icons::STOP, None, "Ends the proofs; what is proved stays proved")
            }
            Self::CancelJob(_) => {
                of("Cancel", icons::CLOSE, None, "Ends this job; what it would have found is not waited for")
            }
            Self::SetReplays(_) => of("Set replays", icons::CHECK, None, "How often the step is replayed to prove it"),
            Self::TimeBothWays => of(
                "Measure eager",
                icons::LIVE,
                None,
                "Times steps op by op and replayed in turn, and puts everything back",
            ),
            Self::SetPlotLog(..) => of("Logarithmic axis", icons::TRAIN, None, "Linear or logarithmic, for this plot"),
            Self::ShowPlot(..) => of("Show plot", icons::TRAIN, None, "Shows or hides a plot"),
            Self::MeasurePrices => of(
                "Measure what metrics cost",
                icons::LIVE,
                None,
                "Times the step with and without each group of metrics",
            ),
            Self::ChooseData(_) | Self::UseData(..) => of("Choose file…", icons::OPEN, None, "Chooses a file of data"),
            Self::ChooseDataFolder(_) => {
                of("Choose folder…", icons::OPEN, None, "Chooses a folder with a subfolder of pictures for each class")
            }
            Self::SetMetrics(_) => of("Set metrics", icons::TRAIN, None, "What the next run measures inside its step"),
            Self::ShowNotice => of("Show the notice…", icons::INFO, None, "Shows the whole text of the last notice"),
            Self::DismissNotice => of("Dismiss", icons::CLOSE, None, "Closes the notice"),
            Self::Runs(command) => command.info(),
            Self::Fold(command) => command.info(),
            Self::ShowSide(side) => side.info(),
            Self::MeasureOps => of(
                "Measure operations",
                icons::RECENT,
                keys(CTRL, Key::M),
                "Times every operation on a thread of its own, and what the machine could do at best; takes about a second",
            ),
            Self::ComparePlans => of(
                "Compare planners and precisions",
                icons::ARENA,
                None,
                "Runs every planner on this step, and plans it in f32, tf32, bf16 and f16 for a GPU",
            ),
            Self::Scrub(_) => of("Scrub", icons::STEP, None, "Moves through the operations of the step"),
            Self::ShowValues => of(
                "Show values",
                icons::SEARCH,
                keys(CTRL, Key::E),
                "Runs the step up to the scrubber on a private copy and shows what the selected buffer holds",
            ),
            Self::ShowPart(_) => of("Show part", icons::STEP, None, "Another parameter of the same vector"),
            Self::ShowSlice(_) => of("Show slice", icons::STEP, None, "Another picture of the same value"),
            Self::UseWeights(Weights::Initial) => {
                of("Initial weights", icons::RESET, None, "Looks at the step as a fresh run would make it")
            }
            Self::UseWeights(Weights::Run) => of(
                "Weights of the run",
                icons::TRAIN,
                None,
                "Copies the weights of the run as they are now, and looks at its next step",
            ),
            Self::FindFirstBad => of(
                "Find the first NaN",
                icons::WARNING,
                None,
                "Runs the step op by op on a private copy and looks for the first value that is not finite",
            ),
            Self::SelectLargestBuffer => {
                of("Select the largest buffer", icons::ARENA, None, "Shows where most of the arena went")
            }
            Self::ShowProblem => of(
                "Go to the first problem",
                icons::WARNING,
                keys(NONE, Key::F8),
                "Shows the layer that causes the first problem",
            ),
            Self::ReduceMotion => of("Reduce motion", icons::PAUSE, None, "Switches the fading of buffers off, or on"),
            Self::Tour(TourMove::Start) => {
                of("Start the tour", icons::INFO, None, "Three steps: train it, see where memory went, edit it")
            }
            Self::Tour(TourMove::Next) => of("Next", icons::FORWARD, None, "The next step of the tour"),
            Self::Tour(TourMove::Dismiss) => of("Dismiss the tour", icons::CLOSE, None, "Ends the tour for good"),
            Self::ShowShortcuts => {
                of("Keyboard shortcuts…", icons::INFO, keys(NONE, Key::F1), "Lists every command that has a key")
            }
            Self::ShowAbout => of("About Stepgraph…", icons::INFO, None, "Version, device and licences"),
        }
    }
}

/// What the panels ask for during a frame.
#[derive(Debug, Default)]
pub struct Queue(Vec<Command>);

impl Queue {
    pub fn push(&mut self, command: Command) {
        self.0.push(command);
    }

    pub fn extend(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.0.extend(commands);
    }

    /// Everything asked for, in order.
    pub fn take(&mut self) -> Vec<Command> {
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
        for command in Command::listed() {
            assert!(titles.insert(command.title()), "{}", command.title());
            if let Some(s) = command.info().shortcut {
                let other = keys.insert(format!("{s:?}"), command.title());
                assert_eq!(other, None, "{}", command.title());
            }
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Command::listed() {
            let info = command.info();
            assert!(
                info.about.len() > 8 && !info.about.ends_with('.') || matches!(command, Command::AddKind(_)),
                "{}",
                command.title()
            );
        }
    }
}
