//! Compiled kernels, kept on disk.
//!
//! An entry holds the whole source that it was made from, so that neither a collision of hashes nor a changed kernel
//! can bring back the wrong code; a checksum rejects damaged ones.

use super::compiler::Arch;
use crate::tensor::Fnv;
use std::path::{Path, PathBuf};

/// Where compiled kernels are kept: `STEPGRAPH_CACHE`, else the user's cache folder; nowhere where there is none.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os("STEPGRAPH_CACHE") {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => Some(PathBuf::from(folder).join("kernels")),
        None => directories::ProjectDirs::from("", "", "stepgraph").map(|d| d.cache_dir().join("kernels")),
    }
}

fn entry_path(folder: &Path, source: &str, arch: Arch) -> PathBuf {
    folder.join(format!("{:016x}-{arch}.kernel", Fnv::of(source.as_bytes())))
}

/// Whether the cache seems to have the machine code of a source.
pub(super) fn is_kept(folder: &Path, source: &str, arch: Arch) -> bool {
    entry_path(folder, source, arch).exists()
}

/// Machine code of a source from the cache, where it is there and whole.
pub(super) fn cached(folder: &Path, source: &str, arch: Arch) -> Option<Vec<u8>> {
    let bytes = std::fs::read(entry_path(folder, source, arch)).ok()?;
    let (head, rest) = bytes.split_at_checked(16)?;
    let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (length, sum) = (usize::try_from(number(0)?).ok()?, number(8)?);
    let (kept, code) = rest.split_at_checked(length)?;
    (kept == source.as_bytes() && !code.is_empty() && Fnv::of(code) == sum).then(|| code.to_vec())
}

/// Keeps machine code in the cache. What cannot be kept is compiled again next time.
pub(super) fn keep(folder: &Path, source: &str, arch: Arch, code: &[u8]) {
    let mut bytes = Vec::with_capacity(16 + source.len() + code.len());
    bytes.extend_from_slice(&(source.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&Fnv::of(code).to_le_bytes());
    bytes.extend_from_slice(source.as_bytes());
    bytes.extend_from_slice(code);
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| crate::tensor::write_atomic(&entry_path(folder, source, arch), &bytes));
    if let Err(error) = written {
        log::warn!("compiled kernels are not kept in {}: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_it_kept_and_nothing_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (source, arch, code) = ("int x;", Arch(9, 0), b"machine code".to_vec());
        assert_eq!(cached(folder.path(), source, arch), None);
        keep(folder.path(), source, arch, &code);
        assert_eq!(cached(folder.path(), source, arch), Some(code));
        assert_eq!(cached(folder.path(), source, Arch(8, 0)), None);
        let path = entry_path(folder.path(), source, arch);
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 7, 16, 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(cached(folder.path(), source, arch), None, "cut at {cut}");
        }
        let mut changed = whole;
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert_eq!(cached(folder.path(), source, arch), None);
    }
}
