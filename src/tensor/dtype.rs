//! Element types.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F64,
    F32,
    /// IEEE half precision, storage only on the CPU.
    F16,
    /// The upper half of an `F32`, storage only on the CPU.
    Bf16,
    I64,
    I32,
    U16,
    U8,
}

impl DType {
    /// The size of an element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::U16 => 2,
            Self::U8 => 1,
        }
    }

    /// The name used in files and kernel ids.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U16 => "u16",
            Self::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
