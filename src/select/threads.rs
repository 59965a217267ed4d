//! Chooses how many threads share a step.
//!
//! Each operation that threads share is divided among them and ends with a barrier, which takes longer with more
//! threads; the other operations run on one thread while the rest wait. So a step of large operations is fastest on
//! every core, one of small operations on few, and one without any large operation on one. The numerical results of a
//! step do not depend on the number of threads.

use super::{catalogue, cpu_conv, cpu_gemm, cpu_rest};
use crate::lower::Program;
use crate::ops::OpKind;
use crate::select::target::{CpuFacts, Isa};
use crate::select::variant::Variant;
use crate::tensor::plural;
use serde::Serialize;

/// The time of an operation on one core, and whether threads share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub us: f64,
    pub shared: bool,
}

/// How a number of threads was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum ThreadsBy {
    /// Given with the command.
    Option,
    /// Given by `STEPGRAPH_THREADS`.
    Variable,
    /// Measured on this machine for this step: microseconds of a step, and on one thread.
    Measured { us: f64, one_us: f64 },
    /// Estimated from the costs of the step's operations: microseconds of a step, and on one thread.
    Estimated { us: f64, one_us: f64 },
}

/// The number of threads that share a step, and how it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threads {
    pub count: usize,
    /// Cores that the program may use.
    pub cores: usize,
    #[serde(flatten)]
    pub by: ThreadsBy,
}

impl std::fmt::Display for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, cores, by } = self;
        let (threads, cores_are) = (counted(*count, "thread"), counted(*cores, "core"));
        match by {
            ThreadsBy::Option => write!(f, "{threads} as requested; usable: {cores_are}"),
            ThreadsBy::Variable => write!(f, "{threads} by STEPGRAPH_THREADS; usable: {cores_are}"),
            ThreadsBy::Measured { us, one_us } => {
                write!(f, "{threads} of {cores_are}: fastest when measured, {us:.0} us a step, {one_us:.0} us on one")
            }
            ThreadsBy::Estimated { us, one_us } => {
                write!(f, "{threads} of {cores_are}: fastest by estimate, {us:.0} us a step, {one_us:.0} us on one")
            }
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {}", plural(count as u64, noun))
}

/// The largest number of threads that share a step.
pub const MOST_THREADS: usize = 64;

/// The time of a barrier of two threads, in microseconds, and what each doubling of their number adds, as measured on a
/// processor with 16 cores.
const MEETING_US: f64 = 0.3;
const DOUBLING_US: f64 = 0.6;
/// Fewer threads are used if they are slower by no more than this share: they leave cores to other programs, and the
/// estimate is no more accurate than that.
const NEARLY: f64 = 1.05;

/// The numbers of threads that are worth trying on this many cores: powers of two, and all cores.
#[must_use]
pub fn thread_counts(cores: usize) -> Vec<usize> {
    let most = cores.clamp(1, MOST_THREADS);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < most).collect();
    counts.push(most);
    counts
}

/// The times of the operations of a fused program on one core with an instruction set.
#[must_use]
pub fn work_of(program: &Program, isa: Isa) -> Vec<Work> {
    program.ops.iter().map(|op| work_of_op(&op.kind, isa)).collect()
}

fn work_of_op(kind: &OpKind, isa: Isa) -> Work {
    let us = if catalogue::is_product(kind) {
        catalogue::cost_us(kind, Variant::Fast(isa), CpuFacts { isa, threads: 1 })
    } else {
        kind.work_ns() as f64 / 1e3
    };
    let shared = match kind {
        OpKind::Gemm(_) => cpu_gemm::cost_us(kind, isa) > cpu_gemm::PARALLEL_US,
        _ if catalogue::is_product(kind) => cpu_conv::is_parallel(kind, isa),
        _ => cpu_rest::is_parallel(kind, 2),
    };
    Work { us, shared }
}

/// The time of a step on this many threads, in microseconds.
#[must_use]
pub fn step_us(work: &[Work], threads: usize) -> f64 {
    let count = threads.max(1) as f64;
    let meeting = if threads > 1 { MEETING_US + DOUBLING_US * (count / 2.0).log2() } else { 0.0 };
    work.iter().map(|w| if w.shared && threads > 1 { w.us / count + meeting } else { w.us }).sum()
}

/// The number of threads with which a step is fastest on this many cores by estimate; the smallest of those that are
/// nearly as fast.
#[must_use]
pub fn choose_threads(work: &[Work], cores: usize) -> Threads {
    let times: Vec<(usize, f64)> = thread_counts(cores).into_iter().map(|n| (n, step_us(work, n))).collect();
    let best = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
    let (count, us) = times.iter().copied().find(|t| t.1 <= best * NEARLY).unwrap_or((1, best));
    Threads { count, cores, by: ThreadsBy::Estimated { us, one_us: step_us(work, 1) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::cpu_program;
    use crate::model::{check, read_preset};

    /// The work of a network on AVX-512: its input, its batch and its layers.
    fn work(input: &str, batch: usize, layers: &str) -> Vec<Work> {
        let text = format!(
            r#"{{"version": 1, "name": "n", "input": {{"shape": [{input}], "batch": {batch}}},
            "layers": [{layers}, {{"type": "dense", "units": 10}}], "loss": {{"type": "softmax_cross_entropy"}},
            "optimizer": {{"type": "adamw", "lr": 0.001, "weight_decay": 0.0001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        work_of(&cpu_program(&model).unwrap(), Isa::Avx512)
    }

    fn dense(units: usize) -> String {
        format!(r#"{{"type": "dense", "units": {units}, "activation": "relu"}}"#)
    }

    fn conv(filters: usize) -> String {
        format!(r#"{{"type": "conv2d", "filters": {filters}, "kernel": 3, "padding": 1, "activation": "relu"}}"#)
    }

    #[test]
    fn large_steps_use_every_core_and_small_ones_few() {
        let tiny = work("64", 64, &dense(128));
        let small = work("784", 128, &[dense(512), dense(512)].join(", "));
        let wide = work("1024", 256, &[dense(1024), dense(1024)].join(", "));
        let normed = |filters: usize| {
            format!(
                r#"{{"type": "conv2d", "filters": {filters}, "kernel": 3, "padding": 1, "bias": false}},
                {{"type": "batch_norm"}}, {{"type": "activation", "function": "relu"}}"#
            )
        };
        let digits = [&normed(16), r#"{"type": "max_pool2d", "size": 2}"#, &normed(32), r#"{"type": "flatten"}"#];
        let digits = work("1, 8, 8", 64, &digits.join(", "));
        let lenet =
            [&conv(32), &conv(64), r#"{"type": "max_pool2d", "size": 2}"#, r#"{"type": "flatten"}"#, &dense(128)];
        let lenet = work("1, 28, 28", 128, &lenet.join(", "));
        // The fastest of 1, 2, 4, 8 and 16 threads on a processor with 16 cores, and those that are nearly as fast.
        let table: [(&str, &[Work], usize, &[usize]); 12] = [
            ("tiny", &tiny, 16, &[1, 2]),
            ("tiny", &tiny, 1, &[1]),
            ("digits", &digits, 16, &[4, 8, 16]),
            ("digits", &digits, 4, &[4]),
            ("small", &small, 16, &[16]),
            ("small", &small, 6, &[6]),
            ("small", &small, 2, &[2]),
            ("wide", &wide, 16, &[16]),
            ("wide", &wide, 24, &[24]),
            ("wide", &wide, 1, &[1]),
            ("lenet", &lenet, 16, &[16]),
            ("nothing", &[], 16, &[1]),
        ];
        for (name, work, cores, wanted) in table {
            let found = choose_threads(work, cores);
            let times: Vec<f64> = thread_counts(cores).into_iter().map(|n| step_us(work, n)).collect();
            assert!(wanted.contains(&found.count), "{name}: {found}; {times:?}");
            assert_eq!(found.cores, cores);
        }
        assert_eq!(choose_threads(&wide, 500).count, MOST_THREADS);
    }

    #[test]
    fn powers_of_two_and_all_cores_are_tried() {
        assert_eq!(thread_counts(0), [1]);
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(16), [1, 2, 4, 8, 16]);
        assert_eq!(thread_counts(1000).last(), Some(&MOST_THREADS));
    }

    #[test]
    fn the_reason_is_reported() {
        let text = choose_threads(&[Work { us: 1000.0, shared: true }], 4).to_string();
        assert_eq!(text, "4 threads of 4 cores: fastest by estimate, 251 us a step, 1000 us on one");
        let asked = Threads { count: 1, cores: 16, by: ThreadsBy::Option };
        assert_eq!(asked.to_string(), "1 thread as asked; usable: 16 cores");
        let by = Threads { count: 3, cores: 1, by: ThreadsBy::Variable };
        assert_eq!(by.to_string(), "3 threads by STEPGRAPH_THREADS; usable: 1 core");
    }
}
