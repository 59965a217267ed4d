//! `generate`: texts of given weights and of kept runs, which are the same for the same seed; and errors.

use super::{at, command, json, refused, refuses_values, run, stderr, succeed, succeeded};
use serde_json::Value;

/// A folder with `abc.json`, a network over the text `abcabc...` beside it, and its trained `abc.safetensors`.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.txt"), "abc\n".repeat(200)).unwrap();
    let preset = r#"{
      "version": 1, "name": "abc", "input": { "type": "tokens", "shape": [8], "vocab": 4, "batch": 8 },
      "layers": [{ "type": "embedding", "units": 8 }, { "type": "dense", "units": 4 }],
      "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "adam", "lr": 0.05 },
      "data": { "type": "text", "path": "t.txt", "tokens": "chars" }, "train": { "steps": 150, "seed": 1 }
    }"#;
    std::fs::write(folder.path().join("abc.json"), preset).unwrap();
    let (preset, weights, runs) = (at(&folder, "abc.json"), at(&folder, "abc.safetensors"), folder.path().join("runs"));
    let args = ["train", &preset, "--save", &weights, "--keep", "--json"];
    let output = command(&args).env("STEPGRAPH_RUNS", runs).output().unwrap();
    let summary: Value = serde_json::from_str(&succeeded(&args, &output)).unwrap();
    let (loss, perplexity) = (&summary["held_out"]["loss"], &summary["held_out"]["perplexity"]);
    assert!((loss.as_f64().unwrap().exp() - perplexity.as_f64().unwrap()).abs() < 1e-9, "{summary}");
    folder
}

/// `generate` with these weights and further options.
fn with<'a>(preset: &'a str, weights: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["generate", preset, "--init", weights][..], more].concat()
}

#[test]
fn a_text_continues_the_prompt_and_is_the_same_for_the_same_seed() {
    let folder = trained();
    let (preset, weights) = (at(&folder, "abc.json"), at(&folder, "abc.safetensors"));
    let text = succeed(&with(&preset, &weights, &["--prompt", "ab", "--tokens", "6", "--temperature", "0"]));
    assert_eq!(text, "abc\nabc\n\n");
    // Without a prompt, a new line starts.
    assert_eq!(succeed(&with(&preset, &weights, &["--tokens", "3", "--temperature", "0"])), "abc\n");
    let found =
        json(&with(&preset, &weights, &["--prompt", "abcabcabc", "--tokens", "3", "--temperature", "0", "--json"]));
    assert_eq!((&found["text"], &found["end"], &found["tokens"]), (&"\nab".into(), &"tokens".into(), &3.into()));
    assert!(found["notes"][0].as_str().unwrap().contains("sees the last 8 of the prompt's 9"), "{found}");
    let stopped = json(&with(&preset, &weights, &["--prompt", "a", "--stop", "c\n", "--temperature", "0", "--json"]));
    assert_eq!((&stopped["text"], &stopped["end"], &stopped["tokens"]), (&"b".into(), &"stop".into(), &3.into()));
    // With a high temperature all four characters are drawn; the seed decides which.
    let drawn = |more: &[&str]| {
        let rest = ["--prompt", "a", "--tokens", "60", "--temperature", "50", "--json"];
        json(&with(&preset, &weights, &[&rest[..], more].concat()))["text"].as_str().unwrap().to_owned()
    };
    let first = drawn(&["--seed", "4"]);
    assert_eq!((&first, first.chars().count()), (&drawn(&["--seed", "4", "--threads", "2"]), 60));
    assert_ne!(first, drawn(&["--seed", "5"]));
    // Temperature 0 selects only the most likely token.
    let greedy = "bc\na".repeat(15);
    assert_eq!((drawn(&["--top-k", "1"]), drawn(&["--top-p", "0.01"])), (greedy.clone(), greedy));
}

#[test]
fn a_kept_run_writes_with_its_own_network() {
    let folder = trained();
    let here = |args: &[&str]| command(args).env("STEPGRAPH_RUNS", folder.path().join("runs")).output().unwrap();
    let preset = at(&folder, "abc.json");
    let rest = ["--prompt", "b", "--tokens", "4", "--temperature", "0"];
    for name in [&["generate", "last"][..], &["generate", &preset, "--run", "last"]] {
        let args = [name, &rest].concat();
        assert_eq!(succeeded(&args, &here(&args)), "bc\nab\n");
    }
    let output = here(&["generate", "gpt-source", "--prompt", "a"]);
    let message = stderr(&output);
    assert!(output.status.code() == Some(2) && message.contains("--init FILE or --run RUN"), "{message}");
    let message = stderr(&here(&["generate", "lasst"]));
    assert!(message.contains("no bundled preset of that name"), "{message}");
}

#[test]
fn prompts_and_weights_that_cannot_be_continued_are_refused_with_help() {
    let folder = trained();
    let (preset, weights, xor) = (at(&folder, "abc.json"), at(&folder, "abc.safetensors"), at(&folder, "xor"));
    let with = |more: &[&str]| refused(&with(&preset, &weights, more));
    let message = with(&["--prompt", "a?b\u{e4}?"]);
    assert!(
        message.contains("the characters '?', '\u{e4}', which the network does not know; it knows 4: \\nabc"),
        "{message}"
    );
    let cases: [(&str, &[&str], &str); 5] = [
        ("--temperature", &["-1", "warm"], "from 0"),
        ("--top-p", &["0", "1.1"], "above 0 and at most 1"),
        ("--top-k", &["0"], "at least 1"),
        ("--tokens", &["-3"], "at least 1"),
        ("--seed", &["1.5"], "a whole number"),
    ];
    refuses_values(&cases, |option, value| with(&["--prompt", "a", option, value]));
    succeed(&["train", "xor", "--steps", "2", "--save", &xor]);
    let message = refused(&["generate", "xor", "--init", &xor, "--prompt", "a"]);
    assert!(message.contains("the network xor predicts no tokens") && message.contains("gpt-source"), "{message}");
    assert!(refused(&["generate", &preset, "--init", &xor, "--prompt", "a"]).contains("does not fit the network"));
    assert!(refused(&["generate", &preset, "--init", &weights, "--run", "last"]).contains("cannot be used with"));
    assert!(refused(&["generate", &preset, "--init", &at(&folder, "none")]).contains("cannot be read"));
}

#[test]
fn an_addition_ends_where_its_line_does() {
    let folder = tempfile::tempdir().unwrap();
    let preset = r#"{
      "version": 1, "name": "sums", "input": { "type": "tokens", "shape": [11], "vocab": 13, "batch": 8 },
      "layers": [{ "type": "embedding", "units": 4 }, { "type": "dense", "units": 13 }],
      "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "adam", "lr": 0.01 },
      "data": { "type": "sums", "samples": 100 }, "train": { "steps": 3, "seed": 1 }
    }"#;
    let (path, weights) = (at(&folder, "p.json"), at(&folder, "w.safetensors"));
    std::fs::write(&path, preset).unwrap();
    succeed(&["train", &path, "--save", &weights]);
    let with = |prompt: &str| {
        vec!["generate".to_owned(), path.clone(), "--init".into(), weights.clone(), "--prompt".into(), prompt.into()]
    };
    let run_with = |prompt: &str, more: &[&str]| {
        let args = with(prompt);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run(&args)
    };
    let output = run_with("7+85=", &["--json"]);
    let found: Value = serde_json::from_str(&succeeded(&["generate"], &output)).unwrap();
    assert_eq!((&found["prompt"], &found["end"]), (&"  7+ 85=".into(), &"line".into()));
    assert_eq!((found["text"].as_str().unwrap().len(), found["tokens"].as_u64()), (4, Some(4)));
    assert!(stderr(&output).contains("note: the prompt is \"  7+ 85=\""), "{}", stderr(&output));
    for (prompt, expected) in [
        ("", "the prompt is empty; give a text"),
        ("1234567890123", "a whole text of this network's data has 12"),
        ("7*8=", "the character '*', which the network does not know; it knows 13:  +0123456789="),
    ] {
        let output = run_with(prompt, &[]);
        let message = stderr(&output);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty() && message.contains(expected), "{message}");
    }
}
