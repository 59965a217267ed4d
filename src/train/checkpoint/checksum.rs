//! The checksum of a checkpoint.

use crate::tensor::HostTensor;
use crate::train::TrainError;
use crate::train::file_keys::{CHECKPOINT, CHECKSUM, ORIGIN};
use crate::train::tensor_writer::{Stream, checksum_of};
use std::collections::HashMap;
use std::path::Path;

/// The checksum over the header and every tensor in order of the names, in hexadecimal.
pub(in crate::train) fn checksum(header: &str, tensors: &[(String, HostTensor)]) -> String {
    let streams: Vec<Stream> = tensors.iter().map(|(name, t)| Stream::held(name, t)).collect();
    // Tensors in memory can always be read.
    checksum_of(header, &streams).unwrap_or_default()
}

/// Compares a checkpoint's tensors with its checksum. Other files have none.
///
/// # Errors
/// If they do not match.
pub(in crate::train) fn check_sum(
    path: &Path,
    metadata: &HashMap<String, String>,
    streams: &[Stream<'_>],
) -> Result<(), TrainError> {
    let Some(header) = metadata.get(CHECKPOINT) else { return Ok(()) };
    let origin = metadata.get(ORIGIN).map_or("", String::as_str);
    let text = format!("{header}{origin}");
    if metadata.get(CHECKSUM).is_some_and(|sum| checksum_of(&text, streams).is_ok_and(|own| own == *sum)) {
        return Ok(());
    }
    Err(TrainError::file(path, "is damaged: its contents do not match its checksum", "go back to an older checkpoint"))
}
