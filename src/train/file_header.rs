//! The header of a safetensors file, read from the first bytes of the file.

use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The header of a safetensors file, null if it has none, and the bytes before the tensors.
pub(super) fn read_header(path: &Path) -> std::io::Result<(Value, u64)> {
    /// A longer header is considered invalid.
    const MOST: u64 = 100 << 20;
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut text = Vec::new();
    if length <= MOST {
        file.take(length).read_to_end(&mut text)?;
    }
    Ok((serde_json::from_slice(&text).unwrap_or_default(), length.saturating_add(8)))
}

/// The metadata of a safetensors file, read only from its first bytes; `None` if it is not such a file.
pub(super) fn metadata_of(path: &Path) -> Option<HashMap<String, String>> {
    // Something that is not a regular file may have no end, or block until there is a writer.
    let (header, _) = path.is_file().then(|| read_header(path).ok())??;
    serde_json::from_value(header["__metadata__"].clone()).ok()
}

/// Checks only a safetensors file's header: whether there is one, and the file is as long as it says.
///
/// # Errors
/// What is wrong with the file, as text.
pub fn check_header(path: &Path) -> Result<(), String> {
    let (header, before) = read_header(path).map_err(|e| e.to_string())?;
    let tensors = header.as_object().ok_or("its first bytes are not the header of a safetensors file")?;
    let ends = tensors.values().filter_map(|t| t["data_offsets"][1].as_u64());
    let wanted = before.saturating_add(ends.max().unwrap_or(0));
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if found < wanted { Err(format!("it ends after {found} of {wanted} bytes")) } else { Ok(()) }
}
