//! Several steps over one store: same addresses, same bits, and the behaviour of a pool of them.

use super::cpu::{Pool, host_target};
use crate::compile::{Compiled, Options, compile};
use crate::exec::backend::Ways;
use crate::exec::error::ExecError;
use crate::exec::graph_key::GraphKey;
use crate::exec::recording_pool::{Allowance, LentStep, Presence, RecordingPool};
use crate::exec::step::{Executor, Step};
use crate::model::{Model, ParamId, check, init_values, read_preset};
use crate::plan::{LayoutError, StateKind, StoreLayout};
use std::sync::Arc;

/// A small network with running statistics.
fn model(optimizer: &str) -> Model {
    let text = format!(
        r#"{{"version": 1, "name": "t", "input": {{"shape": [4], "batch": 8}}, "layers": [
        {{"type": "dense", "units": 6}}, {{"type": "batch_norm"}}, {{"type": "activation", "function": "relu"}},
        {{"type": "dense", "units": 3}}],
        "loss": {{"type": "mse"}}, "optimizer": {optimizer}}}"#
    );
    check(&read_preset(&text).unwrap()).model.unwrap()
}

fn adam() -> Model {
    model(r#"{"type": "adam", "lr": 0.01}"#)
}

fn training(model: &Model, batch: usize) -> Arc<Compiled> {
    Arc::new(compile(&model.with_batch(batch), &Options::train(host_target(1))).unwrap())
}

fn evaluation(model: &Model, batch: usize) -> Arc<Compiled> {
    Arc::new(compile(&model.with_batch(batch), &Options::eval(host_target(1))).unwrap())
}

/// Writes the initial values of a run.
fn begin(step: &mut Step) {
    let compiled = Arc::clone(step.compiled());
    for (index, param) in compiled.model.params.iter().enumerate() {
        step.set_param(ParamId(index as u32), &init_values(param, index, 3)).unwrap();
    }
    let [hyper, counter] = ["hyper", "counter"].map(|name| step.find(name).unwrap());
    step.write(hyper, &[0.01f32, 0.0]).unwrap();
    step.write(counter, &[3i64, 0]).unwrap();
}

/// Makes a training step on a batch that depends on `number`, and returns its loss.
fn train(step: &mut Step, number: usize, executor: Executor, pool: &mut Pool) -> f32 {
    let _turn = step.store().turn();
    let compiled = Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    for id in [program.samples(), program.targets().unwrap()] {
        let draw = |i: usize| ((i * 37 + number * 101) % 17) as f32 / 8.0 - 1.0;
        step.fill(id, |out: &mut [f32]| out.iter_mut().enumerate().for_each(|(i, v)| *v = draw(i))).unwrap();
    }
    step.run(executor, pool).unwrap();
    step.stored::<f32>(step.find("loss").unwrap()).unwrap()[0]
}

/// The address of a parameter's memory.
fn address(step: &Step, param: usize) -> *const f32 {
    let slot = &step.compiled().plan.program.params[param];
    step.stored::<f32>(slot.value).unwrap().as_ptr()
}

fn founded(model: &Model, room_bytes: u64) -> LentStep {
    let mut step = RecordingPool::begin(&training(model, 8), &[], 1, Allowance::Beside(room_bytes)).unwrap();
    begin(&mut step);
    step
}

/// A pool without a limit with the step of a whole batch, and two compiled steps of fewer samples.
struct Founded {
    whole: LentStep,
    recordings: Arc<RecordingPool>,
    compiled: [Arc<Compiled>; 2],
}

fn with_two_more() -> Founded {
    let model = adam();
    let whole = founded(&model, u64::MAX);
    let recordings = Arc::clone(whole.pool().unwrap());
    Founded { whole, recordings, compiled: [training(&model, 3), training(&model, 5)] }
}

/// Lends a step that was compiled here.
fn lend(first: &LentStep, compiled: &Arc<Compiled>) -> Result<LentStep, ExecError> {
    let recordings = first.pool().unwrap();
    recordings.lend(&GraphKey::of(compiled), || Ok(Arc::clone(compiled)))
}

/// A network, its step of a whole batch, and one of three samples over the same store.
fn whole_and_short() -> (Model, LentStep, LentStep) {
    let model = adam();
    let whole = founded(&model, u64::MAX);
    let short = lend(&whole, &training(&model, 3)).unwrap();
    (model, whole, short)
}

#[test]
fn steps_of_two_batch_sizes_and_an_evaluation_have_the_same_parameters() {
    let (model, mut whole, mut short) = whole_and_short();
    let mut pool = Pool::new(1).unwrap();
    let mut tested = lend(&whole, &evaluation(&model, 8)).unwrap();
    for param in 0..model.params.len() {
        assert_eq!([address(&short, param), address(&tested, param)], [address(&whole, param); 2]);
    }
    for step in [&short, &tested] {
        assert!(Arc::ptr_eq(step.store(), whole.store()));
    }
    // Running statistics and the counter continue independently of which step runs.
    for number in 0..4 {
        train(if number % 2 == 0 { &mut whole } else { &mut short }, number, Executor::Replay, &mut pool);
    }
    let counter = whole.find("counter").unwrap();
    assert_eq!(whole.stored::<i64>(counter).unwrap()[1], 4);
    let before = tested.store().snapshot().unwrap();
    tested.set_x(&[0.5f32; 32]).unwrap();
    tested.replay(&mut pool).unwrap();
    assert_eq!(tested.store().snapshot().unwrap(), before, "an evaluation changes nothing that survives");
}

#[test]
fn replay_equals_eager_over_one_store() {
    let (_, mut whole, mut short) = whole_and_short();
    let mut pool = Pool::new(1).unwrap();
    let start = whole.store().snapshot().unwrap();
    let mut run = |executor| {
        whole.store().restore(&start).unwrap();
        let mut losses = Vec::new();
        for number in 0..6 {
            let step = if number % 3 == 1 { &mut short } else { &mut whole };
            losses.push(train(step, number, executor, &mut pool).to_bits());
        }
        (losses, whole.store().snapshot().unwrap())
    };
    let replayed = run(Executor::Replay);
    assert_eq!(run(Executor::Eager), replayed);
    assert_ne!(replayed.1, start);
}

#[test]
fn a_step_of_another_network_is_refused_and_the_missing_key_is_named() {
    let whole = founded(&adam(), u64::MAX);
    let lion = model(r#"{"type": "sgd", "lr": 0.1, "momentum": 0.9}"#);
    let Err(error) = lend(&whole, &training(&lion, 5)) else { panic!("another optimizer joined") };
    assert!(matches!(&error, ExecError::Layout(LayoutError::Missing { key }) if key.kind == StateKind::Moment));
    assert!(error.to_string().contains("moment momentum"), "{error}");
    let text = r#"{"version": 1, "name": "t", "input": {"shape": [4], "batch": 8}, "layers": [
        {"type": "dense", "units": 90}, {"type": "batch_norm"}, {"type": "activation", "function": "relu"},
        {"type": "dense", "units": 3}],
        "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;
    let wide = check(&read_preset(text).unwrap()).model.unwrap();
    let Err(error) = lend(&whole, &training(&wide, 5)) else { panic!("a wider network joined") };
    assert!(error.to_string().contains("of params"), "{error}");
    assert_eq!(whole.pool().unwrap().counts().failures, 2);
}

#[test]
fn the_layout_is_that_of_the_training_plan() {
    let model = adam();
    let plan = &training(&model, 8).plan;
    let layout = StoreLayout::of(&[plan]);
    assert_eq!(layout.bytes(), plan.persistent_bytes);
    for buffer in plan.buffers.iter().filter(|b| b.persistent) {
        let slot = layout.slot(buffer.key.as_ref().unwrap()).unwrap();
        assert_eq!((slot.start, slot.bytes), (buffer.offset, buffer.bytes), "{}", slot.key);
    }
    assert_eq!(layout.homes(plan).unwrap().arena_bytes, plan.arena_bytes - plan.persistent_bytes);
    // Entries that only a later plan has are after all others.
    let sgd = training(&model_with_momentum(), 8);
    let both = StoreLayout::of(&[plan, &sgd.plan]);
    assert_eq!(both.slots()[..layout.slots().len()], *layout.slots());
    assert_eq!(both.slots().last().unwrap().key.to_string(), "moment momentum");
}

fn model_with_momentum() -> Model {
    model(r#"{"type": "sgd", "lr": 0.1, "momentum": 0.9}"#)
}

#[test]
fn variants_share_an_arena_that_fits_the_largest() {
    let model = adam();
    let whole = founded(&model, u64::MAX);
    let short = lend(&whole, &training(&model, 3)).unwrap();
    assert!(Arc::ptr_eq(short.lent_arena(), whole.lent_arena()));
    drop(short);
    // A larger step allocates more, and recordings that are not in use release the smaller memory.
    let long = lend(&whole, &training(&model, 64)).unwrap();
    assert!(long.lent_arena().bytes() > whole.lent_arena().bytes());
    let short = lend(&whole, &training(&model, 3)).unwrap();
    assert!(Arc::ptr_eq(short.lent_arena(), long.lent_arena()));
    let counts = whole.pool().unwrap().counts();
    assert_eq!((counts.hits, counts.misses, counts.evictions, counts.recordings), (0, 4, 1, 3));
    // No other thread enters while a thread holds the store and the steps over it.
    let turn = whole.store().turn();
    std::thread::scope(|scope| {
        let (sender, entered) = std::sync::mpsc::channel();
        let store = Arc::clone(long.store());
        scope.spawn(move || {
            drop(store.turn());
            sender.send(()).unwrap();
        });
        assert!(entered.recv_timeout(std::time::Duration::from_millis(30)).is_err());
        drop(turn);
        assert!(entered.recv().is_ok());
    });
}

#[test]
fn copies_are_outdated_once_any_step_over_the_store_runs_or_the_host_writes() {
    let (model, mut whole, mut short) = whole_and_short();
    let mut pool = Pool::new(1).unwrap();
    let store = Arc::clone(whole.store());
    let saved = store.snapshot().unwrap();
    let hyper = whole.find("hyper").unwrap();
    let mut last = store.revision();
    let mut is_new = |what: &str| {
        let now = store.revision();
        assert!(now > last, "{what}");
        last = now;
    };
    // One step runs while the host reads through another one.
    short.run(Executor::Eager, &mut pool).unwrap();
    is_new("op by op");
    short.run(Executor::Replay, &mut pool).unwrap();
    is_new("a replay");
    short.replay(&mut pool).unwrap();
    is_new("a replay alone");
    short.replay_many(2, &mut pool).unwrap();
    is_new("several");
    short.run_ops(0, 1, &mut pool).unwrap();
    is_new("one operation");
    short.time_calls(1, &mut pool).unwrap();
    is_new("timed calls");
    whole.write(hyper, &[0.25f32, 0.0]).unwrap();
    is_new("a value");
    whole.set_param(ParamId(0), &vec![0.5f32; model.params[0].shape.len()]).unwrap();
    is_new("a parameter");
    store.restore(&saved).unwrap();
    is_new("all of it");
    // Reading does not make copies out of date.
    let before = store.revision();
    assert_eq!(whole.stored::<f32>(hyper).unwrap().len(), 2);
    drop((store.snapshot().unwrap(), whole.image().unwrap()));
    assert_eq!(store.revision(), before);
}

#[test]
fn eviction_keeps_parameters() {
    let model = adam();
    let mut pool = Pool::new(1).unwrap();
    let mut whole = founded(&model, 0);
    let compiled = training(&model, 3);
    let mut short = lend(&whole, &compiled).unwrap();
    train(&mut short, 0, Executor::Replay, &mut pool);
    let state = whole.store().snapshot().unwrap();
    drop(short);
    let recordings = Arc::clone(whole.pool().unwrap());
    assert_eq!((recordings.counts().evictions, recordings.counts().recordings), (1, 1));
    assert_eq!(whole.store().snapshot().unwrap(), state);
    train(&mut whole, 1, Executor::Replay, &mut pool);
    // A pinned recording is kept; one that this thread uses cannot be lent a second time.
    let short = lend(&whole, &compiled).unwrap();
    assert!(matches!(lend(&whole, &compiled), Err(ExecError::StepLent(_))));
    let key = GraphKey::of(&compiled);
    recordings.pin(&key, true);
    drop(short);
    assert!(lend(&whole, &compiled).is_ok());
    recordings.pin(&key, false);
    let counts = recordings.counts();
    assert_eq!((counts.hits, counts.misses, counts.evictions), (1, 3, 2));
    assert!(counts.bytes <= counts.budget_bytes && counts.capture_us > 0);
}

#[test]
fn keys_contain_inputs_path_and_variant() {
    let key = |compiled: &Arc<Compiled>| GraphKey::of(compiled).to_string();
    let model = adam();
    assert_eq!(key(&training(&model, 8)), "x f32[8, 4], y f32[8, 3], f32, path whole, training");
    assert_eq!(key(&evaluation(&model, 3)), "x f32[3, 4], f32, path whole, evaluation");
    let on = |path: &str| {
        let whole = GraphKey::of(&training(&model, 8));
        whole.resized(whole.signature().inputs.clone(), path)
    };
    assert_eq!(on("0"), on("0"));
    assert_ne!(on("0"), on("1"));
    assert_eq!(on("whole"), GraphKey::of(&training(&model, 8)));
}

#[test]
fn two_threads_use_one_pool() {
    const STEPS: usize = 40;
    let Founded { whole, recordings, compiled } = with_two_more();
    let counter = whole.find("counter").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (recordings, compiled) = (&recordings, &compiled);
            scope.spawn(move || {
                let mut pool = Pool::new(1).unwrap();
                for number in 0..STEPS {
                    let wanted = &compiled[(number + thread) % 2];
                    let key = GraphKey::of(wanted);
                    let lent = std::iter::repeat_with(|| recordings.lend(&key, || Ok(Arc::clone(wanted))));
                    // A recording that another thread uses is refused at once; here it is returned soon.
                    let mut lent = lent.inspect(|lent| {
                        assert!(lent.is_ok() || matches!(lent, Err(ExecError::StepLent(_))));
                        std::thread::yield_now();
                    });
                    let mut step = lent.find_map(Result::ok).unwrap();
                    assert!(train(&mut step, number, Executor::Replay, &mut pool).is_finite());
                }
            });
        }
    });
    assert_eq!(whole.stored::<i64>(counter).unwrap()[1], 2 * STEPS as i64);
    let counts = recordings.counts();
    assert_eq!((counts.hits, counts.misses, counts.failures), (2 * STEPS as u64 - 2, 3, 0));
}

#[test]
fn a_recording_that_another_thread_uses_is_refused_at_once() {
    let model = adam();
    let whole = founded(&model, u64::MAX);
    let recordings = Arc::clone(whole.pool().unwrap());
    let compiled = training(&model, 3);
    let short = lend(&whole, &compiled).unwrap();
    let lend_there = |wanted: &Arc<Compiled>| {
        let key = GraphKey::of(wanted);
        std::thread::scope(|scope| {
            scope.spawn(|| recordings.lend(&key, || Ok(Arc::clone(wanted))).err()).join().unwrap()
        })
    };
    for kept in [&compiled, whole.compiled()] {
        assert!(matches!(lend_there(kept), Some(ExecError::StepLent(_))));
    }
    drop(short);
    assert!(lend_there(&compiled).is_none());
    // A thread waits for a recording that another thread makes, unless it is making one itself.
    let others = [training(&model, 5), training(&model, 6)];
    let keys = others.each_ref().map(|other| GraphKey::of(other));
    let refused = recordings.lend(&keys[0], || {
        std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                let made = recordings.lend(&keys[1], || {
                    let waited = recordings.lend(&keys[0], || Ok::<_, ExecError>(Arc::clone(&others[0])));
                    assert!(matches!(waited, Err(ExecError::StepLent(_))));
                    Ok::<_, ExecError>(Arc::clone(&others[1]))
                });
                assert!(made.is_ok());
            });
            making.join().unwrap();
        });
        Ok::<_, ExecError>(Arc::clone(&others[0]))
    });
    assert!(refused.is_ok());
}

#[test]
fn a_recording_that_fails_leaves_the_pool_unchanged() {
    let model = adam();
    let mut pool = Pool::new(1).unwrap();
    let mut whole = founded(&model, u64::MAX);
    let recordings = Arc::clone(whole.pool().unwrap());
    let (compiled, before) = (training(&model, 3), recordings.counts());
    let key = GraphKey::of(&compiled);
    let failed = recordings.lend(&key, || Err(ExecError::NoValue("kernel".into())));
    assert!(matches!(failed, Err(ExecError::NoValue(_))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = recordings.lend(&key, || -> Result<Arc<Compiled>, ExecError> { panic!("in the middle of it") });
    }));
    assert!(panicked.is_err());
    let after = recordings.counts();
    assert_eq!((after.recordings, after.bytes, after.evictions), (before.recordings, before.bytes, 0));
    assert_eq!((after.misses, after.failures), (3, 2));
    let mut short = lend(&whole, &compiled).unwrap();
    assert!(train(&mut short, 0, Executor::Replay, &mut pool).is_finite());
    assert!(train(&mut whole, 1, Executor::Replay, &mut pool).is_finite());
}

#[test]
fn a_failed_allocation_is_an_error_and_training_continues() {
    let model = adam();
    let mut pool = Pool::new(1).unwrap();
    let mut steps = |wants_more: bool| {
        let mut whole = founded(&model, u64::MAX);
        let mut losses = Vec::new();
        for number in 0..4 {
            if wants_more && number == 2 {
                let counts = whole.pool().unwrap().counts();
                let Err(error) = lend(&whole, &training(&model, 1 << 33)) else { panic!("there is so much memory") };
                let text = error.to_string();
                assert!(text.starts_with("the step needs ") && text.contains("iB are free"), "{text}");
                let after = whole.pool().unwrap().counts();
                assert_eq!((after.recordings, after.bytes), (counts.recordings, counts.bytes));
            }
            losses.push(train(&mut whole, number, Executor::Replay, &mut pool).to_bits());
        }
        losses
    };
    assert_eq!(steps(true), steps(false));
}

/// A pool of keys that differ in their batch, of which `room` fit the budget beside the first one.
fn pool_of(model: &Model, room: u64) -> (LentStep, Arc<RecordingPool>, u64) {
    let probe = founded(model, u64::MAX);
    let one = lend(&probe, &training(model, 1)).unwrap().recording_bytes();
    let whole = founded(model, room * one);
    let recordings = Arc::clone(whole.pool().unwrap());
    (whole, recordings, one)
}

#[test]
fn the_pool_drops_the_least_recently_used_recordings_to_keep_its_budget() {
    let model = adam();
    let (whole, recordings, one) = pool_of(&model, 3);
    let compiled: Vec<_> = (1..=5).map(|batch| training(&model, batch)).collect();
    let ids: Vec<_> = compiled.iter().map(|c| recordings.id_of(&GraphKey::of(c))).collect();
    assert!(compiled.iter().all(|c| lend(&whole, c).unwrap().recording_bytes() <= one));
    let there = || -> Vec<bool> { ids.iter().map(|id| recordings.presence(*id) == Some(Presence::There)).collect() };
    assert_eq!(there(), [false, false, true, true, true]);
    // This use makes the third one the most recent, so that the fourth one is dropped.
    drop(LentStep::find(&recordings, ids[2], 9).unwrap());
    assert!(recordings.make(ids[0], "a test", || Ok::<_, ExecError>(Arc::clone(&compiled[0]))).unwrap());
    assert_eq!(there(), [true, false, true, false, true]);
    assert!(!recordings.make(ids[0], "a test", || Err(ExecError::NoValue(String::new()))).unwrap());
    assert_eq!(recordings.why_absent(ids[3]), {
        let budget = crate::tensor::Bytes(recordings.counts().budget_bytes);
        format!("it was dropped to keep the budget of {budget}")
    });
    let report = recordings.report();
    let facts = &report.keys.iter().find(|f| f.key == GraphKey::of(&compiled[2])).unwrap().facts;
    assert_eq!((facts.hits, facts.last_step, facts.captures, facts.is_there), (1, 9, 1, true));
    assert_eq!((report.counts.made_ahead, report.counts.evictions, report.counts.misses), (1, 3, 7));
    assert!(report.counts.peak_bytes <= report.counts.budget_bytes + one);
}

#[test]
fn a_recording_that_does_not_fit_is_refused_with_the_reason() {
    let model = adam();
    let whole = founded(&model, 1);
    let recordings = whole.pool().unwrap();
    let compiled = training(&model, 3);
    let id = recordings.id_of(&GraphKey::of(&compiled));
    assert!(recordings.why_absent(id).contains("not made before"));
    assert!(recordings.make(id, "a test", || Ok::<_, ExecError>(Arc::clone(&compiled))).unwrap());
    assert_eq!(recordings.presence(id), Some(Presence::Refused));
    assert!(recordings.why_absent(id).contains("no room in the budget"), "{}", recordings.why_absent(id));
    // A pinned recording stays available.
    drop(lend(&whole, &compiled).unwrap());
    assert_eq!(recordings.counts().recordings, 1);
    // It can be run op by op in the existing memory.
    assert!(recordings.apart(compiled, Ways::OpByOp).is_ok());
    let large = recordings.apart(training(&model, 64), Ways::OpByOp).err();
    assert!(matches!(large, Some(ExecError::SmallArena { .. })));
}

#[test]
fn changing_between_recordings_counts_hits_and_is_fast() {
    const ROUNDS: u64 = 100_000;
    let Founded { whole, recordings, compiled } = with_two_more();
    compiled.iter().for_each(|c| drop(lend(&whole, c).unwrap()));
    let ids = compiled.each_ref().map(|c| recordings.id_of(&GraphKey::of(c)));
    let mut lent = LentStep::find(&recordings, ids[0], 1).unwrap();
    assert!(LentStep::find(&recordings, ids[0], 1).is_none());
    let started = std::time::Instant::now();
    for number in 2..=ROUNDS {
        assert!(lent.change_to(ids[(number % 2) as usize], number));
    }
    let ns = started.elapsed().as_nanos() as f64 / ROUNDS as f64;
    println!("{ns:.0} ns a change");
    assert_eq!(lent.compiled().model.batch, 3);
    drop(lent);
    assert_eq!(recordings.counts().hits, ROUNDS);
    let of = |batch: usize| {
        recordings.report().keys.iter().find(|f| f.key.to_string().contains(&format!("x f32[{batch}"))).cloned()
    };
    assert_eq!(of(3).map(|f| f.facts.hits + of(5).unwrap().facts.hits), Some(ROUNDS));
}

#[test]
fn the_least_recently_used_keys_without_a_recording_are_forgotten() {
    let model = adam();
    let whole = founded(&model, u64::MAX);
    let recordings = whole.pool().unwrap();
    let own = GraphKey::of(whole.compiled());
    let first = recordings.id_of(&own.resized(own.signature().inputs.clone(), "path -1"));
    for path in 0..3000 {
        let key = own.resized(own.signature().inputs.clone(), &format!("path {path}"));
        recordings.id_of(&key);
    }
    assert_eq!(recordings.presence(first), None);
    assert!(recordings.report().keys.len() <= 1024);
    assert_eq!(recordings.presence(recordings.id_of(&own)), Some(Presence::There));
}
