//! The machine that a step is planned for. Plain data: a plan for a machine can be made on another one.

use crate::tensor::plural;
use serde::{Deserialize, Serialize};

/// Instruction sets that CPU kernels are written for, in rising order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// The compiler's baseline.
    Portable,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// The name used in kernel ids.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// The machine that a step is planned for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The name for the user.
    pub name: String,
    pub device: Device,
    /// Whether a GPU's custom kernels are specialised or general members of their families.
    #[serde(default, skip_serializing_if = "Kernels::is_specialised")]
    pub kernels: Kernels,
}

/// Which kernels of a GPU are chosen, and which members of their families they are. Members of one family give bitwise
/// equal results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernels {
    /// The fastest kernels, compiled for the sizes of their operations.
    #[default]
    Specialised,
    /// Kernels that read sizes from their arguments, so that they need not be compiled for a new size. Operations run
    /// a specialised kernel only if no kernel for them has a general member.
    General,
    /// The kernels that [`Self::General`] chooses, compiled for the sizes of their operations: they can replace general
    /// ones with the same results.
    Interchangeable,
}

impl Kernels {
    /// Whether it is [`Self::Specialised`], which is omitted in serialised data.
    const fn is_specialised(&self) -> bool {
        matches!(self, Self::Specialised)
    }

    /// Whether kernels without a general member are chosen only if there is no other.
    #[must_use]
    pub const fn have_general_members(self) -> bool {
        matches!(self, Self::General | Self::Interchangeable)
    }

    /// The kind with this name, `specialised`, `general` or `interchangeable`; an empty name is the default.
    ///
    /// # Errors
    /// For other names, a message.
    pub fn named(name: &str) -> Result<Self, String> {
        match name.trim() {
            "" | "specialised" => Ok(Self::Specialised),
            "general" => Ok(Self::General),
            "interchangeable" => Ok(Self::Interchangeable),
            other => {
                Err(format!("{other:?} is not a kind of kernels; write `specialised`, `general` or `interchangeable`"))
            }
        }
    }
}

/// The kind of device, with the properties that planning needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Device {
    Cpu(CpuFacts),
    Cuda(CudaFacts),
}

/// A CPU, as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuFacts {
    pub isa: Isa,
    /// Threads that share a step.
    pub threads: usize,
}

/// An NVIDIA GPU, as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CudaFacts {
    /// The device's number on this machine.
    pub ordinal: u32,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub has_cublaslt: bool,
    pub has_cudnn: bool,
}

impl Target {
    /// A CPU with the given instruction set.
    #[must_use]
    pub fn cpu(isa: Isa, threads: usize) -> Self {
        let noun = plural(threads as u64, "thread");
        let device = Device::Cpu(CpuFacts { isa, threads });
        Self { name: format!("CPU, {}, {threads} {noun}", isa.name()), device, kernels: Kernels::default() }
    }

    /// An NVIDIA GPU.
    #[must_use]
    pub fn cuda(name: impl Into<String>, facts: CudaFacts) -> Self {
        Self { name: name.into(), device: Device::Cuda(facts), kernels: Kernels::default() }
    }

    /// The same machine, with this kind of kernels.
    #[must_use]
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// An NVIDIA H200 with all libraries, for which plans are made if there is no GPU.
    #[must_use]
    pub fn h200() -> Self {
        let facts = CudaFacts {
            ordinal: 0,
            capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 150_754_820_096,
            has_cublaslt: true,
            has_cudnn: true,
        };
        Self::cuda("NVIDIA H200", facts)
    }

    /// The properties of the GPU, if it is one.
    #[must_use]
    pub const fn as_cuda(&self) -> Option<CudaFacts> {
        match &self.device {
            Device::Cuda(facts) => Some(*facts),
            Device::Cpu(_) => None,
        }
    }

    /// The properties of the CPU, if it is one.
    #[must_use]
    pub const fn as_cpu(&self) -> Option<CpuFacts> {
        match &self.device {
            Device::Cpu(facts) => Some(*facts),
            Device::Cuda(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_kernels_have_names_and_others_are_refused() {
        assert_eq!(Kernels::named("general"), Ok(Kernels::General));
        assert_eq!(Kernels::named(" interchangeable"), Ok(Kernels::Interchangeable));
        assert_eq!([Kernels::named(""), Kernels::named("specialised")], [const { Ok(Kernels::Specialised) }; 2]);
        assert!(Kernels::named("fast").unwrap_err().contains("\"fast\""));
    }
}
