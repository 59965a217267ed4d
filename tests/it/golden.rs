//! Trajectories that PyTorch computed in float64: outputs, gradients, losses, updates and final parameters must agree,
//! eager and replayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use stepgraph::compile::{CpuOnly, Options, compile};
use stepgraph::exec::cpu::{Pool, default_threads, host_target};
use stepgraph::exec::cuda::gpu;
use stepgraph::exec::{Executor, Step};
use stepgraph::ir::Phase;
use stepgraph::model::{ParamId, check, read_preset};
use stepgraph::select::{Isa, Target};
use stepgraph::train::{DataChoice, Overrides, Session, SessionSpec, Start, read_tensors};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|e| Some(e.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() >= 9, "the trajectories exist: {names:?}");
    names
}

/// The largest difference, relative to the largest expected magnitude.
fn relative(found: &[f64], expected: &[f64]) -> f64 {
    relative_to(1e-30, found, expected)
}

/// Like [`relative`], relative to at least `least`.
fn relative_to(least: f64, found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(least, |m, v| m.max(v.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .fold(0.0f64, |m, (a, b)| if (a - b).is_nan() { f64::NAN } else { m.max((a - b).abs()) });
    worst / scale
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn spec(name: &str, executor: Executor) -> SessionSpec {
    let preset = read_preset(&std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap()).unwrap();
    let file = folder().join(format!("{name}.safetensors"));
    let data = DataChoice::Batches(file.clone());
    let (start, overrides) = (Start::from_weights(file), Overrides::steps(usize::MAX));
    SessionSpec { executor, start, data, overrides, ..SessionSpec::new(preset, folder()) }
}

fn trajectory(name: &str, executor: Executor, machine: Option<Target>) {
    let golden = read_tensors(&folder().join(format!("{name}.safetensors"))).unwrap();
    let expect = |key: &str| golden.get(key).unwrap_or_else(|| panic!("{name} has {key}")).to_f64().unwrap();
    let mut session = Session::prepare(&SessionSpec { machine, ..spec(name, executor) }).unwrap();
    let mut losses = Vec::new();
    let mut updates = Vec::new();
    let mut norms = Vec::new();
    while let Some(report) = session.step().unwrap() {
        norms.push(f64::from(report.grad_norm));
        losses.push(f64::from(report.loss));
        updates.push(f64::from(report.update_max));
    }
    let (loss, update) = (expect("loss"), expect("update_max"));
    assert_eq!(losses.len(), loss.len());
    for (step, (found, expected)) in losses.iter().zip(&loss).enumerate() {
        assert!(
            ((found - expected) / expected).abs() < 1e-4,
            "{name} {executor:?} step {}: loss {found}, expected {expected}",
            step + 1
        );
    }
    for (step, (found, expected)) in updates.iter().zip(&update).enumerate() {
        assert!(
            ((found - expected) / expected).abs() < 1e-2,
            "{name} {executor:?} step {}: update {found}, expected {expected}",
            step + 1
        );
    }
    // If the file has them: the norm of the gradient before it is clipped.
    let expected = golden.get("grad_norm").map(|norms| norms.to_f64().unwrap());
    for (step, (found, expected)) in norms.iter().zip(expected.iter().flatten()).enumerate() {
        assert!(
            ((found - expected) / expected).abs() < 1e-3,
            "{name} {executor:?} step {}: norm {found}, expected {expected}",
            step + 1
        );
    }
    for (param, tensor) in session.weights().unwrap() {
        let error = relative(&tensor.to_f64().unwrap(), &expect(&format!("final.{param}")));
        assert!(error < 1e-3, "{name} {executor:?}: final {param} is off by {error:.1e}");
    }
}

#[test]
fn losses_updates_and_final_parameters_replayed() {
    names().iter().for_each(|n| trajectory(n, Executor::Replay, None));
}

#[test]
fn losses_updates_and_final_parameters_eager() {
    names().iter().for_each(|n| trajectory(n, Executor::Eager, None));
}

#[test]
fn losses_updates_and_final_parameters_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let mut followed = 0;
    for name in names() {
        let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        if let Some(why) = CpuOnly::of(&check(&read_preset(&text).unwrap()).model.unwrap()) {
            println!("{name} is left out: {why}");
            continue;
        }
        for executor in [Executor::Eager, Executor::Replay] {
            trajectory(&name, executor, Some(machine.clone()));
        }
        println!("{name} agrees");
        followed += 1;
    }
    assert!(followed >= 9, "{followed} trajectories ran on the GPU");
}

/// Output and gradients of the first batch at the initial parameters, on one instruction set.
fn first_step(name: &str, target: &Target) {
    let golden = read_tensors(&folder().join(format!("{name}.safetensors"))).unwrap();
    let expect = |key: &str| golden.get(key).unwrap_or_else(|| panic!("{name} has {key}")).to_f64().unwrap();
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    let model = check(&read_preset(&text).unwrap()).model.unwrap();
    if model.accumulate > 1 {
        return first_mean(name, target, expect);
    }
    // If layers choose, the first batch takes the path of the first step.
    let model = model.along(&model.path_at(1, 0));
    let threads = target.as_cpu().unwrap().threads;
    let compiled = Arc::new(compile(&model, &Options::train(target.clone())).unwrap());
    let mut step = Step::new(Arc::clone(&compiled), threads).unwrap();
    let mut pool = Pool::new(threads).unwrap();
    for (index, param) in model.params.iter().enumerate() {
        let init: Vec<f32> = match golden.get(&format!("init.{}", param.name)) {
            Some(t) => t.to_vec().unwrap(),
            None => stepgraph::model::init_values(param, index, 0),
        };
        step.set_param(ParamId(index as u32), &init).unwrap();
    }
    let inputs: Vec<_> = compiled.plan.program.all_samples().collect();
    for (input, id) in model.inputs.iter().zip(inputs) {
        let x = golden.get(&format!("batch.{}", input.value_name(&model.inputs))).unwrap();
        let len = model.batch * input.shape.len();
        match x.to_vec::<i32>() {
            Ok(tokens) => step.set_input(id, &tokens[..len]).unwrap(),
            Err(_) => step.set_input(id, &x.to_vec::<f32>().unwrap()[..len]).unwrap(),
        }
    }
    let y = golden.get("batch.y").unwrap();
    let label = compiled.plan.program.targets().unwrap();
    match y.to_vec::<i32>() {
        Ok(v) => step.write(label, &v[..model.batch * model.labels().len()]).unwrap(),
        Err(_) => step.write(label, &y.to_vec::<f32>().unwrap()[..model.batch * model.output.len()]).unwrap(),
    }
    let ops = &compiled.plan.program.ops;
    let loss = ops.iter().position(|o| matches!(o.phase, Phase::Loss | Phase::Metric)).unwrap();
    let update = ops.iter().position(|o| o.phase == Phase::Optimizer).unwrap();
    step.run_ops(0, loss, &mut pool).unwrap();
    let output = step.tensor(compiled.plan.program.output).unwrap().to_f64().unwrap();
    let error = relative(&output, &expect("step0.output"));
    assert!(error < 1e-4, "{name} on {}: output is off by {error:.1e}", target.name);
    step.run_ops(loss, update, &mut pool).unwrap();
    let of = |name: &str| expect(&format!("step0.grad.{name}"));
    let trained = || model.params.iter().enumerate().filter(|(_, p)| p.kind.is_trained());
    let whole = trained().flat_map(|(_, p)| of(&p.name)).fold(0.0f64, |m, v| m.max(v.abs()));
    for (index, param) in trained() {
        let expected = of(&param.name);
        if compiled.plan.program.params[index].grad.is_none() {
            // The step has no gradient for parameters that its path leaves out; PyTorch has zeros for them.
            assert!(
                model.of_path.is_some() && expected.iter().all(|v| *v == 0.0),
                "{name}: {} is left out",
                param.name
            );
            continue;
        }
        let found = widen(&step.grad::<f32>(ParamId(index as u32)).unwrap());
        // The gradient of a bias before a normalisation consists only of rounding errors.
        let error = relative_to(1e-3 * whole, &found, &expected);
        assert!(error < 1e-4, "{name} on {}: gradient of {} is off by {error:.1e}", target.name, param.name);
    }
}

/// The mean gradient of the batches of the first step, if several make one step.
fn first_mean(name: &str, target: &Target, expect: impl Fn(&str) -> Vec<f64>) {
    let machine = Some(target.clone());
    let mut session = Session::prepare(&SessionSpec { machine, ..spec(name, Executor::Replay) }).unwrap();
    session.step().unwrap().unwrap();
    let model = session.model().clone();
    for (index, param) in model.params.iter().enumerate().filter(|(_, p)| p.kind.is_trained()) {
        let expected = expect(&format!("step0.grad.{}", param.name));
        let sum = session.step_mut().0.grad::<f32>(ParamId(index as u32)).unwrap();
        let mean: Vec<f64> = widen(&sum).iter().map(|v| v / model.accumulate as f64).collect();
        let error = relative(&mean, &expected);
        assert!(error < 1e-4, "{name} on {}: gradient of {} is off by {error:.1e}", target.name, param.name);
    }
}

#[test]
fn outputs_and_gradients_on_every_instruction_set() {
    let best = host_target(default_threads()).as_cpu().unwrap().isa;
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i <= best) {
        for threads in [1, 2] {
            names().iter().for_each(|n| first_step(n, &Target::cpu(isa, threads)));
        }
    }
}

#[test]
fn a_file_of_initial_values_must_fit() {
    let mut wrong = spec("mlp-ce-sgd", Executor::Replay);
    wrong.start.init = Some(folder().join("mlp-mse-sgd.safetensors"));
    let message = Session::prepare(&wrong).err().unwrap().to_string();
    assert!(message.contains("layers.0.weight has shape [8, 16], the network needs [32, 64]"), "{message}");
}
