//! The appearance of each command: its name, icon, shortcut and tooltip.

use crate::studio::commands::choices::{FirstKernels, JobKind, TourMove, Weights};
use crate::studio::commands::info::{ALT, CTRL, CTRL_SHIFT, Info, NONE, keys};
use crate::studio::commands::tab::Tab;
use crate::studio::commands::ui_command::UiCommand;
use crate::studio::theme::icons;
use egui::{Key, Modifiers};

impl UiCommand {
    /// The command's appearance.
    #[must_use]
    pub fn info(&self) -> Info {
        let Self::ShowTab(tab) = self else { return self.file_info() };
        tab_info(*tab)
    }

    /// Files: presets, weights and data.
    fn file_info(&self) -> Info {
        match self {
            Self::New => Info::new("New", icons::FILE_NEW, keys(CTRL, Key::N), "A network without layers"),
            Self::NewFromPreset(_) => {
                Info::new("New from preset", icons::FILE, None, "Opens a bundled network as a new document")
            }
            Self::Open => Info::new("Open…", icons::OPEN, keys(CTRL, Key::O), "Opens a preset file"),
            Self::OpenByPath => {
                Info::new("Open by path…", icons::OPEN, keys(CTRL_SHIFT, Key::O), "Opens a preset whose path is typed")
            }
            Self::OpenRecent(_) => Info::new("Open recent", icons::RECENT, None, "Opens this file again"),
            Self::Save => Info::new("Save", icons::SAVE, keys(CTRL, Key::S), "Writes the preset to its file"),
            Self::SaveAs => {
                Info::new("Save as…", icons::SAVE, keys(CTRL_SHIFT, Key::S), "Writes the preset to another file")
            }
            Self::SaveByPath => {
                Info::new("Save by path…", icons::SAVE, None, "Writes the preset to a file whose path is typed")
            }
            Self::SaveWeights => {
                Info::new("Save weights…", icons::SAVE, None, "Writes the weights of the run to a safetensors file")
            }
            Self::SaveWeightsByPath => Info::new(
                "Save weights by path…",
                icons::SAVE,
                None,
                "Writes the weights to a file whose path is typed",
            ),
            Self::Quit => {
                Info::new("Quit", icons::QUIT, keys(CTRL, Key::Q), "Closes the window; unsaved changes are asked about")
            }
            Self::ChooseData(_) => Info::new("Choose file…", icons::OPEN, None, "Chooses a file of data"),
            Self::ChooseDataFolder(_) => Info::new(
                "Choose folder…",
                icons::OPEN,
                None,
                "Chooses a folder with a subfolder of pictures for each class",
            ),
            other => other.edit_info(),
        }
    }

    /// Changes to the network, and its list of layers.
    fn edit_info(&self) -> Info {
        match self {
            Self::Undo => Info::new("Undo", icons::UNDO, keys(CTRL, Key::Z), "Reverts the last edit"),
            Self::Redo => Info::new("Redo", icons::REDO, keys(CTRL_SHIFT, Key::Z), "Makes the reverted edit again"),
            Self::AddLayer => {
                Info::new("Add layer…", icons::ADD, keys(CTRL, Key::L), "Chooses a layer to add after the selected one")
            }
            Self::AddKind(kind) => Info::new("Add layer", icons::ADD, None, kind.about),
            Self::Duplicate => Info::new("Duplicate", icons::COPY, keys(CTRL, Key::D), "Copies the selected layer"),
            Self::Remove => Info::new("Remove", icons::TRASH, keys(CTRL, Key::Backspace), "Removes the selected layer"),
            Self::MoveUp => Info::new(
                "Move up",
                icons::UP,
                keys(ALT, Key::ArrowUp),
                "Moves the selected layer up, before the previous one",
            ),
            Self::MoveDown => Info::new(
                "Move down",
                icons::DOWN,
                keys(ALT, Key::ArrowDown),
                "Moves the selected layer down, after the next one",
            ),
            Self::OnLayer(_, command) => command.info(),
            Self::Fold(command) => command.info(),
            Self::ShowProblem => Info::new(
                "Go to the first problem",
                icons::WARNING,
                keys(NONE, Key::F8),
                "Shows the layer that causes the first problem",
            ),
            other => other.run_info(),
        }
    }

    /// The run and its device.
    fn run_info(&self) -> Info {
        match self {
            Self::TrainOrPause => Info::new(
                "Train or pause",
                icons::PLAY,
                keys(NONE, Key::F5),
                "Starts or continues training, or pauses after the current step",
            ),
            Self::Train => {
                Info::new("Train", icons::PLAY, keys(NONE, Key::F5), "Replays the recorded step until the run is over")
            }
            Self::Pause => Info::new(
                "Pause",
                icons::PAUSE,
                keys(NONE, Key::F5),
                "Stops after the current step and keeps everything",
            ),
            Self::Step => Info::new("Step", icons::STEP, keys(NONE, Key::F10), "Makes a single step"),
            Self::Stop => Info::new(
                "Stop",
                icons::STOP,
                keys(Modifiers::SHIFT, Key::F5),
                "Ends the run; Continue resumes it later",
            ),
            Self::Continue => {
                Info::new("Continue", icons::PLAY, keys(CTRL, Key::F5), "Resumes the run that was stopped")
            }
            Self::Reset => Info::new(
                "Reset",
                icons::RESET,
                keys(CTRL_SHIFT, Key::F5),
                "Closes the run; the next one starts from new weights",
            ),
            Self::ChooseDevice(_) => Info::new(
                "Choose device",
                icons::DEVICE,
                None,
                "The device that the network is planned for and trained on",
            ),
            Self::SetLr(_) => Info::new(
                "Set learning rate",
                icons::LIVE,
                None,
                "Changes the learning rate of the run from the next step on",
            ),
            other => other.measuring_info(),
        }
    }

    /// Measurements, predictions, and kept runs.
    fn measuring_info(&self) -> Info {
        match self {
            Self::TimeBothWays => Info::new(
                "Measure eager",
                icons::LIVE,
                None,
                "Times steps op by op and replayed, in alternation; the run is not changed",
            ),
            Self::MeasurePrices => Info::new(
                "Measure what metrics cost",
                icons::LIVE,
                None,
                "Times the step with and without each group of metrics",
            ),
            Self::SetMetrics(_) => {
                Info::new("Set metrics", icons::TRAIN, None, "What the next run measures inside its step")
            }
            Self::Predictions(command) => command.info(),
            Self::Runs(command) => command.info(),
            other => other.view_info(),
        }
    }

    /// What the views show.
    fn view_info(&self) -> Info {
        match self {
            Self::Back => Info::new("Back", icons::BACK, keys(ALT, Key::ArrowLeft), "Back to the previous selection"),
            Self::Forward => {
                Info::new("Forward", icons::FORWARD, keys(ALT, Key::ArrowRight), "Forward to the next selection")
            }
            Self::FitArena => Info::new("Fit arena", icons::FIT, keys(CTRL, Key::Num0), "Shows the whole arena"),
            Self::FollowPlots => Info::new("Follow", icons::FOLLOW, None, "Keeps the whole run in view"),
            Self::ToggleLogAxis => {
                Info::new("Logarithmic axes", icons::TRAIN, None, "Shows loss, time and update on logarithmic axes")
            }
            Self::ToggleTheme => Info::new("Switch theme", icons::THEME, None, "Light or dark"),
            Self::Palette => {
                Info::new("Command palette…", icons::PALETTE, keys(CTRL, Key::K), "Finds any command by name")
            }
            Self::Select(_) => Info::new("Select", icons::FIT, None, "Shows this in every view"),
            Self::SetSmoothing(_) => {
                Info::new("Set smoothing", icons::TRAIN, None, "Share of the past in the smoothed curves")
            }
            Self::ResetLayout => {
                Info::new("Reset layout", icons::RESET, None, "Restores the layout of tabs of the first start")
            }
            Self::SetPlotLog(..) => {
                Info::new("Logarithmic axis", icons::TRAIN, None, "Linear or logarithmic, for this plot")
            }
            Self::ShowPlot(..) => Info::new("Show plot", icons::TRAIN, None, "Shows or hides a plot"),
            Self::ShowSide(side) => side.info(),
            Self::Scrub(_) => Info::new("Scrub", icons::STEP, None, "Moves through the operations of the step"),
            Self::SelectLargestBuffer => {
                Info::new("Select the largest buffer", icons::ARENA, None, "Shows where most of the arena went")
            }
            Self::StartWith(FirstKernels::AtOnce) => Info::new(
                "Start runs at once",
                icons::TRAIN,
                None,
                "On a GPU: a run starts with kernels for any size, and changes over to kernels for its sizes if it is \
                 long enough",
            ),
            Self::StartWith(FirstKernels::Fastest) => Info::new(
                "Wait for the fastest kernels",
                icons::TRAIN,
                None,
                "On a GPU: kernels are compiled and timed before the first step of a run",
            ),
            Self::ReduceMotion => {
                Info::new("Reduce motion", icons::PAUSE, None, "Switches the fading of buffers off, or on")
            }
            other => other.proof_info(),
        }
    }

    /// Checks of the step.
    fn proof_info(&self) -> Info {
        match self {
            Self::Prove(None) => {
                Info::new("Verify everything", icons::CHECK, None, "Runs every check on the step of the document")
            }
            Self::Prove(Some(proof)) => Info::new(proof.name(), icons::CHECK, None, proof.about()),
            Self::CancelProofs => Info::new(
                "Cancel verification",
                icons::STOP,
                None,
                "Stops the checks; results that are already known remain",
            ),
            Self::CancelJob(JobKind::Kernels) => {
                Info::new("Cancel", icons::CLOSE, None, "Compiles no more of these kernels until the next start")
            }
            Self::CancelJob(_) => Info::new("Cancel", icons::CLOSE, None, "Cancels this job; its result is not shown"),
            Self::SetReplays(_) => {
                Info::new("Set replays", icons::CHECK, None, "The number of replays that check the step")
            }
            other => other.measure_info(),
        }
    }

    /// Measurements and values.
    fn measure_info(&self) -> Info {
        match self {
            Self::MeasureOps => Info::new(
                "Measure operations",
                icons::RECENT,
                keys(CTRL, Key::M),
                "Times every operation on a separate thread, and measures the best rates of the machine; takes about \
                 two seconds, and longer if kernels must be compiled",
            ),
            Self::CompareRecording(_) => {
                Info::new("Compare recording", icons::TRAIN, None, "Shows how the steps of two recordings differ")
            }
            Self::ComparePlans => Info::new(
                "Compare planners and precisions",
                icons::ARENA,
                None,
                "Runs every planner on this step, and plans it in f32, tf32, bf16 and f16 for a GPU",
            ),
            Self::ShowRecording(None) => Info::new(
                "Show the network's own plan",
                icons::BACK,
                None,
                "Step graph, arena, capture plan and inspector show the plan of the network again, not of a recording",
            ),
            Self::ShowRecording(Some(_)) => Info::new(
                "Show recording",
                icons::STEP,
                None,
                "Step graph, arena, capture plan and inspector show the plan of this recording",
            ),
            Self::ShowValues => Info::new(
                "Show values",
                icons::SEARCH,
                keys(CTRL, Key::E),
                "Runs a copy of the step up to the marked operation, and shows the contents of the selected buffer",
            ),
            Self::ShowPart(_) => Info::new("Show part", icons::STEP, None, "Another parameter of the same vector"),
            Self::ShowSlice(_) => Info::new("Show slice", icons::STEP, None, "Another picture of the same value"),
            Self::UseWeights(Weights::Initial) => {
                Info::new("Initial weights", icons::RESET, None, "Shows the step that a new run would make")
            }
            Self::UseWeights(Weights::Run) => Info::new(
                "Weights of the run",
                icons::TRAIN,
                None,
                "Copies the current weights of the run, and shows its next step",
            ),
            Self::FindFirstBad => Info::new(
                "Find the first NaN",
                icons::WARNING,
                None,
                "Runs a copy of the step op by op, and finds the first value that is not finite",
            ),
            other => other.help_info(),
        }
    }

    /// Help and messages.
    fn help_info(&self) -> Info {
        match self {
            Self::ShowNotice => {
                Info::new("Show the notice…", icons::INFO, None, "Shows the whole text of the last notice")
            }
            Self::DismissNotice => Info::new("Dismiss", icons::CLOSE, None, "Closes the notice"),
            Self::Tour(TourMove::Start) => {
                Info::new("Start the tour", icons::INFO, None, "Three steps: train it, see where memory went, edit it")
            }
            Self::Tour(TourMove::Next) => Info::new("Next", icons::FORWARD, None, "The next step of the tour"),
            Self::Tour(TourMove::Dismiss) => {
                Info::new("Dismiss the tour", icons::CLOSE, None, "Ends the tour permanently")
            }
            Self::ShowShortcuts => {
                Info::new("Keyboard shortcuts…", icons::INFO, keys(NONE, Key::F1), "Lists every command that has a key")
            }
            Self::ShowAbout => Info::new("About Stepgraph…", icons::INFO, None, "Version, device and licences"),
            // The other commands belong to separate controls, which have their names.
            _ => Info::new("Edit", icons::FILE, None, "Changes the document"),
        }
    }
}

/// The tabs.
const fn tab_info(tab: Tab) -> Info {
    match tab {
        Tab::Train => Info::new("Train", icons::TRAIN, keys(CTRL, Key::Num1), "Curves and numbers of the run"),
        Tab::StepGraph => {
            Info::new("Step graph", icons::STEPS, keys(CTRL, Key::Num2), "The operations of a step with their kernels")
        }
        Tab::Arena => {
            Info::new("Arena", icons::ARENA, keys(CTRL, Key::Num3), "The address of every buffer, and when it is used")
        }
        Tab::Capture => Info::new(
            "Capture plan",
            icons::CAPTURE,
            keys(CTRL, Key::Num4),
            "Buffers by layer, and what can change during a replay",
        ),
        Tab::Data => {
            Info::new("Data", icons::DATA, keys(CTRL, Key::Num5), "Samples, classes and features, and what is held out")
        }
        Tab::Predictions => Info::new(
            "Predictions",
            icons::PREDICTIONS,
            keys(CTRL, Key::Num6),
            "The answers of the network, and its mistakes",
        ),
        Tab::Verify => {
            Info::new("Verify", icons::CHECK, keys(CTRL, Key::Num8), "Checks that the step is correct, with figures")
        }
        Tab::Runs => {
            Info::new("Runs", icons::RECENT, keys(CTRL, Key::Num7), "Every run that was kept, to compare and to export")
        }
        Tab::Recordings => Info::new(
            "Recordings",
            icons::STEPS,
            keys(CTRL, Key::Num9),
            "Each kind of step that the run recorded, and which one every step used",
        ),
    }
}
