//! Reads safetensors files tensor by tensor, so that a file is never in memory as a whole.

use super::TrainError;
use super::file_dtype::dtype_of;
use super::tensor_writer::Stream;
use crate::tensor::{DType, HostTensor, Shape, try_room};
use safetensors::tensor::Metadata;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A longer header is considered invalid.
const MOST_HEADER: u64 = 100_000_000;

/// A tensor of an open file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// The start of its bytes in the file, and their number.
    start: u64,
    len: usize,
}

/// A safetensors file whose tensors are still on the disk.
pub(super) struct OpenTensors {
    path: PathBuf,
    file: File,
    /// In the file's order; tensors of unused types are left out.
    pub(super) entries: Vec<Entry>,
    pub(super) metadata: HashMap<String, String>,
}

/// Why a file cannot be read as one of tensors.
enum Unfit {
    Unread(io::Error),
    /// The header is valid, or longer than the file: a part of the file is missing.
    Broken(String),
    Other,
}

impl OpenTensors {
    /// Opens a safetensors file. For a file of another kind, `other` says what it is not, and `help` what to give.
    ///
    /// # Errors
    /// If it cannot be read, is of another kind, or is not complete.
    pub(super) fn open(path: &Path, other: &str, help: &'static str) -> Result<Self, TrainError> {
        // Something that is not a regular file may have no end.
        if path.exists() && !path.is_file() {
            return Err(TrainError::file(path, "is a folder, a device or a pipe", "give a safetensors file"));
        }
        let (file, start, header) = open_header(path).map_err(|unfit| match unfit {
            Unfit::Unread(e) => TrainError::file(path, format!("cannot be read: {e}"), "check the path"),
            Unfit::Broken(what) => broken(path, &what),
            Unfit::Other => TrainError::file(path, other, help),
        })?;
        let entry = |name: String| {
            let info = header.info(&name)?;
            let (from, to) = info.data_offsets;
            let (dtype, shape) = (dtype_of(info.dtype)?, Shape(info.shape.clone()));
            Some(Entry { name, dtype, shape, start: start + from as u64, len: to - from })
        };
        let entries = header.offset_keys().into_iter().filter_map(entry).collect();
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Self { path: path.to_owned(), file, entries, metadata })
    }

    /// The tensor with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Reads a tensor of this file.
    ///
    /// # Errors
    /// If the file has changed since it was opened.
    pub(super) fn read(&self, entry: &Entry) -> Result<HostTensor, TrainError> {
        // A tensor may be larger than the memory.
        let mut bytes =
            try_room(entry.len).map_err(|e| TrainError::file(&self.path, e.to_string(), "free some memory"))?;
        let read = self.at(entry).and_then(|mut from| from.read_to_end(&mut bytes));
        read.map_err(|e| broken(&self.path, &e.to_string()))?;
        HostTensor::from_bytes(entry.dtype, entry.shape.clone(), bytes).map_err(|e| broken(&self.path, &e.to_string()))
    }

    /// The tensors, which are read one after the other.
    pub(super) fn streams(&self) -> Vec<Stream<'_>> {
        let one = |entry| {
            let copy = move |out: &mut dyn Write| {
                let copied = io::copy(&mut self.at(entry)?, out)?;
                if copied == entry.len as u64 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            };
            Stream::new(&entry.name, entry.dtype, &entry.shape, copy)
        };
        self.entries.iter().map(one).collect()
    }

    /// The bytes of a tensor.
    fn at(&self, entry: &Entry) -> io::Result<io::Take<&File>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(entry.start))?;
        Ok(file.take(entry.len as u64))
    }
}

fn broken(path: &Path, what: &str) -> TrainError {
    let message = format!("is not a complete safetensors file: {what}");
    TrainError::file(path, message, "write it again, or give another file")
}

/// A file's header, and where its tensors start.
fn open_header(path: &Path) -> Result<(File, u64, Metadata), Unfit> {
    let mut file = File::open(path).map_err(Unfit::Unread)?;
    let len = file.metadata().map_err(Unfit::Unread)?.len();
    let mut word = [0; size_of::<u64>()];
    if len < word.len() as u64 {
        return Err(Unfit::Broken("header too small".into()));
    }
    file.read_exact(&mut word).map_err(Unfit::Unread)?;
    let header_len = u64::from_le_bytes(word);
    if header_len > MOST_HEADER {
        return Err(Unfit::Other);
    }
    let start = header_len + word.len() as u64;
    if start > len {
        return Err(Unfit::Broken("invalid header length".into()));
    }
    let mut text = vec![0; header_len as usize];
    file.read_exact(&mut text).map_err(Unfit::Unread)?;
    let header: Metadata = serde_json::from_slice(&text).map_err(|_| Unfit::Other)?;
    if start + header.data_len() as u64 != len {
        return Err(Unfit::Broken("incomplete metadata, file not fully covered".into()));
    }
    Ok((file, start, header))
}
