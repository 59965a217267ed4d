//! A text in pieces whose tokens, concatenated, are those of the whole text.
//!
//! A tokenizer works on a whole text, and its memory grows with the length of the text. But the tokens at the end of a
//! line seldom depend on the next line. A text is cut where this is verified for the surrounding text. Each piece is
//! encoded together with the last characters of the preceding piece, since some tokenizers treat the start of a text in
//! another way.

use super::error::quoted;
use super::tokenizer::{NoTokens, Tokenizer};
use super::{DataError, Place};
use std::io::Read;
use std::sync::Arc;

/// The approximate number of bytes of a piece.
const PIECE: usize = 64 << 10;
/// The largest number of bytes of a piece, used if there are few possible cuts.
const MOST: usize = 4 << 20;
/// Bytes before and after a cut for which separate encoding is compared with encoding both sides together.
const AROUND: usize = 256;
/// Bytes of context before a piece: the last ones of the preceding piece.
const FRONT: usize = 48;
/// The number of possible cuts of each kind that are tried.
const TRIED: usize = 32;

/// A piece of a text.
pub(super) struct Piece {
    /// The text, with its context before it.
    text: String,
    /// The number of tokens of the context.
    front: usize,
    /// The position in the file where the text begins, and the position where it ends.
    at: u64,
    end: u64,
}

/// The tokens of a piece.
pub(super) struct Encoded {
    all: Vec<u32>,
    front: usize,
    /// The byte of the file up to which the text is encoded.
    pub(super) end: u64,
}

impl Encoded {
    pub(super) fn tokens(&self) -> &[u32] {
        self.all.get(self.front..).unwrap_or_default()
    }
}

impl Piece {
    /// Encodes the piece.
    ///
    /// # Errors
    /// If a character of it has no token.
    pub(super) fn encode(&self, tokenizer: &Tokenizer, file: &str) -> Result<Encoded, DataError> {
        match tokenizer.encode(&self.text) {
            Ok(all) => Ok(Encoded { all, front: self.front, end: self.end }),
            Err(why) => Err(refused(why, tokenizer, file, self.at)),
        }
    }
}

/// The error of a text that begins at this byte of a file.
fn refused(why: NoTokens, tokenizer: &Tokenizer, file: &str, at: u64) -> DataError {
    let expected = format!("text that {} has tokens for", tokenizer.file());
    match why {
        NoTokens::Unknown(unknown) => {
            let (byte, c) = unknown.first().copied().unwrap_or_default();
            let found = format!("the character {}", quoted(&c.to_string()));
            let help = "remove it from the text, or use a tokenizer of bytes or with an unk_token";
            DataError::content(file, Place::Byte(at + byte as u64), found, expected, help)
        }
        NoTokens::Failed(why) => {
            let help = "use another tokenizer";
            DataError::content(file, Place::Byte(at), format!("text that it fails on ({why})"), expected, help)
        }
    }
}

/// The pieces of a text.
pub(super) struct TextPieces {
    source: Box<dyn Read>,
    tokenizer: Arc<Tokenizer>,
    /// The file's name in messages.
    file: String,
    /// Bytes that were read and belong to no piece yet, and the position of the first one in the file.
    bytes: Vec<u8>,
    at: u64,
    /// The last characters of the piece before.
    front: String,
    has_ended: bool,
}

impl TextPieces {
    pub(super) fn new(source: impl Read + 'static, tokenizer: Arc<Tokenizer>, file: &str) -> Self {
        let (source, file) = (Box::new(source), file.to_owned());
        Self { source, tokenizer, file, bytes: Vec::new(), at: 0, front: String::new(), has_ended: false }
    }

    pub(super) const fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, or has no position where it can be cut.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, DataError> {
        let mut wanted = 2 * PIECE;
        loop {
            self.fill(wanted)?;
            let text = self.text()?;
            if text.is_empty() {
                return Ok(None);
            }
            let is_all = self.has_ended && text.len() <= 2 * PIECE;
            let cut = if is_all { Some(text.len()) } else { cut(text, &self.tokenizer) };
            match cut {
                Some(len) => return self.take(len).map(Some),
                None if self.has_ended && text.len() <= MOST => {
                    let len = text.len();
                    return self.take(len).map(Some);
                }
                None if wanted >= MOST => {
                    let (found, expected) = ("4 MiB of text without a place for a cut", "line ends that end tokens");
                    let help = "use a tokenizer that divides texts into words, or a text with shorter lines";
                    return Err(DataError::content(&self.file, Place::Byte(self.at), found, expected, help));
                }
                None => wanted *= 2,
            }
        }
    }

    /// Reads until there are this many bytes, or until the end.
    fn fill(&mut self, wanted: usize) -> Result<(), DataError> {
        let missing = wanted.saturating_sub(self.bytes.len()) as u64;
        if missing == 0 || self.has_ended {
            return Ok(());
        }
        let read = self.source.by_ref().take(missing).read_to_end(&mut self.bytes).map_err(|cause| {
            let help = "do not change the file while it is read";
            DataError::Read { file: self.file.clone(), cause, help }
        })?;
        self.has_ended = (read as u64) < missing;
        if self.at == 0 && self.bytes.starts_with("\u{feff}".as_bytes()) {
            self.bytes.drain(..3);
            self.at = 3;
        }
        Ok(())
    }

    /// The whole characters that were read.
    fn text(&self) -> Result<&str, DataError> {
        let error = match std::str::from_utf8(&self.bytes) {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        let valid = error.valid_up_to();
        if error.error_len().is_none() && !self.has_ended {
            // The rest of the last character was not read yet.
            return Ok(std::str::from_utf8(&self.bytes[..valid]).unwrap_or_default());
        }
        let help = "save the text as UTF-8, or set data.tokens to \"bytes\"";
        let found = format!("the byte {:#04x}", self.bytes[valid]);
        Err(DataError::content(&self.file, Place::Byte(self.at + valid as u64), found, "UTF-8 text", help))
    }

    /// Takes this many bytes as a piece.
    fn take(&mut self, len: usize) -> Result<Piece, DataError> {
        let own = String::from_utf8_lossy(&self.bytes[..len]).into_owned();
        let front = match self.tokenizer.encode(&self.front) {
            Ok(tokens) => tokens.len(),
            Err(why) => return Err(refused(why, &self.tokenizer, &self.file, self.at - self.front.len() as u64)),
        };
        let at = self.at - self.front.len() as u64;
        let text = format!("{}{own}", self.front);
        self.bytes.drain(..len);
        self.at += len as u64;
        self.front = own[own.floor_char_boundary(own.len().saturating_sub(FRONT))..].to_owned();
        Ok(Piece { text, front, at, end: self.at })
    }
}

/// The positions where a text can be cut: after a line that is followed by a letter or digit, otherwise between two
/// words.
fn cut(text: &str, tokenizer: &Tokenizer) -> Option<usize> {
    let bytes = text.as_bytes();
    let last = PIECE.min(bytes.len().saturating_sub(AROUND));
    let begins_word =
        |at: usize| text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(char::is_alphanumeric);
    let places = |of: &dyn Fn(usize) -> bool| (1..last).rev().filter(|at| of(*at)).take(TRIED).collect::<Vec<_>>();
    let lines = places(&|at| bytes[at - 1] == b'\n' && begins_word(at));
    let is_cut = |at: &usize| is_cut(text, *at, tokenizer);
    lines.into_iter().find(is_cut).or_else(|| {
        let ends_word = |at: usize| bytes[at] == b' ' && bytes[at - 1].is_ascii_alphanumeric();
        places(&|at| ends_word(at) && begins_word(at + 1)).into_iter().find(is_cut)
    })
}

/// Whether separate encoding of both sides of a cut gives the same tokens as encoding the text around it.
fn is_cut(text: &str, at: usize, tokenizer: &Tokenizer) -> bool {
    let from = text.floor_char_boundary(at.saturating_sub(AROUND));
    let to = text.floor_char_boundary((at + AROUND).min(text.len()));
    let front = text.floor_char_boundary(at.saturating_sub(FRONT));
    let parts = [(from, to), (from, at), (front, to), (front, at)].map(|(from, to)| tokenizer.encode(&text[from..to]));
    // Text without tokens is reported when its piece is encoded.
    let [Ok(whole), Ok(before), Ok(behind), Ok(front)] = parts else { return true };
    behind.starts_with(&front)
        && whole.len() == before.len() + behind.len() - front.len()
        && whole.starts_with(&before)
        && whole.ends_with(&behind[front.len()..])
}

#[cfg(test)]
mod tests;
