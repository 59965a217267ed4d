//! Texts with the tokenizer of a file: training, continuing and evaluating; the same tokens as in Python; and errors.

use super::{at, json, listing, python_with, refused, stderr, succeed};
use std::process::Command;
use stepgraph::data::{Request, RowPart, Samples, load};
use stepgraph::model::{Content, DataSource, DataSpec, LossSpec, NamedInput, Tokens};

/// 300 merges over bytes, trained on this program's source.
const TOKENIZER: &str = include_str!("../../data/tokenizer.json");

/// This program's source, with other characters between its files.
fn text() -> String {
    let files = [include_str!("generate.rs"), include_str!("predict.rs"), include_str!("../../../src/model/preset.rs")];
    files.join("\u{e4}\u{20ac}\u{1f980} <|endoftext|>\r\n\n")
}

/// A preset with a network for this vocabulary size, beside a text and a tokenizer.
fn preset(folder: &tempfile::TempDir, vocab: usize, tokens: &str) -> String {
    std::fs::write(at(folder, "t.txt"), text()).unwrap();
    std::fs::write(at(folder, "tokenizer.json"), TOKENIZER).unwrap();
    let text = format!(
        r#"{{ "version": 1, "name": "bpe", "input": {{ "type": "tokens", "shape": [16], "vocab": {vocab}, "batch": 8 }},
            "layers": [{{ "type": "embedding", "units": 16 }}, {{ "type": "gru", "units": 16 }},
            {{ "type": "dense", "units": {vocab} }}], "loss": {{ "type": "softmax_cross_entropy" }},
            "optimizer": {{ "type": "adam", "lr": 0.01 }},
            "data": {{ "type": "text", "path": "t.txt", "tokens": "{tokens}", "held_out": 0.1, "split": "last" }},
            "train": {{ "steps": 30, "seed": 0 }} }}"#
    );
    let path = at(folder, "bpe.json");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_network_is_trained_on_tokens_and_writes_text() {
    let folder = tempfile::tempdir().unwrap();
    let (preset, weights) = (preset(&folder, 557, "tokenizer.json"), at(&folder, "w.safetensors"));
    let found = json(&["train", &preset, "--save", &weights, "--json"]);
    assert!(found["loss"].as_f64().unwrap() < 6.3, "{found}");
    let written = |seed: &str| {
        json(&[
            "generate",
            &preset,
            "--init",
            &weights,
            "--prompt",
            "pub fn l\u{e4}uft",
            "--tokens",
            "20",
            "--seed",
            seed,
            "--json",
        ])
    };
    let (first, again) = (written("4"), written("4"));
    assert_eq!(
        (&first["text"], &first["tokens"], &first["prompt"]),
        (&again["text"], &20.into(), &"pub fn l\u{e4}uft".into())
    );
    assert!(!first["text"].as_str().unwrap().is_empty());
    let answers = json(&["predict", &preset, "--init", &weights, "--json"]);
    assert!(answers["loss"].as_f64().unwrap() > 0.0, "{answers}");
    // With another tokenizer the token numbers have another meaning.
    let other = TOKENIZER.replacen("\"a\":65,\"b\":66", "\"b\":65,\"a\":66", 1);
    assert_ne!(other, TOKENIZER);
    std::fs::write(at(&folder, "tokenizer.json"), other).unwrap();
    for command in
        [&["generate", &preset, "--init", &weights, "--prompt", "a"][..], &["predict", &preset, "--init", &weights]]
    {
        let message = refused(command);
        assert!(
            message.contains("\"b\" as its token 65, expected \"a\"") && message.contains("tokenizer"),
            "{message}"
        );
    }
    std::fs::remove_file(at(&folder, "tokenizer.json")).unwrap();
    assert!(
        refused(&["generate", &preset, "--init", &weights, "--prompt", "a"]).contains("tokenizer.json: cannot be read")
    );
}

#[test]
fn mistakes_are_reported_at_their_path_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let train = |vocab: usize, tokens: &str, change: &dyn Fn()| {
        let preset = preset(&folder, vocab, tokens);
        change();
        let before = listing(folder.path());
        let message =
            refused(&["train", &preset, "--save", &at(&folder, "w.safetensors"), "--log", &at(&folder, "l.jsonl")]);
        assert_eq!(listing(folder.path()), before);
        message
    };
    let nothing = || {};
    let message = train(300, "tokenizer.json", &nothing);
    assert!(message.contains("t.txt, token") && message.contains("set input.vocab to 55"), "{message}");
    let message = train(557, "words", &nothing);
    assert!(message.contains("data.tokens: found \"words\"") && message.contains("tokenizer.json"), "{message}");
    assert!(train(557, "none.json", &nothing).contains("none.json: cannot be read"));
    let message = train(557, "bpe.json", &nothing);
    assert!(message.contains("bpe.json: found JSON without a \"model\""), "{message}");
    let message = train(557, "tokenizer.json", &|| std::fs::write(at(&folder, "t.txt"), b"ab\xffcdefgh").unwrap());
    assert!(message.contains("t.txt, byte 2: found the byte 0xff, expected UTF-8 text"), "{message}");
    let message = train(557, "tokenizer.json", &|| std::fs::write(at(&folder, "t.txt"), "pub fn a").unwrap());
    assert!(message.contains("t.txt: found 3 tokens, expected at least 17"), "{message}");
    let cut = || std::fs::write(at(&folder, "tokenizer.json"), &TOKENIZER[..5000]).unwrap();
    let message = train(557, "tokenizer.json", &cut);
    assert!(message.contains("tokenizer.json, line 1: found no JSON ("), "{message}");
    // A plan needs no data.
    let planned = preset(&folder, 557, "tokenizer.json");
    assert!(succeed(&["plan", &planned]).contains("bpe"));
}

#[test]
fn tokens_equal_those_of_python_for_a_long_text() {
    let python = match python_with("tokenizers") {
        Ok(python) => python,
        Err(why) => return println!("skipped: no Python with the package tokenizers in STEPGRAPH_PYTHON ({why})"),
    };
    let folder = tempfile::tempdir().unwrap();
    preset(&folder, 557, "tokenizer.json");
    let long = text().repeat(10);
    assert!(long.len() > 200_000);
    std::fs::write(at(&folder, "t.txt"), &long).unwrap();
    let script = "import json, sys, tokenizers\n\
                  t = tokenizers.Tokenizer.from_file(sys.argv[1])\n\
                  text = open(sys.argv[2], encoding='utf-8', newline='').read()\n\
                  print(json.dumps(t.encode(text, add_special_tokens=False).ids))";
    let (tokenizer, file) = (at(&folder, "tokenizer.json"), at(&folder, "t.txt"));
    let output = Command::new(python).args(["-c", script, &tokenizer, &file]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let theirs: Vec<i32> = serde_json::from_slice(&output.stdout).unwrap();
    let spec = DataSpec::of(DataSource::Text { path: "t.txt".into(), tokens: Tokens::File("tokenizer.json".into()) });
    let input = NamedInput { name: "x".into(), content: Content::Tokens { vocab: 557 }, shape: [1].into() };
    let loss = LossSpec::SOFTMAX_CROSS_ENTROPY;
    let request = Request { inputs: vec![input], output: [557].into(), loss, seed: 0 };
    let set = load(&spec, &request, folder.path()).unwrap();
    let Samples::Windows(rows) = &set.inputs[0].values else { panic!("a text has windows") };
    assert_eq!(rows.tokens(), theirs.len() as u64);
    // Each row contains a token and the following one.
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    let (first, second) = (rows.rows(&all, RowPart::Sample).unwrap(), rows.rows(&all, RowPart::Target).unwrap());
    let ours: Vec<i32> = first.iter().zip(&second).flat_map(|(a, b)| [*a, *b]).collect();
    assert!(ours == theirs[..ours.len()], "the tokens are others than in Python");
}
