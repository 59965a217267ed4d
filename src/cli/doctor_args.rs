//! Arguments of `stepgraph doctor`.

use super::numbers;
use crate::model::Precision;
use clap::Args;

/// Report devices, libraries found and missing, and how to get them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stepgraph doctor
  stepgraph doctor --json
  stepgraph doctor --clear-cache
  stepgraph doctor --cache-limit 256
  stepgraph doctor --compile-kernels bf16")]
pub struct DoctorArgs {
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Remove all compiled GPU kernels from the cache first
    #[arg(long)]
    pub clear_cache: bool,
    /// The limit of the cache of compiled GPU kernels, in MiB, from now on; 0 keeps none
    #[arg(long, value_name = "MIB", allow_negative_numbers = true, value_parser = numbers::whole_mebibytes)]
    pub cache_limit: Option<u32>,
    /// Compile the GPU kernels that most networks of a precision (f32, tf32, bf16 or f16; f32 by default) need in
    /// advance, so that general kernels of new networks need not be compiled; ends when half of the cache is used
    #[arg(long, value_name = "PRECISION", num_args = 0..=1, default_missing_value = "f32",
        value_parser = precision)]
    pub compile_kernels: Option<Precision>,
}

/// A precision by its name.
///
/// # Errors
/// For other names, a message.
fn precision(name: &str) -> Result<Precision, String> {
    let found = Precision::ALL.into_iter().find(|precision| precision.name() == name);
    found.ok_or_else(|| format!("write one of {}", Precision::ALL.map(Precision::name).join(", ")))
}
