//! The CUDA executor, as far as it can be tested without a GPU: plans for one, and the compilation of every kernel.
//! With a GPU, steps are verified on it.

use crate::candidates::{PRECISIONS, each_candidate, has_compiler, models, planned, precisions_of};
use crate::nets::{ATTENDING, FEW_CHANNELS, GRIDS, RMS, RULES};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;
use stepgraph::exec::cuda::{Arch, KernelSource, compile_source, gpu, probe};
use stepgraph::exec::{ExecError, Executor, Fault, GraphRead, ReadyTimes};
use stepgraph::model::{BUNDLED, Precision, Preset, check, read_preset};
use stepgraph::select::cuda::{FAMILIES, KernelFamily, KernelFile, KernelSpec, Real, custom_kernels, real_of};
use stepgraph::select::{CudaFacts, Kernels, Target};
use stepgraph::train::{DataChoice, Session, SessionSpec, compile_for_shared_launches};

#[test]
fn every_preset_is_planned_for_a_gpu_in_every_precision_at_the_bound() {
    for model in models() {
        for precision in precisions_of(&model) {
            for eval in [false, true] {
                let compiled = planned(&model, precision, eval, &Target::h200());
                let plan = &compiled.plan;
                let name = format!("{} in {precision:?}", model.name);
                assert_eq!(plan.arena_bytes, plan.lower_bound_bytes, "{name}");
                assert_eq!(plan.groups.len(), plan.program.ops.len(), "{name}");
                assert!(compiled.selection.choices.iter().all(|c| !c.kernel.contains("ref")), "{name}");
            }
        }
    }
}

#[test]
fn bucketed_updates_are_planned_at_the_bound() {
    for (units, layers, batch) in [(2048, 5, 64), (4096, 2, 1024)] {
        let hidden = format!(r#", {{"type": "dense", "units": {units}, "activation": "relu"}}"#).repeat(layers);
        let text = format!(
            r#"{{"version": 1, "name": "dense", "input": {{"shape": [784], "batch": {batch}}}, "layers": [
            {{"type": "dense", "units": {units}, "activation": "gelu"}}{hidden}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adamw", "lr": 0.001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        for precision in PRECISIONS {
            let plan = planned(&model, precision, false, &Target::h200()).plan;
            let name = format!("{units} x {layers} in {precision:?}");
            assert_eq!(plan.arena_bytes, plan.lower_bound_bytes, "{name}");
            let updates = plan.program.ops.iter().filter(|op| op.kind.name() == "adam_step").count();
            assert!(updates > 1 || precision == Precision::F16, "{name}: {updates}");
        }
    }
}

#[test]
fn without_libraries_custom_kernels_compute_everything() {
    let mut target = Target::h200();
    let facts = target.as_cuda().unwrap();
    target = Target::cuda("bare", CudaFacts { has_cublaslt: false, has_cudnn: false, ..facts });
    for model in models() {
        for precision in precisions_of(&model) {
            let compiled = planned(&model, precision, false, &target);
            let library =
                compiled.selection.choices.iter().find(|c| c.kernel.contains("cublas") || c.kernel.contains("cudnn"));
            assert!(library.is_none(), "{}: {library:?}", model.name);
        }
    }
}

/// One type of each template and number type, over all presets and all candidates for a GPU of this capability.
fn kernels(capability: (u32, u32)) -> BTreeMap<String, KernelSpec> {
    // The kernels that are compiled in addition to a step's operations.
    let beside =
        ["bf16, 64, int, int, 1, 8, 1437, 5, 0, 256, false", "float, 3, float, float, 2, 7, 0, 5, 6, 256, true"];
    let feed = |arguments: &str| {
        let general = match arguments.split(", ").next() {
            Some("bf16") => "bf16, ANY, int, int, ANY, ANY, ANY, ANY, ANY, 256, false, 4",
            _ => "float, ANY, float, float, ANY, ANY, 0, ANY, ANY, 256, true, 1",
        };
        let spec = KernelSpec::new(KernelFile::Feed, "Feed", arguments.into());
        spec.with_general(general.into(), vec![64 | 1 << 32, 8 | 1437 << 32, 5])
    };
    let feeds = beside.map(|arguments| (format!("Feed {arguments}"), feed(arguments)));
    let mut found: BTreeMap<_, _> = feeds.into_iter().chain([("Clear".into(), clear())]).collect();
    for arguments in beside {
        let general = feed(arguments).of(Kernels::General);
        found.insert(format!("general {}", general.ty()), general);
    }
    // No preset is so large that a bit mask replaces its activations.
    for t in ["bf16", "float"] {
        let signs = KernelSpec::new(KernelFile::Elementwise, "SignBits", format!("{t}, 4096"))
            .with_general(format!("{t}, ANY"), vec![4096]);
        found.insert(format!("SignBits {t}"), signs);
    }
    // No preset has a vocabulary of thousands.
    for t in ["bf16", "f16", "float"] {
        let arguments = format!("{t}, 300, 5000, 24, 4, 16, true");
        let rows = KernelSpec::new(KernelFile::Sequence, "EmbeddingBwdRows", arguments)
            .with_general(format!("{t}, ANY, ANY, ANY, 4, 16, true, 12288"), vec![300, 5000, 24]);
        found.insert(format!("general EmbeddingBwdRows {t}"), rows.clone().of(Kernels::General));
        found.insert(format!("EmbeddingBwdRows {t}"), rows);
        let arguments = format!("{t}, 64, 20000, 0ull, 512, 512, 64, 4, 1, 3");
        let loss = KernelSpec::new(KernelFile::Loss, "SoftmaxCeFused", arguments)
            .with_general(format!("{t}, ANY, ANY, 0ull, 512, 512, ANY, 4, 1, 3"), vec![64, 20_000, 64, 0]);
        found.insert(format!("SoftmaxCeFused in parts {t}"), loss);
    }
    each_candidate(models(), capability, |real, spec| {
        let general = spec.clone().of(Kernels::General);
        if let Some(wider) = general.wider() {
            found.entry(format!("wider {} {}", spec.template, real.name())).or_insert(wider);
        }
        if general.is_general() {
            found.entry(format!("general {}", general.ty())).or_insert(general);
        }
        found.entry(format!("{} {}", spec.template, real.name())).or_insert(spec);
    });
    found
}

/// The kernel that clears memory.
fn clear() -> KernelSpec {
    KernelSpec::new(KernelFile::Clear, "Clear", String::new())
}

#[test]
fn every_kernel_belongs_to_a_family_which_says_what_its_general_members_read() {
    for (name, spec) in kernels((9, 0)) {
        let family = KernelFamily::of(spec.template).unwrap_or_else(|| panic!("{name} is of no family"));
        assert_eq!(family.file, spec.file, "{name}");
        let general = spec.clone().of(Kernels::General);
        assert_eq!(general.is_general(), !family.numbers.is_empty(), "{name}");
        // Products that are not followed by an update have no constants of a rule.
        let has_no_rule = family.numbers.last() == Some(&"constants of the rule") && general.table().is_none();
        assert_eq!(general.numbers().len() + usize::from(has_no_rule), family.numbers.len(), "{name}");
    }
    for family in &FAMILIES {
        let text = stepgraph::exec::cuda::sources().iter().find(|(name, _)| *name == family.file.name()).unwrap().1;
        let is_there = |end: &str| text.contains(&format!("struct {}{end}", family.template));
        assert!(is_there(" ") || is_there("\n"), "{} is not in {}", family.template, family.file.name());
    }
    // Networks that differ only in sizes need no further kernels.
    let compiled = |units: usize| {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 96}}, "layers": [
            {{"type": "dense", "units": {units}, "activation": "gelu"}}, {{"type": "dropout", "rate": 0.{units}}},
            {{"type": "dense", "units": {units}}}], "loss": {{"type": "mse"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let compiled = planned(&model, Precision::F32, false, &Target::h200());
        let facts = Target::h200().as_cuda().unwrap();
        let specs = compiled.selection.program.ops.iter().flat_map(|op| custom_kernels(&op.kind, Real::F32, &facts));
        let general = specs.map(|kernel| kernel.spec.of(Kernels::General)).filter(KernelSpec::is_general);
        general.map(|spec| spec.compiled().ty()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(compiled(100), compiled(104));
    assert!(compiled(100).len() > 4, "{:?}", compiled(100));
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    if !has_compiler() {
        return;
    }
    let archs = [Arch(8, 0), Arch(9, 0), Arch(10, 0)].map(|a| (a, kernels((a.0, a.1))));
    assert!(archs.iter().all(|(_, k)| k.len() > 60), "kernels are missing");
    let jobs: Vec<(&String, &KernelSpec, Arch)> =
        archs.iter().flat_map(|(arch, kernels)| kernels.iter().map(|(n, k)| (n, k, *arch))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, spec, arch)) = jobs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let code = compile_source(&KernelSource::from(KernelSpec::clone(spec)).text(), *arch);
                    assert!(
                        code.as_ref().is_ok_and(|c| c.len() > 500),
                        "{name} for {arch}: {}\n{:?}",
                        spec.ty(),
                        code.err().map(|why| why.to_string())
                    );
                }
            });
        }
    });
}

/// The program, started to compile for another one, gets a request: its answer, and whether that is machine code.
fn compiled_elsewhere(source: &str, arch: Arch) -> (bool, Vec<u8>) {
    use std::io::{Read, Write};
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_stepgraph"));
    program.arg("--compile-kernels-from-stdin").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut ask = child.stdin.take().unwrap();
    ask.write_all(&[arch.0.to_le_bytes(), arch.1.to_le_bytes()].concat()).unwrap();
    ask.write_all(&(source.len() as u64).to_le_bytes()).unwrap();
    ask.write_all(source.as_bytes()).unwrap();
    // It ends when its standard input is closed.
    drop(ask);
    let mut answer = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut answer).unwrap();
    assert!(child.wait().unwrap().success());
    let (head, rest) = answer.split_at(9);
    assert_eq!(u64::from_le_bytes(head[1..].try_into().unwrap()), rest.len() as u64);
    (head[0] == 1, rest.to_vec())
}

#[test]
fn another_process_compiles_the_same() {
    let (source, arch) = (KernelSource::from(clear()).text(), Arch(9, 0));
    let (is_code, answer) = compiled_elsewhere(&source, arch);
    if probe().has("nvrtc") {
        assert!(is_code && answer == compile_source(&source, arch).unwrap());
        let (is_code, why) = compiled_elsewhere("no kernel", arch);
        assert!(!is_code && String::from_utf8(why).unwrap().contains("error"));
    } else {
        assert!(!is_code && !answer.is_empty());
        println!("skipped beyond the refusal: NVRTC is not installed");
    }
}

/// A classifier whose weights are updated by the operations that compute their gradients, the last ones in tiles that
/// each occupy a multiprocessor.
const MIDDLE: &str = r#"{"version": 1, "name": "middle", "input": {"shape": [784], "batch": 128}, "layers": [
    {"type": "dense", "units": 512, "activation": "relu"}, {"type": "dense", "units": 512, "activation": "relu"},
    {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#;

#[test]
fn updates_that_end_a_step_share_the_machine_and_their_launches_compile() {
    let model = check(&read_preset(MIDDLE).unwrap()).model.unwrap();
    let target = Target::h200();
    for precision in [Precision::Tf32, Precision::Bf16] {
        let compiled = planned(&model, precision, false, &target);
        let choices = &compiled.selection.choices;
        let alone: Vec<&str> =
            choices.iter().map(|c| &*c.kernel).filter(|k| k.contains("_adam_") && k.contains("direct_96x64")).collect();
        assert_eq!(alone.len(), 2, "{:?}", choices.iter().map(|c| &c.kernel).collect::<Vec<_>>());
        let ops = compiled.selection.program.ops.iter().zip(choices);
        let mut units: Vec<Vec<KernelSpec>> = vec![Vec::new(); 3];
        for (op, choice) in ops {
            let real = real_of(&compiled.selection.program, op, Real::from(precision));
            let found = custom_kernels(&op.kind, real, &target.as_cuda().unwrap());
            let Some(found) = found.into_iter().find(|k| choice.kernel.ends_with(&k.tail)) else { continue };
            let spec = found.spec;
            match op.kind.name() {
                "gemm" if units[0].is_empty() => units[0].push(spec),
                "gemm_tn_adam" if choice.kernel.contains("96x64") => units[1].push(spec),
                "reduce_sum_adam" => units[1].push(spec),
                "step_metrics" => {
                    let arguments = format!("{}, 256, 5, 6", spec.ty());
                    let closing = KernelSpec { template: "ClosingMetrics", arguments, ..spec.clone() };
                    let feed = "float, 784, int, int, 1, 128, 60000, 5, 6, 256, false".into();
                    units[2].push(KernelSpec::new(KernelFile::Feed, "Feed", feed));
                    units[2].push(closing);
                    units[0].push(spec);
                }
                _ => {}
            }
        }
        assert!(units.iter().all(|u| !u.is_empty()) && units[1].len() == 5, "{units:?}");
        if probe().has("nvrtc") {
            for members in &units {
                let code = compile_source(&members.iter().cloned().collect::<KernelSource>().text(), Arch(9, 0));
                assert!(
                    code.as_ref().is_ok_and(|c| c.len() > 500),
                    "{members:?}\n{:?}",
                    code.err().map(|why| why.to_string())
                );
            }
        } else {
            println!("compiling is skipped: NVRTC is not installed");
        }
    }
}

#[test]
fn steps_on_a_gpu_pass_every_check() {
    let gpu = match gpu(0) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("skipped: no CUDA device: {why}");
            return;
        }
    };
    // The last one begins with a library's call, if there is a library.
    let wide = r#"{"version": 1, "name": "wide", "input": {"shape": [1024], "batch": 1024}, "precision": "bf16",
        "layers": [
        {"type": "dense", "units": 1024, "activation": "relu"}, {"type": "dense", "units": 1000}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#;
    let bundled = |name| BUNDLED.iter().find(|b| b.name == name).unwrap().text;
    for text in [bundled("digits-mlp"), bundled("digits-cnn"), bundled("mlp-gelu-layernorm"), RMS, wide] {
        let preset = read_preset(text).unwrap();
        let name = &preset.name;
        let options =
            stepgraph::train::VerifyOptions { machine: Some(gpu.target()), replays: Some(100), ..Default::default() };
        let report = stepgraph::train::verify(&preset, &options, |_| {}).unwrap();
        assert!(
            report.passed,
            "{name}: {:?}",
            report.checks.iter().filter(|c| c.passed == Some(false)).collect::<Vec<_>>()
        );
    }
}

/// What survives some steps of a preset on a GPU, the reports, the times to its first step, and microseconds a step.
fn trained(preset: &Preset, machine: &Target, executor: Executor) -> (Vec<u8>, Vec<[u32; 4]>, ReadyTimes, f64) {
    let mut spec = SessionSpec::new(preset.clone(), PathBuf::new());
    (spec.machine, spec.executor, spec.data) = (Some(machine.clone()), executor, DataChoice::of(preset));
    let mut run = Session::prepare(&spec).unwrap();
    let mut reports = Vec::new();
    for _ in 0..20 {
        let report = run.step().unwrap().unwrap();
        reports.push([report.loss, report.accuracy, report.grad_norm, report.update_max].map(f32::to_bits));
    }
    let (times, (step, pool)) = (run.ready_times().clone(), run.step_mut());
    let state = step.snapshot().unwrap();
    step.replay_many(200, pool).and_then(|()| step.synchronize()).unwrap();
    let started = Instant::now();
    step.replay_many(1000, pool).and_then(|()| step.synchronize()).unwrap();
    let step_us = started.elapsed().as_secs_f64() * 1e3;
    compile_for_shared_launches(machine, 8, || true);
    (state, reports, times, step_us)
}

/// General kernels and the specialised members of their families give the same bits, eager and replayed; and a network
/// that is prepared again reuses the process's kernels.
#[test]
fn general_kernels_equal_specialised_ones_and_an_edit_reuses_kernels_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let wide = r#"{"version": 1, "name": "wide-mse", "input": {"shape": [640], "batch": 512}, "layers": [
        {"type": "dense", "units": 1001, "activation": "gelu"}, {"type": "dropout", "rate": 0.3},
        {"type": "layer_norm"}, {"type": "dense", "units": 333, "activation": "silu"}, {"type": "dense", "units": 1}],
        "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.001}, "data": {"type": "regression"}}"#;
    let names =
        "digits-mlp digits-cnn digits-residual mlp-gelu-layernorm moons-deep regression iris gpt-sums two-inputs";
    let named = BUNDLED.iter().filter(|bundled| names.split(' ').any(|name| name == bundled.name));
    let texts = named.map(|bundled| bundled.text).chain([wide, ATTENDING, GRIDS]).chain(RULES);
    let different: Vec<String> = texts.flat_map(|text| different_results(&machine, text)).collect();
    assert!(different.is_empty(), "other bits than the specialised kernels:\n{}", different.join("\n"));
}

/// The same for convolutions of images of few channels.
#[test]
fn general_kernels_for_few_channels_equal_specialised_ones_on_a_gpu() {
    for text in FEW_CHANNELS {
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        for precision in [Precision::Tf32, Precision::Bf16, Precision::F16] {
            let compiled = planned(&model, precision, false, &Target::h200().with_kernels(Kernels::General));
            let chosen = compiled.selection.choices.iter().filter(|choice| choice.kernel.contains("_thin_"));
            assert_eq!(chosen.count(), 2, "{} in {precision:?}", model.name);
        }
    }
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let different: Vec<String> = FEW_CHANNELS.iter().flat_map(|text| different_results(&machine, text)).collect();
    assert!(different.is_empty(), "other bits than the specialised kernels:\n{}", different.join("\n"));
}

/// What differs between runs of a network with general kernels and with the specialised members of their families, in
/// each precision. Prints their times.
fn different_results(machine: &Target, text: &str) -> Vec<String> {
    let mut different = Vec::new();
    for precision in PRECISIONS {
        let preset = Preset { precision, ..read_preset(text).unwrap() };
        let [general, widest, specialised] = [Kernels::General, Kernels::Widest, Kernels::Interchangeable]
            .map(|kernels| machine.clone().with_kernels(kernels));
        let [fast, cold, warm, eager, wide] = [
            (&specialised, Executor::Replay),
            (&general, Executor::Replay),
            (&general, Executor::Replay),
            (&general, Executor::Eager),
            (&widest, Executor::Replay),
        ]
        .map(|(machine, executor)| trained(&preset, machine, executor));
        let name = format!("{} in {precision:?}", preset.name);
        let stages: Vec<String> =
            warm.2.longest().iter().take(6).map(|(stage, us)| format!("{} {us:.0}", stage.name())).collect();
        let [fast_us, alone_us, general_us, wide_us] = [fast.3, cold.3, warm.3, wide.3];
        let [fast_ms, general_ms, again_ms] = [&fast, &cold, &warm].map(|run| run.2.total_us / 1e3);
        println!(
            "{name}: {fast_us:.1} us a step specialised, {general_us:.1} general ({alone_us:.1} before operations \
             share launches), {wide_us:.1} widest; ready in \
             {fast_ms:.1} ms, {general_ms:.1} ms general, {again_ms:.1} ms again (us: {})",
            stages.join(", ")
        );
        let pairs = [("general", &cold), ("again", &warm), ("eager", &eager), ("widest", &wide)];
        different.extend(pairs.iter().filter(|(_, run)| (&run.0, &run.1) != (&fast.0, &fast.1)).map(|(what, run)| {
            let step = run.1.iter().zip(&fast.1).position(|(a, b)| a != b);
            format!("{name}, {what}: first other report at step {step:?}")
        }));
    }
    different
}

#[test]
fn half_precision_parameters_on_a_gpu_follow_restored_parameters() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let prepared = |precision| {
        let mut preset = read_preset(BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text).unwrap();
        preset.precision = precision;
        let spec = SessionSpec { machine: Some(machine.clone()), ..SessionSpec::new(preset, PathBuf::new()) };
        Session::prepare(&spec).unwrap()
    };
    let loss = |precision| prepared(precision).step().unwrap().unwrap().loss;
    let exact = loss(Precision::F32);
    for precision in [Precision::Bf16, Precision::F16] {
        let found = loss(precision);
        assert!((found - exact).abs() < 0.02, "{precision:?}: the first loss is {found}, in f32 {exact}");
        // The snapshot is older than every half-width copy.
        let mut run = prepared(precision);
        let (step, pool) = run.step_mut();
        let start = step.snapshot().unwrap();
        let mut after = || {
            step.restore(&start).unwrap();
            step.replay(pool).unwrap();
            step.snapshot().unwrap()
        };
        let first = after();
        assert!(first == after(), "{precision:?}: the same step from the same snapshot");
    }
}

/// The graphs of a step, read again.
fn read_all(step: &stepgraph::exec::Step) -> Vec<GraphRead> {
    (0..step.graphs().len()).map(|graph| step.read_graph(graph).unwrap()).collect()
}

#[test]
fn the_nodes_of_every_graph_are_read_and_a_fault_in_one_is_named() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let preset = read_preset(BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text).unwrap();
    let spec = SessionSpec { machine: Some(machine), ..SessionSpec::new(preset, PathBuf::new()) };
    let mut run = Session::prepare(&spec).unwrap();
    let (step, pool) = run.step_mut();
    assert!(step.capture_several(usize::MAX).unwrap());
    let reads = read_all(step);
    let names: Vec<&str> = reads.iter().map(|read| read.name.as_str()).collect();
    // One step, several in a row, and the data feed's graphs, the longest of which makes many steps.
    assert!(names.len() >= 4 && names[0] == "one step" && names[1].ends_with("steps in a row"), "{names:?}");
    assert!(names[2..].iter().all(|name| name.ends_with("steps with their batches")), "{names:?}");
    assert!(reads.iter().all(|read| read.kernels > 0 && read.arguments > read.kernels), "{reads:?}");
    assert!(step.recording().held_arguments >= reads[0].arguments && step.recording().live_constants > 0);
    let ops = step.compiled().plan.program.ops.clone();
    for graph in 0..names.len() {
        for (op, bound) in ops.iter().enumerate() {
            let Some(slot) = bound.args.iter().position(Option::is_some) else { continue };
            let Some(undo) = step.inject(Fault::Argument { graph, op, slot }).unwrap() else { continue };
            let found = step.read_graph(graph);
            assert!(
                matches!(found, Err(ExecError::Ledger { op: named, .. }) if named == op),
                "{graph} {op}: {found:?}"
            );
            // A replay checks what can change, but not the nodes of an instance that is unchanged.
            assert!(step.check_graph(graph).is_ok());
            step.undo(undo).unwrap();
        }
        let undo = step.inject(Fault::Instance { graph }).unwrap().unwrap();
        assert!(matches!(step.check_graph(graph), Err(ExecError::Graph { .. })));
        step.undo(undo).unwrap();
    }
    let before = step.snapshot().unwrap();
    for fault in [Fault::Arena, Fault::Instance { graph: 0 }, Fault::LiveConstant(0)] {
        let undo = step.inject(fault).unwrap().unwrap();
        assert!(step.replay(pool).is_err(), "{fault:?}");
        step.undo(undo).unwrap();
    }
    assert!(step.snapshot().unwrap() == before && read_all(step) == reads);
    step.replay(pool).unwrap();
    step.synchronize().unwrap();
}
