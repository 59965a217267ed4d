//! Named inputs and tokens: mistakes are reported at their paths, with exit status 2.

use super::{SMALL, at, listing, refused, save, succeed, zeros};
use stepgraph::tensor::HostTensor;

#[test]
fn invalid_inputs_are_reported_at_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "net.json");
    let refuses = |inputs: &str, layers: &str, wanted: &[&str]| {
        let text = format!(
            r#"{{"version": 1, "name": "net", {inputs}, "layers": [{layers}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        std::fs::write(&path, text).unwrap();
        let message = refused(&["train", &path, "--batches", &at(&folder, "none.safetensors")]);
        wanted.iter().for_each(|wanted| assert!(message.contains(wanted), "{message}\ndoes not contain {wanted}"));
        assert_eq!(listing(folder.path()), ["net.json"]);
    };
    let dense = r#"{"type": "dense", "units": 2}"#;
    let tokens = |fields: &str| format!(r#""input": {{"type": "tokens", {fields}, "batch": 2}}"#);
    refuses(&tokens(r#""shape": [4], "vocab": 0"#), dense, &["input.vocab: found 0; expected the number of different"]);
    refuses(&tokens(r#""shape": [4]"#), dense, &["input.vocab: is missing; add \"vocab\""]);
    refuses(&tokens(r#""shape": [4, 3], "vocab": 9"#), dense, &["input.shape: found [4, 3]; expected [T]"]);
    let message = "layers[0]: dense takes numbers, and its input is tokens; tokens are not numbers";
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
fn batches_of_a_named_input_must_exist() {
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

#[test]
fn invalid_joined_data_are_reported_at_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "net.json");
    let refuses = |data: &str, wanted: &[&str]| {
        let text = format!(
            r#"{{"version": 1, "name": "net", "inputs": {{"image": {{"shape": [1, 8, 8]}}, "facts": {{"shape": [16]}}}},
            "input": {{"batch": 4}}, "layers": [{{"type": "parallel", "branches": [
            {{"input": "image", "layers": [{{"type": "flatten"}}]}}, {{"input": "facts", "layers": []}}]}},
            {{"type": "dense", "units": 10}}], "loss": {{"type": "softmax_cross_entropy"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}, "data": {data}}}"#
        );
        std::fs::write(&path, text).unwrap();
        let message = refused(&["train", &path, "--steps", "1", "--device", "cpu"]);
        wanted.iter().for_each(|wanted| assert!(message.contains(wanted), "{message}\ndoes not contain {wanted}"));
    };
    let joined =
        |inputs: &str, target: &str| format!(r#"{{"type": "joined", "inputs": {{{inputs}}}, "target": "{target}"}}"#);
    let both = r#""image": {"type": "digits"}, "facts": {"type": "digit_sums"}"#;
    refuses(&joined(both, "word"), &["data.target: found \"word\"", "\"image\", \"facts\""]);
    refuses(&joined(r#""image": {"type": "digits"}"#, "image"), &["data.inputs.facts: found no source"]);
    let rows = r#""image": {"type": "digits"}, "facts": {"type": "iris"}"#;
    refuses(&joined(rows, "image"), &["data.inputs.facts: found 150 samples in iris, expected 1797"]);
    let shape = r#""image": {"type": "digits"}, "facts": {"type": "digits"}"#;
    refuses(&joined(shape, "image"), &["found samples of shape [1, 8, 8] (64 values), expected [16] as inputs.facts"]);
    let nested = r#""image": {"type": "digits"}, "facts": {"type": "joined"}"#;
    refuses(&joined(nested, "image"), &["data.inputs.facts.type: found \"joined\""]);
    let field = r#""image": {"type": "digits"}, "facts": {"type": "csv", "path": "f.csv", "columns": "a"}"#;
    refuses(&joined(field, "image"), &["data.inputs.facts.columns: found \"a\"; expected a list of columns"]);
    refuses(r#"{"type": "joined", "target": "image"}"#, &["data.inputs: is missing"]);
    refuses(r#"{"type": "digits"}"#, &["data.type: found digits", "use the type \"joined\""]);
}

#[test]
fn every_input_of_a_bundled_preset_is_listed() {
    let list = super::json(&["presets", "--json"]);
    let two = list.as_array().unwrap().iter().find(|preset| preset["name"] == "two-inputs").unwrap().clone();
    assert_eq!((&two["inputs"][0]["name"], &two["inputs"][1]["shape"][0]), (&"image".into(), &16.into()));
    assert!(two["input"].is_null() && two["data"] == "joined");
    assert!(succeed(&["presets"]).contains("two-inputs  (inputs image [1, 8, 8], facts [16], "));
}
