//! Which types of `rates.cu` compute an operation, with the table of runs that is declared before them.

use super::speed::{LAUNCH_US, STREAM_BYTES_PER_US};
use crate::model::ScheduleKind;
use crate::ops::{self, OpKind, Segment};
use crate::select::cuda::custom::{CustomKernel, cpp_bits};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{GeneralMember, KernelFile, KernelSpec, Table};
use crate::select::target::CudaFacts;

/// Elements of a unit: segments start at multiples of it.
const UNIT: usize = 64;

/// The smallest number of elements of a run, and the number of runs above which they are longer.
const LEAST_RUN: usize = 1024;
const MANY_RUNS: usize = 1 << 11;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, _: Real, _: &CudaFacts) -> Vec<CustomKernel> {
    match kind {
        OpKind::GradNorms(op) => grad_norms(op).into_iter().collect(),
        OpKind::UpdateRates(op) => vec![update_rates(op)],
        _ => Vec::new(),
    }
}

/// The norms of segments, by runs of elements; `None` if there is nothing to do.
fn grad_norms(op: &ops::GradNorms) -> Option<CustomKernel> {
    let elements: usize = op.segments.iter().map(|s| s.len).sum();
    let is_counted = op.segments.iter().all(|s| s.start / UNIT <= u32::MAX as usize && s.len <= i32::MAX as usize);
    if elements == 0 || !is_counted {
        return None;
    }
    let run = elements.div_ceil(MANY_RUNS).next_multiple_of(LEAST_RUN);
    let (mut rows, mut words, mut runs) = (Vec::new(), Vec::new(), 0);
    for Segment { start, len } in &op.segments {
        rows.push(format!("{runs}, {}, {len}", start / UNIT));
        words.extend([runs as u32, (start / UNIT) as u32, *len as u32]);
        runs += len.div_ceil(run);
    }
    let count = op.segments.len();
    let declarations = format!(
        "static __device__ const u32 RUN_ROWS[{count} * 3] = {{\n    {},\n}};\n\
         struct Runs {{\n    \
         static constexpr int COUNT = {count}, RUNS = {runs};\n    \
         static __device__ const u32* rows() {{ return RUN_ROWS; }}\n\
         }};",
        rows.join(",\n    ")
    );
    let spec = KernelSpec::new(KernelFile::Rates, "GradNorms", format!("Runs, {run}, {}", op.batches));
    let general = GeneralMember {
        table: Table { words: [count as u32, runs as u32].into_iter().chain(words).collect(), number: 0 },
        ..GeneralMember::new("AnyRuns, ANY, ANY".to_owned(), vec![0, run as u64, op.batches as u64])
    };
    Some(CustomKernel {
        tail: "f32_runs_v0".to_owned(),
        spec: KernelSpec { declarations, ..spec }.with_general_member(general),
        work_bytes: 8 * runs as u64,
        cost_us: 2.0 * LAUNCH_US + (4 * elements) as f64 / STREAM_BYTES_PER_US,
    })
}

fn update_rates(op: &ops::UpdateRates) -> CustomKernel {
    let kind = match op.schedule {
        ScheduleKind::Constant => "SCHEDULE_CONSTANT",
        ScheduleKind::Linear => "SCHEDULE_LINEAR",
        ScheduleKind::Cosine => "SCHEDULE_COSINE",
        ScheduleKind::Step => "SCHEDULE_STEP",
    };
    let [last, factor, clip] = [op.last, op.factor, op.clip_norm].map(|number| cpp_bits(number.get()));
    let (warmup, every, segments) = (op.warmup, op.every.max(1), if op.clips() { op.segments } else { 0 });
    let arguments = format!("{kind}, {warmup}, {last}, {every}, {factor}, {clip}, {segments}, {}", op.batches);
    let any = |number: usize, least: usize| if number == least { least.to_string() } else { "ANY".to_owned() };
    let (clips, accumulates, bits) = (any(segments, 0), any(op.batches, 1), "(u64)ANY");
    let clip_bits = if op.clips() { bits } else { "0" };
    let general = format!("{kind}, ANY, {bits}, ANY, {bits}, {clip_bits}, {clips}, {accumulates}");
    let [last, factor, clip] = [op.last, op.factor, op.clip_norm].map(|number| number.get().to_bits());
    let numbers = vec![warmup as u64, last, every as u64, factor, clip, segments as u64, op.batches as u64];
    CustomKernel {
        tail: "f64_warp_v0".to_owned(),
        spec: KernelSpec::new(KernelFile::Rates, "UpdateRates", arguments).with_general(general, numbers),
        work_bytes: 0,
        cost_us: LAUNCH_US,
    }
}
