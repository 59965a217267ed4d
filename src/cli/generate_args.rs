//! The arguments of `generate` as clap reads them.

use super::choices::{CpuThreads, Device};
use super::numbers;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Write a text with a network of tokens, token by token
///
/// The network is one whose loss is a cross entropy over the tokens of its own input, as in gpt-sums and gpt-source.
/// The text is printed after the prompt, token by token. The same seed gives the same text. If a prompt is longer than
/// the network's window, only its end is used.
///
/// Without --init and --run, the name is that of a kept run: its network and its weights.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph train gpt-sums --save sums.safetensors
  stepgraph generate gpt-sums --init sums.safetensors --prompt 37+85= --temperature 0
  stepgraph train gpt-source --keep
  stepgraph generate last --prompt 'pub fn ' --tokens 300 --temperature 0.7
  stepgraph generate gpt-source --run last --prompt '/// ' --stop '}' --seed 3
  stepgraph generate last --prompt 'let ' --top-k 10 --json | jq -r .text")]
pub struct GenerateArgs {
    /// Name of a bundled preset, or path of a JSON file; without weights the id or name of a kept run, or last
    #[arg(value_name = "PRESET")]
    pub what: OsString,
    /// The parameters: a safetensors file
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    pub init: Option<PathBuf>,
    /// The parameters of a kept run: an id, the first letters of one, a name, or last
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The text to continue; without it, a network for running text starts a new line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub prompt: String,
    /// The largest number of tokens to write; without it 200, or the rest of an addition
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub tokens: Option<u64>,
    /// Divisor of the logits: a smaller one prefers likely tokens, 0 selects the most likely token
    #[arg(long, value_name = "T", default_value = "1", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::temperature)]
    pub temperature: f64,
    /// Sample only from the K most likely tokens
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub top_k: Option<u64>,
    /// Sample only from the smallest set of most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", default_value = "1", allow_negative_numbers = true, value_parser = numbers::share)]
    pub top_p: f64,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = numbers::seed)]
    pub seed: u64,
    /// End before the first occurrence of this text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Option<String>,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    #[command(flatten)]
    pub cpu: CpuThreads,
    /// Print the text and how it was made as one JSON object at the end
    #[arg(long)]
    pub json: bool,
}
