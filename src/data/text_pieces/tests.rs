//! Pieces of texts whose tokens are those of the whole.

use super::*;
use serde_json::json;
use std::path::Path;

/// Trained on this program's source.
fn of_source() -> Arc<Tokenizer> {
    Tokenizer::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json")).unwrap()
}

/// Without a component that splits text into words; blanks are encoded as separate characters, and one is inserted
/// before every text.
fn of_sentences() -> Arc<Tokenizer> {
    let mut vocab = serde_json::Map::new();
    let bytes = (0..=255).map(|byte: u8| format!("<{byte:#04X}>"));
    let letters = ('a'..='z').chain(['\u{2581}']).map(String::from);
    let merged = ["th", "the", "\u{2581}the", "ing", "in"].map(String::from);
    for token in bytes.chain(letters).chain(merged) {
        vocab.insert(token, vocab.len().into());
    }
    let document = json!({
        "version": "1.0", "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab,
            "merges": ["t h", "i n", "th e", "in g", "\u{2581} the"]}});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, document.to_string()).unwrap();
    Tokenizer::read(&path).unwrap()
}

/// The tokens of a text, encoded piece by piece, and the number of pieces.
fn by_pieces(text: &[u8], tokenizer: &Arc<Tokenizer>) -> Result<(Vec<u32>, usize), DataError> {
    let mut pieces = TextPieces::new(std::io::Cursor::new(text.to_vec()), Arc::clone(tokenizer), "t");
    let (mut tokens, mut count, mut end) = (Vec::new(), 0, 0);
    while let Some(piece) = pieces.next()? {
        let encoded = piece.encode(tokenizer, "t")?;
        tokens.extend_from_slice(encoded.tokens());
        assert!(encoded.end > end, "a piece has text");
        (count, end) = (count + 1, encoded.end);
    }
    assert_eq!(end, text.len() as u64);
    Ok((tokens, count))
}

/// This program's source, repeated several times, with characters of up to four bytes.
fn source(bytes: usize) -> String {
    let own =
        [include_str!("../text_pieces.rs"), include_str!("../../model/preset.rs"), "\u{e4}\u{20ac}\u{1f980}\r\n\n"];
    own.concat().repeat(bytes / 1000).chars().take(bytes).collect()
}

#[test]
fn pieces_have_the_tokens_of_the_whole_text() {
    let text = source(400_000);
    for tokenizer in [of_source(), of_sentences()] {
        let (tokens, count) = by_pieces(text.as_bytes(), &tokenizer).unwrap();
        assert!(count >= 4, "{count} pieces");
        assert!(tokens == tokenizer.encode(&text).unwrap());
    }
}

#[test]
fn short_texts_and_marks_are_read() {
    let tokenizer = of_source();
    assert_eq!(by_pieces(b"", &tokenizer).unwrap(), (Vec::new(), 0));
    let (tokens, count) = by_pieces("\u{feff}pub fn".as_bytes(), &tokenizer).unwrap();
    assert_eq!((tokens, count), (tokenizer.encode("pub fn").unwrap(), 1));
}

#[test]
fn bytes_that_are_not_utf8_are_reported_with_their_position() {
    let tokenizer = of_source();
    let mut text = source(300_000).into_bytes();
    text[250_000..250_002].copy_from_slice(&[b'a', 0xff]);
    let error = by_pieces(&text, &tokenizer).unwrap_err().to_string();
    assert!(error.contains("t, byte 250001: found the byte 0xff, expected UTF-8 text"), "{error}");
    // An incomplete character at the end.
    let error = by_pieces(b"abc\xe2\x82", &tokenizer).unwrap_err().to_string();
    assert!(error.contains("t, byte 3: found the byte 0xe2"), "{error}");
}

#[test]
fn a_long_text_without_a_place_for_a_cut_is_refused() {
    let tokenizer = of_source();
    let line = "x".repeat(300_000);
    assert_eq!(by_pieces(line.as_bytes(), &tokenizer).unwrap().1, 1);
    let error = by_pieces("x".repeat(MOST + 1).as_bytes(), &tokenizer).unwrap_err().to_string();
    assert!(error.contains("4 MiB of text without a place for a cut"), "{error}");
}
