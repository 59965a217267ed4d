//! The limits that the steps and operations of a benchmark are compared with: the highest rates of the machine.

use crate::exec::cpu::{Ceilings, Floor, Pool};
use crate::exec::cuda::{GpuCeilings, gpu};
use crate::model::Precision;
use crate::select::Target;
use crate::tensor::Bytes;
use serde::Serialize;
use std::fmt;

/// The limits that steps are compared with.
#[derive(Clone, Serialize)]
#[serde(untagged)]
pub enum Limits {
    Cpu(Ceilings),
    Gpu(GpuCeilings),
}

impl Limits {
    /// Measures the limits on a device.
    ///
    /// # Errors
    /// If the device fails or does not exist.
    pub fn measure(target: &Target, threads: usize, precision: Precision) -> anyhow::Result<Self> {
        match (target.as_cpu(), target.as_cuda()) {
            (_, Some(facts)) => {
                let gpu = gpu(facts.ordinal).map_err(|why| anyhow::anyhow!("{why}"))?;
                Ok(Self::Gpu(GpuCeilings::measure(&gpu, precision.into())?))
            }
            (Some(facts), None) => Ok(Self::Cpu(Ceilings::measure(facts.isa, &mut Pool::new(threads)?))),
            (None, None) => Err(anyhow::anyhow!(
                "{} cannot be measured: it is neither a CPU nor a GPU of this machine; choose --device cpu or cuda",
                target.name
            )),
        }
    }

    /// The least time of an operation, and what determines it.
    #[must_use]
    pub fn floor(&self, flops: u64, bytes: u64) -> Floor {
        match self {
            Self::Cpu(ceilings) => ceilings.floor(flops, bytes),
            Self::Gpu(ceilings) => ceilings.floor(flops, bytes),
        }
    }

    /// The higher of these rates and of rates measured now on the same threads; rates of a GPU stay as they are.
    #[must_use]
    pub fn or_better(&self, pool: &mut Pool) -> Self {
        match self {
            Self::Cpu(before) => Self::Cpu(Ceilings::measure(before.isa, pool).or_better(before)),
            Self::Gpu(_) => self.clone(),
        }
    }
}

/// The rates that the floors are computed from, as text.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(c) => writeln!(
                f,
                "  ceilings: a launch {:.1} us, cache up to {} {:.0} GB/s, memory {:.0} GB/s, arithmetic {:.0} TFLOP/s",
                c.launch_us,
                Bytes(c.cache_bytes),
                c.cache_bytes_per_us / 1e3,
                c.bytes_per_us / 1e3,
                c.flops_per_us / 1e6
            ),
            Self::Cpu(c) => {
                let rate = c.flops_per_us / 1e3;
                let threads = super::output::counted(c.threads as u64, "thread");
                write!(f, "  ceilings of {} on {threads}: arithmetic {rate:.1} GFLOP/s", c.isa.name())?;
                for level in &c.levels {
                    let room = level.holds_bytes.map_or_else(String::new, |b| format!(" up to {}", Bytes(b)));
                    write!(f, ", {}{room} {:.1} GB/s", level.name, level.bytes_per_us / 1e3)?;
                }
                writeln!(f)
            }
        }
    }
}
