//! Tokenizers: a file in the format of Hugging Face's `tokenizers` defines how text becomes tokens, and tokens become
//! text.
//!
//! Only byte-pair encodings are supported. Settings that make tokens depend on more than the text are ignored: dropout
//! of merges, truncation and padding. No token is added before or after a text.

use super::file::{read_file, shown};
use super::tokenizer_json::{EXPECTED, Facts, byte_of, checked};
use super::{DataError, Place};
use crate::tensor::Fnv;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What the tokens of a text represent, with everything that is needed to convert them to text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Bytes.
    Bytes,
    /// Characters.
    Chars,
    /// Tokens of a tokenizer.
    File(Arc<Tokenizer>),
}

/// A byte-pair encoding that was read from a file.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// A distinct text for each token.
    symbols: Vec<String>,
    facts: Facts,
    /// The checksum of the file.
    digest: u64,
    /// The file's name in messages.
    file: String,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({}, {} tokens)", self.file, self.symbols.len())
    }
}

impl PartialEq for Tokenizer {
    /// Whether both were read from files with the same bytes.
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Tokenizer {}

/// The tokenizer that was read last, because data, their view and texts written with them use the same one.
static LAST: Mutex<Option<Arc<Tokenizer>>> = Mutex::new(None);

/// Why a text has no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoTokens {
    /// Characters without a token, each with its byte position in the text.
    Unknown(Vec<(usize, char)>),
    /// The tokenizer failed, and why.
    Failed(String),
}

impl Tokenizer {
    /// Reads a file of a tokenizer.
    ///
    /// # Errors
    /// If it cannot be read, is not a tokenizer, or is not a byte-pair encoding.
    pub(super) fn read(path: &Path) -> Result<Arc<Self>, DataError> {
        let (bytes, file) = (read_file(path)?, shown(path));
        let digest = Fnv::of(&bytes);
        let last = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = last().as_ref().filter(|last| last.digest == digest && last.file == file) {
            return Ok(Arc::clone(found));
        }
        let read = Arc::new(Self::parse(&bytes, &file)?);
        *last() = Some(Arc::clone(&read));
        Ok(read)
    }

    /// The tokenizer that the bytes of a file describe.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn parse(bytes: &[u8], file: &str) -> Result<Self, DataError> {
        let (document, facts) = checked(bytes, file)?;
        let read = guarded(|| tokenizers::Tokenizer::from_bytes(document));
        let inner = read.map_err(|why| {
            let help = "save it again with Tokenizer.save of a recent version of the tokenizers library";
            DataError::content(file, Place::Whole, format!("a tokenizer that cannot be used ({why})"), EXPECTED, help)
        })?;
        let symbols = symbols_of(&inner, &facts);
        Ok(Self { inner, symbols, facts, digest: Fnv::of(bytes), file: file.to_owned() })
    }

    /// A text for each token. Tokens that are not whole characters are escaped.
    pub(super) fn symbols(&self) -> &[String] {
        &self.symbols
    }

    /// The checksum of the file.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// The file's name in messages.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// If a character of it has no token.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, NoTokens> {
        let unknown = if self.facts.covers_all { Vec::new() } else { self.unknown(text)? };
        if unknown.is_empty() { self.tokens(text) } else { Err(NoTokens::Unknown(unknown)) }
    }

    fn tokens(&self, text: &str) -> Result<Vec<u32>, NoTokens> {
        let found = guarded(|| self.inner.encode_fast(text, false)).map_err(NoTokens::Failed)?;
        Ok(found.get_ids().to_vec())
    }

    /// Characters without a token, except white space, each once: the library silently omits them.
    fn unknown(&self, text: &str) -> Result<Vec<(usize, char)>, NoTokens> {
        /// A character that no text contains and that has no token.
        const NONE: &str = "\u{10ffff}";
        let (nothing, mut seen, mut unknown) = (self.tokens(NONE)?, HashSet::new(), Vec::new());
        for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            if seen.insert(c) && self.tokens(c.encode_utf8(&mut [0; 4]))? == nothing {
                unknown.push((at, c));
            }
        }
        Ok(unknown)
    }

    /// The text of tokens. Bytes that are not UTF-8 become U+FFFD; invalid token numbers are omitted.
    pub(super) fn decode(&self, tokens: &[u32]) -> String {
        decoded(&self.inner, tokens)
    }
}

/// The result of `work`, or its error or panic message as text: the library may panic on unexpected files.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizers library does not know what to do with it".into()),
    }
}

fn decoded(inner: &tokenizers::Tokenizer, tokens: &[u32]) -> String {
    guarded(|| inner.decode(tokens, false)).unwrap_or_default()
}

/// A distinct text for each token: its text after another token, or escapes if it does not consist of whole characters.
fn symbols_of(inner: &tokenizers::Tokenizer, facts: &Facts) -> Vec<String> {
    let vocabulary = inner.get_vocab(true);
    let len = vocabulary.values().max().map_or(0, |last| *last as usize + 1);
    let mut own = vec![String::new(); len];
    vocabulary.into_iter().for_each(|(token, number)| own[number as usize] = token);
    let mut taken = HashSet::with_capacity(len);
    let symbols = own.into_iter().enumerate().map(|(number, token)| {
        let numbered = format!("{token}#{number}");
        let written = if token.is_empty() { String::new() } else { written(inner, number as u32, &token, facts) };
        let mut names = [written, token, numbered].into_iter();
        names.find(|name| !name.is_empty() && taken.insert(name.clone())).unwrap_or_default()
    });
    symbols.collect()
}

/// The text of a token that follows another one.
fn written(inner: &tokenizers::Tokenizer, number: u32, token: &str, facts: &Facts) -> String {
    if !facts.has_decoder {
        return token.to_owned();
    }
    let [once, twice] = [1, 2].map(|count| decoded(inner, &vec![number; count]));
    let text = twice.strip_prefix(&*once).unwrap_or(&once);
    if !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER) {
        return text.to_owned();
    }
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    let Some(bytes) = bytes.filter(|_| facts.is_of_bytes) else { return token.to_owned() };
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}

/// Converts tokens to text one by one.
#[derive(Clone, Debug)]
pub(super) struct Continued {
    tokenizer: Arc<Tokenizer>,
    /// The tokens that are being written, after the preceding token, on which their text may depend.
    tokens: Vec<u32>,
    /// The number of these tokens, and of bytes of their text, that were returned before.
    given: (usize, usize),
}

impl Continued {
    /// The largest number of tokens that wait for the rest of a character, which has at most four bytes.
    const MOST_WAITING: usize = 4;

    pub(super) const fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, tokens: Vec::new(), given: (0, 0) }
    }

    /// The text that a token completes; empty in the middle of a character.
    pub(super) fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens);
        let (before, bytes) = self.given;
        let waits = text.ends_with(char::REPLACEMENT_CHARACTER) && self.tokens.len() - before < Self::MOST_WAITING;
        if waits {
            return String::new();
        }
        let new = text.get(bytes..).unwrap_or_default().to_owned();
        self.tokens.drain(..before);
        self.given = (self.tokens.len(), self.tokenizer.decode(&self.tokens).len());
        new
    }

    /// The remaining text.
    pub(super) fn finish(self) -> String {
        self.tokenizer.decode(&self.tokens).get(self.given.1..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests;
