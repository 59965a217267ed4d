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
    /// Which of a GPU's kernels are chosen, and which members of their families.
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
    /// Like [`Self::General`], for the widest classes of sizes: few kernels serve all networks, more slowly. They stand
    /// in for general kernels that are not compiled yet.
    Widest,
    /// [`Self::General`], until a run replaces them with [`Self::Interchangeable`] ones.
    #[serde(rename = "first-general")]
    FirstGeneral,
    /// The kernels that [`Self::General`] chooses, compiled for the sizes of their operations: they can replace general
    /// ones with the same results.
    Interchangeable,
}

impl Kernels {
    /// Whether it is [`Self::Specialised`], which is omitted in serialised data.
    const fn is_specialised(&self) -> bool {
        matches!(self, Self::Specialised)
    }

    /// Whether members that read their sizes are used where there are some.
    #[must_use]
    pub const fn are_general(self) -> bool {
        matches!(self, Self::General | Self::Widest | Self::FirstGeneral)
    }

    /// Whether steps with these and with the `other` kernels give the same results, bit for bit.
    #[must_use]
    pub const fn gives_results_of(self, other: Self) -> bool {
        matches!(self, Self::Specialised) == matches!(other, Self::Specialised)
    }

    /// The name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Specialised => "specialised",
            Self::General => "general",
            Self::Widest => "widest",
            Self::FirstGeneral => "first-general",
            Self::Interchangeable => "interchangeable",
        }
    }

    /// The kind with this name, or an empty one for the default.
    ///
    /// # Errors
    /// For other names, a message.
    pub fn named(name: &str) -> Result<Self, String> {
        let all = [Self::Specialised, Self::General, Self::Widest, Self::FirstGeneral, Self::Interchangeable];
        let name = name.trim();
        let found = all.into_iter().find(|kind| kind.name() == name);
        found.or_else(|| name.is_empty().then(Self::default)).ok_or_else(|| {
            let names = all.map(Self::name).join("`, `");
            format!("{name:?} is not a kind of kernels; write one of `{names}`")
        })
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

impl CudaFacts {
    /// The largest shared memory of a block, in bytes.
    #[must_use]
    pub const fn shared_bytes(&self) -> usize {
        match self.capability {
            (8, 0 | 7) => 163 << 10,
            (9 | 10, _) => 227 << 10,
            _ => 99 << 10,
        }
    }
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

    /// An NVIDIA H200 with all libraries.
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
        assert_eq!(Kernels::named("first-general"), Ok(Kernels::FirstGeneral));
        assert_eq!(serde_json::to_string(&Kernels::FirstGeneral).unwrap(), "\"first-general\"");
        assert_eq!(Kernels::named(" interchangeable"), Ok(Kernels::Interchangeable));
        assert_eq!([Kernels::named(""), Kernels::named("specialised")], [const { Ok(Kernels::Specialised) }; 2]);
        assert!(Kernels::named("fast").unwrap_err().contains("\"fast\""));
    }
}
