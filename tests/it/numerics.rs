//! Random networks: fast kernels against plain loops in f64, replay against eager, threads, instruction sets and
//! repeated runs against each other.

use super::nets::{grad, model, prepared, trained};
use stepgraph::compile::Options;
use stepgraph::exec::cpu::host_target;
use stepgraph::exec::{Executor, Step};
use stepgraph::ir::Phase;
use stepgraph::model::random::{Size, random_preset};
use stepgraph::model::{Model, Preset, read_preset, write_preset};
use stepgraph::select::{Isa, Policy, Target};
use stepgraph::train::{VerifyOptions, verify};

const SEED: u64 = 3;

/// Instruction sets that this processor supports.
fn isas() -> Vec<Isa> {
    let best = host_target(1).as_cpu().unwrap().isa;
    [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i <= best).collect()
}

/// Dozens of small networks, and a few whose steps threads share; `STEPGRAPH_NETWORKS=20` draws twenty times as many.
fn networks(small: u64, large: u64) -> impl Iterator<Item = Model> {
    presets(small, large).map(|preset| model(&preset))
}

/// As [`networks`], as documents.
fn presets(small: u64, large: u64) -> impl Iterator<Item = Preset> {
    let times = std::env::var("STEPGRAPH_NETWORKS").ok().and_then(|t| t.parse().ok()).unwrap_or(1u64);
    // Differences are relative to the length of a tensor, which is not meaningful if fields have extreme values.
    let of = |size: Size, seeds: std::ops::Range<u64>| seeds.map(move |s| random_preset(s, size.usual()));
    of(Size::SMALL, 0..small * times).chain(of(Size::LARGE, 1_000_000..1_000_000 + large * times))
}

/// The gradients of the first batch at the initial parameters, by trained parameter.
fn gradients(model: &Model, options: &Options) -> Vec<Vec<f64>> {
    let (mut step, mut pool) = prepared(model, options, SEED);
    let ops = &step.compiled().plan.program.ops;
    let update = ops.iter().position(|o| o.phase == Phase::Optimizer).unwrap();
    step.run_ops(0, update, &mut pool).unwrap();
    trained(model).map(|p| grad(&step, p)).collect()
}

/// For each parameter the largest difference, relative to the larger of its own magnitude and a hundredth of the whole
/// gradient's.
fn errors(found: &[Vec<f64>], exact: &[Vec<f64>]) -> Vec<f64> {
    let size = |g: &[f64]| g.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let whole = exact.iter().fold(0.0f64, |m, g| m.max(size(g)));
    let one = |(f, e): (&Vec<f64>, &Vec<f64>)| {
        let worst = f
            .iter()
            .zip(e)
            .fold(0.0f64, |m, (a, b)| if (a - b).is_nan() { f64::INFINITY } else { m.max((a - b).abs()) });
        // A gradient that is zero by symmetry, such as that of a bias before a normalisation, consists only of rounding
        // errors and is compared with the size of the whole gradient.
        worst / size(e).max(1e-2 * whole).max(1e-9)
    };
    found.iter().zip(exact).map(one).collect()
}

/// Whether every element of the gradients is within its rounding bound; used for networks whose gradients vanish, or
/// are so sensitive that another order of sums makes a difference.
fn is_within_bounds(preset: &Preset, isa: Isa) -> bool {
    let options =
        VerifyOptions { machine: Some(Target::cpu(isa, 2)), seed: SEED, replays: Some(1), ..Default::default() };
    let report = verify(preset, &options, |_| {}).unwrap();
    let fast = report.checks.iter().find(|check| check.name.starts_with("fast kernels against reference")).unwrap();
    assert!(fast.passed.is_some(), "{}: {fast:?}", preset.name);
    fast.passed == Some(true)
}

#[test]
fn gradients_agree_with_plain_loops_in_f64() {
    let mut all = Vec::new();
    let mut failures = Vec::new();
    for preset in presets(200, 8) {
        let model = model(&preset);
        let exact = gradients(&model, &Options::reference_f64(Target::cpu(Isa::Portable, 1)));
        let mut plain = None;
        for isa in isas() {
            let fast = gradients(&model, &Options::train(Target::cpu(isa, 2)));
            for (i, error) in errors(&fast, &exact).into_iter().enumerate() {
                all.push(error);
                if error < 1e-3 {
                    continue;
                }
                // If plain loops in f32 have similar errors, the network itself is that sensitive: a maximum at another
                // position, a variance near zero.
                let plain = plain.get_or_insert_with(|| {
                    let options = Options { policy: Policy::Reference, ..Options::train(Target::cpu(isa, 1)) };
                    errors(&gradients(&model, &options), &exact)
                });
                if error > 8.0 * plain[i] && !is_within_bounds(&preset, isa) {
                    let name = &model.param(trained(&model).nth(i).unwrap()).name;
                    failures.push(format!(
                        "{} on {}: {name} is off by {error:.1e}, plain f32 loops by {:.1e}",
                        model.name,
                        isa.name(),
                        plain[i]
                    ));
                }
            }
        }
    }
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
    println!("{} gradients: median error {:.1e}, 99% {:.1e}, largest {:.1e}", all.len(), at(0.5), at(0.99), at(1.0));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(at(0.99) < 1e-3, "the 99th percentile is {:.1e}", at(0.99));
}

/// Everything that survives a step, after five steps.
fn after_five(model: &Model, target: Target, executor: Executor) -> (Step, Vec<u8>) {
    let (mut step, mut pool) = prepared(model, &Options::train(target), SEED);
    for _ in 0..5 {
        step.run(executor, &mut pool).unwrap();
    }
    let state = step.snapshot().unwrap();
    (step, state)
}

/// Fails with the persistent buffers that differ.
fn assert_same(model: &Model, what: &str, step: &Step, a: &[u8], b: &[u8]) {
    assert_eq!(a.len(), b.len(), "{}: {what}", model.name);
    if a == b {
        return;
    }
    let compiled = step.compiled();
    let range = |b: &stepgraph::plan::Buffer| b.offset as usize..(b.offset + b.bytes) as usize;
    let differ =
        compiled.plan.buffers.iter().filter(|x| x.persistent && a[range(x)] != b[range(x)]).map(|x| x.name.as_str());
    panic!("{}: {what} differ in {}", model.name, differ.collect::<Vec<_>>().join(", "));
}

/// Five steps give the same bits eagerly and replayed for these networks.
fn assert_as_replayed(networks: impl Iterator<Item = Model>, executor: Executor, what: &str) {
    for model in networks {
        let (step, first) = after_five(&model, host_target(2), executor);
        let (_, replayed) = after_five(&model, host_target(2), Executor::Replay);
        assert_same(&model, what, &step, &first, &replayed);
    }
}

#[test]
fn replay_equals_eager_bit_for_bit() {
    assert_as_replayed(networks(120, 8), Executor::Eager, "eager and replay");
}

#[test]
fn threads_do_not_change_a_bit() {
    for model in networks(80, 16) {
        for isa in isas() {
            let (step, alone) = after_five(&model, Target::cpu(isa, 1), Executor::Replay);
            for threads in [2, 3] {
                let (_, shared) = after_five(&model, Target::cpu(isa, threads), Executor::Replay);
                assert_same(&model, &format!("one and {threads} threads on {}", isa.name()), &step, &alone, &shared);
            }
        }
    }
}

#[test]
fn two_runs_are_bit_equal() {
    assert_as_replayed(networks(60, 4), Executor::Replay, "two runs");
}

#[test]
fn instruction_sets_agree() {
    let (mut equal, mut count, mut all) = (0, 0, Vec::new());
    for model in networks(80, 6) {
        let (_, reference) = after_five(&model, Target::cpu(Isa::Portable, 2), Executor::Replay);
        for isa in isas().into_iter().skip(1) {
            let (_, found) = after_five(&model, Target::cpu(isa, 2), Executor::Replay);
            count += 1;
            equal += usize::from(found == reference);
        }
        let gradients: Vec<_> =
            isas().into_iter().map(|isa| gradients(&model, &Options::train(Target::cpu(isa, 1)))).collect();
        for other in &gradients[1..] {
            all.extend(errors(other, &gradients[0]));
        }
    }
    // The kernels add in another order, so that a network that is sensitive to rounding may differ by more; the
    // comparison with f64 shows that each is as accurate as plain loops.
    all.sort_by(f64::total_cmp);
    let late = all[(all.len() - 1) * 99 / 100];
    assert!(late < 1e-3, "gradients of two instruction sets differ by {late:.1e}");
    println!("{equal} of {count} states after five steps are bit-equal across instruction sets");
}

/// One batch, outputs and gradients of a preset's text; used by the cases below, each of which covers an earlier
/// mistake.
fn case(layers: &str, shape: &str, loss: &str) {
    let text = format!(
        r#"{{"version": 1, "name": "case", "input": {{"shape": {shape}, "batch": 5}}, "layers": {layers},
            "loss": {{"type": "{loss}"}},
            "optimizer": {{"type": "adam", "lr": 0.01}}}}"#
    );
    let preset = read_preset(&text).unwrap_or_else(|e| panic!("{layers}: {e:?}"));
    assert_eq!(read_preset(&write_preset(&preset)).unwrap(), preset);
    let model = model(&preset);
    let exact = gradients(&model, &Options::reference_f64(Target::cpu(Isa::Portable, 1)));
    for isa in isas() {
        let worst =
            errors(&gradients(&model, &Options::train(Target::cpu(isa, 2))), &exact).into_iter().fold(0.0, f64::max);
        assert!(worst < 1e-3, "{layers} on {}: off by {worst:.1e}", isa.name());
    }
    let (step, eager) = after_five(&model, host_target(2), Executor::Eager);
    assert_same(&model, layers, &step, &eager, &after_five(&model, host_target(2), Executor::Replay).1);
}

/// Strides, dilation, groups and odd sizes with a remainder.
#[test]
fn corner_cases_of_convolutions() {
    case(
        r#"[{"type": "conv2d", "filters": 6, "kernel": [3, 2], "stride": [2, 3], "padding": [1, 2], "dilation": [2, 1],
            "groups": 2, "activation": "silu"}]"#,
        "[4, 11, 9]",
        "mse",
    );
    case(
        r#"[{"type": "conv2d", "filters": 5, "kernel": 1, "activation": "gelu"},
            {"type": "conv2d", "filters": 5, "kernel": 3, "groups": 5, "padding": "same"}]"#,
        "[1, 7, 5]",
        "mse",
    );
    case(r#"[{"type": "conv2d", "filters": 3, "kernel": 5, "stride": 4}]"#, "[3, 13, 6]", "mse");
    case(r#"[{"type": "conv2d", "filters": 2, "kernel": 1, "stride": 2, "padding": 1}]"#, "[2, 3, 3]", "mse");
}

/// Overlap, padding, windows with a remainder.
#[test]
fn corner_cases_of_pools() {
    case(
        r#"[{"type": "max_pool2d", "size": 3, "stride": 2, "padding": 1},
            {"type": "conv2d", "filters": 2, "kernel": 1}]"#,
        "[2, 8, 7]",
        "mse",
    );
    case(
        r#"[{"type": "conv2d", "filters": 4, "kernel": 1},
            {"type": "avg_pool2d", "size": [3, 2], "stride": [1, 2], "padding": [1, 0]}]"#,
        "[3, 6, 7]",
        "mse",
    );
    case(
        r#"[{"type": "conv2d", "filters": 4, "kernel": 1}, {"type": "max_pool2d", "size": [2, 3], "stride": 1}]"#,
        "[3, 6, 7]",
        "mse",
    );
}

#[test]
fn corner_cases_of_axes_and_orders() {
    // Dense and normalisation over the last axis of an image.
    case(
        r#"[{"type": "dense", "units": 7, "activation": "gelu"}, {"type": "layer_norm"}, {"type": "flatten"},
            {"type": "dense", "units": 3}]"#,
        "[3, 4, 5]",
        "softmax_cross_entropy",
    );
    case(
        r#"[{"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "dense", "units": 6}, {"type": "layer_norm"},
            {"type": "conv2d", "filters": 2, "kernel": 2}]"#,
        "[2, 7, 6]",
        "mse",
    );
    case(
        r#"[{"type": "rms_norm"}, {"type": "dense", "units": 7, "activation": "gelu"},
            {"type": "rms_norm"}, {"type": "flatten"}, {"type": "dense", "units": 3}]"#,
        "[3, 4, 5]",
        "softmax_cross_entropy",
    );
    case(
        r#"[{"type": "dense", "units": 6}, {"type": "repeat", "times": 3, "layers": [
            {"type": "dense", "units": 6}, {"type": "rms_norm", "eps": 0.1}]}]"#,
        "[5]",
        "mse",
    );
    // A flattened image in both orders: the weight after it is permuted, but a normalisation after it cannot be.
    let behind = [
        r#"{"type": "batch_norm"}"#,
        r#"{"type": "layer_norm"}, {"type": "dropout", "rate": 0.3}"#,
        r#"{"type": "rms_norm"}"#,
    ];
    for layers in behind {
        let layers = format!(
            r#"[{{"type": "conv2d", "filters": 4, "kernel": 3}}, {{"type": "flatten"}}, {layers},
            {{"type": "dense", "units": 3}}]"#
        );
        case(&layers, "[2, 6, 6]", "softmax_cross_entropy");
    }
    case(r#"[{"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "flatten"}]"#, "[2, 6, 6]", "mse");
}

/// At the very start, nested, repeated with statistics inside.
#[test]
fn corner_cases_of_blocks() {
    case(
        r#"[{"type": "residual", "layers": [{"type": "activation", "function": "silu"}]},
            {"type": "dense", "units": 3}]"#,
        "[6]",
        "mse",
    );
    case(
        r#"[{"type": "residual", "layers": [{"type": "conv2d", "filters": 3, "kernel": 3, "padding": "same"}]},
            {"type": "global_avg_pool"}, {"type": "dense", "units": 3}]"#,
        "[3, 5, 5]",
        "softmax_cross_entropy",
    );
    case(
        r#"[{"type": "repeat", "times": 3, "layers": [{"type": "dense", "units": 6, "activation": "gelu"},
            {"type": "batch_norm"}]}, {"type": "dense", "units": 3}]"#,
        "[6]",
        "softmax_cross_entropy",
    );
    case(
        r#"[{"type": "repeat", "times": 2, "layers": [{"type": "residual", "layers": [{"type": "conv2d", "filters": 2,
            "kernel": 3, "padding": "same", "activation": "relu"}, {"type": "batch_norm"}]}]}]"#,
        "[2, 5, 4]",
        "mse",
    );
    case(
        r#"[{"type": "residual", "layers": [{"type": "residual", "layers": [{"type": "dense", "units": 5}]},
            {"type": "dropout", "rate": 0.5}]}]"#,
        "[5]",
        "mse",
    );
    // A repeated product whose input has two orders.
    case(
        r#"[{"type": "repeat", "times": 2, "layers": [{"type": "conv2d", "filters": 2, "kernel": 1},
            {"type": "dense", "units": 4}]}]"#,
        "[2, 3, 4]",
        "mse",
    );
}

#[test]
fn corner_cases_of_dropout_and_small_networks() {
    // Only dropout at the ends, and with rate 0.
    case(
        r#"[{"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 4}, {"type": "dropout", "rate": 0.0}]"#,
        "[9]",
        "mse",
    );
    case(
        r#"[{"type": "conv2d", "filters": 3, "kernel": 2}, {"type": "dropout", "rate": 0.5},
            {"type": "max_pool2d", "size": 2}, {"type": "dropout", "rate": 0.2}]"#,
        "[2, 6, 7]",
        "mse",
    );
    // One layer of every kind.
    case(r#"[{"type": "dense", "units": 1}]"#, "[1]", "mse");
    case(
        r#"[{"type": "dense", "units": 1, "bias": false}, {"type": "batch_norm"},
            {"type": "dense", "units": 2, "bias": false}]"#,
        "[1]",
        "softmax_cross_entropy",
    );
}

#[test]
fn corner_cases_of_activations() {
    for function in ["relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh"] {
        case(
            &format!(
                r#"[{{"type": "conv2d", "filters": 3, "kernel": 3, "activation": "{function}"}},
                    {{"type": "activation", "function": "{function}"}}, {{"type": "flatten"}},
                    {{"type": "dense", "units": 3, "activation": "{function}"}}]"#
            ),
            "[2, 5, 5]",
            "softmax_cross_entropy",
        );
        case(
            &format!(
                r#"[{{"type": "activation", "function": "{function}"}}, {{"type": "dense", "units": 3}},
                    {{"type": "activation", "function": "{function}"}}]"#
            ),
            "[8]",
            "mse",
        );
        case(
            &format!(
                r#"[{{"type": "conv2d", "filters": 3, "kernel": 3}}, {{"type": "batch_norm"}},
                    {{"type": "activation", "function": "{function}"}}]"#
            ),
            "[2, 5, 5]",
            "mse",
        );
    }
}
