//! Files that are either complete or absent.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The prefix and the suffix of the names of files that are being written.
const PREFIX: &str = ".stepgraph-";
const SUFFIX: &str = ".part";
/// If files cannot be locked, a file of this age counts as abandoned: no file takes that long to write.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Writes a temporary file, flushes it to the disk, and renames it to its final name: readers see the old file or the
/// new one.
///
/// # Errors
/// If the folder is missing or not writable, or the disk is full; then the old file is unchanged.
pub fn write_atomic(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_atomic_with(path, |out| out.write_all(contents))
}

/// Like [`write_atomic`], with the contents written by `fill`.
///
/// # Errors
/// As for [`write_atomic`], and if `fill` fails.
pub fn write_atomic_with(
    path: &Path,
    fill: impl FnOnce(&mut io::BufWriter<&mut File>) -> io::Result<()>,
) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; name a file in it"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    remove_leftovers(folder);
    let mut temporary = temporary_in(folder)?;
    {
        let mut out = io::BufWriter::with_capacity(1 << 20, temporary.as_file_mut());
        fill(&mut out)?;
        out.flush()?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|e| e.error)?;
    sync_folder(folder);
    Ok(())
}

/// Flushes the names in a folder to the disk, so that they survive a power failure. Some systems cannot open folders,
/// and lose only that.
pub fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// A new file with a short name, locked while it is written: if another program gets the lock, the writer has ended.
///
/// # Errors
/// If no file can be created there; the error does not name the temporary file, which the user does not know.
pub fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A temporary file is private by default; a result gets the usual permissions of the user's files.
        builder.permissions(std::fs::Permissions::from_mode(0o644));
    }
    loop {
        let temporary = builder.tempfile_in(folder).map_err(|e| without_temporary(folder, &e))?;
        let is_locked = temporary.as_file().try_lock();
        // Another program may have removed the new file as abandoned before it was locked: then a newer one is created.
        if !matches!(is_locked, Err(TryLockError::WouldBlock)) && temporary.path().exists() {
            return Ok(temporary);
        }
    }
}

/// Removes incomplete files of killed programs from a folder, but no file that a running program writes. A file that
/// cannot be removed stays; it only takes space.
pub fn remove_leftovers(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|n| n.starts_with(PREFIX) && n.ends_with(SUFFIX));
        // The type is that of the entry itself: a link does not count as a file.
        if is_ours && entry.file_type().is_ok_and(|t| t.is_file()) {
            remove_where_abandoned(&entry.path());
        }
    }
}

fn remove_where_abandoned(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let is_old =
        || file.metadata().and_then(|m| m.modified()).is_ok_and(|t| t.elapsed().is_ok_and(|age| age > ABANDONED_AFTER));
    let is_abandoned = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => is_old(),
    };
    if is_abandoned {
        let _ = std::fs::remove_file(path);
    }
}

/// The error of a temporary file without the name of that file, which the user does not know.
fn without_temporary(folder: &Path, error: &io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && folder.is_dir() {
        // Some of the system's own folders accept no files.
        let text = format!("no file can be made in the folder {}", folder.display());
        return io::Error::new(io::ErrorKind::PermissionDenied, text);
    }
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), format!("there is no folder {}", folder.display()));
    }
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
}

/// Whether a file could not be written because of its location, so that the user can choose another one; false for a
/// full or failing disk.
#[must_use]
pub fn is_wrong_place(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    matches!(
        error.kind(),
        AlreadyExists
            | InvalidFilename
            | InvalidInput
            | IsADirectory
            | NotADirectory
            | NotFound
            | PermissionDenied
            | ReadOnlyFilesystem
    )
}

/// What to do about a file that could not be written.
#[must_use]
pub fn write_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "make the folder or choose another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a place where you may write",
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "choose another place"
        }
        io::ErrorKind::InvalidFilename => "give a shorter name",
        _ => "choose another place or free some space",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    #[test]
    fn abandoned_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".stepgraph-a.part", "run.jsonl.part", ".stepgraph-c"] {
            File::create(at(name)).unwrap();
        }
        let written = temporary_in(folder.path()).unwrap();
        write_atomic(&at("a.json"), b"new").unwrap();
        assert!(!at(".stepgraph-a.part").exists());
        assert!(["run.jsonl.part", ".stepgraph-c", "a.json"].iter().all(|n| at(n).exists()));
        assert!(written.path().exists(), "a file that is being written stays");
        // The state that a killed program leaves.
        let (file, path) = written.keep().unwrap();
        drop(file);
        remove_leftovers(folder.path());
        assert!(!path.exists());
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let (folder, path) = temporary_file("a.json");
        write_atomic(&path, b"old").unwrap();
        let failed = write_atomic_with(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomic(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(write_atomic(folder.path(), b"x").is_err());
        let missing = write_atomic(&folder.path().join("no/such/folder"), b"x").unwrap_err();
        assert!(missing.to_string().starts_with("there is no folder ") && !missing.to_string().contains(".part"));
        assert_eq!(write_advice(&missing), "make the folder or choose another place");
    }
}
