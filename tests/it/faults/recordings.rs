//! Faults that occur only in recordings other than the first: of another path, of a short batch, of a shorter length,
//! and of an evaluation.

use super::runs::{free_early, run};
use super::sequences::as_other_attention;
use super::{EACH, EVALUATION, FAST, Fault, LEDGER, LOG, Place, REPLAY, kernel, scaled, with_step};
use std::cell::RefCell;
use std::collections::HashSet;
use stepgraph::compile::Compiled;
use stepgraph::data::Batches;
use stepgraph::exec::GraphKey;
use stepgraph::exec::cpu::plant::{Faulty, Plant as StepPlant, Runs};
use stepgraph::plan::{BufferId, Place as Memory};
use stepgraph::train::DataFeed;
use stepgraph::train::plant::Plant;

/// Three paths, which the steps take in turn; the whole step, and evaluations, take the first.
pub const PATHS: &str = r#"{"version": 1, "name": "paths", "input": {"shape": [2], "batch": 8}, "layers": [
    {"type": "dense", "units": 9, "activation": "relu"},
    {"type": "branch", "paths": [[{"type": "dense", "units": 9, "activation": "gelu"}],
        [{"type": "dense", "units": 9}, {"type": "layer_norm"}], []],
        "choose": {"by": "cycle", "values": [0, 1, 2, 1]}, "evaluate": 0},
    {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "data": {"type": "spirals", "samples": 60, "classes": 3, "noise": 0.02, "held_out": 13}, "train": {"steps": 50}}"#;

/// Epochs of five batches of eight samples and one of seven.
const SHORT: &str = r#"{"version": 1, "name": "short", "input": {"shape": [2], "batch": 8}, "layers": [
    {"type": "dense", "units": 9, "activation": "tanh"}, {"type": "dense", "units": 3}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01},
    "data": {"type": "spirals", "samples": 60, "classes": 3, "noise": 0.02, "held_out": 13, "last_batch": "short"},
    "train": {"steps": 50}}"#;

/// Texts of two lengths.
const LENGTHS: &str = r#"{"version": 1, "name": "lengths",
    "input": {"type": "tokens", "shape": [12], "vocab": 128, "batch": 4}, "layers": [
    {"type": "embedding", "units": 8}, {"type": "attention", "heads": 2, "causal": true},
    {"type": "dense", "units": 128}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adam", "lr": 0.01},
    "data": {"type": "source", "held_out": 0.1, "split": "last", "buckets": [6, 12]}, "train": {"steps": 20}}"#;

/// A text in the keys of each network's other recordings.
const SECOND_PATH: &str = "path L1=1, training";
const SHORT_BATCH: &str = "x f32[7, 2]";
const SHORT_TEXT: &str = "x i32[4, 6]";

/// Changes the calls of the recordings whose key contains this text.
fn only(f: &Faulty<'_>, part: &str, spoil: impl FnOnce(&Faulty<'_>)) {
    if f.key().to_string().contains(part) { spoil(f) } else { f.run() }
}

thread_local! {
    static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
    /// The keys of recordings that were made once.
    static MADE: RefCell<HashSet<String>> = RefCell::default();
}

/// Runs the kernel with the contents of a slot in the first call of the same size.
fn with_stale(f: &Faulty<'_>, slot: &str) {
    let now = f.get(slot);
    let first = KEPT.with_borrow_mut(|kept| {
        if !kept.iter().any(|known| known.len() == now.len()) {
            kept.push(now.clone());
        }
        kept.iter().find(|known| known.len() == now.len()).cloned().unwrap_or(now)
    });
    f.run_with(slot, |values| *values = first);
}

/// Runs the kernel of a short batch with the rows of the last full batch instead.
fn with_rows_of_full(f: &Faulty<'_>, slot: &str) {
    let now = f.get(slot);
    if f.key().to_string().contains(SHORT_BATCH) {
        let full = KEPT.with_borrow(|kept| kept.iter().find(|full| full.len() / 8 == now.len() / 7).cloned());
        f.run_with(slot, |values| {
            if let Some(full) = full {
                let rows = &full[..values.len()];
                values.copy_from_slice(rows);
            }
        });
    } else {
        KEPT.with_borrow_mut(|kept| {
            kept.retain(|known| known.len() != now.len());
            kept.push(now);
        });
        f.run();
    }
}

fn is_second_path(compiled: &Compiled) -> bool {
    compiled.model.path().to_string() == "L1=1"
}

/// A value that only the second path's step has is stored over moments that must survive it.
fn over_moments(compiled: &mut Compiled) {
    if !is_second_path(compiled) {
        return;
    }
    let buffers = &compiled.plan.buffers;
    let of = |id: usize| &buffers[id];
    let moments = (0..buffers.len()).find(|id| of(*id).persistent && of(*id).name.starts_with("m")).unwrap();
    let may_move = |id: &usize| {
        let own = of(*id);
        !own.persistent && !own.is_external() && !own.values.is_empty() && own.bytes <= of(moments).bytes
    };
    let moved = (0..buffers.len()).filter(may_move).max_by_key(|id| of(*id).bytes).unwrap();
    let (from, to) = (of(moved).offset, of(moments).offset);
    for place in compiled.plan.places.iter_mut().flatten().filter(|place| place.buffer.0 as usize == moved) {
        *place = Memory { buffer: BufferId(moments as u32), offset: place.offset - from + to };
    }
}

/// Like [`over_moments`], for recordings that are made again.
fn over_moments_after_eviction(compiled: &mut Compiled) {
    let is_new = MADE.with_borrow_mut(|made| made.insert(GraphKey::of(compiled).to_string()));
    if !is_new {
        over_moments(compiled);
    }
}

fn free_early_on_the_second_path(compiled: &mut Compiled) {
    if is_second_path(compiled) {
        free_early(compiled);
    }
}

/// The last batch of an epoch lacks a sample.
fn shorter_short_batch(feed: &mut DataFeed) {
    if let DataFeed::Data { split, batches, .. } = feed {
        let mut train = split.train.clone();
        train.pop();
        if batches.short_last().is_some() {
            *batches = Batches::with_short_last(train, 8, 0).unwrap();
        }
    }
}

/// All batches have the network's own length.
fn forgotten_lengths(feed: &mut DataFeed) {
    if let DataFeed::Data { lengths, .. } = feed {
        *lengths = None;
    }
}

/// The loss of a shorter text is divided by the positions of the whole one, as if the others counted.
fn loss_of_whole_text(f: &Faulty<'_>) {
    only(f, SHORT_TEXT, |f| scaled(f, "loss", 6.0 / 12.0));
}

/// Each position of a shorter text attends to later positions.
fn attends_to_all(f: &Faulty<'_>) {
    only(f, SHORT_TEXT, |f| as_other_attention(f, |geometry| geometry.causal = false));
}

pub fn table() -> Vec<Fault> {
    [paths(), shapes(), lengths(), evicted()].into_iter().flatten().collect()
}

fn replayed(name: &'static str, network: &'static str, op: &'static str, spoil: fn(&Faulty<'_>)) -> Fault {
    Fault { name, network, place: Place::Step(StepPlant::Kernel(op, Runs::Replays, spoil)), check: REPLAY }
}

fn paths() -> Vec<Fault> {
    let planned =
        |name, change, check| Fault { name, network: PATHS, place: Place::Step(StepPlant::Plan(change)), check };
    vec![
        run("a run replays the recording of another path", PATHS, Plant::OtherRecording, LOG),
        run("the recording of another path is checked as its own", PATHS, Plant::OtherRecording, REPLAY),
        replayed("a second recording has stale parameters", PATHS, "gemm", |f| {
            only(f, SECOND_PATH, |f| with_stale(f, "b"));
        }),
        replayed("a second recording has stale moments", PATHS, "adam_step", |f| {
            only(f, SECOND_PATH, |f| with_stale(f, "m_prev"));
        }),
        replayed("the counter is late in a second recording", PATHS, "bias_corr", |f| {
            only(f, SECOND_PATH, |f| with_step(f, |step| step - 1));
        }),
        replayed("a second recording leaves its update out", PATHS, "adam_step", |f| only(f, SECOND_PATH, |_| {})),
        kernel("the update of one path is left out", PATHS, "adam_step", |f| only(f, SECOND_PATH, |_| {})),
        kernel("the gradients of one path are too large", PATHS, "gemm_tn", |f| {
            only(f, SECOND_PATH, |f| scaled(f, "c", 1.01));
        })
        .found_by(FAST),
        kernel("the normalisation of one path is off", PATHS, "layer_norm", |f| scaled(f, "y", 1.001)).found_by(EACH),
        planned("a second recording's memory is that of moments", over_moments, LEDGER),
        planned("a second recording frees a buffer early", free_early_on_the_second_path, LEDGER),
        run("an evaluation runs the path of the second step", PATHS, Plant::EvaluationPath(2), EVALUATION),
        run("the log names another path", PATHS, Plant::Report(|r| r.path = r.path % 3 + 1), LOG),
    ]
}

fn shapes() -> Vec<Fault> {
    vec![
        replayed("a short batch reads rows of the last full one", SHORT, "gemm", |f| with_rows_of_full(f, "a")),
        replayed("a short batch has the gradient of a full one", SHORT, "gemm_tn", |f| {
            only(f, SHORT_BATCH, |f| scaled(f, "c", 7.0 / 8.0));
        }),
        run("a short batch lacks its last sample", SHORT, Plant::Feed(shorter_short_batch), LOG),
        run(
            "short batches leave the log's loss of full ones",
            SHORT,
            Plant::Report(|r| {
                if r.rows == 7 {
                    r.loss *= 7.0 / 8.0;
                }
            }),
            LOG,
        ),
    ]
}

fn lengths() -> Vec<Fault> {
    vec![
        replayed("a shorter text has the gradients of moved positions", LENGTHS, "embedding_bwd", |f| {
            only(f, SHORT_TEXT, |f| f.run_with("dy", |values| values.rotate_right(8)));
        }),
        run("a run replays the recording of another length", LENGTHS, Plant::OtherRecording, LOG),
        run("a run forgets its lengths", LENGTHS, Plant::Feed(forgotten_lengths), LOG),
        run("the log names another length", LENGTHS, Plant::Report(|r| r.length = 18 - r.length), LOG),
        replayed(
            "a shorter text's loss counts positions that it lacks",
            LENGTHS,
            "softmax_ce_fused",
            loss_of_whole_text,
        ),
        kernel(
            "the loss of one length counts positions that it lacks",
            LENGTHS,
            "softmax_ce_fused",
            loss_of_whole_text,
        ),
        replayed("a shorter text has another mask of attention", LENGTHS, "attention", attends_to_all),
        kernel("the attention of one length has no mask", LENGTHS, "attention", attends_to_all),
        kernel("the gradients of one length are too large", LENGTHS, "gemm_tn", |f| {
            only(f, SHORT_TEXT, |f| scaled(f, "c", 1.01));
        })
        .found_by(FAST),
    ]
}

fn evicted() -> Vec<Fault> {
    let place = Place::Step(StepPlant::Plan(over_moments_after_eviction));
    vec![
        Fault {
            name: "a recording that was made again runs in the memory of moments",
            network: PATHS,
            place,
            check: LOG,
        },
        run("a dropped recording is found again as that of another path", PATHS, Plant::OtherAfterEviction, LOG),
    ]
}
