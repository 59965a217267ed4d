//! Files of tokens in the user's cache folder, so that a large text is tokenised once.

use super::DataError;
use super::token_store::{TextKey, TokenStore, Tokenized, Width};
use crate::tensor::Fnv;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tempfile::NamedTempFile;

/// The number of files that are kept; the oldest one is removed when there would be more.
const MOST_FILES: usize = 4;

/// Tokens that are being written.
pub(super) struct TokenFile {
    file: NamedTempFile,
    width: Width,
    len: u64,
    bytes: Vec<u8>,
}

/// The folders for such files; the first one that is writable is used.
pub(super) struct TokenFolders(pub(super) Vec<PathBuf>);

impl Default for TokenFolders {
    /// The user's cache folder, then the system's folder for temporary files.
    fn default() -> Self {
        let cache = directories::ProjectDirs::from("", "", "stepgraph").map(|d| d.cache_dir().join("tokens"));
        Self(cache.into_iter().chain([std::env::temp_dir()]).collect())
    }
}

impl TokenFolders {
    /// A new file.
    ///
    /// # Errors
    /// If no folder is writable.
    pub(super) fn create(&self, width: Width) -> Result<TokenFile, DataError> {
        let mut failed = None;
        for folder in &self.0 {
            match std::fs::create_dir_all(folder).and_then(|()| NamedTempFile::new_in(folder)) {
                Ok(file) => return Ok(TokenFile { file, width, len: 0, bytes: Vec::new() }),
                Err(cause) => failed = failed.or(Some(refused(folder, cause))),
            }
        }
        Err(failed.unwrap_or_else(|| refused(Path::new("."), io::ErrorKind::NotFound.into())))
    }

    /// The stored tokens of a text, if they are complete.
    pub(super) fn find(&self, key: &TextKey, width: Width) -> Option<Tokenized> {
        let prefix = prefix(key);
        let mut found = self.0.iter().flat_map(|folder| files(folder).collect::<Vec<_>>());
        let (path, _, len) = found.find(|(_, other, _)| *other == prefix)?;
        let opened = File::open(path).ok()?;
        let is_whole = opened.metadata().ok()?.len() == len.checked_mul(width.bytes() as u64)?;
        is_whole.then(|| Tokenized { store: TokenStore::File(Arc::new(opened), width), len })
    }
}

/// The error of tokens that cannot be stored.
fn refused(folder: &Path, cause: io::Error) -> DataError {
    let help = "the tokens of a large text are kept there: free some space, or set XDG_CACHE_HOME to another folder";
    DataError::Read { file: folder.display().to_string(), cause, help }
}

impl TokenFile {
    /// Appends tokens.
    ///
    /// # Errors
    /// If the disk is full.
    pub(super) fn add(&mut self, tokens: &[u32]) -> Result<(), DataError> {
        self.bytes.clear();
        self.width.encode(tokens, &mut self.bytes);
        self.len += tokens.len() as u64;
        self.file.write_all(&self.bytes).map_err(|cause| refused(self.file.path(), cause))
    }

    /// The tokens. The file gets a name if it can be found again later; otherwise it is deleted when its last reader
    /// closes it.
    ///
    /// # Errors
    /// If it cannot be opened for reading.
    pub(super) fn finish(self, key: Option<&TextKey>) -> Result<Tokenized, DataError> {
        let Self { file, width, len, .. } = self;
        let opened = file.reopen().map_err(|cause| refused(file.path(), cause))?;
        if let (Some(key), Some(folder)) = (key, file.path().parent().map(Path::to_owned)) {
            make_room(&folder, &prefix(key));
            // A file without a name cannot be found again, so that the tokens are computed again next time.
            let _ = file.persist(folder.join(format!("{}{len}.tokens", prefix(key))));
        }
        Ok(Tokenized { store: TokenStore::File(Arc::new(opened), width), len })
    }
}

/// The prefix of the file names.
fn prefix(key: &TextKey) -> String {
    let mut hash = Fnv::new();
    hash.add(key.text.path.to_string_lossy().as_bytes());
    let changed = key.text.changed.duration_since(UNIX_EPOCH).unwrap_or_default();
    for number in [key.text.bytes, changed.as_secs(), u64::from(changed.subsec_nanos()), key.tokenizer] {
        hash.add(&number.to_le_bytes());
    }
    format!("{:016x}-", hash.sum())
}

/// The files of tokens in a folder, with the number of tokens in each name.
fn files(folder: &Path) -> impl Iterator<Item = (PathBuf, String, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (prefix, len) = name.strip_suffix(".tokens")?.split_once('-')?;
        Some((entry.path(), format!("{prefix}-"), len.parse().ok()?))
    })
}

/// Removes the oldest files so that there is room for one more, and files of the same name.
fn make_room(folder: &Path, prefix: &str) {
    let age = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).unwrap_or(UNIX_EPOCH);
    let (same, mut others): (Vec<_>, Vec<_>) = files(folder).partition(|(_, other, _)| other == prefix);
    others.sort_by_key(|(path, ..)| age(path));
    let surplus = (others.len() + 1).saturating_sub(MOST_FILES);
    for (path, ..) in same.into_iter().chain(others.into_iter().take(surplus)) {
        // If one cannot be removed, there is one more than the limit.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::token_store::FileVersion;

    fn key(tokenizer: u64) -> TextKey {
        TextKey { text: FileVersion { path: "t.txt".into(), bytes: 10, changed: UNIX_EPOCH }, tokenizer }
    }

    fn written(folders: &TokenFolders, tokens: &[u32], key: Option<&TextKey>) -> Tokenized {
        let mut file = folders.create(Width::Two).unwrap();
        tokens.chunks(3).for_each(|tokens| file.add(tokens).unwrap());
        file.finish(key).unwrap()
    }

    fn tokens(found: &Tokenized) -> Vec<i32> {
        let mut out = vec![0; found.len as usize];
        found.store.read(0, &mut out).unwrap();
        out
    }

    #[test]
    fn complete_token_files_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let folders = TokenFolders(vec![folder.path().join("tokens")]);
        assert_eq!(tokens(&written(&folders, &[5, 6, 7, 65_535, 1], Some(&key(1)))), [5, 6, 7, 65_535, 1]);
        assert_eq!(tokens(&folders.find(&key(1), Width::Two).unwrap()), [5, 6, 7, 65_535, 1]);
        assert!(folders.find(&key(2), Width::Two).is_none() && folders.find(&key(1), Width::Four).is_none());
        // A truncated file is computed again.
        let (path, ..) = files(&folders.0[0]).next().unwrap();
        File::options().write(true).open(path).unwrap().set_len(8).unwrap();
        assert!(folders.find(&key(1), Width::Two).is_none());
        // The tokens of a text that may still change are stored without a name.
        let unnamed = written(&folders, &[1, 2], None);
        assert_eq!((tokens(&unnamed), files(&folders.0[0]).count()), (vec![1, 2], 1));
    }

    #[test]
    fn few_files_are_kept_and_an_unwritable_folder_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let folders = TokenFolders(vec![folder.path().to_owned()]);
        (0..9).for_each(|i| drop(written(&folders, &[1, 2, 3], Some(&key(i)))));
        assert_eq!(files(folder.path()).count(), MOST_FILES);
        assert!(folders.find(&key(8), Width::Two).is_some());
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let nowhere = TokenFolders(vec![file.join("tokens")]);
        let error = nowhere.create(Width::Two).err().unwrap().to_string();
        assert!(error.contains("file/tokens") && error.contains("XDG_CACHE_HOME"), "{error}");
    }
}
