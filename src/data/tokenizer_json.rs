//! Checks the document of a tokenizer before the library reads it. Errors are reported with their position; settings
//! that make tokens depend on more than the text are removed.

use super::error::quoted;
use super::{DataError, Place};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The expected content of such a file.
pub(super) const EXPECTED: &str = "a tokenizer.json of Hugging Face's tokenizers library";

/// The largest number of a token; a larger vocabulary is considered a mistake, because each token takes memory.
const LARGEST: u64 = (1 << 24) - 1;

/// What a document says about its tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether there is a token for every character: those of its bytes, or one for unknown characters.
    pub(super) covers_all: bool,
    /// Whether the characters of tokens represent bytes.
    pub(super) is_of_bytes: bool,
    /// Whether the document says how tokens are converted to text.
    pub(super) has_decoder: bool,
}

/// The document of a byte-pair encoding in the form that the library reads, and what it says.
///
/// # Errors
/// If it is not JSON, not a tokenizer, or contradicts itself.
pub(super) fn checked(bytes: &[u8], file: &str) -> Result<(Vec<u8>, Facts), DataError> {
    let help = "data.tokens is \"bytes\", \"chars\", or a file that Tokenizer.save wrote";
    if bytes.trim_ascii().is_empty() {
        return Err(DataError::content(file, Place::Whole, "an empty file".to_owned(), EXPECTED, help));
    }
    let mut document: Value = serde_json::from_slice(bytes).map_err(|error| {
        DataError::content(file, Place::Line(error.line() as u64), format!("no JSON ({error})"), EXPECTED, help)
    })?;
    let wrong = |(found, expected, help): Wrong| DataError::content(file, Place::Whole, found, expected, help);
    let facts = facts(&document).map_err(wrong)?;
    for setting in ["truncation", "padding"] {
        document[setting] = Value::Null;
    }
    document["model"]["dropout"] = Value::Null;
    let document = serde_json::to_vec(&document).map_err(|error| {
        DataError::content(file, Place::Whole, error.to_string(), EXPECTED, "save the tokenizer again")
    })?;
    Ok((document, facts))
}

/// What was found, what was expected, and what to do.
type Wrong = (String, &'static str, &'static str);

const AGAIN: &str = "save it again with Tokenizer.save of the tokenizers library";

fn facts(document: &Value) -> Result<Facts, Wrong> {
    let none = || ("JSON without a \"model\" that has a \"vocab\" and \"merges\"".to_owned(), EXPECTED, AGAIN);
    let model = document.get("model").and_then(Value::as_object).ok_or_else(none)?;
    match model.get("type").and_then(Value::as_str) {
        Some("BPE") | None => {}
        Some(other) => {
            let help = "only byte-pair encodings are supported: train one, or set data.tokens to \"chars\"";
            return Err((format!("a model of the type {}", quoted(other)), "a model of the type \"BPE\"", help));
        }
    }
    let vocab = model.get("vocab").and_then(Value::as_object).ok_or_else(none)?;
    let merges = model.get("merges").and_then(Value::as_array).ok_or_else(none)?;
    check_numbers(vocab, document)?;
    check_merges(vocab, merges, model)?;
    let unknown = model.get("unk_token").and_then(Value::as_str);
    if let Some(unknown) = unknown.filter(|token| !vocab.contains_key(*token)) {
        let found = format!("the unk_token {}, which model.vocab has not", quoted(unknown));
        return Err((found, "a token of model.vocab", AGAIN));
    }
    let is_of_bytes = ["pre_tokenizer", "normalizer"].iter().any(|part| has_byte_level(document.get(*part)));
    let falls_back = model.get("byte_fallback").and_then(Value::as_bool).unwrap_or(false);
    let has_bytes = || (0..=u8::MAX).all(|byte| vocab.contains_key(&format!("<{byte:#04X}>")));
    let has_characters = || characters_of_bytes().all(|c| vocab.contains_key(&c.to_string()));
    let covers_all = unknown.is_some() || falls_back && has_bytes() || is_of_bytes && has_characters();
    let other = ["continuing_subword_prefix", "end_of_word_suffix"]
        .into_iter()
        .find(|part| model.get(*part).and_then(Value::as_str).is_some_and(|text| !text.is_empty()));
    if let Some(other) = other.filter(|_| !covers_all) {
        let article = if other.starts_with('e') { "an" } else { "a" };
        let help = "train it with an unk_token: without it, unknown characters are dropped without notice";
        return Err((format!("{article} {other} without an unk_token"), "a token for what is unknown", help));
    }
    let has_decoder = document.get("decoder").is_some_and(|decoder| !decoder.is_null());
    Ok(Facts { covers_all, is_of_bytes, has_decoder })
}

/// Whether each token has a distinct number.
fn check_numbers(vocab: &Map<String, Value>, document: &Value) -> Result<(), Wrong> {
    let expected = "a whole number below 16777216 that no other token has";
    let mut tokens: HashMap<u64, &str> = HashMap::with_capacity(vocab.len());
    for (token, number) in vocab {
        let fits = number.as_u64().filter(|number| *number <= LARGEST);
        let Some(number) = fits else {
            return Err((format!("{number} as the number of {} in model.vocab", quoted(token)), expected, AGAIN));
        };
        if let Some(other) = tokens.insert(number, token) {
            let found = format!("{number} as the number of {} and of {} in model.vocab", quoted(other), quoted(token));
            return Err((found, expected, AGAIN));
        }
    }
    let added = document.get("added_tokens").and_then(Value::as_array).into_iter().flatten();
    for token in added {
        let number = token.get("id").and_then(Value::as_u64).filter(|number| *number <= LARGEST);
        if number.is_none() || !token.get("content").is_some_and(Value::is_string) {
            return Err((
                format!("the added token {token}"),
                "one with an \"id\" below 16777216 and \"content\"",
                AGAIN,
            ));
        }
    }
    Ok(())
}

/// Whether merges join existing tokens to existing tokens. The library does not check that.
fn check_merges(vocab: &Map<String, Value>, merges: &[Value], model: &Map<String, Value>) -> Result<(), Wrong> {
    let prefix = model.get("continuing_subword_prefix").and_then(Value::as_str).unwrap_or_default();
    let known: HashSet<&str> = vocab.keys().map(String::as_str).collect();
    for (at, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(both) => match &both[..] {
                [first, second] => first.as_str().zip(second.as_str()),
                _ => None,
            },
            _ => None,
        };
        let joined = pair.and_then(|(first, second)| Some((first, second, second.strip_prefix(prefix)?)));
        let Some((first, second, rest)) = joined else {
            return Err((format!("model.merges[{at}] {merge}"), "two tokens, such as [\"t\", \"h\"]", AGAIN));
        };
        let whole = format!("{first}{rest}");
        if let Some(lost) = [first, second, &*whole].into_iter().find(|token| !known.contains(token)) {
            let found = format!("model.merges[{at}] with {}, which model.vocab has not", quoted(lost));
            return Err((found, "tokens of model.vocab whose sum is one too", AGAIN));
        }
    }
    Ok(())
}

/// Whether a part of a tokenizer, or an element of a sequence of parts, turns bytes into characters.
fn has_byte_level(part: Option<&Value>) -> bool {
    let Some(part) = part else { return false };
    let parts = ["pretokenizers", "normalizers"].iter().filter_map(|list| part.get(*list)?.as_array()).flatten();
    part.get("type").and_then(Value::as_str) == Some("ByteLevel") || parts.into_iter().any(|p| has_byte_level(Some(p)))
}

/// The byte that a character of a byte vocabulary represents: itself if it is printable in Latin-1; otherwise such
/// bytes are numbered from U+0100 on.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(is_plain),
        code => (0..=u8::MAX).filter(|byte| !is_plain(byte)).nth((code - 0x100) as usize),
    }
}

/// The characters of a byte vocabulary, indexed by byte.
fn characters_of_bytes() -> impl Iterator<Item = char> {
    ('!'..='\u{1ff}').filter(|c| byte_of(*c).is_some())
}
