//! Compiled kernels, kept on disk within a limit.
//!
//! An entry is found by a key: text that contains everything that its machine code depends on. The entry contains the
//! whole key, so that neither a collision of hashes nor another version of the program or the compiler can return wrong
//! code; a checksum detects damage. Machine code is compressed (LZ4), to about half of its size. No function here
//! fails: what cannot be read is compiled again, and what cannot be written is not stored.
//!
//! Any number of processes use one folder without a lock. An entry is written beside its name and renamed, is never
//! changed, and may be removed at any time. The modification time of its file is the time of its last use.

use crate::tensor::{Fnv, remove_leftovers, temporary_in};
use lz4_flex::block::{compress_prepend_size, decompress, uncompressed_size};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The default limit, in bytes.
const DEFAULT_LIMIT: u64 = 512 << 20;
/// The extension of entries. Other files in the folder are not touched.
const SUFFIX: &str = "kernel";
/// The name of the file that holds the chosen limit, in MiB.
const LIMIT_FILE: &str = "limit-mib";
/// The name of the file that says which libraries were loaded before.
pub(super) const LIBRARIES_FILE: &str = "libraries.json";
/// The first bytes of an entry: its format.
const MAGIC: &[u8; 8] = b"SGKERN3\n";
/// An entry whose file or machine code is longer is not used.
const LONGEST: u64 = 256 << 20;
/// An entry that was used more recently than this is not marked again.
const MARKED_AFTER: Duration = Duration::from_secs(60);

/// A number of entries and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    pub entries: usize,
    pub bytes: u64,
}

/// A folder of compiled kernels.
#[derive(Debug)]
pub struct KernelCache {
    folder: PathBuf,
    limit_bytes: u64,
    /// Bytes that this process has written since it last scanned the whole folder; the largest number before the first
    /// scan.
    unchecked: AtomicU64,
    /// Whether a failed write was reported; further failures are not.
    complained: AtomicBool,
}

/// The folder of compiled kernels: `STEPGRAPH_CACHE`, or the user's cache folder; `None` if there is neither.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os("STEPGRAPH_CACHE") {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => Some(PathBuf::from(folder).join("kernels")),
        None => directories::ProjectDirs::from("", "", "stepgraph").map(|d| d.cache_dir().join("kernels")),
    }
}

/// The limit in `STEPGRAPH_CACHE_MIB`, in bytes; `None` if it is not set.
///
/// # Errors
/// If it is not a whole number.
pub fn limit_variable() -> Result<Option<u64>, String> {
    match std::env::var("STEPGRAPH_CACHE_MIB") {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => match bytes_of(&text) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(format!("STEPGRAPH_CACHE_MIB is {text:?}: set it to a whole number of MiB, such as 512")),
        },
        Err(_) => Ok(None),
    }
}

/// A number of MiB as bytes.
fn bytes_of(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok()?.checked_mul(1 << 20)
}

impl KernelCache {
    /// The cache in [`cache_folder`], with the limit that the environment or the folder's own file sets, or 512 MiB.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        let folder = cache_folder()?;
        // The program has reported a wrong value at its start.
        let variable = limit_variable().unwrap_or_default();
        let chosen = || bytes_of(&std::fs::read_to_string(folder.join(LIMIT_FILE)).ok()?);
        let limit_bytes = variable.or_else(chosen).unwrap_or(DEFAULT_LIMIT);
        Some(Self::at(folder, limit_bytes))
    }

    /// A cache in a folder, which need not exist, of at most this many bytes. A cache of 0 bytes stores nothing.
    #[must_use]
    pub const fn at(folder: PathBuf, limit_bytes: u64) -> Self {
        Self { folder, limit_bytes, unchecked: AtomicU64::new(u64::MAX), complained: AtomicBool::new(false) }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The largest size, in bytes.
    #[must_use]
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Sets the limit of this folder for every process that starts from now on, and applies it immediately.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn set_limit_mib(&mut self, mib: u32) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        crate::tensor::write_atomic(&self.folder.join(LIMIT_FILE), format!("{mib}\n").as_bytes())?;
        self.limit_bytes = u64::from(mib) << 20;
        self.trim();
        Ok(())
    }

    /// The current content.
    #[must_use]
    pub fn usage(&self) -> CacheUsage {
        usage_of(&self.entries())
    }

    /// Removes all entries, what is known of libraries, and the partial files of killed processes; returns the removed
    /// entries.
    ///
    /// # Errors
    /// The first entry that cannot be removed.
    pub fn clear(&self) -> io::Result<CacheUsage> {
        remove_leftovers(&self.folder);
        // It is written again by the next start.
        let _ = std::fs::remove_file(self.folder.join(LIBRARIES_FILE));
        let entries = self.entries();
        for entry in &entries {
            match std::fs::remove_file(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(usage_of(&entries))
    }

    fn path(&self, key: &str) -> PathBuf {
        // Another format has other names: a file of an older one must not seem to be an entry.
        self.folder.join(format!("{:016x}.{SUFFIX}", Fnv::of(&[MAGIC, key.as_bytes()].concat())))
    }

    /// Whether it probably has the machine code of a key.
    pub(super) fn seems_to_hold(&self, key: &str) -> bool {
        self.path(key).is_file()
    }

    /// The machine code of a key, if it exists and is undamaged. Marks the entry as used.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut file = File::open(self.path(key)).ok()?;
        let metadata = file.metadata().ok().filter(|m| m.is_file() && m.len() <= LONGEST)?;
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        (&mut file).take(LONGEST).read_to_end(&mut bytes).ok()?;
        let code = code_in(&bytes, key)?;
        if used_at(&metadata).elapsed().is_ok_and(|age| age > MARKED_AFTER) {
            // If this fails, the only effect is that the entry is removed sooner.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(code)
    }

    /// Stores machine code. If it cannot be stored, it is compiled again next time.
    pub(super) fn keep(&self, key: &str, code: &[u8]) {
        if self.limit_bytes == 0 {
            return;
        }
        match self.write(key, code) {
            Ok(bytes) => self.count(bytes),
            Err(error) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    log::warn!("compiled kernels are not kept in {}: {error}", self.folder.display());
                }
            }
        }
    }

    /// Removes the entry of a key, because it is useless.
    pub(super) fn remove(&self, key: &str) {
        let _ = std::fs::remove_file(self.path(key));
    }

    /// Writes an entry; returns its size. Nothing is flushed to the disk: damage from a power failure is detected.
    fn write(&self, key: &str, code: &[u8]) -> io::Result<u64> {
        let packed = compress_prepend_size(code);
        std::fs::create_dir_all(&self.folder)?;
        let mut temporary = temporary_in(&self.folder)?;
        let mut bytes = Vec::with_capacity(24 + key.len() + packed.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&Fnv::of(&packed).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&packed);
        temporary.write_all(&bytes)?;
        temporary.persist(self.path(key)).map_err(|e| e.error)?;
        Ok(bytes.len() as u64)
    }

    /// Records bytes that were written, and scans the whole folder when they could exceed its limit: after the first
    /// write, and after each 64th part of the limit. So eight processes that write at the same time exceed it by at
    /// most an eighth.
    fn count(&self, bytes: u64) {
        let add = |before: u64| Some(before.saturating_add(bytes));
        let before = self.unchecked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(u64::MAX);
        if before.saturating_add(bytes) >= self.limit_bytes / 64 {
            self.unchecked.store(0, Ordering::Relaxed);
            self.trim();
        }
    }

    /// If less than 3/16 of the limit is free, removes entries, the least recently used ones first, until a quarter is
    /// free.
    fn trim(&self) {
        remove_leftovers(&self.folder);
        let mut entries = self.entries();
        let mut bytes = usage_of(&entries).bytes;
        if bytes <= self.limit_bytes / 16 * 13 {
            return;
        }
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if bytes <= self.limit_bytes / 4 * 3 {
                break;
            }
            // Another process may have removed it, or it cannot be removed.
            if std::fs::remove_file(&entry.path).is_ok() || !entry.path.exists() {
                bytes -= entry.bytes;
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let entry = |file: std::fs::DirEntry| {
            let path = file.path();
            let metadata = file.metadata().ok().filter(Metadata::is_file)?;
            let is_entry = path.extension().is_some_and(|e| e == SUFFIX);
            is_entry.then(|| Entry { path, bytes: metadata.len(), used: used_at(&metadata) })
        };
        files.filter_map(entry).collect()
    }
}

/// The path of an entry.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

fn usage_of(entries: &[Entry]) -> CacheUsage {
    CacheUsage { entries: entries.len(), bytes: entries.iter().map(|e| e.bytes).sum() }
}

/// The time of an entry's last use; the distant past if the system does not report it.
fn used_at(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The machine code in the bytes of an entry, if they are undamaged and belong to this key.
fn code_in(bytes: &[u8], key: &str) -> Option<Vec<u8>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (head, rest) = rest.split_at_checked(16)?;
    let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (length, sum) = (usize::try_from(number(0)?).ok()?, number(8)?);
    let (kept, packed) = rest.split_at_checked(length)?;
    if kept != key.as_bytes() || Fnv::of(packed) != sum {
        return None;
    }
    // A false length must not reserve more than `LONGEST` bytes.
    let (size, packed) = uncompressed_size(packed).ok().filter(|(size, _)| (1..=LONGEST).contains(&(*size as u64)))?;
    decompress(packed, size).ok().filter(|code| code.len() == size)
}

#[cfg(test)]
mod tests;
