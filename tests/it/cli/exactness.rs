//! How exact a step's numbers are: functions, normalisations with large means, norms of large gradients.

use super::{at, json, save, succeed};
use serde_json::Value;
use std::path::Path;
use stepgraph::model::Rng;
use stepgraph::tensor::{HostTensor, Shape};

#[test]
fn functions_are_exact_on_every_instruction_set() {
    let report = json(&["functions", "--device", "cpu", "--every", "1009", "--json"]);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 14, "{report}");
    for row in rows {
        let name = row["function"].as_str().unwrap();
        assert_eq!(row["wrong"], 0, "{row}");
        let of = |key: &str| row[key].as_f64().unwrap();
        // Derivatives are compared by their absolute error where they cross zero.
        match name {
            "gelu'" | "silu'" => assert!(of("absolute") <= 8e-8, "{row}"),
            _ => assert!(of("units") <= 1.0 && of("denormal_units") <= 1.0, "{row}"),
        }
        assert!(of("inputs") > 1e6, "{row}");
    }
    let text = succeed(&["functions", "--device", "cpu", "--every", "1000003"]);
    assert!(text.contains("every 1000003rd of 2^32 inputs") && text.contains("gelu'"), "{text}");
}

fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_slice(Shape(shape.to_vec()), values).unwrap()
}

/// The lines of a log.
fn lines(path: &str) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The result of a normalisation of a batch of 32, in `f64`: the loss, and the unbiased variance of each group; `group`
/// gives the group number of an element.
fn exact(x: &[f32], y: &[f32], groups: usize, group: impl Fn(usize) -> usize) -> (f64, Vec<f64>) {
    let (mut count, mut mean, mut squares) = (vec![0.0f64; groups], vec![0.0f64; groups], vec![0.0f64; groups]);
    for (i, x) in x.iter().enumerate() {
        count[group(i)] += 1.0;
        mean[group(i)] += f64::from(*x);
    }
    mean.iter_mut().zip(&count).for_each(|(m, n)| *m /= n);
    for (i, x) in x.iter().enumerate() {
        squares[group(i)] += (f64::from(*x) - mean[group(i)]).powi(2);
    }
    let normalised = |i: usize| {
        let g = group(i);
        (f64::from(x[i]) - mean[g]) / (squares[g] / count[g] + 1e-5).sqrt()
    };
    let loss = (0..x.len()).map(|i| (normalised(i) - f64::from(y[i])).powi(2)).sum::<f64>() / x.len() as f64;
    (loss, squares.iter().zip(&count).map(|(s, n)| s / (n - 1.0)).collect())
}

#[test]
fn normalisations_keep_their_digits_if_the_mean_is_large() {
    const BATCH: usize = 32;
    for (mean, deviation) in [(0.0, 1.0), (1e2, 1.0), (1e3, 1.0), (1e4, 1.0), (0.0, 1e-4), (1.0, 1e-3)] {
        for (layer, shape) in [("batch_norm", &[8][..]), ("batch_norm", &[4, 9, 9]), ("layer_norm", &[64])] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| at(&folder, name);
            let (preset, batches, end, log) = (path("n.json"), path("b.st"), path("end.st"), path("log.jsonl"));
            let shape_text = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let text = format!(
                r#"{{"version": 1, "name": "norm", "input": {{"shape": [{shape_text}], "batch": {BATCH}}},
                "layers": [{{"type": "{layer}"}}], "loss": {{"type": "mse"}},
                "optimizer": {{"type": "sgd", "lr": 1.0}}, "precision": "f32"}}"#
            );
            std::fs::write(&preset, text).unwrap();
            let sample: usize = shape.iter().product();
            let mut rng = Rng::new(5, 2);
            let x: Vec<f32> = (0..BATCH * sample).map(|_| (mean + deviation * rng.normal()) as f32).collect();
            let y: Vec<f32> = (0..BATCH * sample).map(|_| rng.normal() as f32).collect();
            let whole: Vec<usize> = [1, BATCH].into_iter().chain(shape.iter().copied()).collect();
            save(Path::new(&batches), &[("batch.x", tensor(&whole, &x)), ("batch.y", tensor(&whole, &y))]);
            succeed(&["train", &preset, "--device", "cpu", "--batches", &batches, "--save", &end, "--log", &log]);
            let plane = sample / shape[0];
            let (loss, variance) = match layer {
                "batch_norm" => exact(&x, &y, shape[0], |i| i % sample / plane),
                _ => exact(&x, &y, BATCH, |i| i / sample),
            };
            let what = format!("{layer} {shape:?}, mean {mean}, deviation {deviation}");
            let found = lines(&log)[0]["loss"].as_f64().unwrap();
            assert!((found - loss).abs() <= 1.5e-7 * loss, "{what}: loss {found}, not {loss}");
            if layer == "layer_norm" {
                continue;
            }
            let bytes = std::fs::read(&end).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let running: Vec<f32> = bytemuck::pod_collect_to_vec(file.tensor("layers.0.running_var").unwrap().data());
            for (found, variance) in running.iter().zip(&variance) {
                let expected = 0.9 + 0.1 * variance;
                assert!((f64::from(*found) - expected).abs() <= 1.2e-7 * expected, "{what}: {found}, not {expected}");
            }
        }
    }
}

/// A dense layer of 4 inputs and 3 outputs with weights of 0, all of whose inputs are `x` and all of whose targets are
/// `y`: the log of a few steps.
fn with_large_numbers(x: f32, y: f32, lr: f64, steps: usize) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| at(&folder, name);
    let (preset, batches, init, end, log) =
        (path("n.json"), path("b.st"), path("init.st"), path("end.st"), path("log.jsonl"));
    let text = format!(
        r#"{{"version": 1, "name": "large", "input": {{"shape": [4], "batch": 8}},
        "layers": [{{"type": "dense", "units": 3}}], "loss": {{"type": "mse"}},
        "optimizer": {{"type": "sgd", "lr": {lr:e}}}, "precision": "f32"}}"#
    );
    std::fs::write(&preset, text).unwrap();
    let full = |shape: &[usize], value: f32| tensor(shape, &vec![value; shape.iter().product()]);
    save(Path::new(&batches), &[("batch.x", full(&[steps, 8, 4], x)), ("batch.y", full(&[steps, 8, 3], y))]);
    save(Path::new(&init), &[("init.layers.0.weight", full(&[4, 3], 0.0)), ("init.layers.0.bias", full(&[3], 0.0))]);
    let run = ["train", &preset, "--device", "cpu", "--batches", &batches, "--init", &init, "--save", &end];
    succeed(&[&run[..], &["--log", &log]].concat());
    let bytes = std::fs::read(&end).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let weights: Vec<f32> = bytemuck::pod_collect_to_vec(file.tensor("layers.0.weight").unwrap().data());
    assert!(weights.iter().all(|w| w.is_finite() && *w != 0.0), "{weights:?}");
    lines(&log)
}

/// The squares of gradients of 1e25 overflow `f32`; loss and parameters do not.
#[test]
fn a_gradient_whose_square_overflows_f32_is_measured_and_used() {
    let log = with_large_numbers(1e12, 1e13, 1e-35, 3);
    assert_eq!(log.len(), 3);
    // 2 / 24 times the sum over 8 rows, for 12 weights; the biases' gradients are negligible.
    let expected = 2.0 / 24.0 * 8.0 * 1e25 * 12f64.sqrt();
    let found = log[0]["grad_norm"].as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 1e-5, "{found:e}, not {expected:e}");
    assert!(log.iter().all(|line| line["loss"].as_f64().unwrap().is_finite() && !line["grad_norm"].is_null()));
}

#[test]
fn a_run_whose_gradient_norm_overflows_f32_continues() {
    let log = with_large_numbers(1e20, 3e18, 1e-42, 1);
    assert!(log.len() == 1 && log[0].get("grad_norm").is_none(), "{log:?}");
    assert!(log[0]["update_max"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_mean_of_squares_whose_sum_overflows_f32_is_finite() {
    let log = with_large_numbers(1e10, 1e19, 1e-35, 1);
    let found = log[0]["loss"].as_f64().unwrap();
    assert!((found / 1e38 - 1.0).abs() < 1e-6, "{found:e}");
}
