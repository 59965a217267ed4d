//! Inputs that have names, and tokens: what is wrong with them is told at its place, with exit status 2.

use super::{SMALL, at, listing, refused, save, succeed, zeros};
use stepgraph::tensor::HostTensor;

#[test]
fn inputs_are_refused_at_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "net.json");
    let refuses = |inputs: &str, layers: &str, wanted: &[&str]| {
        let text = format!(
            r#"{{"version": 1, "name": "net", {inputs}, "layers": [{layers}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        std::fs::write(&path, text).unwrap();
        let told = refused(&["train", &path, "--batches", &at(&folder, "none.safetensors")]);
        wanted.iter().for_each(|wanted| assert!(told.contains(wanted), "{told}\ndoes not contain {wanted}"));
        assert_eq!(listing(folder.path()), ["net.json"]);
    };
    let dense = r#"{"type": "dense", "units": 2}"#;
    let tokens = |fields: &str| format!(r#""input": {{"type": "tokens", {fields}, "batch": 2}}"#);
    refuses(&tokens(r#""shape": [4], "vocab": 0"#), dense, &["input.vocab: found 0; expected the number of different"]);
    refuses(&tokens(r#""shape": [4]"#), dense, &["input.vocab: is missing; add \"vocab\""]);
    refuses(&tokens(r#""shape": [4, 3], "vocab": 9"#), dense, &["input.shape: found [4, 3]; expected [T]"]);
    let message = "layers[0]: dense takes numbers, and its input is tokens; tokens are no numbers";
    refuses(&tokens(r#""shape": [4], "vocab": 9"#), dense, &[message, "put an `embedding` first"]);
    let residual = format!(r#"{{"type": "residual", "layers": [{dense}]}}, {dense}"#);
    refuses(&tokens(r#""shape": [4], "vocab": 9"#), &residual, &["layers[0]: residual takes numbers"]);
    refuses(r#""input": {"type": "words", "shape": [4], "batch": 2}"#, dense, &["input.type: found \"words\""]);
    refuses(r#""input": {"shape": [4], "vocab": 3, "batch": 2}"#, dense, &["input.vocab: unknown field"]);
    let two = r#""inputs": {"a": {"shape": [4]}, "b": {"shape": [0]}}, "input": {"batch": 2}"#;
    refuses(two, dense, &["inputs.b.shape: found [0]", "layers[0]: dense takes one input, and the network has a, b"]);
    let two = r#""inputs": {"a b": {"shape": [4]}, "c": 3}, "input": {"batch": 2, "shape": [3]}"#;
    refuses(
        two,
        dense,
        &["inputs.a b: \"a b\" is no name of an input", "inputs.c: found 3", "input.shape: unknown field"],
    );
    refuses(r#""inputs": {}, "input": {"batch": 2}"#, dense, &["inputs: the network has no inputs"]);
}

#[test]
fn batches_of_an_input_with_a_name_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let (preset, batches) = (at(&folder, "net.json"), at(&folder, "batches.safetensors"));
    let named = SMALL.replace(
        r#""input": { "shape": [6], "batch": 8 }"#,
        r#""inputs": { "facts": { "shape": [6] } }, "input": { "batch": 8 }"#,
    );
    std::fs::write(&preset, named).unwrap();
    let labels = HostTensor::from_slice([3, 8], &[0i32; 24]).unwrap();
    let path = folder.path().join("batches.safetensors");
    save(&path, &[("batch.x", zeros(&[3, 8, 6])), ("batch.y", labels.clone())]);
    assert!(refused(&["train", &preset, "--batches", &batches]).contains("has no tensor batch.x.facts"));
    let whole = HostTensor::from_slice([3, 8, 6], &[0i32; 144]).unwrap();
    save(&path, &[("batch.x.facts", whole), ("batch.y", labels.clone())]);
    assert!(refused(&["train", &preset, "--batches", &batches]).contains("batch.x.facts holds i32; expected f32"));
    save(&path, &[("batch.x.facts", zeros(&[3, 8, 6])), ("batch.y", labels)]);
    succeed(&["train", &preset, "--batches", &batches, "--device", "cpu"]);
}
