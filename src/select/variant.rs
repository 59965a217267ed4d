//! The implementations of an operation.

use super::cuda::Route;
use crate::select::target::Isa;
use serde::{Deserialize, Serialize};

/// One implementation of an operation; the suffix of a kernel id, such as `f32_avx512_v0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Plain loops in f32, which the others are compared with.
    RefF32,
    /// The same plain loops in f64, for gradient checks.
    RefF64,
    /// The fast kernel for one instruction set.
    Fast(Isa),
    /// A GPU's kernel; its id ends in the name that its family chooses.
    Cuda(Route),
}

impl Variant {
    /// The suffix of the kernel id.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::RefF32 => "f32_ref_v0",
            Self::RefF64 => "f64_ref_v0",
            Self::Fast(Isa::Portable) => "f32_portable_v0",
            Self::Fast(Isa::Avx2) => "f32_avx2_v0",
            Self::Fast(Isa::Avx512) => "f32_avx512_v0",
            Self::Cuda(_) => "cuda_v0",
        }
    }
}
