//! Temporary files for tests, which are removed at the end.

use std::path::PathBuf;
use tempfile::TempDir;

/// A new folder, which is removed with the value, and the path of a file with this name in it.
pub fn temporary_file(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}
