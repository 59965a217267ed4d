//! Which types of `optimizer.cu` do an operation, with the table of segments that stands before them.

use super::{Code, Real, cpp_bits};
use crate::lower::{OpKind, Segment};
use crate::select::CudaFacts;

/// Bytes moved in a microsecond.
const BYTES_PER_US: f64 = 3.5e6;

/// What a launch costs in microseconds.
const LAUNCH_US: f64 = 1.5;

/// Elements that a block of 256 threads updates in one go of 16 bytes a thread.
const CHUNK: usize = 1024;

/// Elements of a chunk beyond which longer chunks gain nothing.
const LONG_CHUNK: usize = 8192;

/// Blocks above which the sums over blocks would cost more than longer chunks do.
const MANY_BLOCKS: usize = 8192;

/// Every type of this family for an operation.
#[must_use]
pub fn codes(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<Code> {
    match kind {
        OpKind::AdamStep { segments, beta1, beta2, eps, decoupled, .. } => {
            let [beta1, beta2, eps] = [beta1, beta2, eps].map(|scalar| cpp_bits(scalar.get()));
            update(&format!("Adam<{beta1}, {beta2}, {eps}, {decoupled}>"), 2, segments, real, gpu)
        }
        OpKind::SgdStep { segments, momentum, nesterov, .. } => {
            let states = usize::from(momentum.get() != 0.0);
            update(&format!("Sgd<{}, {nesterov}>", cpp_bits(momentum.get())), states, segments, real, gpu)
        }
        OpKind::ScaleUpdate { len } if *len > 0 => vec![scale_update(*len, real, gpu)],
        _ => Vec::new(),
    }
}

/// Blocks of an update: chunks never span two segments.
fn blocks(segments: &[Segment], chunk: usize) -> usize {
    segments.iter().map(|segment| segment.len.div_ceil(chunk)).sum()
}

/// Elements of a chunk: as short as possible where blocks are few, so that they spread, and longer where there are many.
fn chunk(segments: &[Segment], gpu: &CudaFacts) -> usize {
    let enough = 16 * gpu.multiprocessors as usize;
    let mut chunk = CHUNK;
    while chunk < LONG_CHUNK && blocks(segments, 2 * chunk) >= enough {
        chunk *= 2;
    }
    while chunk < 1 << 20 && blocks(segments, chunk) > MANY_BLOCKS {
        chunk *= 2;
    }
    chunk
}

/// The declarations that `optimizer.cu` asks for: first block, first element in units of 64, and elements of each segment.
fn table(segments: &[Segment], chunk: usize) -> String {
    let mut first = 0;
    let mut rows = Vec::with_capacity(segments.len());
    for segment in segments {
        rows.push(format!("{first}, {}, {}", segment.start / 64, segment.len));
        first += segment.len.div_ceil(chunk);
    }
    let count = segments.len();
    format!(
        "static __device__ const u32 SEGMENT_ROWS[{count} * 3] = {{\n    {},\n}};\n\
         struct Segments {{\n    \
         static constexpr int COUNT = {count}, BLOCKS = {first};\n    \
         static __device__ const u32* rows() {{ return SEGMENT_ROWS; }}\n\
         }};\n",
        rows.join(",\n    ")
    )
}

/// An update by `rule`, which keeps `states` numbers for each parameter.
fn update(rule: &str, states: usize, segments: &[Segment], real: Real, gpu: &CudaFacts) -> Vec<Code> {
    let chunk = chunk(segments, gpu);
    let blocks = blocks(segments, chunk);
    if blocks == 0 {
        return Vec::new();
    }
    let len: usize = segments.iter().map(|segment| segment.len).sum();
    let shadow = if real.half().is_some() { real.size() } else { 0 };
    let bytes = len * (12 + 8 * states + shadow);
    vec![Code {
        tail: format!("{}_chunk{chunk}_v0", real.name()),
        file: "optimizer.cu",
        ty: format!("{}//---\nUpdate<{rule}, {}, Segments, {chunk}, true>", table(segments, chunk), real.cpp()),
        work_bytes: 8 * blocks as u64,
        cost_us: LAUNCH_US + bytes as f64 / BYTES_PER_US,
    }]
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
        cost_us: LAUNCH_US + (4 * len) as f64 / BYTES_PER_US,
    }
}
