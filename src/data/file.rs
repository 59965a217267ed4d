//! Reads whole files, and unpacks those that are gzip.

use super::{DataError, Place};
use crate::tensor;
use flate2::read::MultiGzDecoder;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Gzip's first two bytes.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The file's name in messages.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The error of a file that the system cannot read.
fn refused(path: &Path, cause: io::Error) -> DataError {
    let help = "check the path and its permissions; relative paths start at the preset's folder";
    DataError::Read { file: shown(path), cause, help }
}

/// The system's error for each of these files and folders that cannot be opened.
pub(super) fn closed(paths: &[PathBuf], base: &Path) -> Vec<DataError> {
    let open = |path: &Path| match fs::metadata(path)? {
        kind if kind.is_dir() => fs::read_dir(path).map(drop),
        kind if kind.is_file() => fs::File::open(path).map(drop),
        // Opening a pipe may block until its other end is opened.
        _ => Ok(()),
    };
    let paths = paths.iter().map(|path| base.join(path));
    paths.filter_map(|path| open(&path).err().map(|cause| refused(&path, cause))).collect()
}

/// The bytes of a regular file.
///
/// # Errors
/// If it is missing, not readable, or a folder, a device or a pipe (whose length is not known in advance).
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, DataError> {
    let refused = |cause| refused(path, cause);
    let kind = fs::metadata(path).map_err(refused)?.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() { "a folder" } else { "a device, pipe or socket" };
        return Err(DataError::content(&shown(path), Place::Whole, found, "a file", "name the data file itself"));
    }
    tensor::read_file(path).map_err(refused)
}

/// True if the bytes start like a gzip file.
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP_MAGIC)
}

/// Unpacks at most `limit` bytes of a gzip file; memory grows with the number of unpacked bytes.
///
/// # Errors
/// If the packed data is damaged or truncated before `limit` is reached.
pub(super) fn gunzip(bytes: &[u8], limit: u64, file: &str) -> Result<Vec<u8>, DataError> {
    let mut unpacked = Vec::new();
    match MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut unpacked) {
        Ok(_) => Ok(unpacked),
        Err(source) => Err(DataError::content(
            file,
            Place::Byte(unpacked.len() as u64),
            format!("damaged gzip data ({source})"),
            "a complete gzip file",
            "the file is truncated or damaged: fetch it again",
        )),
    }
}
