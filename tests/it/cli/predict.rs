//! `predict`: the metrics of given weights, every sample's probabilities, and forecasts of series.

use super::{at, json, refused, succeed};

#[test]
fn saved_weights_give_the_same_metrics_as_their_run() {
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
    // The file contains the same, sample by sample.
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
    let message = succeed(&["predict", "circles", "--init", &weights]);
    assert!(message.starts_with("circles: 200 held-out samples, loss ") && message.contains("precision"), "{message}");
}

#[test]
fn predicted_values_are_reported_too() {
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
    let message = refused(&["predict", "xor"]);
    assert!(message.contains("--init <FILE>") && message.contains("--run <RUN>"), "{message}");
    assert!(refused(&["predict", "xor", "--init", &weights, "--run", "last"]).contains("cannot be used with"));
}

#[test]
fn texts_have_a_perplexity() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.txt"), "to be or not to be, ".repeat(60)).unwrap();
    let preset = r#"{
      "version": 1, "name": "t", "input": { "type": "tokens", "shape": [16], "vocab": 128, "batch": 4 },
      "layers": [{ "type": "embedding", "units": 8 }, { "type": "gru", "units": 8 }, { "type": "dense", "units": 128 }],
      "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "adam", "lr": 0.02 },
      "data": { "type": "text", "path": "t.txt" }, "train": { "steps": 30, "seed": 1 }
    }"#;
    let (path, weights) = (at(&folder, "t.json"), at(&folder, "w.safetensors"));
    std::fs::write(&path, preset).unwrap();
    let message = succeed(&["train", &path, "--save", &weights]);
    let trained = json(&["train", &path, "--json"]);
    assert!(message.contains(" %, perplexity ") && message.contains(", loss "), "{message}");
    let found = json(&["predict", &path, "--init", &weights, "--json"]);
    let of = |key: &str| found[key].as_f64().unwrap();
    assert!((of("perplexity") - of("loss").exp()).abs() < 1e-9 && of("perplexity") > 1.0, "{found}");
    // The same samples have the same metrics as in the evaluation of the run.
    let held_out = &trained["held_out"];
    let loss = held_out["loss"].as_f64().unwrap();
    assert!(of("exact") >= 0.0 && (of("loss") - loss).abs() < 1e-6 * loss, "{found} {held_out}");
    assert_eq!((&found["exact"], &found["accuracy"]), (&held_out["exact"], &held_out["accuracy"]));
    assert!((of("bits_per_token") - of("perplexity").log2()).abs() < 1e-9, "{found}");
    let message = succeed(&["predict", &path, "--init", &weights]);
    assert!(message.contains(&format!("perplexity {:.2}, {:.3} bits a token", of("perplexity"), of("bits_per_token"))));
    // Nothing was predicted to be of these classes.
    succeed(&["train", "xor", "--steps", "5", "--save", &weights]);
    let found = json(&["predict", "xor", "--init", &weights, "--json"]);
    assert!(found["perplexity"].is_null() && found["exact"].is_null(), "{found}");
}

#[test]
fn a_series_is_forecast_in_its_own_units_beside_the_actual_values() {
    let folder = tempfile::tempdir().unwrap();
    // A sine of 12 lines, and ten times as much around 500.
    let line = |i: usize| {
        let sine = (i as f64 * std::f64::consts::TAU / 12.0).sin();
        format!("{i},{:.5},{:.4}\n", sine, 500.0 + 10.0 * sine)
    };
    let table: String = ["day,low,high\n".to_owned()].into_iter().chain((0..300).map(line)).collect();
    std::fs::write(folder.path().join("s.csv"), table).unwrap();
    let preset = r#"{
      "version": 1, "name": "s", "input": { "shape": [12, 2], "batch": 16 },
      "layers": [{ "type": "flatten" }, { "type": "dense", "units": 6 }],
      "loss": { "type": "mse" }, "optimizer": { "type": "adam", "lr": 0.02 },
      "data": { "type": "series", "path": "s.csv", "columns": ["low", "high"], "window": 12, "horizon": 3,
                "held_out": 40 },
      "train": { "steps": 400, "seed": 1 }
    }"#;
    let (path, weights, answers) = (at(&folder, "s.json"), at(&folder, "w.safetensors"), at(&folder, "a.csv"));
    std::fs::write(&path, preset).unwrap();
    succeed(&["train", &path, "--save", &weights]);
    let found = json(&["predict", &path, "--init", &weights, "--out", &answers, "--json"]);
    let forecast = &found["forecast"];
    assert_eq!((&forecast["window"], &forecast["horizon"], &found["samples"]), (&12.into(), &3.into(), &40.into()));
    assert!(forecast["share"].as_f64().unwrap() < 0.05, "{forecast}");
    let [low, high] = [0, 1].map(|c| &forecast["columns"][c]);
    assert_eq!((&low["name"], &high["name"]), (&"low".into(), &"high".into()));
    let rms = |column: &serde_json::Value, key: &str| column[key].as_f64().unwrap();
    let ratio = rms(high, "repeated_rmse") / rms(low, "repeated_rmse");
    assert!((ratio - 10.0).abs() < 1e-3 && rms(low, "rmse") < rms(low, "repeated_rmse"), "{forecast}");
    // The file contains the lines of the data.
    let windows = forecast["windows"].as_array().unwrap();
    let value = |v: &serde_json::Value, line: usize, c: usize| v[line][c].as_f64().unwrap();
    for window in windows {
        let sample = window["sample"].as_u64().unwrap() as f64;
        for line in 0..3 {
            let sine = ((sample + 12.0 + line as f64) * std::f64::consts::TAU / 12.0).sin();
            assert!((value(&window["truth"], line, 0) - sine).abs() < 1e-3, "{window}");
            assert!((value(&window["truth"], line, 1) - 500.0 - 10.0 * sine).abs() < 1e-2, "{window}");
            assert!((value(&window["forecast"], line, 1) - 500.0 - 10.0 * sine).abs() < 4.0, "{window}");
        }
    }
    let text = std::fs::read_to_string(&answers).unwrap();
    assert!(text.starts_with("sample,target_low t+1,target_high t+1,target_low t+2"), "{text}");
    assert_eq!((windows.len(), text.lines().count()), (40, 41));
    let message = succeed(&["predict", &path, "--init", &weights]);
    assert!(
        message.contains("forecasts of 3 lines from 12 lines: ") && message.contains("of repeating the last value")
    );
    let head = message.lines().find(|line| line.starts_with("  line")).unwrap();
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["line", "low", "forecast", "high", "forecast"]);
}

#[test]
fn yes_or_no_predictions_have_probabilities() {
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
    let message = succeed(&["predict", &preset, "--init", &weights]);
    assert!(
        message.contains("answered yes")
            && message.contains("probability of yes and answer")
            && message.contains("(right)")
    );
}
