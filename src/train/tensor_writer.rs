//! Writes safetensors files tensor by tensor, so that they are never in memory as a whole beside the step.

use super::TrainError;
use super::file_dtype::file_dtype;
use crate::exec::Step;
use crate::lower::LValueId;
use crate::model::{Model, Param, ParamId};
use crate::tensor::{DType, Fnv, HostTensor, Shape, write_atomic_with};
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

/// Writes the bytes of a tensor.
type WriteBytes<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// A tensor whose bytes are produced when it is written.
pub(super) struct Stream<'a> {
    name: String,
    dtype: DType,
    shape: Shape,
    write: Box<WriteBytes<'a>>,
}

impl<'a> Stream<'a> {
    /// A tensor whose bytes `write` produces.
    pub(super) fn new(
        name: &str,
        dtype: DType,
        shape: &Shape,
        write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        Self { name: name.to_owned(), dtype, shape: shape.clone(), write: Box::new(write) }
    }

    /// A tensor in memory.
    pub(super) fn held(name: &str, tensor: &'a HostTensor) -> Self {
        Self::new(name, tensor.dtype, &tensor.shape, |out| out.write_all(tensor.bytes()))
    }

    /// A value of a step in logical order.
    pub(super) fn value(name: &str, step: &'a Step, id: LValueId) -> Self {
        let shape = &step.compiled().plan.program.value(id).shape;
        Self::new(name, step.tensor_dtype(id), shape, move |out| step.write_tensor(id, out))
    }

    /// The parameters and running statistics of a step, in logical shapes, under their names in files.
    pub(super) fn params(step: &'a Step, model: &Model) -> Vec<Self> {
        let one = |(index, param): (u32, &Param)| {
            Self::new(&param.name, DType::F32, &param.shape, move |out| step.write_param(ParamId(index), out))
        };
        (0u32..).zip(&model.params).map(one).collect()
    }

    fn bytes(&self) -> usize {
        self.shape.len() * self.dtype.size()
    }
}

/// The checksum over a header and every tensor in order of the names, in hexadecimal.
///
/// # Errors
/// If a tensor cannot be had from its step.
pub(super) fn checksum_of(header: &str, streams: &[Stream<'_>]) -> io::Result<String> {
    let mut hash = Hashing(Fnv::new());
    hash.0.add(header.as_bytes());
    let mut sorted: Vec<_> = streams.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    for stream in sorted {
        hash.0.add(stream.name.as_bytes());
        (stream.write)(&mut hash)?;
    }
    Ok(format!("{:016x}", hash.0.sum()))
}

/// A checksum that implements writing.
struct Hashing(Fnv);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a complete safetensors file, or nothing.
///
/// # Errors
/// If it cannot be written; then an old file of that name is unchanged.
pub(super) fn write_streams(
    path: &Path,
    streams: &[Stream<'_>],
    metadata: &HashMap<String, String>,
) -> Result<(), TrainError> {
    let write_error = |cause| TrainError::Write { path: path.to_owned(), cause };
    let mut order: Vec<&Stream> = streams.iter().collect();
    // The library's own order: types of large alignment first, then by name.
    order.sort_by(|a, b| file_dtype(b.dtype).cmp(&file_dtype(a.dtype)).then(a.name.cmp(&b.name)));
    let header = header_of(&order, metadata).map_err(write_error)?;
    let fill = |out: &mut io::BufWriter<&mut std::fs::File>| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        order.iter().try_for_each(|stream| (stream.write)(out))
    };
    write_atomic_with(path, fill).map_err(write_error)
}

/// The header of a file with these tensors one after the other, padded with blanks to whole words.
fn header_of(order: &[&Stream<'_>], metadata: &HashMap<String, String>) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let mut infos = Vec::with_capacity(order.len());
    for stream in order {
        let start = end;
        end += stream.bytes();
        let (dtype, shape) = (file_dtype(stream.dtype), stream.shape.0.clone());
        infos.push((stream.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) }));
    }
    let metadata = (!metadata.is_empty()).then(|| metadata.clone());
    let header = Metadata::new(metadata, infos).map_err(|e| io::Error::other(e.to_string()))?;
    let mut header = serde_json::to_value(&header)?;
    // The metadata are a hash map; they are sorted, so that the same contents give the same bytes.
    if let Some(metadata) = header.get_mut("__metadata__").and_then(|m| m.as_object_mut()) {
        metadata.sort_keys();
    }
    let mut bytes = serde_json::to_vec(&header)?;
    bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), b' ');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;
    use crate::train::{TensorFile, read_tensors};
    use safetensors::tensor::TensorView;

    #[test]
    fn a_streamed_file_is_the_one_that_the_library_writes() {
        let (_folder, path) = temporary_file("a.safetensors");
        let tensor =
            |name: &str, values: &[f32]| (name.to_owned(), HostTensor::from_slice([values.len()], values).unwrap());
        let mut tensors = vec![tensor("b", &[1.0, 2.5]), tensor("a", &[-0.0, f32::MAX, 3.0]), tensor("none", &[])];
        tensors.push(("count".to_owned(), HostTensor::from_slice([2], &[7i64, -1]).unwrap()));
        let metadata: HashMap<String, String> = [("key".to_owned(), "va\"lue".to_owned())].into();
        let views = tensors.iter().map(|(name, t)| {
            (name.as_str(), TensorView::new(file_dtype(t.dtype), t.shape.0.clone(), t.bytes()).unwrap())
        });
        let expected = safetensors::serialize(views, Some(metadata.clone())).unwrap();
        let file = TensorFile { tensors, metadata };
        file.write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        let read = read_tensors(&path).unwrap();
        assert_eq!(read.metadata, file.metadata);
        assert!(file.tensors.iter().all(|(name, t)| read.get(name) == Some(t)));
    }
}
