//! Notes about data that may surprise the user, from `train` and `predict`, as text and as JSON.

use super::{at, command, stderr, succeeded};
use serde_json::Value;

/// A folder with a preset for this table, with a suitable loss and outputs.
fn place(table: &str, loss: &str, outputs: usize, more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let features = table.lines().next().unwrap().split(',').count() - 1;
    let preset = format!(
        r#"{{ "version": 1, "name": "t", "input": {{ "shape": [{features}], "batch": 4 }},
          "layers": [{{ "type": "dense", "units": {outputs} }}], "loss": {{ "type": "{loss}" }},
          "optimizer": {{ "type": "sgd", "lr": 1e-9 }}, "train": {{ "steps": 2 }},
          "data": {{ "type": "csv", "path": "t.csv"{more} }} }}"#
    );
    std::fs::write(folder.path().join("p.json"), preset).unwrap();
    std::fs::write(folder.path().join("t.csv"), table).unwrap();
    folder
}

/// The notes of `train`, and those of `predict` with its weights; in both, text and JSON agree.
fn notes(folder: &tempfile::TempDir) -> [Vec<String>; 2] {
    let (preset, weights) = (at(folder, "p.json"), at(folder, "w.safetensors"));
    let noted = |args: &[&str]| {
        let output = command(args).output().unwrap();
        let summary: Value = serde_json::from_str(&succeeded(args, &output)).unwrap();
        let notes = summary["notes"].as_array().unwrap_or_else(|| panic!("{args:?} has no notes: {summary}"));
        let notes: Vec<String> = notes.iter().map(|n| n.as_str().unwrap().to_owned()).collect();
        assert!(notes.iter().all(|n| stderr(&output).contains(&format!("note: {n}\n"))), "{}", stderr(&output));
        notes
    };
    let trained = noted(&["train", &preset, "--save", &weights, "--json"]);
    [trained, noted(&["predict", &preset, "--init", &weights, "--json"])]
}

/// The notes, except those about standardised features and about which samples are evaluated.
fn remarkable(notes: &[String]) -> Vec<&str> {
    let usual = |n: &&str| !n.starts_with("features are standardised") && !n.starts_with("the samples are those");
    notes.iter().map(String::as_str).filter(usual).collect()
}

#[test]
fn a_class_that_is_held_out_as_a_whole_is_named() {
    let rows = |class: &str| format!("1,2,{class}\n2,1,{class}\n").repeat(4);
    let sorted = format!("a,b,kind\n{}{}{}", rows("ant"), rows("bee"), rows("cat"));
    let last = place(&sorted, "softmax_cross_entropy", 3, r#", "split": "last", "held_out": 8"#);
    for found in notes(&last) {
        let found = remarkable(&found);
        assert!(found.len() == 1 && found[0].contains("no training sample is of the class \"cat\""), "{found:?}");
    }
    let shuffled = place(&sorted, "softmax_cross_entropy", 3, "");
    for found in notes(&shuffled) {
        assert_eq!(remarkable(&found), Vec::<&str>::new());
    }
}

#[test]
fn a_table_without_a_header_and_one_with_equal_names_are_noted() {
    let rows = "1,2,0\n2,1,1\n3,3,1\n".repeat(5);
    let bare = place(&rows, "softmax_cross_entropy", 2, "");
    for found in notes(&bare) {
        let found = remarkable(&found);
        assert!(found.len() == 1 && found[0].contains("columns are identified by position"), "{found:?}");
    }
    let repeated = place(&format!("a,a,kind\n{rows}"), "softmax_cross_entropy", 2, "");
    for found in notes(&repeated) {
        let found = remarkable(&found);
        assert!(found.len() == 1 && found[0].contains("are called \"a.1\""), "{found:?}");
    }
}

#[test]
fn targets_that_are_not_standardised_are_noted_with_their_deviation() {
    let prices = "size,price\n".to_owned() + &"1,100000\n3,300000\n".repeat(10);
    let folder = place(&prices, "mse", 1, r#", "held_out": 0"#);
    let [trained, answered] = notes(&folder);
    let wanted = "the standard deviation of the target \"price\" is 100000 over the training samples (mean 200000)";
    for found in [&trained, &answered] {
        assert!(found.iter().any(|n| n.contains(wanted)), "{found:?}");
    }
    let small = "size,price\n".to_owned() + &"1,-1\n3,1\n".repeat(10);
    let [trained, _] = notes(&place(&small, "mse", 1, r#", "held_out": 0"#));
    assert_eq!(remarkable(&trained), Vec::<&str>::new());
}
