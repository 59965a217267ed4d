//! A place where a run stores what survives a step, to go back to it: in memory if that is small, in an unnamed file if
//! it is large.

use super::TrainError;
use super::memory_needs::is_small;
use crate::exec::Step;
use crate::tensor::{Bytes, zero_bytes};
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

/// A place for what survives a step.
pub(super) enum KeptState {
    Memory(Vec<u8>),
    /// Deleted by the system when the program ends, however it ends.
    File(File),
}

/// The place of a state of a known size: the file exists, with reserved space, and memory is not allocated yet.
pub(super) enum Place {
    Memory,
    File(File),
}

impl Place {
    /// A place for this many bytes, for a step that runs in this machine's memory or otherwise on a device: a device's
    /// states are kept in the host's memory, where they are not already.
    pub(super) fn of(bytes: u64, here: bool) -> Self {
        if !here || is_small(bytes) {
            return Self::Memory;
        }
        for folder in folders() {
            match file_in(&folder, bytes) {
                Ok(file) => return Self::File(file),
                Err(why) => {
                    log::warn!("{}: not enough space for {} of a run's state: {why}", folder.display(), Bytes(bytes))
                }
            }
        }
        Self::Memory
    }

    pub(super) const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory)
    }

    /// The place itself, using memory that was allocated before if there is some.
    pub(super) fn take(self, bytes: usize, taken: Option<Vec<u8>>) -> KeptState {
        match self {
            Self::Memory => KeptState::Memory(taken.unwrap_or_else(|| zero_bytes(bytes))),
            Self::File(file) => KeptState::File(file),
        }
    }
}

impl KeptState {
    /// Stores the current state of `step`. Allocates nothing.
    ///
    /// # Errors
    /// If the device or the disk fails.
    pub(super) fn save(&mut self, step: &mut Step) -> Result<(), TrainError> {
        match self {
            Self::Memory(saved) => Ok(step.snapshot_into(saved)?),
            Self::File(file) => file.rewind().and_then(|()| step.write_survivors(file)).map_err(lost),
        }
    }

    /// Restores the stored state of `step`.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub(super) fn put_back(&self, step: &mut Step) -> Result<(), TrainError> {
        match self {
            Self::Memory(saved) => Ok(step.restore(saved)?),
            Self::File(file) => {
                let mut file = file;
                file.rewind().and_then(|()| step.read_survivors(&mut file)).map_err(lost)
            }
        }
    }

    pub(super) const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }
}

fn lost(cause: io::Error) -> TrainError {
    TrainError::Kept(cause)
}

/// Folders for such files: the user's cache folder, then the system's folder for temporary files that survive a
/// restart.
fn folders() -> Vec<PathBuf> {
    let cache = directories::ProjectDirs::from("", "", "stepgraph").map(|d| d.cache_dir().to_owned());
    cache.into_iter().chain([std::env::temp_dir()]).collect()
}

/// An unnamed file in `folder`, with reserved space for this many bytes.
fn file_in(folder: &Path, bytes: u64) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let file = tempfile::tempfile_in(folder)?;
    reserve(&file, bytes)?;
    Ok(file)
}

/// Reserves space on the disk, so that no later write fails. Files in memory are refused.
#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
    use rustix::io::Errno;
    /// The type numbers of file systems in memory.
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    if IN_MEMORY.contains(&(fstatfs(file)?.f_type as u32)) {
        return Err(io::Error::other("this folder is in memory"));
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Some file systems cannot reserve space.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let found = fstatvfs(file)?;
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            if free < bytes { Err(io::ErrorKind::StorageFull.into()) } else { file.set_len(bytes) }
        }
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::exec::cpu::host_target;
    use crate::model::{BUNDLED, check, read_preset};
    use crate::train::memory_needs::SMALL;
    use std::sync::Arc;

    #[test]
    fn a_state_is_restored_from_memory_and_from_a_file() {
        let preset = read_preset(BUNDLED.iter().find(|b| b.name == "xor").unwrap().text).unwrap();
        let compiled = compile(&check(&preset).model.unwrap(), &Options::train(host_target(1))).unwrap();
        let mut step = Step::new(Arc::new(compiled), 1).unwrap();
        let bytes = step.compiled().plan.persistent_bytes;
        let folder = tempfile::tempdir().unwrap();
        // If the system keeps temporary files in memory, no folder is offered there.
        let offered = file_in(&folder.path().join("deeper"), bytes);
        assert!(offered.as_ref().map_or(true, |file| file.metadata().unwrap().len() >= bytes));
        let file = offered.unwrap_or_else(|_| tempfile::tempfile().unwrap());
        for place in [Place::Memory, Place::File(file)] {
            let mut kept = place.take(bytes as usize, None);
            let state: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            step.restore(&state).unwrap();
            kept.save(&mut step).unwrap();
            step.restore(&vec![0; state.len()]).unwrap();
            kept.put_back(&mut step).unwrap();
            assert_eq!(step.snapshot().unwrap(), state);
            // A second state replaces the first.
            step.restore(&vec![7; state.len()]).unwrap();
            kept.save(&mut step).unwrap();
            step.restore(&state).unwrap();
            kept.put_back(&mut step).unwrap();
            assert_eq!(step.snapshot().unwrap(), vec![7; state.len()]);
        }
        assert!(Place::of(SMALL, true).is_memory() && Place::of(SMALL * 1000, false).is_memory());
        assert_eq!(std::fs::read_dir(folder.path().join("deeper")).unwrap().count(), 0, "the file has no name");
    }
}
