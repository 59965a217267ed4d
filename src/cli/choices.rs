//! Choices that several commands offer.

use super::numbers;
use clap::{Args, ValueEnum};
use std::str::FromStr;

/// The device that the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Auto,
    Cpu,
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|n| n.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| "expected auto, cpu, cuda or cuda:N with a device number N".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Dot,
}

// The threads of commands that run a step. A documentation comment here would be shown as the help of those commands.
#[derive(Clone, Copy, Debug, Args)]
pub struct CpuThreads {
    /// Threads that share a step on a CPU; without it, the number follows from its estimated cost or from `bench
    /// --tune`
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::threads)]
    pub threads: Option<u16>,
}
