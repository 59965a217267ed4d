//! The command line: one file for each command.
//!
//! Results go to standard output, progress and notes to standard error. Files are written beside their final name and
//! renamed into place.

mod arena;
pub mod args;
mod bench;
mod bench_edits;
mod bench_kinds;
mod bench_steps;
mod capsule;
mod ceilings;
pub mod choices;
mod compile_kernels;
mod completions;
mod device;
mod doctor;
mod doctor_args;
mod environment;
mod error;
mod export;
mod functions;
mod generate;
pub mod generate_args;
mod keep_run;
mod kernel_folder;
mod kernel_times;
mod log_lines;
mod metrics;
mod notes;
mod numbers;
mod output;
mod plan;
mod plan_against;
mod plan_json;
mod plan_passes;
mod plan_text;
mod predict;
mod predict_data;
mod predict_series;
mod presets;
mod progress;
mod result_places;
pub mod run_args;
mod runs;
mod signals;
mod step_log;
mod step_times;
mod studio;
mod text_progress;
mod train;
mod train_summary;
mod verify;
mod verify_random;
mod whole_step;

use crate::exec::cpu::threads_variable;
use crate::model::{BUNDLED, did_you_mean};
use args::{Cli, Command};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
pub use environment::{log_level, report_wrong_values};
use std::path::Path;
use std::process::ExitCode;

/// The command line as it was given. If it cannot be parsed, the program ends with exit status 2.
#[must_use]
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let words: Vec<String> = std::env::args_os().skip(1).filter_map(|arg| arg.into_string().ok()).collect();
        if let Some(text) = verify::refusal(&words, error.kind()) {
            let mut command = Cli::command();
            command.build();
            if let Some(verify) = command.find_subcommand_mut("verify") {
                verify.error(error.kind(), text).exit();
            }
        }
        let first = std::env::args_os().nth(1).and_then(|arg| arg.into_string().ok());
        let more = matches!(error.kind(), ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument);
        match first.filter(|_| more).and_then(|first| unknown_command(&first)) {
            Some(text) => Cli::command().error(ErrorKind::InvalidSubcommand, text).exit(),
            None => error.exit(),
        }
    })
}

/// The message for a first word that is followed by others and is no command; `None` if it is a command, an option or a
/// preset.
fn unknown_command(first: &str) -> Option<String> {
    let command = Cli::command();
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let is_preset = Path::new(first).exists() || BUNDLED.iter().any(|b| b.name == first);
    if first.starts_with('-') || first == "help" || is_preset || names.contains(&first) {
        return None;
    }
    Some(format!("there is no command {first:?}; {}`stepgraph --help` lists all", did_you_mean(first, names)))
}

/// Runs a command line and returns the exit status.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    if !opens_window(cli) {
        signals::listen(match &cli.command {
            Some(Command::Train(_)) => "no step was made, and nothing was saved",
            _ => "what was not written or printed before is lost",
        });
    }
    if let Err(wrong) = check_environment(cli) {
        return error::report(&wrong);
    }
    let outcome = match &cli.command {
        None => studio::run(cli.preset.as_deref()),
        Some(Command::Studio(args)) => studio::run(args.preset.as_deref()),
        Some(Command::Train(args)) => return train::run(args).unwrap_or_else(|e| error::report(&e)),
        Some(Command::Plan(args)) => plan::run(args),
        Some(Command::Verify(args)) => return verify::run(args).unwrap_or_else(|e| error::report(&e)),
        Some(Command::Predict(args)) => predict::run(args),
        Some(Command::Generate(args)) => generate::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Arena(args)) => arena::run(args),
        Some(Command::Presets(args)) => presets::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Functions(args)) => functions::run(args),
        Some(Command::Runs(args)) => runs::run(args),
        Some(Command::Export(args)) => export::run(args),
        Some(Command::Capsule(args)) => return capsule::run(args).unwrap_or_else(|e| error::report(&e)),
        Some(Command::Completions(args)) => completions::run(args),
    };
    outcome.map_or_else(|e| error::report(&e), |()| ExitCode::SUCCESS)
}

/// Refuses an invalid number of threads in the environment, if the command runs steps.
fn check_environment(cli: &Cli) -> anyhow::Result<()> {
    match &cli.command {
        Some(
            Command::Arena(_)
            | Command::Presets(_)
            | Command::Runs(_)
            | Command::Export(_)
            | Command::Doctor(_)
            | Command::Completions(_),
        ) => Ok(()),
        _ => threads_variable().map(drop).map_err(|wrong| error::wrong(wrong.to_string())),
    }
}

/// Whether a command line opens the window, which keeps running if a part of it fails.
#[must_use]
pub const fn opens_window(cli: &Cli) -> bool {
    matches!(cli.command, None | Some(Command::Studio(_)))
}
