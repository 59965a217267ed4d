//! Paths in JSON, which contains only Unicode: a path of other bytes is written as it is shown, together with its
//! bytes.
//!
//! For fields with `#[serde(with = "path_text")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// A path as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes {
        /// The readable text.
        text: String,
        bytes: Vec<u8>,
    },
}

/// The bytes of a path that is not Unicode, on systems whose paths are bytes.
#[cfg(unix)]
fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    Some(path.as_os_str().as_bytes().to_vec())
}

#[cfg(not(unix))]
fn bytes_of(_: &Path) -> Option<Vec<u8>> {
    None
}

#[cfg(unix)]
fn path_of(_: String, bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
fn path_of(text: String, _: Vec<u8>) -> PathBuf {
    text.into()
}

/// Writes a path.
///
/// # Errors
/// If the writer fails.
pub fn serialize<S: Serializer>(path: &Path, writer: S) -> Result<S::Ok, S::Error> {
    let text = path.to_string_lossy().into_owned();
    let bytes = if path.to_str().is_some() { None } else { bytes_of(path) };
    match bytes {
        None => Written::Text(text),
        Some(bytes) => Written::Bytes { text, bytes },
    }
    .serialize(writer)
}

/// Reads a path.
///
/// # Errors
/// If it is neither a text nor a text with bytes.
pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<PathBuf, D::Error> {
    Ok(match Written::deserialize(reader)? {
        Written::Text(text) => text.into(),
        Written::Bytes { text, bytes } => path_of(text, bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Place {
        #[serde(with = "super")]
        base: PathBuf,
    }

    #[test]
    fn a_path_is_unchanged_after_writing_and_reading() {
        let plain = Place { base: "a/caf\u{e9}".into() };
        let text = serde_json::to_string(&plain).unwrap();
        assert_eq!(text, "{\"base\":\"a/caf\u{e9}\"}");
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), plain);
        #[cfg(unix)]
        {
            let odd = Place { base: path_of(String::new(), b"a/caf\xe9".to_vec()) };
            let text = serde_json::to_string(&odd).unwrap();
            assert!(text.contains("a/caf\u{fffd}"), "{text}");
            assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), odd);
        }
    }
}
