//! The type of the real numbers of a step on a GPU.

use crate::lower::{LValueId, Op, Program};
use crate::model::Precision;
use crate::ops::OpKind;
use crate::tensor::DType;
use serde::{Deserialize, Serialize};

/// The type of a step's real values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Real {
    F32,
    /// `f32` in memory, products on tensor cores with 10 bits of fraction.
    Tf32,
    Bf16,
    F16,
}

impl Real {
    /// The C++ type of an activation's element.
    #[must_use]
    pub const fn cpp(self) -> &'static str {
        match self {
            Self::F32 | Self::Tf32 => "float",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The name used in kernel ids.
    #[must_use]
    pub const fn name(self) -> &'static str {
        let precision = match self {
            Self::F32 => Precision::F32,
            Self::Tf32 => Precision::Tf32,
            Self::Bf16 => Precision::Bf16,
            Self::F16 => Precision::F16,
        };
        precision.name()
    }

    /// Bytes of an activation's element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::Tf32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The element type of activations, if it is not `f32`.
    #[must_use]
    pub const fn half(self) -> Option<DType> {
        match self {
            Self::F32 | Self::Tf32 => None,
            Self::Bf16 => Some(DType::Bf16),
            Self::F16 => Some(DType::F16),
        }
    }
}

impl From<Precision> for Real {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Tf32 => Self::Tf32,
            Precision::Bf16 => Self::Bf16,
            Precision::F16 => Self::F16,
        }
    }
}

/// The type that an operation's kernels work in: that of the step, or `f32` if the operation accesses none of the
/// step's reals.
#[must_use]
pub fn real_of(program: &Program, op: &Op, real: Real) -> Real {
    let is_half = |id: &LValueId| matches!(program.value(*id).dtype, DType::F16 | DType::Bf16);
    match op.kind {
        OpKind::Fill { .. } if !op.args.iter().flatten().any(is_half) => Real::F32,
        _ => real,
    }
}

/// The number of elements of `elem` bytes that one copy moves if `count` elements are contiguous, as `vec_width` in the
/// prelude.
pub(super) const fn copy_width(count: usize, elem: usize) -> usize {
    if count.is_multiple_of(16 / elem) {
        16 / elem
    } else if count.is_multiple_of(8 / elem) {
        8 / elem
    } else if elem == 2 && count.is_multiple_of(2) {
        2
    } else {
        1
    }
}
