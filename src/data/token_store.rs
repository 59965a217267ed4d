//! The storage of the tokens of a long sequence: in memory, or in a file that may be larger than the memory.

use crate::tensor::Fnv;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The storage of tokens.
#[derive(Clone, Debug)]
pub(super) enum TokenStore {
    /// In memory, one byte each, if there are at most 256 kinds.
    Bytes(Vec<u8>),
    /// In memory.
    Words(Arc<[u32]>),
    /// In a file, one after the other.
    File(Arc<File>, Width),
}

/// Bytes of a token in a file, in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

/// The tokens of a text, and their number.
#[derive(Clone)]
pub(super) struct Tokenized {
    pub(super) store: TokenStore,
    pub(super) len: u64,
}

/// Everything that determines the tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextKey {
    pub(super) text: FileVersion,
    /// The checksum of the tokenizer.
    pub(super) tokenizer: u64,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

impl Width {
    /// The smallest number of bytes for this many kinds of tokens, at least two.
    pub(super) const fn of_kinds(kinds: usize) -> Self {
        if kinds <= 1 << 16 { Self::Two } else { Self::Four }
    }

    pub(super) const fn bytes(self) -> usize {
        self as usize
    }

    /// Appends tokens to `out` in their format in a file.
    pub(super) fn encode(self, tokens: &[u32], out: &mut Vec<u8>) {
        for token in tokens {
            out.extend_from_slice(&token.to_le_bytes()[..self.bytes()]);
        }
    }
}

impl TokenStore {
    /// Copies tokens from number `at` on; allocates nothing.
    ///
    /// # Errors
    /// If the file can no longer be read, or has become shorter.
    pub(super) fn read(&self, at: u64, out: &mut [i32]) -> io::Result<()> {
        let start = at as usize;
        match self {
            Self::Bytes(bytes) => {
                let own = &bytes[start..start + out.len()];
                out.iter_mut().zip(own).for_each(|(out, byte)| *out = i32::from(*byte));
            }
            Self::Words(words) => {
                let own = &words[start..start + out.len()];
                out.iter_mut().zip(own).for_each(|(out, word)| *out = *word as i32);
            }
            Self::File(file, width) => {
                // The tokens are read into the end of the buffer and widened from the front, so that none is
                // overwritten before it is used.
                let (count, width) = (out.len(), width.bytes());
                let first = (4 - width) * count;
                read_at(file, &mut bytemuck::cast_slice_mut(out)[first..], at * width as u64)?;
                for i in 0..count {
                    let mut token = [0; 4];
                    let own = first + i * width..first + (i + 1) * width;
                    token[..width].copy_from_slice(&bytemuck::cast_slice::<i32, u8>(out)[own]);
                    out[i] = i32::from_le_bytes(token);
                }
            }
        }
        Ok(())
    }

    /// A checksum of the `len` tokens; for a file, of its length and of pieces spread over it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn digest(&self, len: u64) -> io::Result<u64> {
        /// The number of pieces in the checksum.
        const PIECES: u64 = 1024;
        let mut hash = Fnv::new();
        match self {
            Self::Bytes(bytes) => return Ok(Fnv::of(bytes)),
            Self::Words(words) => words.iter().for_each(|token| hash.add(&token.to_le_bytes())),
            Self::File(file, width) => {
                hash.add(&len.to_le_bytes());
                let mut piece = [0; 4096];
                let bytes = len * width.bytes() as u64;
                let last = bytes.saturating_sub(piece.len() as u64);
                let count = bytes.min(piece.len() as u64) as usize;
                for i in 0..PIECES {
                    read_at(file, &mut piece[..count], last / PIECES * i)?;
                    hash.add(&piece[..count]);
                }
            }
        }
        Ok(hash.sum())
    }
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(not(unix))]
fn read_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn tokens_in_files_are_read_at_any_place() {
        let tokens: Vec<u32> = (0..1000).map(|i| i * 61 % 65_536).collect();
        for width in [Width::Two, Width::Four] {
            let mut bytes = Vec::new();
            width.encode(&tokens, &mut bytes);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let store = TokenStore::File(Arc::new(file), width);
            for (at, len) in [(0, 1000), (0, 1), (999, 1), (17, 300)] {
                let mut out = vec![0; len];
                store.read(at, &mut out).unwrap();
                assert!(out.iter().zip(&tokens[at as usize..]).all(|(out, token)| *out == *token as i32));
            }
            assert!(store.read(999, &mut [0; 2]).is_err());
        }
        assert_eq!((Width::of_kinds(65_536), Width::of_kinds(65_537)), (Width::Two, Width::Four));
    }
}
