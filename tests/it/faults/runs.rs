//! Faults in memory, recordings, data feeds, logs, evaluations and checkpoints.

use super::{CLASSES, ENDURANCE, EVALUATION, FAST, Fault, IMAGES, LOG, Place, REPLAY, RESUMED, VALUES, kernel, scaled};
use std::cell::Cell;
use std::sync::Arc;
use stepgraph::compile::Compiled;
use stepgraph::data::Batches;
use stepgraph::exec::cpu::plant::{Faulty, Plant as StepPlant, Runs};
use stepgraph::ops::{self, OpKind};
use stepgraph::plan::Place as Memory;
use stepgraph::train::plant::Plant;
use stepgraph::train::{DataFeed, StepReport};

pub fn run(name: &'static str, network: &'static str, plant: Plant, check: &'static str) -> Fault {
    Fault { name, network, place: Place::Run(plant), check }
}

/// A buffer is placed where another one is that is still to be read, as if that had been freed before its last reader.
pub fn free_early(compiled: &mut Compiled) {
    let plan = &mut compiled.plan;
    let shared =
        |i: usize| !plan.buffers[i].persistent && !plan.buffers[i].is_external() && !plan.buffers[i].values.is_empty();
    let count = plan.buffers.len();
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).filter(|(a, b)| shared(*a) && shared(*b));
    let pair = pairs.into_iter().find(|&(a, b)| {
        let (a, b) = (&plan.buffers[a], &plan.buffers[b]);
        let last = a.readers.last().copied().unwrap_or(0);
        a.live[0] < b.live[0] && b.writers.first().is_some_and(|w| *w < last) && b.bytes <= a.bytes && b.live[0] > 2
    });
    let (a, b) = pair.unwrap();
    let (from, to) = (plan.buffers[b].offset, plan.buffers[a].offset);
    plan.buffers[b].offset = to;
    for place in plan.places.iter_mut().flatten().filter(|place| place.buffer.0 as usize == b) {
        *place = Memory { offset: place.offset - from + to, ..*place };
    }
}

/// Every seventh call since the thread started has a small error.
fn now_and_then(f: &Faulty<'_>) {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    CALLS.set(CALLS.get() + 1);
    if CALLS.get().is_multiple_of(7) { scaled(f, "c", 1.001) } else { f.run() }
}

/// Other batches out of the same data set.
fn batches(feed: &mut DataFeed, make: impl FnOnce(Vec<u32>) -> Batches) {
    if let DataFeed::Data { split, batches, .. } = feed {
        *batches = make(split.train.clone());
    }
}

fn other_seed(feed: &mut DataFeed) {
    batches(feed, |train| Batches::new(train, 8, 1).unwrap());
}

fn next_rows(feed: &mut DataFeed) {
    batches(feed, |mut train| {
        train.rotate_left(1);
        Batches::new(train, 8, 0).unwrap()
    });
}

fn shorter_epoch(feed: &mut DataFeed) {
    batches(feed, |mut train| {
        train.truncate(train.len() - 7);
        Batches::new(train, 7, 0).unwrap()
    });
}

/// Samples of the data set that the feed does not have.
fn other_samples(feed: &mut DataFeed) {
    if let DataFeed::Data { set, .. } = feed {
        let mut other = (**set).clone();
        other.x_mut().rotate_left(1);
        *set = Arc::new(other);
    }
}

thread_local! {
    static LAST: Cell<StepReport> = Cell::new(StepReport::default());
}

fn loss_before(report: &mut StepReport) {
    let own = *report;
    report.loss = LAST.replace(own).loss;
}

fn accuracy_before(report: &mut StepReport) {
    let own = *report;
    report.accuracy = LAST.replace(own).accuracy;
}

/// Statistics of the batch instead of the running ones.
fn batch_statistics(f: &Faulty<'_>) {
    let OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. }) = *f.op() else { return f.run() };
    let x = f.get("x");
    let of = |c: usize| (0..rows).map(move |r| r * channels + c);
    let mean: Vec<f32> = (0..channels).map(|c| of(c).map(|i| x[i]).sum::<f32>() / rows as f32).collect();
    let square = |c: usize| of(c).map(|i| (x[i] - mean[c]).powi(2)).sum::<f32>() / rows as f32;
    let var: Vec<f32> = (0..channels).map(square).collect();
    let before = ["running_mean", "running_var"].map(|slot| f.bytes(slot));
    f.set("running_mean", &mean);
    f.set("running_var", &var);
    f.run();
    f.set_bytes("running_mean", &before[0]);
    f.set_bytes("running_var", &before[1]);
}

pub fn table() -> Vec<Fault> {
    [recordings_and_logs(), evaluations(), checkpoints()].into_iter().flatten().collect()
}

fn recordings_and_logs() -> Vec<Fault> {
    let in_plan = |name, network| Fault { name, network, place: Place::Step(StepPlant::Plan(free_early)), check: FAST };
    let replays = |name, network, op, spoil, check| Fault {
        name,
        network,
        place: Place::Step(StepPlant::Kernel(op, Runs::Replays, spoil)),
        check,
    };
    vec![
        in_plan("a buffer is freed before its last reader", CLASSES),
        in_plan("a buffer of an image is freed before its last reader", IMAGES),
        replays("a recorded product has the wrong sign", VALUES, "gemm", |f| scaled(f, "c", -1.0), REPLAY),
        replays("a recorded update is left out", CLASSES, "adam_step", |_| {}, REPLAY),
        replays("every seventh product is off", VALUES, "gemm_tn", now_and_then, ENDURANCE),
        run("batches are of another seed", CLASSES, Plant::Feed(other_seed), LOG),
        run("batches have the next rows", CLASSES, Plant::Feed(next_rows), LOG),
        run("an epoch is a batch too short", VALUES, Plant::Feed(shorter_epoch), LOG),
        run("samples are not those of the data set", VALUES, Plant::Feed(other_samples), LOG),
        run("the log has the loss of the step before", CLASSES, Plant::Report(loss_before), LOG),
        run("the log has the accuracy of the step before", CLASSES, Plant::Report(accuracy_before), LOG),
        run("the log is off by one step", VALUES, Plant::Report(|report| report.step += 1), LOG),
        run("the log has no update magnitude", VALUES, Plant::Report(|report| report.update_max = 0.0), LOG),
        run(
            "the log has the gradient's length for its update",
            VALUES,
            Plant::Report(|r| r.update_max = r.grad_norm),
            LOG,
        ),
        replays("a run trains with another rate", VALUES, "adam_step", |f| f.run_with("hyper", |h| h[0] *= 1.5), LOG),
    ]
}

fn evaluations() -> Vec<Fault> {
    vec![
        run(
            "an evaluation leaves out the last samples",
            CLASSES,
            Plant::HeldOut(|samples, batch| samples.truncate(samples.len() / batch * batch)),
            EVALUATION,
        ),
        run(
            "an evaluation counts a sample twice",
            VALUES,
            Plant::HeldOut(|samples, _| {
                let last = samples.len() - 1;
                samples[last] = samples[0];
            }),
            EVALUATION,
        ),
        run(
            "an evaluation counts the rows that fill the last batch",
            CLASSES,
            Plant::Divisor(|samples, batch| samples.next_multiple_of(batch)),
            EVALUATION,
        ),
        run("an evaluation has stale parameters", VALUES, Plant::StaleEvaluation, EVALUATION),
        run("an evaluation has stale statistics", CLASSES, Plant::StaleEvaluation, EVALUATION),
        kernel("an evaluation has the batch's statistics", CLASSES, "batch_norm_eval", batch_statistics)
            .found_by(EVALUATION),
        kernel("an evaluation takes a neighbour's variance", CLASSES, "batch_norm_eval", |f| {
            f.run_with("running_var", |var| var.rotate_right(1));
        })
        .found_by(EVALUATION),
    ]
}

fn checkpoints() -> Vec<Fault> {
    vec![
        run("a checkpoint lacks the first moment", CLASSES, Plant::Forgets("m."), RESUMED),
        run("a checkpoint lacks the second moment", VALUES, Plant::Forgets("v."), RESUMED),
        run("a checkpoint lacks the step counter", CLASSES, Plant::Forgets("counter"), RESUMED),
        run("a checkpoint lacks the learning rate", VALUES, Plant::Forgets("hyper"), RESUMED),
        run("a resumed run begins with the first batch", VALUES, Plant::ForgetsPosition, RESUMED),
    ]
}
