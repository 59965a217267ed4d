//! Networks whose layers choose: the steps of all paths over one store follow PyTorch's trajectories, and parameters
//! that a path leaves out do not change, bit for bit.

use std::collections::HashMap;
use std::path::{Path as File, PathBuf};
use std::sync::Arc;
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::exec::cpu::{Pool, host_target};
use stepgraph::exec::cuda::gpu;
use stepgraph::exec::{Executor, Step};
use stepgraph::model::random::{Size, random_preset};
use stepgraph::model::{Model, ParamId, Path, Preset, check, init_values, read_preset};
use stepgraph::select::Target;
use stepgraph::train::{Session, SessionSpec, read_tensors};

fn folder() -> PathBuf {
    File::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden")
}

const TRAJECTORIES: [&str; 4] = ["branch-cycle", "repeat-choose", "early-exit", "residual-choose"];

/// The steps of all paths of a network over one store.
struct Steps {
    model: Model,
    by_path: HashMap<Path, Step>,
    pool: Pool,
    threads: usize,
}

impl Steps {
    fn new(model: &Model, threads: usize, init: impl Fn(usize) -> Vec<f32>) -> Self {
        let options = Options::train(host_target(threads));
        let compiled = |path: &Path| Arc::new(compile(&model.along(path), &options).unwrap());
        let foreseen = model.foreseen(64);
        assert!(foreseen.are_all);
        let all: Vec<(Path, Arc<Compiled>)> =
            foreseen.paths.into_iter().map(|path| (path.clone(), compiled(&path))).collect();
        let others: Vec<Arc<Compiled>> = all.iter().map(|(_, compiled)| Arc::clone(compiled)).collect();
        // The first step allocates the store for all of them.
        let mut first = Step::with_room(Arc::clone(&others[0]), &others, threads).unwrap();
        for index in 0..model.params.len() {
            first.set_param(ParamId(index as u32), &init(index)).unwrap();
        }
        let hyper = first.find("hyper").unwrap();
        first.write(hyper, &[model.optimizer.lr() as f32, model.optimizer.weight_decay() as f32]).unwrap();
        let counter = first.find("counter").unwrap();
        first.write(counter, &[0i64, 0]).unwrap();
        if let Ok(steps) = first.find("steps") {
            first.write(steps, &[100i64]).unwrap();
        }
        let (store, arena) = (Arc::clone(first.store()), Arc::clone(first.lent_arena()));
        let mut by_path = HashMap::from([(all[0].0.clone(), first)]);
        for (path, compiled) in all.into_iter().skip(1) {
            by_path.insert(path, Step::over(compiled, &store, &arena, threads).unwrap());
        }
        Self { model: model.clone(), by_path, pool: Pool::new(threads).unwrap(), threads }
    }

    fn run(&mut self, step: u64, executor: Executor, x: &[f32], y: &[i32]) -> f32 {
        let path = self.model.path_at(step, 0);
        let step = self.by_path.get_mut(&path).unwrap();
        let program = &step.compiled().plan.program;
        let (samples, targets, loss) = (program.samples(), program.targets().unwrap(), program.find("loss").unwrap());
        step.set_input(samples, x).unwrap();
        step.write(targets, y).unwrap();
        step.run(executor, &mut self.pool).unwrap();
        step.stored::<f32>(loss).unwrap()[0]
    }

    /// The values of a parameter, with its optimizer state.
    fn state(&self, index: usize) -> Vec<Vec<u32>> {
        let step = self.by_path.values().next().unwrap();
        let name = &self.model.params[index].name;
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let mut out = vec![bits(&step.param::<f32>(ParamId(index as u32)).unwrap())];
        for state in self.model.optimizer.rule().states() {
            let Ok(id) = step.find(&format!("{state}.{name}")) else { continue };
            out.push(bits(&step.stored::<f32>(id).unwrap()));
        }
        out
    }
}

fn relative(found: &[f32], expected: &[f64]) -> f64 {
    let scale = expected.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    found.iter().zip(expected).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / scale
}

#[test]
fn a_step_for_each_path_over_one_store_follows_pytorch() {
    for name in TRAJECTORIES {
        let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let golden = read_tensors(&folder().join(format!("{name}.safetensors"))).unwrap();
        let floats = |key: &str| golden.get(key).unwrap().to_f64().unwrap();
        let (x, y) = (golden.get("batch.x").unwrap(), golden.get("batch.y").unwrap());
        let (x, y) = (x.to_vec::<f32>().unwrap(), y.to_vec::<i32>().unwrap());
        for (executor, threads) in [(Executor::Replay, 1), (Executor::Eager, 1), (Executor::Replay, 2)] {
            let init = |index: usize| {
                let values = golden.get(&format!("init.{}", model.params[index].name)).unwrap();
                values.to_vec::<f32>().unwrap()
            };
            let mut steps = Steps::new(&model, threads, init);
            assert_eq!(steps.threads, threads);
            let (width, batch) = (model.batch * model.sample_len(), model.batch);
            for (number, expected) in floats("loss").into_iter().enumerate() {
                let (x, y) = (&x[number * width..(number + 1) * width], &y[number * batch..(number + 1) * batch]);
                let found = f64::from(steps.run(number as u64 + 1, executor, x, y));
                let error = ((found - expected) / expected).abs();
                assert!(error < 1e-4, "{name} {executor:?} step {}: {found}, expected {expected}", number + 1);
            }
            let any = steps.by_path.values().next().unwrap();
            for (index, param) in model.params.iter().enumerate() {
                let found = any.param::<f32>(ParamId(index as u32)).unwrap();
                let error = relative(&found, &floats(&format!("final.{}", param.name)));
                assert!(error < 1e-3, "{name} {executor:?}: final {} is off by {error:.1e}", param.name);
            }
        }
    }
}

/// A convolutional network with every layer that chooses, nested, and a flattened image after a branch.
fn nested(optimizer: &str) -> Model {
    let text = format!(
        r#"{{"name": "n", "input": {{"shape": [2, 6, 6], "batch": 4}}, "layers": [
        {{"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"}},
        {{"type": "branch", "choose": {{"by": "cycle", "values": [0, 1, 2, 1]}}, "paths": [
            [{{"type": "residual", "keep": 0.5, "layers": [
                {{"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"}}, {{"type": "batch_norm"}}]}},
             {{"type": "flatten"}}, {{"type": "dense", "units": 24, "activation": "relu"}}],
            [{{"type": "flatten"}}, {{"type": "dense", "units": 24}}],
            [{{"type": "global_avg_pool"}}, {{"type": "dense", "units": 24, "activation": "tanh"}},
             {{"type": "repeat", "times": 2, "choose": {{"by": "schedule", "at": [[1, 0], [9, 2]]}}, "layers": [
                {{"type": "dense", "units": 24, "activation": "tanh"}}]}}]]}},
        {{"type": "early_exit", "choose": {{"by": "random", "weights": [2, 1]}}, "layers": [
            {{"type": "dense", "units": 3}}]}},
        {{"type": "batch_norm"}}, {{"type": "dense", "units": 3}}],
        "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {optimizer}}}"#
    );
    let checked = check(&read_preset(&text).unwrap());
    assert_eq!(checked.diagnostics, []);
    checked.model.unwrap()
}

const OPTIMIZERS: [&str; 4] = [
    r#"{"type": "adamw", "lr": 0.01, "weight_decay": 0.1}"#,
    r#"{"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.5}"#,
    r#"{"type": "lion", "lr": 0.003}"#,
    r#"{"type": "adam", "lr": 0.01, "clip_norm": 0.2, "schedule": {"type": "cosine", "warmup": 2}}"#,
];

/// The batch of a step.
fn batch(model: &Model, step: u64) -> (Vec<f32>, Vec<i32>) {
    let mut rng = stepgraph::model::Rng::new(step, 5);
    let x = (0..model.batch * model.sample_len()).map(|_| rng.normal() as f32).collect();
    (x, (0..model.batch).map(|_| rng.below(3) as i32).collect())
}

#[test]
fn parameters_that_a_path_leaves_out_do_not_change_and_replay_equals_eager() {
    for optimizer in OPTIMIZERS {
        let model = nested(optimizer);
        let make = |threads| Steps::new(&model, threads, |index| init_values(&model.params[index], index, 3));
        let (mut replayed, mut eager, mut shared) = (make(1), make(1), make(2));
        let all = |steps: &Steps| (0..model.params.len()).map(|index| steps.state(index)).collect::<Vec<_>>();
        let mut seen = std::collections::HashSet::new();
        for step in 1..=24 {
            let (x, y) = batch(&model, step);
            let before = all(&replayed);
            let loss = replayed.run(step, Executor::Replay, &x, &y);
            for (other, executor) in [(&mut eager, Executor::Eager), (&mut shared, Executor::Replay)] {
                assert_eq!(other.run(step, executor, &x, &y).to_bits(), loss.to_bits(), "{optimizer} step {step}");
            }
            let after = all(&replayed);
            assert!(after == all(&eager) && after == all(&shared), "{optimizer} step {step}");
            let path = model.path_at(step, 0);
            for (index, is_run) in model.along(&path).runs().into_iter().enumerate() {
                let name = &model.params[index].name;
                assert_eq!(before[index] != after[index], is_run, "{optimizer} step {step} {path}: {name}");
            }
            seen.insert(path);
        }
        assert!(seen.len() > 5, "{seen:?}");
    }
}

#[test]
fn each_group_has_its_own_count_of_updates() {
    let model = nested(OPTIMIZERS[0]);
    let mut steps = Steps::new(&model, 1, |index| init_values(&model.params[index], index, 3));
    let groups = model.params.iter().map(|param| param.group).max().unwrap() + 1;
    let mut expected = vec![0i64; groups as usize];
    for step in 1..=20 {
        let (x, y) = batch(&model, step);
        steps.run(step, Executor::Replay, &x, &y);
        let runs = model.along(&model.path_at(step, 0)).runs();
        for group in 1..groups {
            let of = (0..runs.len()).filter(|i| model.params[*i].group == group && model.params[*i].kind.is_trained());
            let run: Vec<bool> = of.map(|i| runs[i]).collect();
            assert!(run.iter().all(|is_run| *is_run == run[0]), "a group runs as one");
            expected[group as usize] += i64::from(run[0]);
        }
        let any = steps.by_path.values().next().unwrap();
        let counters = any.stored::<i64>(any.find("counters").unwrap()).unwrap();
        assert_eq!(counters.chunks(2).map(|pair| pair[1]).collect::<Vec<_>>(), expected);
        assert_eq!(any.stored::<i64>(any.find("counter").unwrap()).unwrap()[1], step as i64);
    }
    assert!(expected[1..].iter().all(|count| (1..20).contains(count)), "{expected:?}");
}

#[test]
fn stochastic_depth_scales_kept_outputs_only_in_training() {
    let text = r#"{"name": "n", "input": {"shape": [3], "batch": 2}, "layers": [
        {"type": "residual", "keep": 0.25, "layers": [{"type": "dense", "units": 3}]}],
        "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
    let model = check(&read_preset(text).unwrap()).model.unwrap();
    let names = |options: Options| {
        let path = model.path_named("L0=1", 0).unwrap();
        let compiled = compile(&model.along(&path), &options).unwrap();
        compiled.program.ops.iter().map(|op| op.kind.name()).filter(|name| *name == "scale").count()
    };
    assert_eq!((names(Options::train(host_target(1))), names(Options::eval(host_target(1)))), (2, 0));
}

#[test]
fn every_path_of_random_networks_compiles_for_cpu_and_gpu_over_one_store() {
    use stepgraph::plan::{StoreLayout, referee};
    use stepgraph::select::Target;
    let mut networks = 0;
    for seed in 0..400 {
        let preset = random_preset(seed, Size::SMALL.choosing());
        let model = check(&preset).model.unwrap();
        if !model.chooses() {
            continue;
        }
        networks += 1;
        for target in [host_target(2), Target::h200()] {
            let mut plans = Vec::new();
            for path in model.foreseen(6).paths {
                let compiled = match compile(&model.along(&path), &Options::train(target.clone())) {
                    Ok(compiled) => compiled,
                    Err(error) if error.is_user() => continue,
                    Err(error) => panic!("{} {path}: {error}", preset.name),
                };
                assert_eq!(referee::check(&compiled.plan), Ok(()), "{} {path}", preset.name);
                plans.push(compiled.plan);
            }
            // The store of the first step is large enough for those of all paths, including unexpected ones.
            let layout = StoreLayout::of(&plans.iter().take(1).collect::<Vec<_>>());
            for plan in plans.iter().filter(|_| target.as_cpu().is_some()) {
                layout.homes(plan).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
            }
        }
    }
    assert!(networks > 40, "{networks} networks choose");
}

/// A network of seven blocks that are left out at random: 128 paths, more than are recorded before the first step.
fn many_paths() -> Preset {
    let block = r#"{"type": "residual", "layers": [{"type": "dense", "units": 16, "activation": "relu"}],
        "choose": {"by": "random", "weights": [1, 1]}, "evaluate": 1}"#;
    let text = format!(
        r#"{{"name": "many-paths", "input": {{"shape": [64], "batch": 16}}, "layers": [{{"type": "dense", "units": 16}},
        {}, {{"type": "dense", "units": 10}}], "loss": {{"type": "softmax_cross_entropy"}},
        "optimizer": {{"type": "adam", "lr": 0.01}}, "data": {{"type": "digits"}}, "train": {{"steps": 600}}}}"#,
        [block; 7].join(", ")
    );
    read_preset(&text).unwrap()
}

/// Recordings are made on another thread while steps run, and steps without a recording run op by op: neither changes a
/// bit.
fn recordings_beside_a_run_on(machine: &Target) {
    let [replayed, eager] = [Executor::Replay, Executor::Eager].map(|executor| {
        let machine = Some(machine.clone());
        let spec = SessionSpec { executor, machine, ..SessionSpec::new(many_paths(), PathBuf::new()) };
        let mut session = Session::prepare(&spec).unwrap();
        let mut losses = Vec::new();
        for _ in 0..600 {
            let report = session.step().unwrap().unwrap();
            losses.push((report.loss.to_bits(), report.update_max.to_bits()));
        }
        let counts = session.recordings().counts;
        (losses, session.step_mut().0.snapshot().unwrap(), counts)
    });
    println!("{}: {:?}", machine.name, replayed.2);
    let other = replayed.0.iter().zip(&eager.0).position(|(a, b)| a != b);
    assert!(other.is_none() && replayed.1 == eager.1, "first other report: {other:?}");
    assert!(replayed.2.recordings > 8 && replayed.2.hits > 0 && replayed.2.failures == 0, "{:?}", replayed.2);
}

#[test]
fn recordings_made_during_a_run_do_not_change_its_bits() {
    recordings_beside_a_run_on(&host_target(1));
    match gpu(0) {
        Ok(gpu) => recordings_beside_a_run_on(&gpu.target()),
        Err(why) => println!("the GPU is skipped: no CUDA device: {why}"),
    }
}
