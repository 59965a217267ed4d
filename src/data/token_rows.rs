//! Samples that are rows of one long sequence of tokens: windows of a text, or lines of characters.
//!
//! A token takes one byte if there are up to 256 kinds of tokens. The tokens of a large text take no memory: its rows
//! are read from a file when a batch needs them, so that a text may be larger than the memory.

use super::token_store::{TokenStore, Tokenized, Width};
use super::tokenizer::{TokenKind, Tokenizer};
use super::{DataError, Place};
use crate::tensor::Shape;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// How a sequence is cut into rows, and a row into a sample and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLayout {
    /// The distance between the starts of two consecutive rows, in tokens.
    pub(super) stride: usize,
    /// The number of tokens of a sample, at the start of its row.
    pub(super) width: usize,
    pub(super) target: RowTarget,
}

/// The position of the target in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowTarget {
    /// Its first position.
    pub(super) at: usize,
    /// Its number of classes: one for each position of the sample, or a single one.
    pub(super) classes: usize,
    /// Whether it is a single class, instead of one for each position.
    pub(super) is_single: bool,
}

/// Samples that are rows of one long sequence of tokens.
#[derive(Debug)]
pub struct TokenRows {
    store: TokenStore,
    /// Tokens in all.
    len: u64,
    layout: RowLayout,
    kind: TokenKind,
    /// A text for each token; empty for a tokenizer, which has the texts itself.
    symbols: Vec<String>,
    digest: u64,
    /// The file's name in messages.
    file: String,
}

impl PartialEq for TokenRows {
    /// Whether both have the same tokens in the same rows.
    fn eq(&self, other: &Self) -> bool {
        (self.digest, self.len, self.layout, self.symbols()) == (other.digest, other.len, other.layout, other.symbols())
    }
}

/// The requested part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPart {
    Sample,
    Target,
}

/// Bytes that are read from a file at a time.
const PIECE: usize = 1 << 16;

impl TokenRows {
    /// Tokens in memory, each below `symbols.len()`.
    pub(super) fn new(tokens: Vec<u32>, symbols: Vec<String>, layout: RowLayout, file: &str) -> Self {
        let len = tokens.len() as u64;
        let narrow: Option<Vec<u8>> = tokens.iter().map(|token| u8::try_from(*token).ok()).collect();
        let store = narrow.map_or_else(|| TokenStore::Words(tokens.into()), TokenStore::Bytes);
        Self::in_memory(store, len, (TokenKind::Chars, symbols), layout, file)
    }

    /// Bytes in memory, whose values are the tokens.
    pub(super) fn of_bytes(bytes: Vec<u8>, layout: RowLayout, file: &str) -> Self {
        let len = bytes.len() as u64;
        Self::in_memory(TokenStore::Bytes(bytes), len, (TokenKind::Bytes, byte_symbols()), layout, file)
    }

    fn in_memory(
        store: TokenStore,
        len: u64,
        (kind, symbols): (TokenKind, Vec<String>),
        layout: RowLayout,
        file: &str,
    ) -> Self {
        // Tokens in memory can always be read.
        let digest = store.digest(len).unwrap_or(0);
        Self { store, len, layout, kind, symbols, digest, file: file.to_owned() }
    }

    /// The first `len` bytes of a file, which stay in the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn of_file(opened: File, len: u64, layout: RowLayout, file: &str) -> Result<Self, DataError> {
        let store = TokenStore::File(Arc::new(opened), Width::One);
        Self::checked(Tokenized { store, len }, (TokenKind::Bytes, byte_symbols()), layout, file)
    }

    /// Tokens made by a tokenizer.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn of_tokenizer(
        tokens: Tokenized,
        tokenizer: Arc<Tokenizer>,
        layout: RowLayout,
        file: &str,
    ) -> Result<Self, DataError> {
        Self::checked(tokens, (TokenKind::File(tokenizer), Vec::new()), layout, file)
    }

    fn checked(
        Tokenized { store, len }: Tokenized,
        (kind, symbols): (TokenKind, Vec<String>),
        layout: RowLayout,
        file: &str,
    ) -> Result<Self, DataError> {
        let mut rows = Self { store, len, layout, kind, symbols, digest: 0, file: file.to_owned() };
        rows.digest = rows.store.digest(len).map_err(|cause| rows.refused(cause))?;
        Ok(rows)
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.len / self.layout.stride as u64).unwrap_or(usize::MAX)
    }

    /// True if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.len
    }

    /// The shape of a sample: `[T]`.
    #[must_use]
    pub fn sample_shape(&self) -> Shape {
        Shape::from([self.layout.width])
    }

    /// The shape of a target: `[T]`, or `[]` if it is a single class.
    #[must_use]
    pub fn target_shape(&self) -> Shape {
        let RowTarget { classes, is_single, .. } = self.layout.target;
        if is_single { Shape::default() } else { Shape::from([classes]) }
    }

    /// A text for each token.
    #[must_use]
    pub fn symbols(&self) -> &[String] {
        if let TokenKind::File(tokenizer) = &self.kind { tokenizer.symbols() } else { &self.symbols }
    }

    /// What the tokens represent.
    pub(super) const fn kind(&self) -> &TokenKind {
        &self.kind
    }

    /// The checksum of the tokens; for a large file, of its length and of pieces spread over it.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The number of elements of one row's part.
    const fn part(&self, part: RowPart) -> (usize, usize) {
        match part {
            RowPart::Sample => (0, self.layout.width),
            RowPart::Target => (self.layout.target.at, self.layout.target.classes),
        }
    }

    /// Copies parts of rows into `out`, one after the other; allocates nothing.
    ///
    /// # Errors
    /// If the file can no longer be read, or has become shorter.
    ///
    /// # Panics
    /// If `out` does not have exactly the required length, or an index is not a row.
    pub fn fill(&self, rows: &[u32], part: RowPart, out: &mut [i32]) -> Result<(), DataError> {
        let (from, width) = self.part(part);
        assert_eq!(out.len(), rows.len() * width, "the buffer holds exactly the batch");
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(width.max(1))) {
            self.read(*row as u64 * self.layout.stride as u64 + from as u64, out)?;
        }
        Ok(())
    }

    /// Like [`Self::fill`], with only the first elements of each part: as many as fit into `out` for each row.
    ///
    /// # Errors
    /// As [`Self::fill`].
    ///
    /// # Panics
    /// If `out` is larger than the parts, or not a multiple of the number of rows.
    pub fn fill_first(&self, rows: &[u32], part: RowPart, out: &mut [i32]) -> Result<(), DataError> {
        let (from, width) = self.part(part);
        let len = out.len() / rows.len().max(1);
        assert!(len <= width && out.len() == rows.len() * len, "the buffer holds the first elements of each part");
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(len.max(1))) {
            self.read(*row as u64 * self.layout.stride as u64 + from as u64, out)?;
        }
        Ok(())
    }

    /// Parts of rows, one after the other.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn rows(&self, rows: &[u32], part: RowPart) -> Result<Vec<i32>, DataError> {
        let mut out = vec![0; rows.len() * self.part(part).1];
        self.fill(rows, part, &mut out)?;
        Ok(out)
    }

    /// Copies tokens from position `at` on.
    fn read(&self, at: u64, out: &mut [i32]) -> Result<(), DataError> {
        self.store.read(at, out).map_err(|cause| self.refused(cause))
    }

    /// The tokens of a sample as text; bytes that are not UTF-8 are escaped.
    #[must_use]
    pub fn text(&self, row: u32, part: RowPart) -> String {
        // A read error is reported when a batch needs these tokens.
        let tokens = self.rows(&[row], part).unwrap_or_default();
        match &self.kind {
            TokenKind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                let mut text = String::with_capacity(bytes.len());
                for chunk in bytes.utf8_chunks() {
                    text.push_str(chunk.valid());
                    text.extend(chunk.invalid().escape_ascii().map(char::from));
                }
                text
            }
            TokenKind::File(tokenizer) => {
                let tokens: Vec<u32> = tokens.iter().filter_map(|token| u32::try_from(*token).ok()).collect();
                tokenizer.decode(&tokens)
            }
            TokenKind::Chars => {
                let symbol = |token: &i32| self.symbols.get(usize::try_from(*token).ok()?);
                tokens.iter().filter_map(symbol).map(String::as_str).collect()
            }
        }
    }

    /// The position of the first occurrence of each token, counted in tokens.
    fn firsts(&self) -> Result<Vec<Option<u64>>, DataError> {
        let mut firsts = vec![None; self.symbols().len()];
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < self.len {
            let count = (self.len - at).min(PIECE as u64) as usize;
            self.read(at, &mut piece[..count])?;
            for (place, token) in (at..).zip(&piece[..count]) {
                if let Some(first) = firsts.get_mut(*token as usize)
                    && first.is_none()
                {
                    *first = Some(place);
                }
            }
            at += count as u64;
        }
        Ok(firsts)
    }

    /// The first token that is not below `vocab`, with its position, and the vocabulary size that would be sufficient.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn beyond(&self, vocab: usize) -> Result<Option<Beyond>, DataError> {
        if vocab >= self.symbols().len() {
            return Ok(None);
        }
        let firsts = self.firsts()?;
        let places = firsts.iter().enumerate().filter_map(|(token, first)| Some((first.as_ref().copied()?, token)));
        let enough = places.clone().map(|(_, token)| token + 1).max().unwrap_or(0);
        let first = places.filter(|(_, token)| *token >= vocab).min();
        Ok(first.map(|(at, token)| {
            let place = match &self.kind {
                _ if self.layout.target.at >= self.layout.width => {
                    Place::Sample((at / self.layout.stride as u64) as usize)
                }
                TokenKind::Bytes => Place::Byte(at),
                TokenKind::Chars => Place::Character(at),
                TokenKind::File(_) => Place::Token(at),
            };
            Beyond { token, symbol: self.symbols()[token].clone(), place, enough }
        }))
    }

    fn refused(&self, cause: io::Error) -> DataError {
        let help = "do not change the file while the network trains on it";
        DataError::Read { file: self.file.clone(), cause, help }
    }
}

/// A token that the network does not have.
pub(super) struct Beyond {
    pub(super) token: usize,
    pub(super) symbol: String,
    pub(super) place: Place,
    /// The smallest vocabulary that contains every token of the text.
    pub(super) enough: usize,
}

/// A text for each byte: the character if it is printable, otherwise its escape.
pub(super) fn byte_symbols() -> Vec<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let symbol = |byte: u8| if is_plain(byte) { char::from(byte).into() } else { byte.escape_ascii().to_string() };
    (0..=u8::MAX).map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    fn windows(width: usize) -> RowLayout {
        RowLayout { stride: width + 1, width, target: RowTarget { at: 1, classes: width, is_single: false } }
    }

    #[test]
    fn rows_are_the_same_in_memory_and_in_a_file() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let (_folder, path) = temporary_file("t");
        std::fs::write(&path, &bytes).unwrap();
        for width in [1, 2, 3, 7, 64, 999] {
            let layout = windows(width);
            let words = bytes.iter().map(|b| u32::from(*b)).collect();
            let stores = [
                TokenRows::of_bytes(bytes.clone(), layout, "t"),
                TokenRows::new(words, byte_symbols(), layout, "t"),
                TokenRows::of_file(File::open(&path).unwrap(), 1000, layout, "t").unwrap(),
            ];
            for rows in &stores {
                assert_eq!(rows.len(), 1000 / (width + 1));
                for row in [0, rows.len() as u32 - 1] {
                    let start = row as usize * (width + 1);
                    let wanted = |at: usize| bytes[at..at + width].iter().map(|b| i32::from(*b)).collect::<Vec<_>>();
                    assert_eq!(rows.rows(&[row], RowPart::Sample).unwrap(), wanted(start), "{width}");
                    assert_eq!(rows.rows(&[row], RowPart::Target).unwrap(), wanted(start + 1), "{width}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_not_a_crash() {
        let (_folder, path) = temporary_file("t");
        std::fs::write(&path, vec![65; 100]).unwrap();
        let rows = TokenRows::of_file(File::open(&path).unwrap(), 100, windows(9), "t").unwrap();
        std::fs::write(&path, vec![65; 50]).unwrap();
        assert_eq!(rows.rows(&[1], RowPart::Sample).unwrap(), [65; 9]);
        let text = rows.rows(&[9], RowPart::Sample).unwrap_err().to_string();
        assert!(text.contains("do not change the file"), "{text}");
    }

    #[test]
    fn tokens_beyond_a_vocabulary_are_found_with_their_position() {
        let rows = TokenRows::of_bytes(b"abcz~az~".to_vec(), windows(3), "t");
        let beyond = rows.beyond(100).unwrap().unwrap();
        assert_eq!((beyond.token, &*beyond.symbol, beyond.place, beyond.enough), (122, "z", Place::Byte(3), 127));
        assert!(rows.beyond(127).unwrap().is_none() && rows.beyond(256).unwrap().is_none());
        assert_eq!(rows.text(0, RowPart::Target), "bcz");
    }
}
