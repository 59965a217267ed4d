//! The command line as clap reads it: raw values, one struct a command, with examples in the help of each.

use super::choices::{CpuThreads, Device, Format};
use super::doctor_args::DoctorArgs;
use super::functions::FunctionsArgs;
use super::generate_args::GenerateArgs;
use super::numbers;
use super::run_args::{CapsuleArgs, ExportArgs, RunsArgs};
use crate::model::SplitKind;
use crate::rewrite::PASSES;
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// See how a neural network's training step is compiled, record it once, and replay it.
#[derive(Debug, Parser)]
#[command(
    name = "stepgraph",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  stepgraph                          open the studio
  stepgraph presets                  list the networks inside the program
  stepgraph train digits-mlp         train one of them
  stepgraph plan digits-mlp          print how its training step is compiled
  stepgraph doctor                   what this machine offers and what is missing

PRESET is the name of a bundled preset or the path of a JSON file.
Exit status:
  0      done
  1      the command failed
  2      an argument, a preset, a file or the path of a result is wrong; nothing was written
  128+N  ended by signal N: 130 for Ctrl+C, 143 for SIGTERM, 129 for SIGHUP"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Preset to open in the studio
    #[arg(value_name = "PRESET")]
    pub preset: Option<OsString>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Studio(StudioArgs),
    Train(TrainArgs),
    Plan(PlanArgs),
    Verify(VerifyArgs),
    Predict(PredictArgs),
    Generate(GenerateArgs),
    Bench(BenchArgs),
    Arena(ArenaArgs),
    Presets(PresetsArgs),
    Runs(RunsArgs),
    Export(ExportArgs),
    Capsule(CapsuleArgs),
    Doctor(DoctorArgs),
    Functions(FunctionsArgs),
    Completions(CompletionsArgs),
}

/// Open the desktop studio
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepgraph studio\n  stepgraph studio digits-cnn\n  stepgraph studio my-network.json"
)]
pub struct StudioArgs {
    /// Preset to open
    pub preset: Option<OsString>,
}

/// Train a network
///
/// Progress is written to standard error, and the final summary to standard output. Ctrl+C ends the run after the
/// current step, and the requested files are still written; a second Ctrl+C ends the program at once. Files are written
/// beside their final name and renamed into place.
///
/// A run with --resume takes parameters, optimizer state, counters and its position in the data from the checkpoint,
/// and the recipe from the preset. In the recipe, lr, weight_decay, betas, eps, momentum, nesterov, schedule,
/// clip_norm, decay, precision, steps and the paths of data files may differ from the checkpoint: the new values are
/// applied and reported. If anything else differs, the run is refused and both values are reported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph train digits-mlp
  stepgraph train digits-cnn --steps 500 --seed 3 --save cnn.safetensors
  stepgraph train my.json --log run.jsonl --json > summary.json
  stepgraph train my.json --init start.safetensors --batches batches.safetensors
  stepgraph train digits-mlp --steps 1000 --checkpoint half.ckpt
  stepgraph train digits-mlp --steps 2000 --resume half.ckpt")]
pub struct TrainArgs {
    /// Name of a bundled preset, or path of a JSON file
    pub preset: OsString,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// How to run each step: recorded and replayed, or op by op
    #[arg(long, value_enum, default_value_t = ExecutorArg::Replay)]
    pub executor: ExecutorArg,
    /// End the run before a step that would run op by op because it has no recording
    #[arg(long)]
    pub strict: bool,
    /// If steps differ, the limit of the memory of recordings, with the transient memory that they share; above it, the
    /// least recently used ones are dropped. Without it, 256 MiB in addition to the whole training step
    #[arg(long, value_name = "MIB", allow_negative_numbers = true, value_parser = numbers::mebibytes)]
    pub recordings_mib: Option<f64>,
    /// Steps to train, instead of the preset's
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub steps: Option<u64>,
    /// Seed of weights, data and dropout, instead of the preset's
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: Option<u64>,
    /// Initial parameters: a safetensors file
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub init: Option<PathBuf>,
    /// Train on batch.x and batch.y of a safetensors file, in order
    #[arg(long, value_name = "FILE")]
    pub batches: Option<PathBuf>,
    /// Write one JSON object for each step; named FILE.part until the run ends. An older log is replaced; --resume
    /// continues it
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write the final parameters and running statistics: a safetensors file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Keep the run with its curves and weights; `stepgraph runs` and the studio show it
    #[arg(long)]
    pub keep: bool,
    /// Print the closing summary as one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub cpu: CpuThreads,
    /// Write everything needed to resume later, at the end of the run
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Write the checkpoint every N steps too
    #[arg(long, value_name = "N", requires = "checkpoint", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::positive)]
    pub checkpoint_every: Option<u64>,
    /// Resume from a checkpoint; --steps counts from the very start
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Evaluate on the held-out part every N steps; the log has the result in the line of that step
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub eval_every: Option<u64>,
    /// Samples to hold out, instead of the preset's: a fraction below 1, or a count
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true, value_parser = numbers::held_out)]
    pub held_out: Option<f64>,
    /// Which samples to hold out, instead of the preset's
    #[arg(long, value_enum)]
    pub split: Option<SplitArg>,
}

/// Print the compiled step: IR, lowered ops, kernels, bindings, arena
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph plan digits-mlp | less
  stepgraph plan digits-mlp --stage capture
  stepgraph plan digits-mlp --stage passes --device cuda
  stepgraph plan digits-mlp --stage passes --pass fuse_activation
  stepgraph plan digits-mlp --json | jq .arena_bytes
  stepgraph plan digits-mlp --stage ir --dot | dot -Tsvg > ir.svg
  stepgraph plan stress-200 --svg arena.svg --stage arena
  stepgraph plan digits-cnn --stage arena --planner greedy_by_size
  stepgraph plan early-exit --path L1=0 --against L1=1")]
pub struct PlanArgs {
    /// What to plan for: auto, cpu, cuda or cuda:N; a GPU that is not here is planned for as an H200
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Name of a bundled preset, or path of a JSON file
    pub preset: OsString,
    /// The stage to print
    #[arg(long, value_enum)]
    pub stage: Option<Stage>,
    /// With --stage passes: print what this pass changed, and the operations after it
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PASSES.map(|pass| pass.name)))]
    pub pass: Option<String>,
    /// The form to print it in
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with_all = ["format", "dot"])]
    pub json: bool,
    /// The same as --format dot: Graphviz
    #[arg(long, conflicts_with = "format")]
    pub dot: bool,
    /// Write a picture of the arena
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Plan the evaluation instead of the training step
    #[arg(long)]
    pub eval: bool,
    /// For layers that choose: the path to plan, given by its choices ("L1=0 L4=2"; L1 is layer 1, as plan prints it),
    /// by the number of a step, or as "evaluation", the path of evaluations (the default)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Print how the steps of --path (without it, of the path of evaluations) and of this other path differ, instead of
    /// a stage
    #[arg(long, value_name = "PATH", conflicts_with_all = ["stage", "pass", "svg", "dot"])]
    pub against: Option<String>,
    /// Place buffers with this planner alone
    #[arg(long, value_name = "NAME", conflicts_with = "time_budget")]
    pub planner: Option<PlannerArg>,
    /// Seconds to search for a smaller arena, if the quick planners do not reach the lower bound
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub time_budget: Option<Seconds>,
    #[command(flatten)]
    pub cpu: CpuThreads,
}

/// Check the step: gradients, eager against replay, pointers, determinism
///
/// --random checks random networks. A network that fails is reduced as long as the same check fails, and written to a
/// file; the command that repeats the failure is printed. Ctrl+C ends the command after the current check, and the
/// results so far are printed.
///
/// Exit status: 0 if no check failed; 1 if a check failed, or for any other failure, such as a full disk; 2 if an
/// argument, a preset, a file or the path of --out is wrong, and nothing was checked; 130, 143 or 129 if SIGINT
/// (Ctrl+C), SIGTERM or SIGHUP ended the command and no check had failed.
#[derive(Debug, Args)]
#[command(override_usage = "stepgraph verify [OPTIONS] PRESET...
       stepgraph verify [OPTIONS] --all
       stepgraph verify [OPTIONS] --random N")]
#[command(after_help = "Examples:
  stepgraph verify digits-mlp
  stepgraph verify --all
  stepgraph verify my.json other.json --replays 100000
  stepgraph verify my.json --json > report.json
  stepgraph verify --random 200 --seed 1000 --device cpu")]
pub struct VerifyArgs {
    /// Where the step runs: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Names of bundled presets, or paths of JSON files
    #[arg(required_unless_present_any = ["all", "random"], value_name = "PRESET")]
    pub presets: Vec<OsString>,
    /// Every bundled preset
    #[arg(long, conflicts_with = "presets")]
    pub all: bool,
    /// N random networks; the first has the seed of --seed, the others have the following ones
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    #[arg(conflicts_with_all = ["presets", "all", "init", "batches"])]
    pub random: Option<u64>,
    /// With --random: where the smallest network that fails is written, further ones beside it [default:
    /// random-SEED.json in the current folder]
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["presets", "all"])]
    pub out: Option<PathBuf>,
    /// Run even if the checks take very long, or more memory than is free
    #[arg(long)]
    pub anyway: bool,
    /// Replays of the endurance check [default: as many as take 6 s, from 20 to 10,000; 20 with --random]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub replays: Option<u64>,
    /// Seed of weights and batches; with --random, of the first network
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: u64,
    /// Initial parameters: a safetensors file
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Replay on batch.x and batch.y of a safetensors file
    #[arg(long, value_name = "FILE")]
    pub batches: Option<PathBuf>,
    #[command(flatten)]
    pub cpu: CpuThreads,
    /// Print the results as JSON: one object, or a list for several presets
    #[arg(long)]
    pub json: bool,
}

/// Evaluate weights on the held-out samples: metrics, confusion matrix, probabilities
///
/// Samples are prepared like those that the weights were trained with. The samples that the run of these weights held
/// out are evaluated, or the training part if it held out none. Of other data all samples are evaluated, unless
/// --held-out or --split divides them. Samples that an earlier part of the run may have been trained on are not called
/// held out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph train digits-mlp --save weights.safetensors
  stepgraph predict digits-mlp --init weights.safetensors
  stepgraph predict digits-mlp --init weights.safetensors --out answers.csv
  stepgraph predict digits-mlp --init weights.safetensors --out - | sort -t, -k4
  stepgraph predict digits-mlp --run last
  stepgraph predict digits-mlp --init weights.safetensors --json | jq .accuracy")]
#[command(group = ArgGroup::new("parameters").required(true).args(["init", "run"]))]
pub struct PredictArgs {
    /// Name of a bundled preset, or path of a JSON file
    pub preset: OsString,
    /// The parameters: a safetensors file
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// The parameters, seed and split of a kept run: an id, the first letters of one, a name, or last
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Write every sample with its probabilities, or values: a CSV file; - for standard output, and the metrics go to
    /// standard error
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Seed of synthetic data and of the split; without it, that of the weights' run, or the preset's if that is not
    /// known
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: Option<u64>,
    /// Samples to hold out: a fraction below 1, or a count; without it, those of the weights' run
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true, value_parser = numbers::held_out)]
    pub held_out: Option<f64>,
    /// Which samples to hold out; without it, those of the weights' run
    #[arg(long, value_enum)]
    pub split: Option<SplitArg>,
    #[command(flatten)]
    pub cpu: CpuThreads,
    /// Print the metrics as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Time eager and replayed steps side by side
///
/// All steps use one random batch, so that no data is needed. Blocks of eager and replayed steps alternate, so that
/// both are timed under the same conditions.
///
/// Times found by --tune are kept in the user's cache folder, for this processor, instruction set and number of
/// threads, and every command that compiles a step uses them. Without --threads, the whole step is timed on one, two,
/// four and more cores first, and the fastest is kept too. With STEPGRAPH_NO_TUNING=1, commands choose kernels by
/// estimated cost.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph bench digits-mlp
  stepgraph bench digits-mlp digits-cnn --seconds 5
  stepgraph bench my.json --per-op
  stepgraph bench my.json --tune
  stepgraph bench my.json --json | jq .replay_us.median")]
pub struct BenchArgs {
    /// Names of bundled presets, or paths of JSON files
    #[arg(required = true, value_name = "PRESET")]
    pub presets: Vec<OsString>,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Seconds to measure for, each preset
    #[arg(long, default_value = "2", value_name = "SECONDS", allow_negative_numbers = true)]
    pub seconds: Seconds,
    #[command(flatten)]
    pub cpu: CpuThreads,
    /// Print the time of each operation too
    #[arg(long)]
    pub per_op: bool,
    /// Write the captured graph of the (last) preset as Graphviz, as the driver sees it; GPUs only
    #[arg(long, value_name = "FILE.dot")]
    pub graph: Option<PathBuf>,
    /// Time every kernel of every operation first, and keep the times: from then on the fastest is chosen
    #[arg(long)]
    pub tune: bool,
    /// Only measure N changes of one size of the network, each until the first replayed step
    #[arg(long, value_name = "N", conflicts_with_all = ["tune", "graph", "per_op"], allow_negative_numbers = true,
        value_parser = numbers::positive)]
    pub edits: Option<u64>,
    /// Only train one step of each network in one process, one network after another, and time each until that step
    #[arg(long, conflicts_with_all = ["tune", "graph", "per_op", "edits"])]
    pub in_turn: bool,
    /// Print the results as JSON: one object, or a list for several presets
    #[arg(long)]
    pub json: bool,
}

/// Place the buffers of a file in as few bytes as possible
///
/// The file has the columns id,lower,upper,size; a buffer is alive from lower up to, but not including, upper. The
/// placement is written to standard output, the summary to standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph arena buffers.csv > placed.csv
  stepgraph arena buffers.csv --time 30 --svg arena.svg
  cat buffers.csv | stepgraph arena -")]
pub struct ArenaArgs {
    /// The file; - for standard input
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// Seconds to search for a smaller placement, if the quick planners do not reach the lower bound
    #[arg(long, default_value = "3", value_name = "SECONDS", allow_negative_numbers = true)]
    pub time: Seconds,
    /// Print placement and summary as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a picture of the placement
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// List the presets inside the program, or print one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepgraph presets\n  stepgraph presets digits-mlp > my-network.json")]
pub struct PresetsArgs {
    /// Print the JSON of this preset, as a starting point for your own
    pub name: Option<String>,
    /// List as JSON
    #[arg(long)]
    pub json: bool,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph completions bash > ~/.local/share/bash-completion/completions/stepgraph
  stepgraph completions zsh > ~/.zfunc/_stepgraph
  stepgraph completions fish > ~/.config/fish/completions/stepgraph.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// A length of time in seconds, above 0 and at most a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds(pub f64);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= 86_400.0);
        seconds.map(Self).ok_or_else(|| "expected a number of seconds above 0 and at most 86400".to_owned())
    }
}

/// A planner by its name in reports.
#[derive(Clone, Copy, Debug)]
pub struct PlannerArg(pub crate::plan::arena::Planner);

impl FromStr for PlannerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = crate::plan::arena::Planner::ALL;
        let names = || all.map(crate::plan::arena::Planner::name).join(", ");
        all.into_iter().find(|p| p.name() == text).map(Self).ok_or_else(|| format!("expected one of {}", names()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExecutorArg {
    Replay,
    Eager,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SplitArg {
    /// Drawn at random from the seed
    Shuffled,
    /// The last samples of the file
    Last,
}

impl SplitArg {
    /// The kind of split, as presets name it.
    #[must_use]
    pub const fn kind(self) -> SplitKind {
        match self {
            Self::Shuffled => SplitKind::Shuffled,
            Self::Last => SplitKind::Last,
        }
    }
}

/// A stage of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The semantic graph of the step
    Ir,
    /// Operations with every dimension
    Lowered,
    /// The passes that rewrite them for the device, and what each changed
    Passes,
    /// The kernel of each operation, and the candidates that were not chosen
    Selected,
    /// Every buffer with its role, live range and address
    Bindings,
    /// How the buffers were placed
    Arena,
    /// The table of buffers per layer, the constants baked into the recording, and the scalars read at every replay
    Capture,
    /// All of them
    All,
}
