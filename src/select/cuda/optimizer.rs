//! Which types of `optimizer.cu` do an operation, with the table of segments that stands before them.

use super::{Code, Real, cpp_bits};
use crate::lower::{OpKind, PARTS_ALIGN, Segment};
use crate::ops;
use crate::select::CudaFacts;

/// Bytes moved in a microsecond: by arrays that the second-level cache holds, and by larger ones.
const CACHED_BYTES_PER_US: f64 = 5e6;
const BYTES_PER_US: f64 = 3.9e6;
const CACHED_BYTES: usize = 32 << 20;

/// Bytes that one multiprocessor reads in a microsecond.
const ALONE_BYTES_PER_US: f64 = 8e4;

/// What a launch costs in microseconds.
const LAUNCH_US: f64 = 1.0;

/// What the metrics cost more, through a second launch or through the last block.
const PHASE_US: f64 = 1.6;
const TICKET_US: f64 = 2.6;

/// Elements of a unit: segments start at multiples of it.
const UNIT: usize = 64;

/// Blocks of a cluster at most, and units that such a cluster takes: two for each of its warps.
const CLUSTER: usize = 8;
const CLUSTER_UNITS: usize = CLUSTER * 64;

/// Units above which blocks go round several times, and blocks above which they go round more often.
const MANY_UNITS: usize = 1 << 16;
const MANY_BLOCKS: usize = 8192;

/// Every type of this family for an operation.
#[must_use]
pub fn codes(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<Code> {
    match kind {
        OpKind::AdamStep(ops::AdamStep { len, segments, .. }) => match adam_rule(kind) {
            Some(rule) => update(&rule, 2, *len, segments, (real, gpu)),
            None => Vec::new(),
        },
        OpKind::StepMetrics(ops::StepMetrics { segments }) => vec![step_metrics(segments)],
        OpKind::SgdStep(ops::SgdStep { len, segments, momentum, nesterov }) => {
            let states = usize::from(momentum.get() != 0.0);
            update(&format!("Sgd<{}, {nesterov}>", cpp_bits(momentum.get())), states, *len, segments, (real, gpu))
        }
        OpKind::ScaleUpdate(ops::ScaleUpdate { len }) if *len > 0 => vec![scale_update(*len, real, gpu)],
        _ => Vec::new(),
    }
}

/// The C++ type of the rule of an operation that steps by Adam.
pub(super) fn adam_rule(kind: &OpKind) -> Option<String> {
    let (OpKind::AdamStep(ops::AdamStep { beta1, beta2, eps, decoupled, .. })
    | OpKind::WeightStep(ops::WeightStep { beta1, beta2, eps, decoupled, .. })
    | OpKind::BiasStep(ops::BiasStep { beta1, beta2, eps, decoupled, .. })) = kind
    else {
        return None;
    };
    let [beta1, beta2, eps] = [beta1, beta2, eps].map(|scalar| cpp_bits(scalar.get()));
    Some(format!("Adam<{beta1}, {beta2}, {eps}, {decoupled}>"))
}

/// The sum of the parts of updates that ride on gradients.
fn step_metrics(segments: &[Segment]) -> Code {
    let rows: Vec<String> =
        segments.iter().map(|s| format!("{}, {}", s.start / PARTS_ALIGN, s.len / PARTS_ALIGN)).collect();
    let (count, units) = (segments.len(), segments.iter().map(|s| s.len / PARTS_ALIGN).sum::<usize>());
    let ty = format!(
        "static __device__ const u32 SEGMENT_ROWS[{count} * 2] = {{\n    {},\n}};\n\
         struct Segments {{\n    \
         static constexpr int COUNT = {count};\n    \
         static __device__ const u32* rows() {{ return SEGMENT_ROWS; }}\n\
         }};\n//---\nStepMetrics<Segments, {units}>",
        rows.join(",\n    ")
    );
    let tail = "f32_block_v0".to_owned();
    Code { tail, file: "optimizer.cu", ty, work_bytes: 0, cost_us: 1.8 + (256 * units) as f64 / ALONE_BYTES_PER_US }
}

/// The bounds of the segments in units, and the units of the longest; nothing where there is nothing to do.
fn bounds(segments: &[Segment]) -> Option<(usize, usize, usize)> {
    let first = segments.first()?.start / UNIT;
    let end = segments.iter().map(|s| (s.start + s.len).div_ceil(UNIT)).max()?;
    let longest = segments.iter().map(|s| s.len.div_ceil(UNIT)).max()?;
    // The kernels count a segment's elements in 31 bits.
    (longest > 0 && longest < (1 << 31) / UNIT).then_some((first, end, longest))
}

/// The declarations that `optimizer.cu` asks for: first element in units, and elements of each segment.
fn table(len: usize, segments: &[Segment], (first, end, longest): (usize, usize, usize)) -> String {
    let rows: Vec<String> = segments.iter().map(|s| format!("{}, {}", s.start / UNIT, s.len)).collect();
    let follow = segments.windows(2).all(|s| s[1].start / UNIT == (s[0].start + s[0].len).div_ceil(UNIT));
    let dense = follow && segments.iter().all(|s| s.len > 0);
    let count = segments.len();
    format!(
        "static __device__ const u32 SEGMENT_ROWS[{count} * 2] = {{\n    {},\n}};\n\
         struct Segments {{\n    \
         static constexpr int COUNT = {count};\n    \
         static constexpr u32 FIRST = {first}, END = {end}, LONGEST = {longest};\n    \
         static constexpr bool DENSE = {dense};\n    \
         static constexpr i64 LEN = {len};\n    \
         static __device__ const u32* rows() {{ return SEGMENT_ROWS; }}\n\
         }};\n",
        rows.join(",\n    ")
    )
}

/// An update by `rule`, which keeps `states` numbers for each parameter of a vector of `len` elements.
fn update(rule: &str, states: usize, len: usize, segments: &[Segment], (real, gpu): (Real, &CudaFacts)) -> Vec<Code> {
    let Some((first, end, longest)) = bounds(segments) else { return Vec::new() };
    let units = end - first;
    let table = table(len, segments, (first, end, longest));
    let elements: usize = segments.iter().map(|segment| segment.len).sum();
    let shadow = if real.half().is_some() { real.size() } else { 0 };
    let bytes = elements * (12 + 8 * states + shadow);
    let pace = if bytes <= CACHED_BYTES { CACHED_BYTES_PER_US } else { BYTES_PER_US };
    let moving_us = LAUNCH_US + bytes as f64 / pace;
    // A launch that waits for another one starts early from capability 9 on, which also has clusters.
    let hopper = gpu.capability.0 >= 9;
    let parts = |per_block: usize| units.div_ceil(per_block) + segments.len() - 1;
    let ty = |declared: &str, threads: usize, each: usize, rounds: usize, finish: &str| {
        format!(
            "{declared}{table}//---\nUpdate<{rule}, {}, Segments, {threads}, {each}, {rounds}, FINISH_{finish}>",
            real.cpp()
        )
    };
    let spread = |threads: usize, each: usize, rounds: usize, by_phase: bool| {
        let (name, finish, more) = match by_phase {
            true => ("phases", "PHASE", if hopper { PHASE_US } else { 2.0 * PHASE_US }),
            false => ("ticket", "TICKET", TICKET_US),
        };
        Code {
            tail: format!("{}_{name}{threads}x{each}x{rounds}_v0", real.name()),
            file: "optimizer.cu",
            ty: ty("", threads, each, rounds, finish),
            work_bytes: 8 * parts(threads / 16 * each * rounds) as u64,
            cost_us: moving_us + more,
        }
    };
    // Blocks that hold two units for each warp and add up the metrics among themselves.
    let together = |most: usize| {
        let threads = 32 * units.div_ceil(most).div_ceil(2);
        let blocks = units.div_ceil(threads / 16);
        // The kernels of this unit run in clusters of all blocks, which is declared with them.
        let declared = if blocks > 1 {
            format!("#undef __global__\n#define __global__ __attribute__((global)) __cluster_dims__({blocks}, 1, 1)\n")
        } else {
            String::new()
        };
        Code {
            tail: format!("{}_cluster{blocks}x{threads}_v0", real.name()),
            file: "optimizer.cu",
            ty: ty(&declared, threads, 1, 1, "CLUSTER"),
            work_bytes: 0,
            cost_us: moving_us + if blocks > 1 { 1.0 } else { 0.6 },
        }
    };
    if units <= 16 {
        return vec![together(1)];
    }
    let small = units <= CLUSTER_UNITS;
    let mut rounds = 1;
    while units > MANY_UNITS && (rounds < 8 || units.div_ceil(32 * rounds) > MANY_BLOCKS) {
        rounds *= 2;
    }
    match (hopper, small) {
        (true, true) => vec![spread(256, 1, 1, false), spread(256, 1, 1, true), together(CLUSTER)],
        (false, true) => vec![spread(256, 1, 1, true), spread(256, 1, 1, false)],
        _ if rounds > 1 => vec![spread(512, 1, rounds, false), spread(512, 1, rounds, true)],
        (true, false) => {
            vec![spread(512, 2, 1, true), spread(384, 2, 1, true), spread(384, 1, 1, true), spread(512, 1, 1, true)]
        }
        (false, false) => vec![spread(512, 1, 1, true), spread(256, 2, 1, false), spread(512, 1, 1, false)],
    }
}

fn scale_update(len: usize, real: Real, gpu: &CudaFacts) -> Code {
    let groups = len / 4;
    let (threads, blocks) = if groups <= 4096 {
        (groups.next_multiple_of(32).clamp(32, 1024), 1)
    } else {
        (256, groups.div_ceil(512).min(8 * gpu.multiprocessors as usize).clamp(1, 1024))
    };
    Code {
        tail: format!("{}_flat_v0", real.name()),
        file: "optimizer.cu",
        ty: format!("ScaleUpdate<{len}, {threads}, {blocks}>"),
        work_bytes: 0,
        cost_us: 1.5 + (4 * len) as f64 / BYTES_PER_US,
    }
}
