//! What earlier starts of the program found out about libraries, on disk, so that a start loads only those that it
//! uses: on a machine with an H200, loading all of them delays the first step by 70 ms.
//!
//! A library counts as known if its file is unchanged, and if nothing changed in the usual folders in which the system
//! looks for libraries: with a new file there, the system might load another one. When a library is loaded, its version
//! is compared with the known one ([`super::probe::agrees`]).

use super::kernel_cache::{KernelCache, LIBRARIES_FILE, cache_folder};
use crate::tensor::write_atomic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Where the system looks for libraries in addition to the folders in `LD_LIBRARY_PATH`: its list of installed
/// libraries with the folders that this was made from, its own folders, and the link to the chosen version of CUDA.
const OF_SYSTEM: [&str; 9] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/cuda",
];

/// A file or folder, and when it changed; links are followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    path: PathBuf,
    /// Nanoseconds since 1970; 0 if it is missing.
    modified_ns: u64,
    /// The length of a file, in bytes.
    bytes: u64,
}

impl Place {
    fn of(path: &Path) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let metadata = path.metadata();
        let since = |m: &Metadata| m.modified().ok()?.duration_since(UNIX_EPOCH).ok();
        let modified = metadata.as_ref().ok().and_then(since).map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(0));
        Self { modified_ns: modified, bytes: metadata.map_or(0, |m| m.len()), path }
    }

    fn exists(&self) -> bool {
        self.modified_ns > 0
    }
}

/// A library that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownLibrary {
    file: Place,
    version: String,
}

/// The libraries that were loaded before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownLibraries {
    /// Where the system looks for libraries.
    searched: Vec<Place>,
    /// By name, as in [`super::probe::Library`].
    libraries: BTreeMap<String, KnownLibrary>,
}

impl KnownLibraries {
    /// No library is known yet.
    pub(super) fn none() -> Self {
        Self { searched: searched(), libraries: BTreeMap::new() }
    }

    /// The libraries that are still where the user's file says.
    pub(super) fn of_user() -> Self {
        cache_folder().map_or_else(Self::none, |folder| Self::read(&folder.join(LIBRARIES_FILE)))
    }

    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut known = Self::none();
        if let Ok(read) = serde_json::from_str::<Self>(&text)
            && read.searched == known.searched
        {
            known.libraries = read.libraries;
            known.libraries.retain(|_, library| library.file.exists() && library.file == Place::of(&library.file.path));
        }
        known
    }

    /// The version of a library that was loaded before.
    pub(super) fn version_of(&self, name: &str) -> Option<&str> {
        self.libraries.get(name).map(|library| library.version.as_str())
    }

    /// Notes a library that this process has loaded. `file_name` is how the name of its file starts.
    pub(super) fn note(&mut self, name: &str, file_name: &str, version: &str) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if let Some(file) = loaded_file(&maps, file_name).map(Place::of).filter(Place::exists) {
            self.libraries.insert(name.to_owned(), KnownLibrary { file, version: version.to_owned() });
        }
    }

    /// Writes the user's file, if kernels are stored too. If it cannot be written, the next start loads all libraries
    /// again.
    pub(super) fn keep(&self) {
        let Some(folder) = cache_folder() else { return };
        if KernelCache::of_user().is_none_or(|cache| cache.limit_bytes() == 0) {
            return;
        }
        let written = std::fs::create_dir_all(&folder).and_then(|()| self.write(&folder.join(LIBRARIES_FILE)));
        if let Err(why) = written {
            log::debug!("{}: the libraries that were found are not noted: {why}", folder.display());
        }
    }

    /// Removes the user's file: the system has loaded something else than it says. Returns whether it is gone.
    pub(super) fn forget() -> bool {
        let Some(file) = cache_folder().map(|folder| folder.join(LIBRARIES_FILE)) else { return true };
        std::fs::remove_file(&file).is_ok() || !file.exists()
    }

    fn write(&self, file: &Path) -> std::io::Result<()> {
        write_atomic(file, &serde_json::to_vec_pretty(self)?)
    }
}

/// Where the system looks for libraries, in this process.
fn searched() -> Vec<Place> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let system = OF_SYSTEM.iter().map(Path::new);
    named.iter().map(PathBuf::as_path).chain(system).map(Place::of).collect()
}

/// The file in a process's list of mapped memory whose name starts like this.
fn loaded_file<'a>(maps: &'a str, file_name: &str) -> Option<&'a Path> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut named = paths.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(file_name)));
    named.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0-55d1 r--p 00000000 08:01 11 /usr/bin/stepgraph\n\
7f00-7f01 rw-p 00000000 00:00 0 \n\
7f01-7f02 r--p 00000000 08:01 12 /opt/new cuda/libnvrtc-builtins.so.13.0\n\
7f02-7f03 r-xp 00001000 08:01 13 /opt/new cuda/libnvrtc.so.13\n";

    #[test]
    fn the_file_of_a_loaded_library_is_in_the_list_of_mapped_memory() {
        assert_eq!(loaded_file(MAPS, "libnvrtc.so"), Some(Path::new("/opt/new cuda/libnvrtc.so.13")));
        assert_eq!(loaded_file(MAPS, "libcudnn.so"), None);
        let own = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert!(loaded_file(&own, "libc.so").is_some_and(Path::exists));
        }
    }

    #[test]
    fn a_library_is_known_until_its_file_or_a_folder_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, library) = (folder.path().join(LIBRARIES_FILE), folder.path().join("libx.so.1"));
        std::fs::write(&library, "first").unwrap();
        let mut known = KnownLibraries::none();
        let noted = KnownLibrary { file: Place::of(&library), version: "1.2".into() };
        known.libraries.insert("x".into(), noted);
        known.write(&file).unwrap();
        assert_eq!(KnownLibraries::read(&file), known);
        assert_eq!(KnownLibraries::read(&file).version_of("x"), Some("1.2"));

        std::fs::write(&library, "another one").unwrap();
        assert_eq!(KnownLibraries::read(&file).version_of("x"), None, "the library has changed");

        let mut moved = known.clone();
        moved.libraries.get_mut("x").unwrap().file = Place::of(&library);
        moved.searched[0].modified_ns += 1;
        moved.write(&file).unwrap();
        assert_eq!(KnownLibraries::read(&file).version_of("x"), None, "a folder has changed");

        std::fs::remove_file(&library).unwrap();
        let mut gone = KnownLibraries::none();
        gone.libraries.insert("x".into(), KnownLibrary { file: Place::of(&library), version: "1.2".into() });
        gone.write(&file).unwrap();
        assert_eq!(KnownLibraries::read(&file).version_of("x"), None, "the library is missing");

        for garbage in ["", "{}", "[1, 2]", "\u{0}"] {
            std::fs::write(&file, garbage).unwrap();
            assert_eq!(KnownLibraries::read(&file), KnownLibraries::none(), "{garbage:?}");
        }
    }
}
