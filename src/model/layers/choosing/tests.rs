//! Mistakes in layers that choose, each at its place.

use crate::model::{FieldValue, LayerKind, Preset, check, read_preset, write_preset};

fn text(layers: &str) -> String {
    format!(
        r#"{{"name": "n", "input": {{"shape": [6], "batch": 4}}, "layers": [{{"type": "dense", "units": 5}}, {layers},
        {{"type": "dense", "units": 3}}], "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
    )
}

/// The places and messages of all mistakes.
fn mistakes(layers: &str) -> Vec<(String, String)> {
    let found = match read_preset(&text(layers)) {
        Ok(preset) => check(&preset).diagnostics,
        Err(mistakes) => mistakes,
    };
    found.into_iter().map(|mistake| (mistake.path, mistake.message)).collect()
}

fn expect(layers: &str, path: &str, message: &str) {
    assert_eq!(mistakes(layers), [(path.to_owned(), message.to_owned())], "{layers}");
}

const DENSE: &str = r#"{"type": "dense", "units": 5}"#;
const CYCLE: &str = r#""choose": {"by": "cycle", "values": [0, 1]}"#;

fn branch(fields: &str) -> String {
    format!(r#"{{"type": "branch", "paths": [[{DENSE}], []], {fields}}}"#)
}

fn residual(fields: &str) -> String {
    format!(r#"{{"type": "residual", "layers": [{DENSE}], {fields}}}"#)
}

fn repeat(fields: &str) -> String {
    format!(r#"{{"type": "repeat", "times": 2, "layers": [{DENSE}], {fields}}}"#)
}

fn exit(units: usize, fields: &str) -> String {
    format!(r#"{{"type": "early_exit", "layers": [{{"type": "dense", "units": {units}}}], {fields}}}"#)
}

#[test]
fn every_form_is_read_and_written() {
    for layers in [
        branch(CYCLE),
        branch(r#""choose": {"by": "random", "weights": [0.25, 3]}, "evaluate": 0"#),
        residual(r#""choose": {"by": "schedule", "at": [[1, 0], [10, 1]]}"#),
        residual(r#""keep": 0.8"#),
        residual(r#""keep": 0.8, "evaluate": 0"#),
        repeat(r#""choose": {"by": "cycle", "values": [2, 0, 1]}, "evaluate": 1"#),
        exit(3, CYCLE),
        format!(r#"{{"type": "branch", "paths": [[{}], []], {CYCLE}}}"#, exit(3, CYCLE)),
    ] {
        assert_eq!(mistakes(&layers), [], "{layers}");
        let preset = read_preset(&text(&layers)).unwrap();
        let written = write_preset(&preset);
        assert_eq!(read_preset(&written).as_ref(), Ok(&preset), "{written}");
    }
    let plain = write_preset(&read_preset(&text(&residual(r#""keep": 1, "evaluate": "usual""#))).unwrap());
    assert!(!plain.contains("keep") && !plain.contains("choose") && !plain.contains("evaluate"), "{plain}");
}

#[test]
fn an_unreadable_choice_is_reported_at_its_field() {
    let of = |choose: &str| branch(&format!(r#""choose": {choose}"#));
    expect(&of("3"), "layers[1].choose", "found 3");
    expect(&of("{}"), "layers[1].choose.by", "is missing");
    expect(&of(r#"{"by": "luck"}"#), "layers[1].choose.by", "found \"luck\"");
    expect(&of(r#"{"by": "cycle"}"#), "layers[1].choose.values", "is missing");
    expect(&of(r#"{"by": "cycle", "values": 1}"#), "layers[1].choose.values", "found 1");
    expect(&of(r#"{"by": "cycle", "values": [0, -1]}"#), "layers[1].choose.values[1]", "found -1");
    expect(&of(r#"{"by": "schedule", "at": [[1]]}"#), "layers[1].choose.at[0]", "found [1]");
    expect(&of(r#"{"by": "cycle", "values": [0], "at": []}"#), "layers[1].choose.at", "unknown field");
    expect(&format!(r#"{{"type": "branch", "paths": [[{DENSE}]]}}"#), "layers[1].choose", "is missing");
    expect(&format!(r#"{{"type": "branch", {CYCLE}}}"#), "layers[1].paths", "is missing");
}

#[test]
fn values_that_the_layer_does_not_have_are_mistakes() {
    let of = |choose: &str| branch(&format!(r#""choose": {choose}"#));
    expect(&of(r#"{"by": "cycle", "values": [0, 2]}"#), "layers[1].choose.values[1]", "found 2");
    expect(&of(r#"{"by": "cycle", "values": []}"#), "layers[1].choose.values", "the list is empty");
    expect(&of(r#"{"by": "random", "weights": [1]}"#), "layers[1].choose.weights", "found 1 weight");
    expect(&of(r#"{"by": "random", "weights": [1, -1]}"#), "layers[1].choose.weights[1]", "found -1");
    expect(&of(r#"{"by": "random", "weights": [0, 0]}"#), "layers[1].choose.weights", "their sum is 0");
    expect(&of(r#"{"by": "schedule", "at": []}"#), "layers[1].choose.at", "the list is empty");
    let late = "found 2, and the first step is 1";
    expect(&of(r#"{"by": "schedule", "at": [[2, 0]]}"#), "layers[1].choose.at[0]", late);
    expect(&of(r#"{"by": "schedule", "at": [[1, 2]]}"#), "layers[1].choose.at[0]", "found the value 2");
    let back = "begins at step 5, and the entry before it at 5";
    expect(&of(r#"{"by": "schedule", "at": [[1, 0], [5, 1], [5, 0]]}"#), "layers[1].choose.at[2]", back);
    expect(&branch(&format!(r#"{CYCLE}, "evaluate": 2"#)), "layers[1].evaluate", "found 2");
    expect(&repeat(r#""choose": {"by": "cycle", "values": [3]}"#), "layers[1].choose.values[0]", "found 3");
    expect(&exit(3, r#""choose": {"by": "cycle", "values": [2]}"#), "layers[1].choose.values[0]", "found 2");
    for plain in [repeat(r#""evaluate": 1"#), residual(r#""evaluate": 1"#)] {
        expect(&plain, "layers[1].evaluate", "the layer chooses nothing");
    }
    expect(&residual(r#""keep": 0"#), "layers[1].keep", "found 0");
    expect(&residual(r#""keep": 1.5"#), "layers[1].keep", "found 1.5");
    expect(&residual(&format!(r#"{CYCLE}, "keep": 0.5"#)), "layers[1].keep", "the layer has `choose` and `keep`");
}

#[test]
fn paths_must_have_one_output_shape_and_heads_that_of_the_network() {
    let wide = r#"{"type": "dense", "units": 7}"#;
    let of = |second: &str| format!(r#"{{"type": "branch", "paths": [[{DENSE}], [{second}]], {CYCLE}}}"#);
    expect(&of(wide), "layers[1].paths[1]", "this path gives [7], and paths[0] gives [5]");
    expect(&exit(4, CYCLE), "layers[1].layers", "the head gives [4], and the network gives [3]");
    let once = format!(r#"{{"type": "repeat", "times": 1, "layers": [{wide}], {CYCLE}}}"#);
    expect(&once, "layers[1].layers", "the block turns [5] into [7]");
    expect(&format!(r#"{{"type": "branch", "paths": [], {CYCLE}}}"#), "layers[1].paths", "there are no paths");
}

#[test]
fn exits_must_be_where_the_network_can_end() {
    let inside = |block: &str, inner: &str| block.replace(DENSE, inner);
    let found = "an exit inside of another block";
    let inner = exit(3, CYCLE);
    let nested = format!(r#"{{"type": "early_exit", "layers": [{inner}, {{"type": "dense", "units": 3}}], {CYCLE}}}"#);
    expect(&nested, "layers[1].layers[0]", found);
    for block in [residual(CYCLE), repeat(CYCLE)] {
        expect(&inside(&block, &exit(3, CYCLE)), "layers[1].layers[0]", found);
    }
}

#[test]
fn editors_show_a_choice_as_a_line_of_text() {
    let mut layer = LayerKind::from_name("residual").unwrap().example();
    let choose = layer.fields().into_iter().find(|field| field.name == "choose").unwrap();
    assert_eq!((choose.value.clone(), choose.value.text()), (FieldValue::Choose(None), String::new()));
    let value = choose.value.parse("schedule 1: 1, 20: 0").unwrap();
    assert!(layer.set("choose", &value) && !layer.set("choose", &FieldValue::Count(1)));
    assert_eq!(layer.choice().unwrap().how.value(20, 0, 0), 0);
    assert!(value.parse("sometimes").is_err() && value.parse("").unwrap() == FieldValue::Choose(None));
    let preset = |layers: Vec<_>| Preset { layers, ..read_preset(&text(DENSE)).unwrap() };
    let written = write_preset(&preset(vec![layer]));
    assert!(written.contains("\"by\": \"schedule\""), "{written}");
}
