//! The texts of tokens: converts the user's text to tokens, and tokens to text.

use super::text::{SUM_LEN, characters_of, padded_sum, sum_symbols, tokenizer_of};
use super::token_rows::byte_symbols;
use super::tokenizer::{Continued, NoTokens, TokenKind, Tokenizer};
use super::{DataError, Dataset, Preprocessing, Target};
use crate::model::{DataSource, Tokens};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// The texts of a network's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    kind: TokenKind,
    /// The text of each token; empty for a tokenizer, which has the texts itself. A byte that cannot be printed is
    /// escaped.
    symbols: Vec<String>,
    /// The tokens of a whole text, if each sample begins a new text (an addition); `None` if samples are windows of a
    /// long text.
    pub line: Option<usize>,
}

impl Vocabulary {
    /// The vocabulary of a source, with the symbols of the weights if `known` has any. `None` if the source has no
    /// tokens, or if neither a source nor symbols are known.
    ///
    /// # Errors
    /// If the characters of a text must be read from its file and it cannot be read or is not UTF-8; if a tokenizer
    /// cannot be read, or is not that of the weights.
    pub fn of(
        source: Option<&DataSource>,
        base: &Path,
        known: Option<&Preprocessing>,
    ) -> Result<Option<Self>, DataError> {
        let line = matches!(source, Some(DataSource::Sums { .. })).then_some(SUM_LEN);
        if let Some(DataSource::Text { tokens: Tokens::File(path), .. }) = source {
            return Ok(Some(Self::of_tokenizer(tokenizer_of(&base.join(path), known)?)));
        }
        let own = known.map(|known| &known.classes[..]).filter(|symbols| !symbols.is_empty());
        if let Some(found) = own.and_then(Self::of_symbols) {
            return Ok(Some(Self { line, ..found }));
        }
        let chars = |symbols| Self { kind: TokenKind::Chars, symbols, line };
        Ok(match source {
            Some(DataSource::SourceCode | DataSource::Text { tokens: Tokens::Bytes, .. }) => Some(Self::bytes()),
            Some(DataSource::Text { path, .. }) => Some(chars(characters_of(&base.join(path))?)),
            Some(DataSource::Sums { .. }) => Some(chars(sum_symbols())),
            _ => None,
        })
    }

    /// The vocabulary of a data set whose tokens are those of a tokenizer.
    #[must_use]
    pub fn of_tokenized(set: &Dataset) -> Option<Self> {
        let Target::Windows(rows) = &set.target else { return None };
        if let TokenKind::File(tokenizer) = rows.kind() {
            return Some(Self::of_tokenizer(Arc::clone(tokenizer)));
        }
        None
    }

    /// The tokens of a tokenizer.
    const fn of_tokenizer(tokenizer: Arc<Tokenizer>) -> Self {
        Self { kind: TokenKind::File(tokenizer), symbols: Vec::new(), line: None }
    }

    /// All 256 bytes.
    fn bytes() -> Self {
        Self { kind: TokenKind::Bytes, symbols: byte_symbols(), line: None }
    }

    /// The vocabulary whose tokens have these names, if each name is a character, or if they are those of bytes.
    fn of_symbols(symbols: &[String]) -> Option<Self> {
        let bytes = Self::bytes();
        if symbols == bytes.symbols {
            return Some(bytes);
        }
        let are_chars = symbols.iter().all(|symbol| symbol.chars().count() == 1);
        are_chars.then(|| Self { kind: TokenKind::Chars, symbols: symbols.to_vec(), line: None })
    }

    /// The text of each token.
    fn symbols(&self) -> &[String] {
        if let TokenKind::File(tokenizer) = &self.kind { tokenizer.symbols() } else { &self.symbols }
    }

    /// The number of tokens that have a meaning.
    #[must_use]
    pub fn len(&self) -> usize {
        self.symbols().len()
    }

    /// Whether no token has a meaning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols().is_empty()
    }

    /// The name of a token: its character, or a byte's escape.
    #[must_use]
    pub fn symbol(&self, token: usize) -> &str {
        self.symbols().get(token).map_or("", String::as_str)
    }

    /// The user's text in the form that samples have: the numbers of an addition are padded with blanks. Any other text
    /// is unchanged.
    #[must_use]
    pub fn arranged<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let padded = self.line.and_then(|_| padded_sum(text));
        padded.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// The tokens of a text, all below `vocab`.
    ///
    /// # Errors
    /// The characters without a token below `vocab`, each once, in their order in the text.
    pub fn tokens(&self, text: &str, vocab: usize) -> Result<Vec<i32>, Vec<char>> {
        let known = self.len().min(vocab);
        if let TokenKind::File(tokenizer) = &self.kind {
            return self.of_text(tokenizer, text, known);
        }
        let mut tokens = Vec::with_capacity(text.len());
        let mut unknown = Vec::new();
        let mut buffer = [0; 4];
        for c in text.chars() {
            let written = &*c.encode_utf8(&mut buffer);
            let before = tokens.len();
            let is_bytes = self.kind == TokenKind::Bytes;
            if is_bytes {
                tokens.extend(written.bytes().filter(|b| usize::from(*b) < known).map(i32::from));
            } else {
                tokens.extend(self.symbols[..known].iter().position(|s| s == written).map(|token| token as i32));
            }
            let expected = if is_bytes { written.len() } else { 1 };
            if tokens.len() - before != expected && !unknown.contains(&c) {
                unknown.push(c);
            }
        }
        if unknown.is_empty() { Ok(tokens) } else { Err(unknown) }
    }

    /// The tokens of a text by a tokenizer, all below `known`.
    fn of_text(&self, tokenizer: &Tokenizer, text: &str, known: usize) -> Result<Vec<i32>, Vec<char>> {
        let tokens = tokenizer.encode(text).map_err(|why| match why {
            NoTokens::Unknown(unknown) => unknown.into_iter().map(|(_, c)| c).collect(),
            NoTokens::Failed(_) => each_once(text.chars()),
        })?;
        let beyond = tokens.iter().filter(|token| **token as usize >= known);
        let unknown = each_once(beyond.flat_map(|token| self.symbol(*token as usize).chars()));
        if unknown.is_empty() { Ok(tokens.into_iter().map(|token| token as i32).collect()) } else { Err(unknown) }
    }
}

/// The distinct characters, in their order.
fn each_once(chars: impl Iterator<Item = char>) -> Vec<char> {
    let mut found = Vec::new();
    chars.for_each(|c| {
        if !found.contains(&c) {
            found.push(c);
        }
    });
    found
}

/// Converts tokens to text one by one.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The first bytes of a character that is still incomplete.
    bytes: Vec<u8>,
    /// The decoder, if the tokens are those of a tokenizer.
    continued: Option<Continued>,
}

impl Decoder {
    /// The text that a token completes; empty in the middle of a character of several bytes. Bytes that are not UTF-8
    /// become U+FFFD.
    pub fn push(&mut self, vocabulary: &Vocabulary, token: usize) -> String {
        match &vocabulary.kind {
            TokenKind::Chars => vocabulary.symbol(token).to_owned(),
            TokenKind::File(tokenizer) => {
                let continued = self.continued.get_or_insert_with(|| Continued::new(Arc::clone(tokenizer)));
                u32::try_from(token).map(|token| continued.push(token)).unwrap_or_default()
            }
            TokenKind::Bytes => {
                self.bytes.extend(u8::try_from(token));
                self.complete()
            }
        }
    }

    /// Removes the complete characters from the bytes, and returns them.
    fn complete(&mut self) -> String {
        let mut text = String::new();
        while !self.bytes.is_empty() {
            let (valid, broken) = match std::str::from_utf8(&self.bytes) {
                Ok(whole) => (whole.len(), 0),
                // If the error has no length, the rest of the character has not arrived yet.
                Err(error) => (error.valid_up_to(), error.error_len().unwrap_or(0)),
            };
            text.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
            if broken > 0 {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            self.bytes.drain(..valid + broken);
            if broken == 0 {
                break;
            }
        }
        text
    }

    /// The replacement for bytes that did not become a character.
    #[must_use]
    pub fn finish(self) -> String {
        if let Some(continued) = self.continued {
            return continued.finish();
        }
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &DataSource) -> Vocabulary {
        Vocabulary::of(Some(source), Path::new(""), None).unwrap().unwrap()
    }

    fn through(vocabulary: &Vocabulary, tokens: &[i32]) -> String {
        let mut decoder = Decoder::default();
        let text: String = tokens.iter().map(|token| decoder.push(vocabulary, *token as usize)).collect();
        text + &decoder.finish()
    }

    #[test]
    fn bytes_are_converted_back_to_the_same_text() {
        let bytes = of(&DataSource::SourceCode);
        let text = "a \u{e4} \u{20ac} \u{1f980}\n";
        let tokens = bytes.tokens(text, 256).unwrap();
        assert_eq!((tokens.len(), through(&bytes, &tokens)), (text.len(), text.to_owned()));
        // A network for ASCII has no tokens for the other characters; each of them is named once.
        assert_eq!(bytes.tokens("\u{e4}b\u{e4}\u{20ac}", 128), Err(vec!['\u{e4}', '\u{20ac}']));
        assert_eq!(bytes.tokens("fn", 128), Ok(vec![102, 110]));
    }

    #[test]
    fn a_character_is_returned_once_complete_and_invalid_bytes_are_marked() {
        let bytes = of(&DataSource::SourceCode);
        let mut decoder = Decoder::default();
        assert_eq!([0xe2, 0x82, 0xac].map(|byte| decoder.push(&bytes, byte)), ["", "", "\u{20ac}"]);
        assert_eq!(through(&bytes, &[0xe2, 0x41, 0xff, 0x42, 0xe2, 0x82]), "\u{fffd}A\u{fffd}B\u{fffd}");
    }

    #[test]
    fn additions_have_13_characters_and_are_padded() {
        let sums = of(&DataSource::Sums { samples: 5 });
        assert_eq!((sums.len(), sums.line), (13, Some(12)));
        assert_eq!(sums.arranged("37+85="), " 37+ 85=");
        assert_eq!(sums.arranged("1+2"), "1+2");
        assert_eq!(sums.tokens("7+x-x", 13), Err(vec!['x', '-']));
        let tokens = sums.tokens(" 37+ 85= 122", 13).unwrap();
        assert_eq!(through(&sums, &tokens), " 37+ 85= 122");
    }

    #[test]
    fn symbols_come_from_the_weights_or_from_the_source() {
        let known = |symbols: &[&str]| Preprocessing {
            classes: symbols.iter().map(ToString::to_string).collect(),
            ..Preprocessing::default()
        };
        let found = Vocabulary::of(None, Path::new(""), Some(&known(&["b", "a"]))).unwrap().unwrap();
        assert_eq!((found.tokens("ab", 2), found.symbol(0)), (Ok(vec![1, 0]), "b"));
        assert_eq!(Vocabulary::of(None, Path::new(""), Some(&known(&["yes", "no"]))).unwrap(), None);
        assert_eq!(Vocabulary::of(Some(&DataSource::Iris), Path::new(""), None).unwrap(), None);
        let bytes = Preprocessing { classes: byte_symbols(), ..Preprocessing::default() };
        assert_eq!(Vocabulary::of(None, Path::new(""), Some(&bytes)).unwrap(), Some(Vocabulary::bytes()));
        // The characters of a text come from its file.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.txt"), "\u{feff}baba\u{e4}").unwrap();
        let source = DataSource::Text { path: "t.txt".into(), tokens: Tokens::Chars };
        let found = Vocabulary::of(Some(&source), folder.path(), None).unwrap().unwrap();
        assert_eq!((found.len(), found.tokens("\u{e4}ab", 3)), (3, Ok(vec![2, 0, 1])));
        assert!(Vocabulary::of(Some(&source), Path::new("/nowhere"), None).is_err());
    }

    #[test]
    fn tokens_of_a_tokenizer_are_converted_back_to_the_same_text() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json");
        let source = DataSource::Text { path: "t.txt".into(), tokens: Tokens::File(own) };
        let found = of(&source);
        let text = "pub fn l\u{e4}uft() {}\n";
        let tokens = found.tokens(text, 557).unwrap();
        assert_eq!((found.len(), tokens.len(), through(&found, &tokens)), (557, 12, text.to_owned()));
        // A network of fewer tokens does not have the others; each character is named once.
        assert_eq!(found.tokens("pub pub", 400), Err(vec!['p', 'u', 'b']));
        let known = Preprocessing { classes: vec!["a".into()], ..Preprocessing::default() };
        assert!(Vocabulary::of(Some(&source), Path::new(""), Some(&known)).is_err());
        let known = Preprocessing { classes: found.symbols().to_vec(), ..Preprocessing::default() };
        assert_eq!(Vocabulary::of(Some(&source), Path::new(""), Some(&known)).unwrap(), Some(found));
    }
}
