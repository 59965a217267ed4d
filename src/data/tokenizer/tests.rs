//! Tests with a tokenizer of 300 merges over bytes that was trained on this program's source, and with others that are
//! built here.

use super::*;
use crate::data::mutation::throw;
use serde_json::{Value, json};

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn of_source() -> Arc<Tokenizer> {
    Tokenizer::read(&path("tokenizer.json")).unwrap()
}

fn document() -> Value {
    serde_json::from_slice(&std::fs::read(path("tokenizer.json")).unwrap()).unwrap()
}

fn read(document: &Value) -> Result<Arc<Tokenizer>, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, document.to_string()).unwrap();
    Tokenizer::read(&path)
}

#[test]
fn tokens_are_those_of_the_reference() {
    let tokenizer = of_source();
    assert_eq!(tokenizer.symbols().len(), 557);
    // The expected tokens were computed with the Python package tokenizers.
    let cases: [(&str, &[u32]); 6] = [
        ("pub fn l\u{e4}uft() {}\n", &[460, 335, 301, 128, 98, 85, 70, 84, 279, 270, 93, 199]),
        ("  a \n\n\tb", &[221, 278, 221, 199, 199, 198, 66]),
        ("let x = \"\u{e9}\u{1f980}\";", &[269, 84, 221, 88, 275, 299, 128, 103, 173, 254, 100, 223, 2, 27]),
        ("<|endoftext|>end", &[0, 306, 68]),
        ("", &[]),
        (" ", &[221]),
    ];
    for (text, tokens) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), tokens, "{text:?}");
        assert_eq!(tokenizer.decode(tokens), text);
    }
}

#[test]
fn symbols_are_readable_and_distinct() {
    let tokenizer = of_source();
    let symbols = tokenizer.symbols();
    let token = |text: &str| &*symbols[tokenizer.encode(text).unwrap()[0] as usize];
    assert_eq!(
        [token("pub"), token(" fn"), token("\n"), token("<|endoftext|>")],
        ["pub", " fn", "\n", "<|endoftext|>"]
    );
    // Half a character is escaped.
    assert_eq!(token("\u{e4}"), "\\xc3");
    let mut sorted = symbols.to_vec();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), symbols.len());
}

#[test]
fn text_is_returned_as_soon_as_its_characters_are_complete() {
    let tokenizer = of_source();
    let text = "let \u{e4} = \"\u{1f980}\";\n";
    let mut continued = Continued::new(Arc::clone(&tokenizer));
    let pieces: Vec<String> = tokenizer.encode(text).unwrap().into_iter().map(|token| continued.push(token)).collect();
    assert_eq!(pieces.concat() + &continued.finish(), text);
    assert!(
        pieces.iter().any(String::is_empty) && pieces.iter().all(|piece| !piece.contains('\u{fffd}')),
        "{pieces:?}"
    );
    // Bytes that never become a character do not delay what follows.
    let broken = tokenizer.encode("\u{e4}").unwrap()[0];
    let mut continued = Continued::new(Arc::clone(&tokenizer));
    let written: String =
        [broken; 6].into_iter().chain(tokenizer.encode("ab").unwrap()).map(|t| continued.push(t)).collect();
    assert!(written.ends_with("ab") && written.starts_with('\u{fffd}'), "{written:?}");
}

#[test]
fn settings_that_change_tokens_from_run_to_run_are_removed() {
    let mut other = document();
    other["model"]["dropout"] = json!(0.9);
    other["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    let text = "pub fn layers(&self) -> usize {";
    assert_eq!(read(&other).unwrap().encode(text).unwrap(), of_source().encode(text).unwrap());
}

#[test]
fn characters_without_a_token_are_named() {
    let small = json!({"version": "1.0", "added_tokens": [], "model": {"type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}});
    let tokenizer = read(&small).unwrap();
    assert_eq!(tokenizer.encode("abba").unwrap(), [2, 1, 0]);
    assert_eq!(tokenizer.symbols(), ["a", "b", "ab"]);
    assert_eq!(tokenizer.encode("ab\u{e4}b\u{e4}c"), Err(NoTokens::Unknown(vec![(2, '\u{e4}'), (7, 'c')])));
    // A letter that is encoded differently inside a word may have no token there.
    let mut inside = small.clone();
    inside["model"]["end_of_word_suffix"] = json!("</w>");
    assert!(read(&inside).unwrap_err().to_string().contains("an end_of_word_suffix without an unk_token"));
    // One token for everything unknown replaces all of them.
    let mut known = small;
    known["model"]["vocab"]["?"] = json!(3);
    known["model"]["unk_token"] = json!("?");
    assert_eq!(read(&known).unwrap().encode("a\u{e4}b").unwrap(), [0, 3, 1]);
}

#[test]
fn a_file_that_is_not_a_tokenizer_is_refused_with_the_reason() {
    let refused = |document: &Value| read(document).unwrap_err().to_string();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = document();
        change(&mut document);
        refused(&document)
    };
    assert!(refused(&json!([1, 2])).contains("JSON without a \"model\""));
    assert!(refused(&json!({"model": {"type": "WordPiece"}})).contains("a model of the type \"WordPiece\""));
    let error = changed(&|d| d["model"]["merges"][7] = json!("only"));
    assert!(error.contains("model.merges[7] \"only\", expected two tokens"), "{error}");
    let error = changed(&|d| d["model"]["merges"][7] = json!(["q", "\u{10ffff}"]));
    assert!(error.contains("model.merges[7] with \"\u{10ffff}\"") || error.contains("model.merges[7] with"), "{error}");
    // A merge whose result is not a token: the library would read outside its memory.
    let error = changed(&|d| d["model"]["merges"][0] = json!(["<|endoftext|>", "<|endoftext|>"]));
    assert!(
        error.contains("model.merges[0] with \"<|endoftext|><|endoftext|>\", which model.vocab has not"),
        "{error}"
    );
    let error = changed(&|d| d["model"]["vocab"]["a"] = json!(2));
    assert!(error.contains("2 as the number of"), "{error}");
    let error = changed(&|d| d["model"]["vocab"]["a"] = json!(-1));
    assert!(error.contains("-1 as the number of \"a\" in model.vocab"), "{error}");
    let error = changed(&|d| d["model"]["unk_token"] = json!("none"));
    assert!(error.contains("the unk_token \"none\""), "{error}");
    let error = changed(&|d| d["added_tokens"][0]["id"] = json!(1u64 << 40));
    assert!(error.contains("the added token"), "{error}");
    let error = changed(&|d| d["pre_tokenizer"] = json!({"type": "Nothing"}));
    assert!(error.contains("a tokenizer that cannot be used ("), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("t.json");
    std::fs::write(&text, "{\n\"model\": }").unwrap();
    let error = Tokenizer::read(&text).unwrap_err().to_string();
    assert!(error.contains("t.json, line 2: found no JSON (") && error.contains("tokenizer.json"), "{error}");
    std::fs::write(&text, "\n").unwrap();
    let error = Tokenizer::read(&text).unwrap_err().to_string();
    assert!(error.contains("found an empty file, expected a tokenizer.json"), "{error}");
    assert!(Tokenizer::read(Path::new("/nowhere.json")).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn damaged_files_are_refused_or_read_and_never_end_the_program() {
    let small = json!({"version": "1.0", "added_tokens": [{"id": 3, "content": "<s>", "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}});
    throw(&[small.to_string().as_bytes()], 2000, |bytes| {
        if let Ok(tokenizer) = Tokenizer::parse(bytes, "t") {
            let _ = tokenizer.encode("abba \u{e4}\n<s>");
            assert!(tokenizer.decode(&[0, 1, 2, 3, 1 << 20]).len() < 100);
        }
    });
}
