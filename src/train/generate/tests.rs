//! Texts that small networks write, and networks that cannot write.

use super::*;
use crate::model::read_preset;
use crate::train::SessionSpec;
use std::path::Path;

/// A session over the text `abcabc...` with these layers, each a JSON object, and the weights of its seed.
fn session(folder: &Path, layers: &str, steps: usize) -> Session {
    std::fs::write(folder.join("t.txt"), "abc".repeat(400)).unwrap();
    let text = format!(
        r#"{{ "version": 1, "name": "abc", "about": "",
        "input": {{ "type": "tokens", "shape": [6], "vocab": 3, "batch": 4 }},
        "layers": [{{ "type": "embedding", "units": 8 }}, {layers}],
        "loss": {{ "type": "softmax_cross_entropy" }}, "optimizer": {{ "type": "adam", "lr": 0.03 }},
        "data": {{ "type": "text", "path": "t.txt", "tokens": "chars", "split": "last" }},
        "train": {{ "steps": {steps}, "seed": 3 }} }}"#
    );
    let preset = read_preset(&text).unwrap();
    Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, folder.into()) }).unwrap()
}

fn vocabulary(session: &Session, folder: &Path) -> Vocabulary {
    let source = session.preset.data.as_ref().map(|data| &data.source);
    Vocabulary::of(source, folder, None).unwrap().unwrap()
}

const EACH: &str = r#"{ "type": "dense", "units": 3 }"#;

fn asked(prompt: &str, tokens: usize) -> Generation {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    Generation { prompt: prompt.into(), tokens: Some(tokens), sampling, stop: None }
}

#[test]
fn a_trained_network_continues_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let last = r#"{ "type": "gru", "units": 8, "return": "last" }, { "type": "dense", "units": 3 }"#;
    for layers in [EACH, last] {
        let mut session = session(folder.path(), layers, 120);
        while session.step().unwrap().is_some() {}
        let abc = vocabulary(&session, folder.path());
        let mut pieces = Vec::new();
        let keep = |piece: &str| {
            pieces.push(piece.to_owned());
            true
        };
        let found = session.generate(&abc, &asked("abcabca", 7), keep).unwrap();
        assert_eq!((&*found.text, found.tokens, found.end), ("bcabcab", 7, GenerationEnd::Tokens), "{layers}");
        assert_eq!((pieces.concat(), pieces.len()), (found.text, 7));
        assert!(found.notes[0].contains("sees the last 6 of the prompt's 7 tokens"), "{:?}", found.notes);
        // The stop text is not part of what is written.
        let until = Generation { stop: Some("ca".into()), ..asked("ab", 7) };
        let found = session.generate(&abc, &until, |_| true).unwrap();
        assert_eq!((&*found.text, found.tokens, found.end), ("", 2, GenerationEnd::Stop), "{layers}");
        let until = Generation { stop: Some("ab".into()), ..asked("ab", 2) };
        assert_eq!(session.generate(&abc, &until, |_| true).unwrap().text, "ca");
        let found = session.generate(&abc, &asked("a", 50), |_| false).unwrap();
        assert_eq!((found.tokens, found.end), (1, GenerationEnd::Cancelled));
    }
}

#[test]
fn a_seed_gives_the_same_text_for_any_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let layers = r#"{ "type": "position" }, { "type": "attention", "heads": 2, "causal": true },
        { "type": "dense", "units": 3 }"#;
    let mut first = session(folder.path(), layers, 1);
    let abc = vocabulary(&first, folder.path());
    let of_seed = |seed| Generation { sampling: Sampling { seed, ..Sampling::default() }, ..asked("ab", 60) };
    let text = |session: &mut Session, seed| session.generate(&abc, &of_seed(seed), |_| true).unwrap().text;
    let found = text(&mut first, 1);
    assert_eq!(found, text(&mut first, 1));
    assert_ne!(found, text(&mut first, 2));
    let mut preset = first.preset.clone();
    preset.input.batch = 1;
    let alone = SessionSpec { threads: 1, ..SessionSpec::new(preset, folder.path().into()) };
    assert_eq!(found, text(&mut Session::prepare(&alone).unwrap(), 1));
    // Queries do not change the results of a run.
    let losses = |session: &mut Session| session.step().unwrap().unwrap().loss.to_bits();
    assert_eq!(losses(&mut first), losses(&mut session(folder.path(), layers, 1)));
}

#[test]
fn networks_that_see_what_they_predict_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (r#"{ "type": "gru", "units": 8, "bidirectional": true }"#, true),
        (r#"{ "type": "attention", "heads": 2 }"#, true),
        (r#"{ "type": "conv1d", "filters": 8, "kernel": 3, "padding": "same" }"#, true),
        (r#"{ "type": "conv1d", "filters": 8, "kernel": 3, "padding": "causal" }"#, false),
        (r#"{ "type": "lstm", "units": 8 }"#, false),
        (r#"{ "type": "attention", "heads": 2, "causal": true, "rotary": true }"#, false),
    ];
    for (layer, is_refused) in cases {
        let mut session = session(folder.path(), &format!("{layer}, {EACH}"), 1);
        let abc = vocabulary(&session, folder.path());
        let outcome = session.generate(&abc, &asked("a", 3), |_| true);
        assert_eq!(matches!(outcome, Err(GenerateError::LooksAhead)), is_refused, "{layer}: {outcome:?}");
        assert!(is_refused || outcome.unwrap().tokens == 3, "{layer}");
    }
}

#[test]
fn errors_of_prompts_and_networks_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut abc = session(folder.path(), EACH, 1);
    let chars = vocabulary(&abc, folder.path());
    let refused = |session: &mut Session, vocabulary: &Vocabulary, prompt: &str| {
        let error = session.generate(vocabulary, &asked(prompt, 2), |_| true).unwrap_err();
        assert!(error.is_user());
        error.to_string()
    };
    let message = refused(&mut abc, &chars, "abXa\"X");
    assert!(
        message.contains("the characters 'X', '\"', which the network does not know; it knows 3: abc"),
        "{message}"
    );
    assert!(refused(&mut abc, &chars, "").contains("the prompt is empty; give a text"));
    let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "xor").unwrap();
    let spec = SessionSpec::new(read_preset(bundled.text).unwrap(), ".".into());
    let message = refused(&mut Session::prepare(&SessionSpec { threads: 1, ..spec }).unwrap(), &chars, "a");
    assert!(message.contains("the network xor predicts no tokens") && message.contains("gpt-source"), "{message}");
}

#[test]
fn windows_are_filled_at_the_end_or_at_the_front() {
    let window = |has_positions| Window { len: 4, vocab: 9, has_positions, fill: 7 };
    assert_eq!(window(true).sample(&[1, 2]), (vec![1, 2, 7, 7], 1));
    assert_eq!(window(true).sample(&[1, 2, 3, 4, 5]), (vec![2, 3, 4, 5], 3));
    assert_eq!(window(false).sample(&[1, 2]), (vec![7, 7, 1, 2], 0));
    assert_eq!(window(false).sample(&[1, 2, 3, 4, 5]), (vec![2, 3, 4, 5], 0));
}
