//! The proofs of `verify` on networks that are right: none may fail.

use stepgraph::model::{Preset, read_preset};
use stepgraph::train::{RandomRun, VerifyOptions, verify};

/// What fails of a preset, a line each.
fn failures(preset: &Preset, seed: u64) -> Vec<String> {
    let options = VerifyOptions { replays: Some(20), threads: 2, seed, ..VerifyOptions::default() };
    let report = match verify(preset, &options, |_| {}) {
        Ok(report) => report,
        Err(error) => return vec![format!("{}: {error}", preset.name)],
    };
    let failed = report.checks.into_iter().filter(|c| c.passed == Some(false));
    failed.map(|c| format!("{}: {}: {} {:?}", preset.name, c.name, c.figures, c.detail)).collect()
}

#[test]
fn right_networks_pass_every_proof() {
    let times = std::env::var("STEPGRAPH_NETWORKS").ok().and_then(|t| t.parse().ok()).unwrap_or(1u64);
    let options = VerifyOptions { threads: 2, ..VerifyOptions::default() };
    let run = RandomRun { count: 60 * times, first: 0, seconds: 60.0, options };
    let failed: Vec<String> = (0..run.count).flat_map(|seed| failures(&run.network(seed), seed)).collect();
    assert!(failed.is_empty(), "{} failures:\n{}", failed.len(), failed.join("\n"));
}

/// What every user writes: the gradient of a bias before a normalisation is zero but for rounding.
#[test]
fn a_bias_before_a_normalisation_is_no_failure() {
    let layers = [
        r#"{"type": "dense", "units": 12}, {"type": "batch_norm"}, {"type": "activation", "function": "relu"}"#,
        r#"{"type": "dense", "units": 12}, {"type": "batch_norm"}, {"type": "batch_norm"}"#,
        r#"{"type": "dense", "units": 12}, {"type": "residual", "layers": [{"type": "dense", "units": 12}, {"type": "batch_norm"}]}"#,
    ];
    for (seed, layers) in (0..).zip(layers) {
        let text = format!(
            r#"{{"version": 1, "name": "bias-{seed}", "input": {{"shape": [9], "batch": 8}},
                "layers": [{layers}, {{"type": "dense", "units": 3}}], "loss": {{"type": "softmax_cross_entropy"}},
                "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let failed = failures(&read_preset(&text).unwrap(), seed);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
