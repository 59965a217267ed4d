//! Safetensors files: initial weights, batches, results, checkpoints.

use super::TrainError;
use super::checkpoint::check_sum;
use crate::exec::{Step, copied, read_file};
use crate::model::{Model, ParamId};
use crate::tensor::{DType, HostTensor, Shape, write_atomic};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::path::Path;

/// Tensors by name, in the file's order, with the file's metadata.
#[derive(Clone, Debug, Default)]
pub struct TensorFile {
    pub tensors: Vec<(String, HostTensor)>,
    pub metadata: HashMap<String, String>,
}

const fn dtype_of(dtype: Dtype) -> Option<DType> {
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

const fn file_dtype(dtype: DType) -> Dtype {
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

/// Reads a safetensors file. Tensors of types that nothing here uses are left out.
///
/// # Errors
/// Where it cannot be read, is no safetensors file, or is a checkpoint that does not match its checksum.
pub fn read_tensors(path: &Path) -> Result<TensorFile, TrainError> {
    let file = read_tensors_of(path, "is not a safetensors file and holds no weights", "give a safetensors file")?;
    check_sum(path, &file)?;
    Ok(file)
}

/// As [`read_tensors`]: of a file of another kind, `other` tells what it is not, and `help` what to give.
pub(super) fn read_tensors_of(path: &Path, other: &str, help: &'static str) -> Result<TensorFile, TrainError> {
    // What is no file may have no end.
    if path.exists() && !path.is_file() {
        return Err(TrainError::file(path, "is a folder, a device or a pipe", "give a safetensors file"));
    }
    let bytes =
        read_file(path).map_err(|e| TrainError::file(path, format!("cannot be read: {e}"), "check the path"))?;
    let broken = |what: String| {
        TrainError::file(
            path,
            format!("is not a complete safetensors file: {what}"),
            "write it again, or give another file",
        )
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| match e {
        // The header is sound, or longer than the file: a part of it is missing.
        SafeTensorError::HeaderTooSmall
        | SafeTensorError::InvalidHeaderLength
        | SafeTensorError::MetadataIncompleteBuffer => broken(e.to_string()),
        _ => TrainError::file(path, other, help),
    })?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let file = SafeTensors::deserialize(&bytes).map_err(|e| broken(e.to_string()))?;
    let mut tensors = Vec::new();
    for (name, view) in file.iter() {
        let Some(dtype) = dtype_of(view.dtype()) else { continue };
        let tensor = HostTensor::from_bytes(dtype, Shape(view.shape().to_vec()), copied(view.data()))
            .map_err(|e| broken(e.to_string()))?;
        tensors.push((name.to_owned(), tensor));
    }
    Ok(TensorFile { tensors, metadata })
}

impl TensorFile {
    /// The tensor with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t)
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// Where it cannot be written; an old file of that name is untouched then.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        let write_error = |cause| TrainError::Write { path: path.to_owned(), cause };
        let mut views = Vec::with_capacity(self.tensors.len());
        for (name, t) in &self.tensors {
            let view = TensorView::new(file_dtype(t.dtype), t.shape.0.clone(), t.bytes());
            views.push((name.as_str(), view.map_err(|e| write_error(std::io::Error::other(e.to_string())))?));
        }
        let metadata = (!self.metadata.is_empty()).then(|| self.metadata.clone());
        let bytes =
            safetensors::serialize(views, metadata).map_err(|e| write_error(std::io::Error::other(e.to_string())))?;
        write_atomic(path, &bytes).map_err(write_error)
    }
}

/// The parameters and running statistics of a step, in logical shapes, under their file names.
///
/// # Errors
/// Never for a step of this model.
pub fn export(step: &Step, model: &Model) -> Result<Vec<(String, HostTensor)>, TrainError> {
    let mut out = Vec::with_capacity(model.params.len());
    for (index, param) in model.params.iter().enumerate() {
        let values = step.param::<f32>(ParamId(index as u32))?;
        let tensor = HostTensor::from_slice(param.shape.clone(), &values);
        out.push((param.name.clone(), tensor.map_err(|e| crate::exec::ExecError::NoValue(e.to_string()))?));
    }
    Ok(out)
}

/// Sets every trained parameter of a step from a file: names as in the model, with or without the prefix `init.`. Running statistics are set where the
/// file has them.
///
/// # Errors
/// Where a parameter is missing, has another shape, or the file holds a parameter that the model does not have: all of them at once.
pub fn import(step: &mut Step, model: &Model, file: &TensorFile, path: &Path) -> Result<(), TrainError> {
    let mut mistakes = Vec::new();
    for (index, param) in model.params.iter().enumerate() {
        let found = file.get(&format!("init.{}", param.name)).or_else(|| file.get(&param.name));
        match found {
            None if param.kind.is_trained() => {
                mistakes.push(format!("{} is missing (expected {})", param.name, param.shape))
            }
            None => {}
            Some(t) if t.shape != param.shape => {
                mistakes.push(format!("{} has shape {}, the network needs {}", param.name, t.shape, param.shape));
            }
            Some(t) => match t.to_f64() {
                None => mistakes.push(format!("{} holds {}, expected f32 or f64", param.name, t.dtype)),
                Some(v) if v.iter().any(|x| !x.is_finite()) => {
                    mistakes.push(format!("{} holds NaN or infinite values", param.name))
                }
                Some(v) => {
                    let values: Vec<f32> = v.into_iter().map(|x| x as f32).collect();
                    step.set_param(ParamId(index as u32), &values)?;
                }
            },
        }
    }
    for (name, _) in &file.tensors {
        let bare = name.strip_prefix("init.").unwrap_or(name);
        let is_parameter = bare.starts_with("layers.");
        if is_parameter && !model.params.iter().any(|p| p.name == bare) {
            mistakes.push(format!("{name} belongs to no layer of this network"));
        }
    }
    if mistakes.is_empty() {
        return Ok(());
    }
    let shown = mistakes.len().min(12);
    let more = if mistakes.len() > shown { format!("\n  and {} more", mistakes.len() - shown) } else { String::new() };
    let message = format!("does not fit the network:\n  {}{more}", mistakes[..shown].join("\n  "));
    Err(TrainError::file(path, message, "give a file written for this preset"))
}
