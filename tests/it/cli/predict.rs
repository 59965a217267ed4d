//! `predict`: the figures of given weights, and every sample's probabilities.

use super::{at, json, refused, succeed};

#[test]
fn saved_weights_answer_as_their_run_did() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, answers) = (at(&folder, "w.safetensors"), at(&folder, "answers.csv"));
    let trained = json(&["train", "circles", "--steps", "200", "--save", &weights, "--json"]);
    let found = json(&["predict", "circles", "--init", &weights, "--out", &answers, "--json"]);
    assert_eq!((&found["samples"], &found["part"]), (&200.into(), &"held_out".into()));
    assert_eq!(found["accuracy"], trained["held_out"]["accuracy"]);
    let (a, b) = (found["loss"].as_f64().unwrap(), trained["held_out"]["loss"].as_f64().unwrap());
    assert!((a - b).abs() < 1e-6 * b.max(1.0), "{a} {b}");
    let rows = found["confusion"].as_array().unwrap();
    let cell = |r: usize, c: usize| rows[r][c].as_u64().unwrap();
    assert_eq!(cell(0, 0) + cell(0, 1) + cell(1, 0) + cell(1, 1), 200);
    let right = (cell(0, 0) + cell(1, 1)) as f64 / 200.0;
    assert!((found["accuracy"].as_f64().unwrap() - right).abs() < 1e-9);
    let recall = cell(1, 1) as f64 / (cell(1, 0) + cell(1, 1)) as f64;
    assert!((found["classes"][1]["recall"].as_f64().unwrap() - recall).abs() < 1e-9);
    // The file tells the same, sample by sample.
    let text = std::fs::read_to_string(&answers).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("sample,target,predicted,p_0,p_1"));
    let mut agreeing = 0;
    for line in lines.clone() {
        let cells: Vec<&str> = line.split(',').collect();
        let p: Vec<f64> = cells[3..].iter().map(|c| c.parse().unwrap()).collect();
        assert!((p[0] + p[1] - 1.0).abs() < 1e-5 && (cells[2] == "1") == (p[1] > p[0]), "{line}");
        agreeing += usize::from(cells[1] == cells[2]);
    }
    assert_eq!((lines.count(), agreeing as f64 / 200.0), (200, right));
    let told = succeed(&["predict", "circles", "--init", &weights]);
    assert!(told.starts_with("circles: 200 held-out samples, loss ") && told.contains("precision"), "{told}");
}

#[test]
fn values_are_answered_too() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, answers) = (at(&folder, "w.safetensors"), at(&folder, "answers.csv"));
    succeed(&["train", "regression", "--steps", "50", "--save", &weights]);
    let found = json(&["predict", "regression", "--init", &weights, "--out", &answers, "--json"]);
    assert!(found["accuracy"].is_null() && found["confusion"].is_null() && found["loss"].as_f64().unwrap() > 0.0);
    let text = std::fs::read_to_string(&answers).unwrap();
    assert!(
        text.starts_with("sample,target_0") && text.lines().count() as u64 == found["samples"].as_u64().unwrap() + 1
    );
}

#[test]
fn weights_that_are_missing_or_of_another_network_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let weights = at(&folder, "w.safetensors");
    assert!(refused(&["predict", "xor", "--init", &weights]).contains("cannot be read"));
    succeed(&["train", "xor", "--steps", "2", "--save", &weights]);
    assert!(refused(&["predict", "digits-mlp", "--init", &weights]).contains("shape"));
    let onto = refused(&["predict", "xor", "--init", &weights, "--out", &weights]);
    assert!(onto.contains("would replace the parameters"), "{onto}");
    let told = refused(&["predict", "xor"]);
    assert!(told.contains("--init <FILE>") && told.contains("--run <RUN>"), "{told}");
    assert!(refused(&["predict", "xor", "--init", &weights, "--run", "last"]).contains("cannot be used with"));
}

#[test]
fn answers_of_yes_and_no_have_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let [weights, answers, preset] = ["w.safetensors", "answers.csv", "yes-or-no.json"].map(|name| at(&folder, name));
    std::fs::write(&preset, include_str!("../../data/yes-or-no.json")).unwrap();
    let mut table = "a,b,c,d,kind\n".to_owned();
    for i in 0..100 {
        let kind = if i % 10 < 3 { "yes" } else { "no" };
        table.push_str(&format!("{},{},{},{},{kind}\n", i % 10, i % 7, i % 3, i));
    }
    std::fs::write(folder.path().join("yes-or-no.raw.csv"), table).unwrap();
    let trained = json(&["train", &preset, "--steps", "150", "--save", &weights, "--json"]);
    let found = json(&["predict", &preset, "--init", &weights, "--out", &answers, "--json"]);
    assert_eq!(found["accuracy"], trained["held_out"]["accuracy"]);
    assert!((found["loss"].as_f64().unwrap() - trained["held_out"]["loss"].as_f64().unwrap()).abs() < 1e-6);
    let output = &found["outputs"][0];
    assert_eq!((&output["name"], &output["accuracy"]), (&"yes".into(), &found["accuracy"]));
    let rows = found["answers"].as_array().unwrap();
    assert_eq!(rows.len() as u64, found["samples"].as_u64().unwrap());
    let text = std::fs::read_to_string(&answers).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("sample,target_0,predicted_0,p_0"));
    let mut right = 0;
    for (row, line) in rows.iter().zip(lines) {
        let (p, yes) = (row["probability"][0].as_f64().unwrap(), row["answer"][0].as_bool().unwrap());
        assert!((0.0..=1.0).contains(&p) && yes == (p > 0.5), "{row}");
        right += usize::from(row["target"][0] == row["answer"][0]);
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        assert_eq!((cells[0] as u64, cells[2] == 1.0), (row["sample"].as_u64().unwrap(), yes));
        assert!((cells[3] - p).abs() < 1e-6 && (cells[1] == 1.0) == row["target"][0].as_bool().unwrap());
    }
    assert_eq!(right as f64 / rows.len() as f64, found["accuracy"].as_f64().unwrap());
    let told = succeed(&["predict", &preset, "--init", &weights]);
    assert!(
        told.contains("answered yes") && told.contains("probability of yes and answer") && told.contains("(right)")
    );
}
