//! `stepgraph completions`: a script for a shell.

use super::args::{Cli, CompletionsArgs};
use super::output;
use clap::CommandFactory;

/// Prints the script.
///
/// # Errors
/// If standard output fails.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stepgraph", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
