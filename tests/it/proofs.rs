//! The checks of `verify` on correct networks: none may fail.

use stepgraph::compile::{Options, compile};
use stepgraph::exec::cuda::gpu;
use stepgraph::ir::Share;
use stepgraph::lower::Op;
use stepgraph::model::{Preset, read_preset};
use stepgraph::ops::OpKind;
use stepgraph::select::Target;
use stepgraph::train::{Proof, RandomRun, VerifyOptions, verify, verify_some};

/// The failed checks of a preset on the CPU, one on each line.
fn failures(preset: &Preset, seed: u64) -> Vec<String> {
    failures_on(None, preset, seed)
}

/// The failed checks of a preset on a machine, one on each line.
fn failures_on(machine: Option<Target>, preset: &Preset, seed: u64) -> Vec<String> {
    let options = VerifyOptions { replays: Some(20), threads: 2, machine, seed, ..VerifyOptions::default() };
    let report = match verify(preset, &options, |_| {}) {
        Ok(report) => report,
        Err(error) => return vec![format!("{}: {error}", preset.name)],
    };
    let failed = report.checks.into_iter().filter(|c| c.passed == Some(false));
    failed.map(|c| format!("{}: {}: {} {:?}", preset.name, c.name, c.figures, c.detail)).collect()
}

#[test]
fn correct_networks_pass_every_check() {
    let times = std::env::var("STEPGRAPH_NETWORKS").ok().and_then(|t| t.parse().ok()).unwrap_or(1u64);
    let options = VerifyOptions { threads: 2, ..VerifyOptions::default() };
    let run = RandomRun { count: 60 * times, first: 0, seconds: 60.0, options };
    let failed: Vec<String> = (0..run.count).flat_map(|seed| failures(&run.network(seed), seed)).collect();
    assert!(failed.is_empty(), "{} failures:\n{}", failed.len(), failed.join("\n"));
}

/// A common network: the gradient of a bias before a normalisation is zero except for rounding.
#[test]
fn a_bias_before_a_normalisation_passes() {
    let layers = [
        r#"{"type": "dense", "units": 12}, {"type": "batch_norm"}, {"type": "activation", "function": "relu"}"#,
        r#"{"type": "dense", "units": 12}, {"type": "batch_norm"}, {"type": "batch_norm"}"#,
        r#"{"type": "dense", "units": 12},
           {"type": "residual", "layers": [{"type": "dense", "units": 12}, {"type": "batch_norm"}]}"#,
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

/// Normalisations of normalisations: the known range of a normalised value limits its bound, and a bound that is still
/// too large is replaced by a measured one.
#[test]
fn bounds_of_many_normalisations_have_a_limit() {
    let norm = r#"{"type": "batch_norm"}"#;
    let both = r#"{"type": "layer_norm"}, {"type": "batch_norm"}"#;
    let pool = r#"{"type": "max_pool2d", "size": 3, "stride": 1, "padding": 1}"#;
    let cases = [
        ("[2, 1, 2]", 3, format!(r#"{{"type": "repeat", "times": 40, "layers": [{norm}]}}"#)),
        ("[2]", 2, format!(r#"{{"type": "repeat", "times": 18, "layers": [{both}]}}"#)),
        ("[1, 1, 1]", 2, format!(r#"{{"type": "repeat", "times": 12, "layers": [{both}]}}"#)),
        ("[1, 2, 1]", 3, format!(r#"{pool}, {{"type": "repeat", "times": 7, "layers": [{both}]}}"#)),
    ];
    for (seed, (shape, batch, layers)) in (0..).zip(cases) {
        let text = format!(
            r#"{{"version": 1, "name": "norms-{seed}", "input": {{"shape": {shape}, "batch": {batch}}},
                "layers": [{layers}], "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 1e-9}}}}"#
        );
        let options = VerifyOptions { threads: 1, seed, ..VerifyOptions::default() };
        let cancel = std::sync::Arc::default();
        let report = verify_some(&read_preset(&text).unwrap(), &options, &[Proof::Gradients], &cancel, |_| {}).unwrap();
        for check in report.checks {
            assert!(check.passed != Some(false), "{text}: {check:?}");
            assert!(check.ratio.is_none_or(|ratio| ratio <= 1.0), "{text}: {}", check.figures);
        }
    }
}

/// Three of four values are zero: the mean is exact, and the correction that kernels add to it is the rounding of the
/// deviations.
#[test]
fn a_mean_of_almost_only_zeros_passes() {
    for (seed, norm) in ["batch_norm", "layer_norm"].into_iter().cycle().take(12).enumerate() {
        let text = format!(
            r#"{{"version": 1, "name": "zeros-{seed}", "input": {{"shape": [4], "batch": 4}},
                "layers": [{{"type": "dropout", "rate": 0.6}}, {{"type": "{norm}"}}],
                "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 1e-3}}}}"#
        );
        let failed = failures(&read_preset(&text).unwrap(), seed as u64);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// The normalisation of a single value is exact, but the evaluation's loss is the square of a difference in `f32`.
#[test]
fn an_exact_output_is_subtracted_from_its_target_in_f32() {
    for seed in 0..4 {
        let text = format!(
            r#"{{"version": 1, "name": "exact-{seed}", "input": {{"shape": [1], "batch": 2}},
                "layers": [{{"type": "layer_norm"}}], "loss": {{"type": "mse"}},
                "optimizer": {{"type": "sgd", "lr": 0.1}},
                "data": {{"type": "regression", "samples": 12, "noise": 0.1, "held_out": 0.4, "split": "last"}}}}"#
        );
        let failed = failures(&read_preset(&text).unwrap(), seed);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// A network of tokens with a large vocabulary, whose classifier works in chunks of rows.
fn large_vocabulary() -> Preset {
    let text = r#"{"version": 1, "name": "large-vocabulary",
        "input": {"type": "tokens", "shape": [56], "vocab": 20011, "batch": 4},
        "layers": [{"type": "embedding", "units": 9}, {"type": "position"}, {"type": "layer_norm"},
            {"type": "dense", "units": 20011, "tied": "layers.0"}],
        "loss": {"type": "softmax_cross_entropy", "label_smoothing": 0.1},
        "optimizer": {"type": "adamw", "lr": 0.001}}"#;
    read_preset(text).unwrap()
}

#[test]
fn a_large_vocabulary_passes_every_check_and_never_has_all_scores_in_memory() {
    let preset = large_vocabulary();
    let model = stepgraph::model::check(&preset).model.unwrap();
    let target = stepgraph::exec::cpu::host_target(2);
    let compiled = compile(&model, &Options::train(target)).unwrap();
    let scores = (4 * 56 * 20_011 * size_of::<f32>()) as u64;
    let (largest, name) = compiled.plan.buffers.iter().map(|b| (b.bytes, b.name.as_str())).max().unwrap();
    assert!(largest < scores / 2, "{name} takes {largest} bytes, all scores {scores}");
    assert!(compiled.plan.arena_bytes < scores, "{} and {scores} bytes", compiled.plan.arena_bytes);
    let classifier = |op: &Op| matches!(op.kind, OpKind::ClassifierCe(_));
    assert_eq!(compiled.plan.program.ops.iter().filter(|op| classifier(op)).count(), 1);
    let failed = failures(&preset, 3);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Plans of classifiers in chunks: after an activation, with an untied weight, with an input that needs no gradient,
/// and with several batches in a step. Compiling runs every referee.
#[test]
fn classifiers_in_chunks_are_planned_in_every_form() {
    let classifiers = |text: &str, share: Share| {
        let model = stepgraph::model::check(&read_preset(text).unwrap()).model.unwrap();
        let options = Options { share, ..Options::train(stepgraph::exec::cpu::host_target(2)) };
        let compiled = compile(&model, &options).unwrap();
        let ops = compiled.plan.program.ops.into_iter().map(|op| op.kind);
        ops.filter_map(|kind| if let OpKind::ClassifierCe(op) = kind { Some(op) } else { None }).collect::<Vec<_>>()
    };
    let network = |input: &str, layers: &str, accumulate: usize| {
        format!(
            r#"{{"version": 1, "name": "chunks", "input": {input}, "layers": [{layers}],
                "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}},
                "train": {{"steps": 4, "accumulate": {accumulate}}}}}"#
        )
    };
    let tokens = r#"{"type": "tokens", "shape": [64], "vocab": 20000, "batch": 4}"#;
    let embedding = r#"{"type": "embedding", "units": 8}"#;
    let tied = r#"{"type": "dense", "units": 20000, "tied": "layers.0"}"#;
    let own = r#"{"type": "dense", "units": 20000, "bias": false}"#;
    let gelu = r#"{"type": "dense", "units": 8, "activation": "gelu"}"#;
    for (input, layers, is_tied, has_gradient) in [
        (tokens, format!("{embedding}, {tied}"), true, true),
        (tokens, format!("{embedding}, {gelu}, {tied}"), true, true),
        (tokens, format!("{embedding}, {gelu}, {own}"), false, true),
        (r#"{"shape": [64, 8], "batch": 4}"#, own.to_owned(), false, false),
    ] {
        let found = classifiers(&network(input, &layers, 1), Share::Last);
        let [op] = found[..] else { panic!("{layers}: {found:?}") };
        assert_eq!((op.tied, op.input_grad, op.accumulate), (is_tied, has_gradient, false), "{layers}");
        let text = network(input, &layers, 3);
        for (share, adds) in [(Share::First, false), (Share::Middle, true), (Share::Last, true)] {
            let found = classifiers(&text, share);
            let [op] = found[..] else { panic!("{layers}: {found:?}") };
            assert_eq!((op.accumulate, op.accumulate_bias), (adds, adds && op.bias), "{layers} {share:?}");
        }
    }
}

/// The weight of an embedding that other layers use too: once, twice, in a repeated block, and with several batches in
/// a step.
#[test]
fn a_weight_that_layers_share_passes_every_check() {
    let tied = |bias: bool| format!(r#"{{"type": "dense", "units": 7, "tied": "layers.0", "bias": {bias}}}"#);
    let back = r#"{"type": "dense", "units": 5, "activation": "tanh"}"#;
    let cases = [
        (tied(false), 1),
        (format!("{}, {back}, {}", tied(true), tied(true)), 1),
        (format!(r#"{{"type": "repeat", "times": 3, "layers": [{}, {back}]}}, {}"#, tied(true), tied(true)), 1),
        (format!(r#"{{"type": "dense", "units": 5, "activation": "relu"}}, {}"#, tied(true)), 3),
    ];
    for (seed, (layers, accumulate)) in (0..).zip(cases) {
        let text = format!(
            r#"{{"version": 1, "name": "tied-{seed}",
                "input": {{"type": "tokens", "shape": [6], "vocab": 7, "batch": 4}},
                "layers": [{{"type": "embedding", "units": 5}}, {{"type": "position"}}, {layers}],
                "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.01}},
                "train": {{"steps": 9, "accumulate": {accumulate}}}}}"#
        );
        let failed = failures(&read_preset(&text).unwrap(), seed);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// Which of two equal values is the maximum depends on rounding, and so does the gradient behind it.
#[test]
fn maxima_of_values_that_differ_by_rounding_alone_pass() {
    let text = r#"{"version": 1, "name": "maxima", "input": {"shape": [1, 2, 1], "batch": 2}, "layers": [
        {"type": "dense", "units": 1, "bias": false}, {"type": "activation", "function": "relu"}, {"type": "rms_norm"},
        {"type": "repeat", "times": 3, "layers": [
            {"type": "max_pool2d", "size": [3, 1], "stride": 1, "padding": [1, 0]}, {"type": "dense", "units": 1}]},
        {"type": "batch_norm", "eps": 1e-12}, {"type": "batch_norm"}, {"type": "batch_norm"}],
        "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
    let failed = failures(&read_preset(text).unwrap(), 1_020_913);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Layers that choose, and sequences shorter than a table of positions: the gradient of its other rows is set to zero
/// from an element on that no vector begins at.
#[test]
fn sequences_of_several_lengths_pass_on_every_path() {
    let text = r#"{"version": 1, "name": "lengths", "input": {"type": "tokens", "shape": [5], "vocab": 128, "batch": 3},
        "layers": [{"type": "embedding", "units": 3}, {"type": "position"},
            {"type": "branch", "choose": {"by": "cycle", "values": [0, 1]},
                "paths": [[{"type": "dense", "units": 3}], [{"type": "layer_norm"}]]},
            {"type": "dense", "units": 128}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01},
        "data": {"type": "source", "held_out": 0.1, "split": "last", "buckets": [1, 2, 3, 5]}}"#;
    let preset = read_preset(text).unwrap();
    let mut failed = failures(&preset, 1);
    match gpu(0) {
        Ok(gpu) => failed.extend(failures_on(Some(gpu.target()), &preset, 1)),
        Err(why) => println!("the GPU is skipped: no CUDA device: {why}"),
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
