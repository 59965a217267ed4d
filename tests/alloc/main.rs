//! Checks that a step allocates nothing, by counting the allocator's calls on every thread of the program.
//!
//! This is a separate test binary with one test, because everything else that runs at the same time would be counted
//! too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use stepgraph::exec::Executor;
use stepgraph::model::read_preset;
use stepgraph::train::{Session, SessionSpec};

/// The system's allocator, which counts its calls; freeing memory is not counted.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations while `work` runs.
fn counted(work: impl FnOnce()) -> u64 {
    let before = CALLS.load(Ordering::SeqCst);
    work();
    CALLS.load(Ordering::SeqCst) - before
}

const MLP: &str = r#"{"version": 1, "name": "mlp", "input": {"shape": [64], "batch": 64},
    "layers": [{"type": "dense", "units": 128, "activation": "relu"}, {"type": "dropout", "rate": 0.1},
    {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}, "data": {"type": "digits"},
    "train": {"steps": 100000, "seed": 0}}"#;

const CNN: &str = r#"{"version": 1, "name": "cnn", "input": {"shape": [1, 8, 8], "batch": 64},
    "layers": [{"type": "conv2d", "filters": 16, "kernel": 3, "padding": "same", "bias": false}, {"type": "batch_norm"},
        {"type": "activation", "function": "relu"}, {"type": "max_pool2d", "size": 2},
        {"type": "conv2d", "filters": 32, "kernel": 3, "activation": "gelu"}, {"type": "flatten"},
        {"type": "dropout", "rate": 0.3},
        {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9},
    "data": {"type": "digits"},
    "train": {"steps": 100000, "seed": 0}}"#;

fn session(text: &str, threads: usize, executor: Executor) -> Session {
    let preset = read_preset(text).unwrap();
    Session::prepare(&SessionSpec { threads, executor, ..SessionSpec::new(preset, PathBuf::from(".")) }).unwrap()
}

#[test]
fn replay_allocates_nothing_and_eager_does() {
    for (name, text) in [("mlp", MLP), ("cnn", CNN)] {
        for threads in [1, 2] {
            let mut run = session(text, threads, Executor::Replay);
            for _ in 0..5 {
                run.step().unwrap();
            }
            // More than 256 steps, so that the snapshot of the NaN guard is renewed once, and more than an epoch, so
            // that the data is shuffled again.
            let steps = counted(|| {
                for _ in 0..300 {
                    run.step().unwrap();
                }
            });
            let (step, pool) = run.step_mut();
            let replays = counted(|| {
                for _ in 0..200 {
                    step.replay(pool).unwrap();
                }
            });
            let eager = counted(|| step.run(Executor::Eager, pool).unwrap());
            println!(
                "{name} on {threads} threads: 300 steps {steps} allocations, 200 replays {replays}, one eager step \
                 {eager}"
            );
            assert_eq!((steps, replays), (0, 0), "{name} on {threads} threads");
            assert!(eager > 0, "{name}: the eager executor allocates, so the counter counts");
        }
    }
}
