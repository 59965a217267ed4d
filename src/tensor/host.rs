//! Tensors in host memory, outside any arena: data sets, checkpoints, and copies that are shown to the user.

use super::{DType, Shape};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A dense row-major tensor that owns its bytes (little endian, as on disk).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct HostTensor {
    pub dtype: DType,
    pub shape: Shape,
    bytes: Vec<u8>,
}

/// A tensor as it is read, before its bytes are compared with its shape.
#[derive(Deserialize)]
struct Parts {
    dtype: DType,
    shape: Shape,
    bytes: Vec<u8>,
}

impl TryFrom<Parts> for HostTensor {
    type Error = TensorError;

    fn try_from(parts: Parts) -> Result<Self, TensorError> {
        Self::from_bytes(parts.dtype, parts.shape, parts.bytes)
    }
}

/// Errors of a tensor's bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TensorError {
    #[error("a {dtype} tensor of shape {shape} takes {expected} bytes, found {found}")]
    Length { dtype: DType, shape: Shape, expected: usize, found: usize },
    #[error("expected {expected} elements, found {found}")]
    Type { expected: DType, found: DType },
}

/// A Rust type that is stored as one [`DType`].
pub trait Element: bytemuck::Pod {
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(f64 => F64, f32 => F32, i64 => I64, i32 => I32, u16 => U16, u8 => U8);

impl HostTensor {
    /// A tensor from raw little-endian bytes.
    ///
    /// # Errors
    /// If the number of bytes does not match type and shape.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: Vec<u8>) -> Result<Self, TensorError> {
        let expected = shape.len() * dtype.size();
        if bytes.len() != expected {
            return Err(TensorError::Length { dtype, shape, expected, found: bytes.len() });
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// A tensor from typed values; `values.len()` must be the number of elements of `shape`.
    ///
    /// # Errors
    /// If it is not.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Result<Self, TensorError> {
        Self::from_bytes(T::DTYPE, shape.into(), bytemuck::cast_slice(values).to_vec())
    }

    /// A tensor of zeros.
    #[must_use]
    pub fn zeros(dtype: DType, shape: Shape) -> Self {
        let bytes = vec![0; shape.len() * dtype.size()];
        Self { dtype, shape, bytes }
    }

    /// The values, copied out with their type checked.
    ///
    /// # Errors
    /// If the tensor holds another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::Type { expected: T::DTYPE, found: self.dtype });
        }
        Ok(bytemuck::pod_collect_to_vec(&self.bytes))
    }

    /// The values as `f64`, for any numeric type (except 16-bit floats, which return `None`).
    #[must_use]
    pub fn to_f64(&self) -> Option<Vec<f64>> {
        fn widen<T: Element + Into<f64>>(t: &HostTensor) -> Vec<f64> {
            bytemuck::pod_collect_to_vec::<u8, T>(&t.bytes).into_iter().map(Into::into).collect()
        }
        Some(match self.dtype {
            DType::F64 => widen::<f64>(self),
            DType::F32 => widen::<f32>(self),
            DType::I32 => widen::<i32>(self),
            DType::U16 => widen::<u16>(self),
            DType::U8 => widen::<u8>(self),
            DType::I64 => bytemuck::pod_collect_to_vec::<u8, i64>(&self.bytes).into_iter().map(|v| v as f64).collect(),
            DType::F16 | DType::Bf16 => return None,
        })
    }

    /// The raw bytes, little endian, row-major.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
