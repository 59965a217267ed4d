//! The header of a safetensors file, read from the first bytes of the file.

use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The header of a safetensors file, null where it has none, and the bytes before the tensors.
pub(super) fn read_header(path: &Path) -> std::io::Result<(Value, u64)> {
    /// A header that is longer is no header.
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

/// The metadata of a safetensors file, read from its first bytes alone; `None` where it is no such file.
pub(super) fn metadata_of(path: &Path) -> Option<HashMap<String, String>> {
    // What is no file may have no end, or wait for a writer.
    let (header, _) = path.is_file().then(|| read_header(path).ok())??;
    serde_json::from_value(header["__metadata__"].clone()).ok()
}

/// Looks at a safetensors file's header alone: whether there is one, and the file is as long as it says.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn check_header(path: &Path) -> Result<(), String> {
    let (header, before) = read_header(path).map_err(|e| e.to_string())?;
    let tensors = header.as_object().ok_or("its first bytes are no header of safetensors")?;
    let ends = tensors.values().filter_map(|t| t["data_offsets"][1].as_u64());
    let wanted = before.saturating_add(ends.max().unwrap_or(0));
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if found < wanted { Err(format!("it ends after {found} of {wanted} bytes")) } else { Ok(()) }
}
