//! Files that are there whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// What the names of files that are being written start and end with.
const PREFIX: &str = ".stepgraph-";
const SUFFIX: &str = ".part";
/// No file takes so long to write: an older one belongs to a program that was killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Writes a file beside its final name, flushes it to the disk, and renames it into place: whoever looks sees the old file or the new one.
///
/// # Errors
/// Where the folder is missing or not writable, or the disk is full; the old file is untouched then.
pub fn write_atomic(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_atomic_with(path, |out| out.write_all(contents))
}

/// As [`write_atomic`], with the contents written by `fill`.
///
/// # Errors
/// As [`write_atomic`], and where `fill` fails.
pub fn write_atomic_with(
    path: &Path,
    fill: impl FnOnce(&mut io::BufWriter<&mut File>) -> io::Result<()>,
) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; name a file in it"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A temporary file is private by default; a result is as readable as any other file of the user's.
        builder.permissions(std::fs::Permissions::from_mode(0o644));
    }
    remove_abandoned(folder);
    let mut temporary = builder.tempfile_in(folder).map_err(|e| without_temporary(folder, &e))?;
    {
        let mut out = io::BufWriter::with_capacity(1 << 20, temporary.as_file_mut());
        fill(&mut out)?;
        out.flush()?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|e| e.error)?;
    // The rename itself must survive a power failure; some systems cannot open folders, and lose only that.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Removes what a killed program left half written in a folder. Whatever cannot be removed stays: it harms nobody but takes room.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|n| n.starts_with(PREFIX) && n.ends_with(SUFFIX));
        // The metadata of an entry are its own: a link is no file here.
        let old = |m: std::fs::Metadata| {
            m.is_file() && m.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > ABANDONED_AFTER))
        };
        if ours && entry.metadata().is_ok_and(old) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Looks whether files can be made in a folder: one is made beside what is there and removed again.
///
/// # Errors
/// Where the folder takes none.
pub fn probe_folder(folder: &Path) -> io::Result<()> {
    let probe = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder);
    probe.map(drop).map_err(|e| without_temporary(folder, &e))
}

/// The error of a temporary file without the name of that file, which tells a person nothing.
fn without_temporary(folder: &Path, error: &io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && folder.is_dir() {
        // Some of the system's own folders take no files.
        let text = format!("no file can be made in the folder {}", folder.display());
        return io::Error::new(io::ErrorKind::PermissionDenied, text);
    }
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), format!("there is no folder {}", folder.display()));
    }
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
}

/// Whether a file could not be written because of its place, which a person can choose otherwise. A full disk and a
/// failing one are no such place.
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
        _ => "choose another place or free some space",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_files_of_killed_programs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let days_old = |name: &str, days: u32| {
            let file = File::create(at(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - ABANDONED_AFTER * days).unwrap();
        };
        for (name, days) in
            [(".stepgraph-a.part", 2), (".stepgraph-b.part", 0), ("run.jsonl.part", 2), (".stepgraph-c", 2)]
        {
            days_old(name, days);
        }
        write_atomic(&at("a.json"), b"new").unwrap();
        assert!(!at(".stepgraph-a.part").exists());
        assert!([".stepgraph-b.part", "run.jsonl.part", ".stepgraph-c", "a.json"].iter().all(|n| at(n).exists()));
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
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
