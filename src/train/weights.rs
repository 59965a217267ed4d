//! Safetensors files: initial weights, batches, results, checkpoints.

use super::TrainError;
use super::checkpoint::check_sum;
use super::tensor_reader::OpenTensors;
use super::tensor_writer::{Stream, write_streams};
use crate::exec::Step;
use crate::model::{Model, ParamId};
use crate::tensor::{DType, HostTensor};
use std::collections::HashMap;
use std::path::Path;

/// Tensors by name, in the file's order, with the file's metadata.
#[derive(Clone, Debug, Default)]
pub struct TensorFile {
    pub tensors: Vec<(String, HostTensor)>,
    pub metadata: HashMap<String, String>,
}

/// The message about a file without tensors, and what to give instead.
const NO_TENSORS: &str = "is not a safetensors file and holds no weights";
const GIVE_TENSORS: &str = "give a safetensors file";

/// Reads a safetensors file. Tensors of unused types are left out.
///
/// # Errors
/// If it cannot be read, is not a safetensors file, or is a checkpoint that does not match its checksum.
pub fn read_tensors(path: &Path) -> Result<TensorFile, TrainError> {
    let file = read_tensors_of(path, NO_TENSORS, GIVE_TENSORS)?;
    check_sum(path, &file.metadata, &file.streams())?;
    Ok(file)
}

/// Opens a safetensors file whose tensors are read one by one.
///
/// # Errors
/// As [`read_tensors`].
pub(super) fn open_tensors(path: &Path) -> Result<OpenTensors, TrainError> {
    let open = OpenTensors::open(path, NO_TENSORS, GIVE_TENSORS)?;
    check_sum(path, &open.metadata, &open.streams())?;
    Ok(open)
}

/// Like [`read_tensors`]; for a file of another kind, `other` says what it is not, and `help` what to give.
pub(super) fn read_tensors_of(path: &Path, other: &str, help: &'static str) -> Result<TensorFile, TrainError> {
    let open = OpenTensors::open(path, other, help)?;
    let read = open.entries.iter().map(|entry| Ok((entry.name.clone(), open.read(entry)?)));
    let tensors = read.collect::<Result<_, TrainError>>()?;
    Ok(TensorFile { tensors, metadata: open.metadata })
}

impl TensorFile {
    /// The tensor with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t)
    }

    /// Writes the complete file, or nothing.
    ///
    /// # Errors
    /// If it cannot be written; then an old file of that name is unchanged.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        self.write_with(path, &self.metadata)
    }

    /// Like [`Self::write`], with other metadata.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn write_with(&self, path: &Path, metadata: &HashMap<String, String>) -> Result<(), TrainError> {
        write_streams(path, &self.streams(), metadata)
    }

    fn streams(&self) -> Vec<Stream<'_>> {
        self.tensors.iter().map(|(name, t)| Stream::held(name, t)).collect()
    }
}

/// The parameters and running statistics of a step, in logical shapes, under their names in files.
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

/// Sets every trained parameter of a step from a file: names as in the model, with or without the prefix `init.`.
/// Running statistics are set if the file has them.
///
/// # Errors
/// If a parameter is missing, has another shape, or the file has a parameter that the model does not have: all such
/// mistakes at once.
pub fn import(step: &mut Step, model: &Model, file: &OpenTensors, path: &Path) -> Result<(), TrainError> {
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
            Some(t) if matches!(t.dtype, DType::F16 | DType::Bf16) => {
                mistakes.push(format!("{} holds {}, expected f32 or f64", param.name, t.dtype));
            }
            Some(t) if !set(step, ParamId(index as u32), &file.read(t)?)? => {
                mistakes.push(format!("{} holds NaN or infinite values", param.name));
            }
            Some(_) => {}
        }
    }
    for name in file.entries.iter().map(|e| &e.name) {
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

/// Sets a parameter; returns false if a value is not finite.
fn set(step: &mut Step, id: ParamId, tensor: &HostTensor) -> Result<bool, TrainError> {
    if tensor.dtype == DType::F32 {
        let bytes = tensor.bytes();
        let is_finite = |word: &[u8]| bytemuck::pod_read_unaligned::<f32>(word).is_finite();
        if !bytes.chunks_exact(size_of::<f32>()).all(is_finite) {
            return Ok(false);
        }
        // One copy, from the file's bytes directly to the parameter.
        step.draw_param(id, |out| bytemuck::cast_slice_mut(out).copy_from_slice(bytes))?;
        return Ok(true);
    }
    let values = tensor.to_f64().unwrap_or_default();
    let finite = values.iter().all(|v| v.is_finite());
    if finite {
        let narrow: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        step.set_param(id, &narrow)?;
    }
    Ok(finite)
}
