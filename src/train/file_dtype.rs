//! Types of elements in safetensors files.

use crate::tensor::DType;
use safetensors::tensor::Dtype;

/// The type with this name in a safetensors file; `None` if it is not used here.
pub(super) const fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        _ => return None,
    })
}

/// The name of a type in a safetensors file.
pub(super) const fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U16 => Dtype::U16,
        DType::U8 => Dtype::U8,
    }
}
