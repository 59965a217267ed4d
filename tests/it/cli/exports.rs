//! Exports run in other programs: ONNX Runtime and PyTorch give the same outputs as the network here.

use super::{at, command, python_with, stderr};
use std::process::Command;

/// The largest allowed difference: of probabilities, or of values relative to the largest.
const TOLERANCE: f64 = 1e-5;

/// A NumPy file of these values.
fn npy(kind: &str, shape: &str, values: impl IntoIterator<Item = [u8; 4]>) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    let header = format!("{header:<117}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.bytes());
    out.extend(values.into_iter().flatten());
    out
}

/// Numbers that look random, from -1 to 1.
fn noise(i: usize) -> f64 {
    f64::from((i as u32).wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 23) - 1.0
}

/// Presets with their own data: every layer; features with a large mean and different scales; values as targets.
fn write_own(folder: &tempfile::TempDir) -> [String; 3] {
    let x = (0..120 * 480).map(|i| (noise(i) as f32).to_le_bytes());
    std::fs::write(at(folder, "x.npy"), npy("<f4", "120, 4, 12, 10", x)).unwrap();
    std::fs::write(at(folder, "y.npy"), npy("<i4", "120,", (0..120i32).map(|i| (i % 5).to_le_bytes()))).unwrap();
    let everything = include_str!("../../data/everything.json");
    let data = "\"data\": { \"type\": \"npy\", \"x\": \"x.npy\", \"y\": \"y.npy\" }, \"version\": 1";
    std::fs::write(at(folder, "everything.json"), everything.replace("\"version\": 1", data)).unwrap();
    let (mut classes, mut values) = ("a,b,c,kind\n".to_owned(), "a,b,c,price\n".to_owned());
    for i in 0..240 {
        let [a, b, c] = [3 * i, 3 * i + 1, 3 * i + 2].map(noise);
        let kind = if a + b > 0.3 { "large" } else { "small" };
        classes.push_str(&format!("{},{},{},{kind}\n", a + 1e5, b * 1e-4 + 0.02, 7));
        values.push_str(&format!("{},{},{},{}\n", a * 1000.0 - 3e4, b, c, 100.0 + 50.0 * a - 20.0 * b));
    }
    for (name, table, loss, units) in [("classes", &classes, "softmax_cross_entropy", 2), ("values", &values, "mse", 1)]
    {
        std::fs::write(at(folder, &format!("{name}.raw.csv")), table).unwrap();
        let preset = format!(
            r#"{{ "version": 1, "name": "{name}", "input": {{ "shape": [3], "batch": 16 }},
                "layers": [{{ "type": "dense", "units": 8, "activation": "tanh" }}, {{ "type": "batch_norm" }},
                {{ "type": "dense", "units": {units} }}],
                "loss": {{ "type": "{loss}" }}, "optimizer": {{ "type": "adam", "lr": 0.01 }}, "data": {{ "type": "csv",
                "path": "{name}.raw.csv" }} }}"#
        );
        std::fs::write(at(folder, &format!("{name}.json")), preset).unwrap();
    }
    ["everything", "classes", "values"].map(|name| format!("{name}.json"))
}

/// Presets with named inputs, tokens, sequences and yes-or-no targets, with their own data.
fn write_sequences(folder: &tempfile::TempDir) -> [String; 3] {
    let integer = |of: &dyn Fn(u32) -> i32, count: u32| (0..count).map(|i| of(i).to_le_bytes()).collect::<Vec<_>>();
    let noisy = |count: usize| (0..count).map(|i| (noise(i) as f32).to_le_bytes()).collect::<Vec<_>>();
    let labels = npy("<i4", "90,", integer(&|i| (i % 3) as i32, 90));
    for (name, kind, shape, values) in [
        ("words", "<i4", "90, 6", integer(&|i| (i.wrapping_mul(2_654_435_761) >> 20) as i32 % 11, 540)),
        ("tones", "<f4", "90, 7, 4", noisy(90 * 28)),
        ("image", "<f4", "90, 1, 5, 4", noisy(90 * 20)),
    ] {
        std::fs::write(at(folder, &format!("{name}.npy")), npy(kind, shape, values)).unwrap();
    }
    std::fs::write(at(folder, "labels.npy"), labels).unwrap();
    let mut table = "a,b,c,d,kind\n".to_owned();
    for i in 0..200 {
        let [a, b, c, d] = [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3].map(noise);
        let kind = if a + c > 0.2 { "yes" } else { "no" };
        table.push_str(&format!("{},{},{c},{},{kind}\n", a * 7.0 + 40.0, b * 0.01, d * 1e4));
    }
    std::fs::write(at(folder, "yes-or-no.raw.csv"), table).unwrap();
    for (name, text) in [
        ("sequences", include_str!("../../data/sequences.json")),
        ("texts", include_str!("../../data/texts.json")),
        ("yes-or-no", include_str!("../../data/yes-or-no.json")),
    ] {
        std::fs::write(at(folder, &format!("{name}.json")), text).unwrap();
    }
    ["sequences", "texts", "yes-or-no"].map(|name| format!("{name}.json"))
}

#[test]
fn exports_give_the_same_outputs_as_the_network() {
    let python = match python_with("numpy, onnxruntime, safetensors, torch") {
        Ok(python) => python,
        Err(why) => {
            println!("skipped: no Python with numpy, onnxruntime, safetensors and torch in STEPGRAPH_PYTHON ({why})");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let own = [write_own(&folder), write_sequences(&folder)].concat();
    let bundled = [
        "digits-cnn",
        "digits-residual",
        "mlp-gelu-layernorm",
        "shared-weights",
        "regression",
        "gru-digits",
        "two-inputs",
    ];
    let names: Vec<&str> = own.iter().map(String::as_str).chain(bundled).collect();
    let run = |args: &[&str]| {
        let mut command = command(args);
        let output = command.current_dir(folder.path()).env("STEPGRAPH_RUNS", at(&folder, "runs")).output().unwrap();
        super::succeeded(args, &output);
    };
    for name in &names {
        let short = name.trim_end_matches(".json");
        run(&["train", name, "--steps", "60", "--keep"]);
        run(&["export", "last", &format!("{short}.onnx")]);
        run(&["export", "last", &format!("{short}.py")]);
        run(&["predict", name, "--run", "last", "--out", &format!("{short}.csv")]);
    }
    let script = super::data_folder().join("exports.py");
    let mut compare = Command::new(python);
    compare.arg(script).arg(folder.path()).args(names.iter().map(|n| n.trim_end_matches(".json")));
    let output = compare.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = super::stdout(&output);
    println!("{text}");
    assert_eq!(text.lines().count(), names.len(), "{text}");
    for line in text.lines() {
        let found: Vec<f64> = line.split(' ').skip(1).map(|n| n.parse().unwrap()).collect();
        assert!(found.len() == 2 && found.iter().all(|d| *d <= TOLERANCE), "{line}");
    }
}
