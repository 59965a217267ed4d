//! The results of the passes: the final plans of many networks, each compared by a digest, and the passes that ran, as
//! text.
//!
//! The targets are fixed, so that the result is the same on every machine. `UPDATE_GOLDENS=1` rewrites the files; read
//! what changed before you keep it.

use std::fmt::Write as _;
use std::path::PathBuf;
use stepgraph::compile::{Compiled, CpuOnly, Options, compile};
use stepgraph::ir::{Metrics, Mode, build};
use stepgraph::lower::{FilterOrder, Program, lower_for};
use stepgraph::model::random::{Size, random_preset};
use stepgraph::model::{Precision, Preset, check, read_preset};
use stepgraph::ops::Dir;
use stepgraph::rewrite::{Goal, origins, trace};
use stepgraph::select::{Isa, Target};
use stepgraph::tensor::DType;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The networks of these folders, by file name, in order of their paths.
fn presets() -> Vec<(String, Preset)> {
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in ["presets", "tests/data/golden", "tests/data/rewrite"] {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        files.retain(|p| p.extension().is_some_and(|e| e == "json"));
        files.sort();
        all.extend(files);
    }
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, read_preset(&std::fs::read_to_string(&path).unwrap()).unwrap())
    };
    all.into_iter().map(read).collect()
}

fn compiled(preset: &Preset, precision: Precision, options: &Options) -> Compiled {
    let preset = Preset { precision, ..preset.clone() };
    let model = check(&preset).model.unwrap();
    compile(&model, options).unwrap_or_else(|e| panic!("{}: {e}", preset.name))
}

/// Every operation of a plan with its kernel, costs, and the place of each argument.
fn listing(c: &Compiled) -> String {
    let (plan, mut out) = (&c.plan, String::new());
    for (op, choice) in plan.program.ops.iter().zip(&c.selection.choices) {
        let layer = op.layer.map_or_else(|| "-".to_owned(), |l| c.model.layer(l).label());
        // A value that is read and written is listed once, where it is read.
        let is_listed =
            |dir, slot: &str| dir == Dir::In || !op.kind.slots().iter().any(|s| s.name == slot && s.dir == Dir::InOut);
        let arguments = |dir| {
            let of = |(slot, v)| {
                let offset = plan.place(v).map_or_else(|| "None".to_owned(), |p| p.offset.to_string());
                format!("{slot}={}@{offset}", plan.program.value(v).name)
            };
            op.bound(dir).filter(|(slot, _)| is_listed(dir, slot)).map(of).collect::<Vec<String>>().join(" ")
        };
        let _ = writeln!(
            out,
            "{} {} {layer} {} {} {} {} {} [{}] {} -> {}",
            op.kind.name(),
            choice.kernel,
            op.pass,
            op.phase.name(),
            choice.flops,
            choice.bytes,
            choice.workspace_bytes,
            op.fused.join(" + "),
            arguments(Dir::In),
            arguments(Dir::Out)
        );
    }
    let (arena, bound) = (plan.arena_bytes, plan.lower_bound_bytes);
    let (unshared, persistent) = (plan.unshared_bytes, plan.persistent_bytes);
    let _ = writeln!(out, "arena {arena} bound {bound} unshared {unshared} persistent {persistent}");
    out
}

/// Whether no GPU has kernels for all of a network.
fn is_cpu_only(preset: &Preset, precision: Precision) -> bool {
    CpuOnly::of(&check(&Preset { precision, ..preset.clone() }).model.unwrap()).is_some()
}

/// FNV-1a of 64 bits: enough to detect a change, and short.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Compares with a stored file, or writes it on request.
fn compare(file: &str, found: &str) {
    let path = root().join("tests/data/rewrite").join(file);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
    let differ = |(found, expected): (&str, &str)| (found != expected).then(|| format!("- {expected}\n+ {found}"));
    let mut mistakes: Vec<String> = found.lines().zip(expected.lines()).filter_map(differ).collect();
    let (lines, kept) = (found.lines().count(), expected.lines().count());
    if lines != kept {
        mistakes.push(format!("{lines} lines, expected {kept}"));
    }
    let count = mistakes.len();
    mistakes.truncate(20);
    assert!(count == 0, "{file}: {count} lines differ; UPDATE_GOLDENS=1 rewrites it\n{}", mistakes.join("\n"));
}

#[test]
fn every_plan_equals_its_stored_digest() {
    let (mut out, cpu) = (String::new(), || Target::cpu(Isa::Avx2, 2));
    for (name, preset) in presets() {
        let cases = [
            ("h200", Precision::F32, Options::train(Target::h200())),
            ("h200", Precision::Tf32, Options::train(Target::h200())),
            ("h200", Precision::Bf16, Options::train(Target::h200())),
            ("h200", Precision::F16, Options::train(Target::h200())),
            ("h200", Precision::F32, Options::eval(Target::h200())),
            ("h200", Precision::Bf16, Options::eval(Target::h200())),
            ("cpu", Precision::F32, Options::train(cpu())),
            ("cpu", Precision::F32, Options::eval(cpu())),
        ];
        for (device, precision, options) in cases {
            if device == "h200" && is_cpu_only(&preset, precision) {
                continue;
            }
            let c = compiled(&preset, precision, &options);
            let mode = if options.mode == Mode::Train { "train" } else { "eval" };
            let (count, digest) = (c.plan.program.ops.len(), digest(&listing(&c)));
            let _ = writeln!(out, "{name} {device} {} {mode} {count} {digest:016x}", precision.name());
        }
    }
    compare("plans.txt", &out);
}

#[test]
fn the_changes_by_the_passes_equal_the_stored_ones() {
    let targets = [
        ("CPU", Precision::F32, Target::cpu(Isa::Avx2, 2)),
        ("H200", Precision::F32, Target::h200()),
        ("H200", Precision::Bf16, Target::h200()),
        ("H200", Precision::F16, Target::h200()),
    ];
    let (mut out, presets) = (String::new(), presets());
    for wanted in ["digits-mlp", "digits-cnn", "digits-residual"] {
        let (name, preset) = presets.iter().find(|(name, _)| name == wanted).unwrap();
        for (device, precision, target) in &targets {
            let c = compiled(preset, *precision, &Options::train(target.clone()));
            let _ = writeln!(out, "== {name}, {device}, {}", precision.name());
            c.passes.iter().for_each(|run| out += &format!("{run}\n"));
            // The list belongs to the program that kernels were chosen for, and can be computed again.
            let (last, stages) = (c.passes.last().unwrap(), c.stages().unwrap());
            assert_eq!(last.after, c.selection.program.ops.len(), "{name}");
            assert_eq!(stages.last().unwrap().program.values, c.selection.program.values, "{name}");
        }
    }
    compare("passes.txt", &out);
}

#[test]
fn the_optimizer_state_of_every_parameter_is_found_in_every_plan() {
    let mut found = 0;
    for (name, preset) in presets() {
        for (precision, target) in [
            (Precision::F32, Target::cpu(Isa::Avx2, 2)),
            (Precision::F32, Target::h200()),
            (Precision::Bf16, Target::h200()),
            (Precision::F16, Target::h200()),
        ] {
            if target.as_cuda().is_some() && is_cpu_only(&preset, precision) {
                continue;
            }
            let c = compiled(&preset, precision, &Options::train(target));
            let names = |program: &Program| -> Vec<String> {
                program.moments().map(|moment| program.value(moment.value).name.clone()).collect()
            };
            let of_plan = names(&c.plan.program);
            assert_eq!(of_plan, names(&c.program), "{name} {}", precision.name());
            let trained = c.model.params.iter().filter(|p| p.kind.is_trained()).count();
            assert!(of_plan.len().is_multiple_of(trained) && of_plan.len() <= 2 * trained, "{name}: {of_plan:?}");
            found += of_plan.len();
        }
    }
    assert!(found > 1000, "{found} moments");
}

#[test]
fn every_pass_satisfies_every_rule_on_random_networks() {
    for seed in 0..60 {
        let preset = random_preset(seed, if seed % 4 == 0 { Size::LARGE } else { Size::SMALL });
        let model = check(&preset).model.unwrap();
        for mode in [Mode::Train, Mode::Eval] {
            let program = lower_for(&build(&model, mode, Metrics::default(), DType::F32), &model, FilterOrder::Ohwi);
            for precision in Precision::ALL {
                let stages = trace(&program, &Goal::gpu(precision)).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
                let mut ops = program.ops.len();
                for stage in &stages {
                    assert_eq!((stage.run.before, stage.run.after), (ops, stage.program.ops.len()), "{}", preset.name);
                    ops = stage.run.after;
                }
                // No operation is lost, and only loss scaling adds one.
                let runs: Vec<_> = stages.iter().map(|stage| stage.run.clone()).collect();
                let origins = origins(program.ops.len(), &runs);
                let mut found: Vec<usize> = origins.iter().flatten().copied().collect();
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), program.ops.len(), "{}", preset.name);
                let added = origins.iter().filter(|of| of.is_empty()).count();
                let scaled = precision == Precision::F16 && mode == Mode::Train;
                assert!(added == usize::from(scaled), "{}: {added} operations from nowhere", preset.name);
            }
        }
    }
}
