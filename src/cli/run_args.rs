//! Arguments of the commands about kept runs: what is kept, exports, capsules.

use super::choices::Device;
use super::numbers;
use crate::train::export::Format;
use crate::train::runs::Quantity;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// List the runs that were kept, or show, rename, hide or delete one
///
/// The studio keeps every run; `stepgraph train --keep` keeps its own. They are stored in the user's data folder, or in
/// the folder that STEPGRAPH_RUNS names.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph runs
  stepgraph runs --json | jq '.[0].loss'
  stepgraph runs show last
  stepgraph runs rename last wide-and-slow
  stepgraph runs delete 20260314-1201 && stepgraph runs trash && stepgraph runs restore last

RUN is an id, the first letters of one, a name, or last.")]
pub struct RunsArgs {
    #[command(subcommand)]
    pub action: Option<RunsAction>,
    /// List hidden runs too
    #[arg(long)]
    pub all: bool,
    /// Print JSON: the runs, or the result of the action
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do with kept runs.
#[derive(Debug, Subcommand)]
pub enum RunsAction {
    /// Show all information about one run, including its preset
    Show { run: String },
    /// Print the preset of a run with its seed and steps, to train it again or to change it
    Preset { run: String },
    /// Give a run a name; an empty name removes it
    Rename { run: String, name: String },
    /// Hide runs in lists
    Hide {
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Show hidden runs in lists again
    Unhide {
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Move runs to the trash
    Delete {
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// List what is in the trash
    Trash,
    /// Restore runs from the trash
    Restore {
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Delete all runs in the trash permanently
    EmptyTrash,
    /// Print the folder that runs are kept in, or that of one run
    Path { run: Option<String> },
}

/// Write a run or a network in another program's format
///
/// The format follows from the name of the file unless --format says it. Existing files are replaced only with
/// --replace, and only if they are older exports in the same format.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph export last curves.csv
  stepgraph export last loss.svg --log-axis
  stepgraph export last accuracy.png --plot accuracy
  stepgraph export last model.onnx
  stepgraph export last net.py
  stepgraph export last logs/run1 --format tensorboard && tensorboard --logdir logs
  stepgraph export digits-cnn net.py --weights trained.safetensors

WHAT is a kept run (an id, the first letters of one, a name, or last), a bundled preset, or the path of a preset. A \
run comes first.")]
pub struct ExportArgs {
    /// A kept run, or a preset
    #[arg(value_name = "WHAT")]
    pub what: OsString,
    /// The file to write; for tensorboard a folder
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// csv, jsonl, png, svg, safetensors, pytorch, onnx or tensorboard
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// The quantity of a picture: loss, accuracy, update_max, grad_norm, lr, step_us
    #[arg(long, value_name = "QUANTITY", default_value = "loss")]
    pub plot: QuantityArg,
    /// Use a logarithmic vertical axis in a picture
    #[arg(long)]
    pub log_axis: bool,
    /// Use the running time as the horizontal axis of a picture, instead of the step
    #[arg(long)]
    pub by_time: bool,
    /// The weights of a preset: a safetensors file; without it, its initial weights
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The seed of a preset's initial weights and data, instead of its own
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: Option<u64>,
    /// Replace an older export in the same format
    #[arg(long)]
    pub replace: bool,
    /// Print what was written as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Put a training run into one file, or replay one and compare every bit
///
/// A capsule contains preset, seed, plan, initial parameters, the results of every step, and the final parameters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph capsule make digits-mlp digits.capsule --steps 200
  stepgraph capsule make last again.capsule
  stepgraph capsule replay digits.capsule
  stepgraph capsule replay flowers.capsule --data moved/flowers.csv")]
pub struct CapsuleArgs {
    #[command(subcommand)]
    pub action: CapsuleAction,
}

/// What to do with a capsule.
#[derive(Debug, Subcommand)]
pub enum CapsuleAction {
    Make(MakeArgs),
    Replay(ReplayArgs),
}

/// Train a preset, or a kept run again, and record everything; exit status 1 if the result differs from the kept run
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// A kept run, or a preset
    #[arg(value_name = "WHAT")]
    pub what: OsString,
    /// The file to write
    pub file: PathBuf,
    /// Steps to train, instead of the preset's
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub steps: Option<u64>,
    /// Seed of weights, data and dropout, instead of the preset's
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: Option<u64>,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Device,
    /// Threads that share a step
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::threads)]
    pub threads: Option<u16>,
    /// Replace an older capsule
    #[arg(long)]
    pub replace: bool,
    /// Print what was made as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Train again from the recorded start; exit status 1 if a bit differs
#[derive(Debug, Args)]
pub struct ReplayArgs {
    pub file: PathBuf,
    /// The folder for relative paths in the preset; without it, that of the capsule
    #[arg(long, value_name = "FOLDER")]
    pub base: Option<PathBuf>,
    /// Where the data are now: once for each path in the preset, in the same order; refused if they are not the data of
    /// the capsule. Relative paths start at the current folder and not at --base
    #[arg(long, value_name = "PATH", conflicts_with = "base")]
    pub data: Vec<PathBuf>,
    /// Where to run: auto, cpu, cuda or cuda:N; without it, the capsule's kind of processor
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A format by its name.
#[derive(Clone, Copy, Debug)]
pub struct FormatArg(pub Format);

impl FromStr for FormatArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Format::ALL.map(Format::name).join(", ");
        Format::ALL
            .into_iter()
            .find(|f| f.name() == text)
            .map(Self)
            .ok_or_else(|| format!("expected one of {}", names()))
    }
}

/// A quantity by its name.
#[derive(Clone, Copy, Debug)]
pub struct QuantityArg(pub Quantity);

impl FromStr for QuantityArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Quantity::ALL.into_iter().find(|q| q.name() == text);
        found.map(Self).ok_or_else(|| format!("expected one of {}", Quantity::ALL.map(Quantity::name).join(", ")))
    }
}
