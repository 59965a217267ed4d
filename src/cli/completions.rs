//! `stepgraph completions`: prints the completion script of a shell.

use super::args::{Cli, CompletionsArgs};
use super::output;
use clap::CommandFactory;

/// Prints the completion script for the requested shell.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stepgraph", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
