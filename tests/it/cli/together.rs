//! Mistakes are reported at once: those of shapes after a block, and those of data together with those of the network.

use super::{at, listing, refused, succeed};

/// A preset of images with these layers and this data.
fn preset(layers: &str, data: &str) -> String {
    format!(
        r#"{{ "version": 1, "name": "n", "input": {{ "shape": [3, 8, 8], "batch": 4 }}, "layers": [{layers}],
          "loss": {{ "type": "softmax_cross_entropy" }}, "optimizer": {{ "type": "sgd", "lr": 0.1 }}{data} }}"#
    )
}

/// The paths of the mistakes in a document that a command reports, in order, and its whole output.
fn refusal(folder: &tempfile::TempDir, command: &[&str], text: &str) -> (Vec<String>, String) {
    let path = at(folder, "p.json");
    std::fs::write(&path, text).unwrap();
    let before = listing(folder.path());
    let message = refused(&[&command[..1], &[path.as_str()], &command[1..]].concat());
    assert_eq!(listing(folder.path()), before);
    (message.lines().skip(1).map(|l| l.split(": ").next().unwrap().to_owned()).collect(), message)
}

fn paths(layers: &str) -> Vec<String> {
    refusal(&tempfile::tempdir().unwrap(), &["plan"], &preset(layers, "")).0
}

const WIDER: &str = r#"{ "type": "conv2d", "filters": 5, "kernel": 3, "padding": "same" }"#;

#[test]
fn shapes_after_an_invalid_block_are_checked_too() {
    let residual = format!(r#"{{ "type": "residual", "layers": [{WIDER}] }}"#);
    let repeat = format!(r#"{{ "type": "repeat", "times": 2, "layers": [{WIDER}] }}"#);
    let large = r#"{ "type": "max_pool2d", "size": 9 }"#;
    // Both blocks must return [3, 8, 8], which is too small for a window of 9.
    let wanted = ["layers[0].layers", "layers[1].layers", "layers[2].size"];
    assert_eq!(paths(&format!("{residual}, {repeat}, {large}")), wanted);
    // A mistake inside a block is not a mistake of what follows it, and hides none of those.
    let inner = format!(r#"{{ "type": "residual", "layers": [{large}, {WIDER}] }}"#);
    let outer = format!(r#"{{ "type": "residual", "layers": [{residual}, {WIDER}] }}"#);
    let wanted =
        ["layers[0].layers[0].size", "layers[1].layers[0].layers", "layers[1].layers", "layers[2].layers", "loss"];
    let mut found = paths(&format!("{inner}, {outer}, {repeat}"));
    found.sort();
    let mut wanted = wanted.map(str::to_owned);
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn unknown_shapes_after_a_block_are_not_mistakes() {
    // The output of a block that is not repeated is not known, so nothing is reported about the window after it.
    let once = r#"{ "type": "repeat", "times": 1, "layers": [{ "type": "max_pool2d", "size": 9 }] }"#;
    let behind = r#"{ "type": "max_pool2d", "size": 9 }"#;
    assert_eq!(paths(&format!("{once}, {behind}")), ["layers[0].layers[0].size"]);
    // The weights of the convolution could not be counted, which does not mean that there are none.
    let block = r#"{ "type": "residual", "layers": [{ "type": "conv2d", "filters": 3, "kernel": 9 }] }"#;
    let rest = r#"{ "type": "global_avg_pool" }"#;
    assert_eq!(paths(&format!("{block}, {rest}")), ["layers[0].layers[0].kernel"]);
    // A number of times that could not be read may be 1.
    let unread = format!(r#"{{ "type": "repeat", "times": "two", "layers": [{WIDER}] }}, {rest}"#);
    assert_eq!(paths(&unread), ["layers[0].times"]);
}

#[test]
fn missing_data_files_are_reported_together_with_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let block = format!(r#"{{ "type": "residual", "layers": [{WIDER}] }}, {{ "type": "global_avg_pool" }}"#);
    let npy = r#", "data": { "type": "npy", "x": "x.npy", "y": "y.npy" }"#;
    for command in [&["train"][..], &["plan"], &["verify"]] {
        let (paths, message) = refusal(&folder, command, &preset(&block, npy));
        assert_eq!(paths, ["layers[0].layers", "data", "data"], "{message}");
        assert!(message.contains("p.json has 3 mistakes:") && message.contains("x.npy: cannot be read"), "{message}");
        assert!(message.contains("y.npy: cannot be read") && message.contains("the preset's folder"), "{message}");
    }
    // Unreadable fields and missing files are reported in one list as well.
    let unread = preset(r#"{ "type": "dense", "units": "many" }"#, npy);
    assert_eq!(refusal(&folder, &["train"], &unread).0, ["layers[0].units", "data", "data"]);
    // If batches are given, or no data are needed, the files do not matter.
    let batches = ["train", "--batches", "none.safetensors"];
    assert_eq!(refusal(&folder, &batches, &preset(&block, npy)).0, ["layers[0].layers"]);
    assert_eq!(refusal(&folder, &["bench"], &preset(&block, npy)).0, ["layers[0].layers"]);
    // A network without mistakes is planned without its data, and when it is trained, all missing files are named.
    let sound = preset(r#"{ "type": "global_avg_pool" }, { "type": "dense", "units": 2 }"#, npy);
    let path = at(&folder, "sound.json");
    std::fs::write(&path, &sound).unwrap();
    succeed(&["plan", &path, "--device", "cpu"]);
    let message = refused(&["train", &path, "--steps", "1"]);
    assert!(message.contains("x.npy: cannot be read") && message.contains("y.npy: cannot be read"), "{message}");
}

#[test]
fn mistakes_in_data_are_reported_together_with_the_network() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "a,b,y\n1,2,0\n3,x,1\n5,6,1\n").unwrap();
    let flat = |layers: &str, more: &str| {
        let data = format!(r#", "data": {{ "type": "csv", "path": "t.csv"{more} }}"#);
        preset(layers, &data).replace("[3, 8, 8]", "[2]")
    };
    let wrong = r#"{ "type": "dense", "units": 0 }"#;
    let (paths, text) = refusal(&folder, &["train"], &flat(wrong, ""));
    assert_eq!(paths, ["layers[0].units", "data"]);
    assert!(text.contains("t.csv, line 3, column 2 (b): found \"x\", expected a finite number"), "{text}");
    std::fs::write(folder.path().join("t.csv"), "a,b,c,y\n1,2,3,0\n3,4,5,1\n5,6,7,1\n").unwrap();
    let (paths, text) = refusal(&folder, &["verify"], &flat(wrong, ""));
    assert_eq!(paths, ["layers[0].units", "input.shape"]);
    assert!(text.contains("found samples of shape [3], expected [2]"), "{text}");
    // The number of classes is compared with an output that is not known here; a wrong shape is not compared either.
    std::fs::write(folder.path().join("t.csv"), "a,b,y\n1,2,0\n3,4,7\n5,6,1\n").unwrap();
    assert_eq!(refusal(&folder, &["train"], &flat(wrong, "")).0, ["layers[0].units"]);
    let shapeless = flat(r#"{ "type": "dense", "units": 2 }"#, "").replace("[2]", "[0]");
    assert_eq!(refusal(&folder, &["train"], &shapeless).0, ["input.shape"]);
    // If its fields have mistakes, the data are not read.
    let field = flat(wrong, r#", "held_out": -1"#);
    assert_eq!(refusal(&folder, &["train"], &field).0, ["data.held_out", "layers[0].units"]);
}
