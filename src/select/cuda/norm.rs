//! Which types of `norm.cu` compute an operation, and how they distribute its rows and columns over blocks.

use super::elementwise::vec_width;
use super::speed::{BYTES_PER_US, LAUNCH_US};
use crate::model::Activation;
use crate::ops::{self, GradientPart, OpKind, Scalar};
use crate::select::cuda::custom::{CustomKernel, act_number, any_act, cpp_act, cpp_bits, general, general_or_wider};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;
use std::fmt::Display;

/// The launch of a second phase, in microseconds, if its blocks can start before the first phase ends (9.0 and later).
const EARLY_PHASE_US: f64 = 0.7;
/// The time that a block of a second phase needs to merge each result of the first, in microseconds.
const MERGE_US: f64 = 0.7;
/// The unit in which the second-level cache moves data, in bytes.
const SECTOR_BYTES: f64 = 32.0;
/// The latency of one access to memory for a thread without other work, in microseconds.
const TRIP_US: f64 = 0.4;
/// The largest number of rows and of columns, well within 32 bits.
const MAX_EXTENT: usize = 1 << 30;
/// Blocks of a cluster.
const CLUSTER: usize = 8;
/// The smallest number of rows for which blocks of a cluster are offered; each of them then has rows.
const CLUSTER_ROWS: usize = 512;
/// The time that they need to exchange their sums, in microseconds.
const CLUSTER_US: f64 = 1.0;

/// Every type of this family for an operation, in rising order of preference among equals.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let (OpKind::BatchNorm(ops::BatchNorm { rows, channels: cols, .. })
    | OpKind::BatchNormEval(ops::BatchNormEval { rows, channels: cols, .. })
    | OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels: cols, .. })
    | OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. })
    | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. })) = *kind
    else {
        return Vec::new();
    };
    if rows == 0 || cols == 0 || rows > MAX_EXTENT || cols > MAX_EXTENT {
        return Vec::new();
    }
    let (multiprocessors, has_clusters) = ((gpu.multiprocessors as usize).max(1), gpu.capability >= (9, 0));
    let shape = Shape { real, rows, cols, multiprocessors, has_clusters };
    match *kind {
        OpKind::BatchNorm(ops::BatchNorm { eps, momentum, act, .. }) => batch_norm(&shape, eps, momentum, act),
        OpKind::BatchNormEval(ops::BatchNormEval { eps, act, .. }) => vec![batch_norm_eval(&shape, eps, act)],
        OpKind::BatchNormBwd(ops::BatchNormBwd { act_grad, accumulate, .. }) => {
            batch_norm_bwd(&shape, act_grad, accumulate)
        }
        OpKind::LayerNorm(ops::LayerNorm { eps, rms, .. }) => vec![layer_norm(&shape, eps, rms)],
        OpKind::LayerNormBwd(op) => layer_norm_bwd(&shape, &op),
        _ => Vec::new(),
    }
}

/// A template with its arguments.
type Type = (&'static str, String);

/// The rows and columns to normalise, the number of multiprocessors, and whether blocks can form clusters.
struct Shape {
    real: Real,
    rows: usize,
    cols: usize,
    multiprocessors: usize,
    has_clusters: bool,
}

impl Shape {
    /// The time to move this many tensors of this shape, in microseconds.
    fn move_us(&self, tensors: usize) -> f64 {
        (tensors * self.rows * self.cols * self.real.size()) as f64 / BYTES_PER_US
    }

    /// Elements moved by one access.
    const fn vector(&self) -> usize {
        vec_width(self.real, self.cols)
    }

    /// The number of neighbouring vectors in a tile of columns: 128 bytes, fewer if that leaves no thread idle.
    const fn tile_vectors(&self) -> usize {
        let groups = self.cols / self.vector();
        let full = at_most(128 / (self.vector() * self.real.size()), 32);
        let tx = at_most(full, groups.next_power_of_two());
        if tx > 1 && !groups.is_multiple_of(tx) && groups.is_multiple_of(tx / 2) { tx / 2 } else { tx }
    }

    /// The kernel of this `form`, from its template with the arguments.
    fn code(&self, form: &str, (template, arguments): Type, work_bytes: usize, cost_us: f64) -> CustomKernel {
        CustomKernel {
            tail: format!("{}_{form}_v0", self.real.name()),
            spec: KernelSpec::new(KernelFile::Norm, template, arguments),
            work_bytes: work_bytes as u64,
            cost_us,
        }
    }

    /// Tiles of columns and chunks of rows for the batch normalisation in two phases: about one block for each
    /// multiprocessor, so that the second phase has few chunks to merge.
    fn chunks(&self) -> Chunks {
        let (vector, tx) = (self.vector(), self.tile_vectors());
        let groups = self.cols / vector;
        let across = groups.div_ceil(tx);
        let each = self.rows * groups / self.multiprocessors;
        let (threads, most) = match each {
            2_048.. => (512, usize::MAX),
            512.. => (256, 128),
            _ => (128, 64),
        };
        let ty = threads / tx;
        let down = match self.multiprocessors / across {
            few @ 0..4 => few.max(2 * self.multiprocessors / across).max(1),
            many => many,
        };
        // Each thread has at least two rows and merges few chunks.
        let down = down.min(self.rows.div_ceil(2 * ty)).min(MOST_MERGES * (threads / (tx * vector))).min(most).max(1);
        let rows = self.rows.div_ceil(down);
        let rows = rows.next_multiple_of(if rows >= 16 * ty { 4 * ty } else { ty });
        Chunks { tx, rows, threads, work_bytes: self.rows.div_ceil(rows) * self.cols * 8 }
    }

    /// Elements moved by one access, if a block holds rows in registers.
    const fn held_vector(&self) -> usize {
        match self.cols {
            cols if cols.is_multiple_of(4) => 4,
            cols if cols.is_multiple_of(2) => 2,
            _ => 1,
        }
    }

    /// The number of bytes that the second-level cache moves for each byte of pieces of `tx` vectors: for less than a
    /// sector, it moves more bytes than they contain, but it is faster than memory.
    fn excess(&self, tx: usize) -> f64 {
        (SECTOR_BYTES / (tx * self.held_vector() * self.real.size()) as f64 * 0.6).max(1.0)
    }

    /// The time of two phases, the second of which merges results of the first, without what they move, in
    /// microseconds.
    const fn two_phases_us(&self) -> f64 {
        LAUNCH_US + if self.has_clusters { EARLY_PHASE_US } else { LAUNCH_US } + MERGE_US
    }

    /// The time in which one multiprocessor moves this many pieces of rows, as wide as one access, in microseconds.
    fn pieces_us(&self, pieces: usize) -> f64 {
        let bytes = self.held_vector() * self.real.size();
        pieces as f64 * (2.5e-4 + 3e-5 * bytes as f64)
    }

    /// How the blocks of a cluster hold all rows of a few columns in registers, if they can: at most `deep` rows for
    /// each thread. `tensors` is the number of tensors that it moves.
    fn cluster(&self, deep: usize, tensors: usize) -> Option<Cluster> {
        let vector = self.held_vector();
        let groups = self.cols / vector;
        let tx = [1, 2, 4, 8].into_iter().find(|&tx| CLUSTER * groups.div_ceil(tx) <= self.multiprocessors)?;
        let chunk = self.rows.div_ceil(CLUSTER);
        let threads = (chunk * tx / 2).next_power_of_two().clamp(64, 512);
        let fits = self.has_clusters && self.rows >= CLUSTER_ROWS && chunk <= threads / tx * deep;
        let moving_us = self.pieces_us(chunk * tx * tensors).max(self.excess(tx) * self.move_us(tensors));
        let cost_us = LAUNCH_US + CLUSTER_US + moving_us;
        fits.then_some(Cluster { vector, tx, chunk, threads, cost_us })
    }

    /// How a block holds all rows of a few columns in registers, if it can: at most `deep` rows for each thread.
    /// `tensors` is the number of tensors that it moves.
    fn small(&self, deep: usize, tensors: usize) -> Option<Small> {
        let vector = self.held_vector();
        let groups = self.cols / vector;
        // Wide pieces of rows, if that leaves a block for each multiprocessor.
        let (tx, ty) = [8, 4, 2, 1].into_iter().find_map(|tx| {
            let ty = self.rows.div_ceil(2).next_power_of_two().clamp(32, 1024 / tx);
            let fits = self.rows <= ty * deep && (tx == 1 || groups / tx >= self.multiprocessors);
            fits.then_some((tx, ty))
        })?;
        let waves = groups.div_ceil(tx).div_ceil(self.multiprocessors);
        let pieces_us = self.pieces_us(waves * self.rows * tx * tensors);
        let cost_us = LAUNCH_US + pieces_us.max(self.excess(tx) * self.move_us(tensors));
        Some(Small { vector, tx, threads: ty * tx, cost_us })
    }
}

/// The smaller one.
const fn at_most(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// The template argument for a constant that a general member reads.
const ANY_BITS: &str = "(u64)ANY";

/// Chunks that a thread merges at most, and rows that it holds at most, without and with a gradient.
const MOST_MERGES: usize = 32;
const MOST_ROWS: usize = 8;
const MOST_GRADIENT_ROWS: usize = 4;
/// Elements of a row that a thread holds at most, without and with a gradient; with one, 24 if a warp has the row.
const MOST_COLUMNS: usize = 32;
const MOST_GRADIENT_COLUMNS: usize = 16;

/// The capacity of a thread of a general member: `most`, rounded up to a power of two.
const fn rounded(most: usize) -> usize {
    most.next_power_of_two()
}

struct Chunks {
    tx: usize,
    rows: usize,
    threads: usize,
    work_bytes: usize,
}

struct Small {
    vector: usize,
    tx: usize,
    threads: usize,
    cost_us: f64,
}

/// A cluster of blocks that share columns.
struct Cluster {
    vector: usize,
    tx: usize,
    /// Rows of a block.
    chunk: usize,
    threads: usize,
    cost_us: f64,
}

fn batch_norm(shape: &Shape, eps: Scalar, momentum: Scalar, act: Option<Activation>) -> Vec<CustomKernel> {
    let Shape { real, rows, cols, .. } = *shape;
    let t = real.cpp();
    let last = format!("{}, {}, {}", cpp_bits(eps.get()), cpp_bits(momentum.get()), cpp_act(act));
    let Chunks { tx, rows: chunk, threads, work_bytes } = shape.chunks();
    let ty = ("BatchNorm", format!("{t}, {rows}, {cols}, {tx}, {chunk}, {threads}, {last}"));
    let mut out = vec![shape.code("chunks", ty, work_bytes, shape.two_phases_us() + shape.move_us(3))];
    let [first, second] = [eps, momentum].map(|constant| constant.get().to_bits());
    let (v, any) = (shape.vector(), format!("{ANY_BITS}, {ANY_BITS}, ANY"));
    let numbers = [rows as u64, cols as u64, chunk as u64, first, second, act_number(act)];
    let merges = rounded(rows.div_ceil(chunk).div_ceil(threads / (tx * v)));
    let arguments = [merges, MOST_MERGES].map(|n| format!("{t}, ANY, ANY, {tx}, ANY, {threads}, {any}, {v}, {n}"));
    out = out.into_iter().map(|kernel| general_or_wider(kernel, arguments.clone(), &numbers)).collect();
    if let Some(Small { vector, tx, threads, cost_us }) = shape.small(MOST_ROWS, 2) {
        let ty = ("BatchNormSmall", format!("{t}, {rows}, {cols}, {vector}, {tx}, {threads}, {last}"));
        let arguments = [rounded(rows.div_ceil(threads / tx)), MOST_ROWS]
            .map(|held| format!("{t}, ANY, ANY, {vector}, {tx}, {threads}, {any}, {held}"));
        out.push(general_or_wider(shape.code("small", ty, 0, cost_us), arguments, &numbers));
    }
    if let Some(Cluster { vector, tx, chunk, threads, cost_us }) = shape.cluster(MOST_ROWS, 2) {
        let ty = ("BatchNormCluster", format!("{t}, {rows}, {cols}, {vector}, {tx}, {chunk}, {threads}, {last}"));
        let arguments = [rounded(chunk.div_ceil(threads / tx)), MOST_ROWS]
            .map(|held| format!("{t}, ANY, ANY, {vector}, {tx}, ANY, {threads}, {any}, {held}"));
        out.push(in_clusters(shape.code("cluster", ty, 0, cost_us), arguments, numbers, chunk));
    }
    out
}

/// The kernel with its general members, in clusters of blocks that share columns and have `chunk` rows each.
fn in_clusters<const N: usize>(
    kernel: CustomKernel,
    arguments: [String; 2],
    mut numbers: [u64; N],
    chunk: usize,
) -> CustomKernel {
    numbers[2] = chunk as u64;
    let kernel = general_or_wider(kernel, arguments, &numbers);
    CustomKernel { spec: kernel.spec.in_clusters(CLUSTER, CLUSTER), ..kernel }
}

fn batch_norm_eval(shape: &Shape, eps: Scalar, act: Option<Activation>) -> CustomKernel {
    let Shape { real, rows, cols, multiprocessors, .. } = *shape;
    let (threads, tx) = (256, shape.tile_vectors());
    let vectors = rows * cols / shape.vector();
    let each = match vectors / (multiprocessors * 2 * threads) {
        8.. => 8,
        4.. => 4,
        _ => 1,
    };
    let (chunk, t, function) = (threads / tx * each, real.cpp(), act_number(act));
    let ty = (
        "BatchNormEval",
        format!("{t}, {rows}, {cols}, {tx}, {chunk}, {threads}, {}, {}", cpp_bits(eps.get()), cpp_act(act)),
    );
    let kernel = shape.code("rows", ty, 0, LAUNCH_US + shape.move_us(2));
    let arguments = format!("{t}, ANY, ANY, {tx}, ANY, {threads}, {ANY_BITS}, ANY, {}", shape.vector());
    general(kernel, arguments, &[rows as u64, cols as u64, chunk as u64, eps.get().to_bits(), function])
}

fn batch_norm_bwd(shape: &Shape, act_grad: Option<Activation>, accumulate: bool) -> Vec<CustomKernel> {
    let Shape { real, rows, cols, .. } = *shape;
    let t = real.cpp();
    let last = format!("{}, {accumulate}", cpp_act(act_grad));
    let reads = 2 + usize::from(act_grad.is_some());
    let Chunks { tx, rows: chunk, threads, work_bytes } = shape.chunks();
    let ty = ("BatchNormBwd", format!("{t}, {rows}, {cols}, {tx}, {chunk}, {threads}, {last}"));
    let cost_us = shape.two_phases_us() + shape.move_us(2 * reads + 1);
    let numbers = [rows as u64, cols as u64, chunk as u64, act_number(act_grad)];
    let any = format!("{}, {accumulate}", any_act(act_grad));
    let arguments = format!("{t}, ANY, ANY, {tx}, ANY, {threads}, {any}, {}", shape.vector());
    let mut out = vec![general(shape.code("chunks", ty, work_bytes, cost_us), arguments, &numbers)];
    if let Some(Small { vector, tx, threads, cost_us }) = shape.small(MOST_GRADIENT_ROWS, reads + 1) {
        let ty = ("BatchNormBwdSmall", format!("{t}, {rows}, {cols}, {vector}, {tx}, {threads}, {last}"));
        let arguments = [rounded(rows.div_ceil(threads / tx)), MOST_GRADIENT_ROWS]
            .map(|held| format!("{t}, ANY, ANY, {vector}, {tx}, {threads}, {any}, {held}"));
        out.push(general_or_wider(shape.code("small", ty, 0, cost_us), arguments, &numbers));
    }
    if let Some(Cluster { vector, tx, chunk, threads, cost_us }) = shape.cluster(MOST_GRADIENT_ROWS, reads + 1) {
        let ty = ("BatchNormBwdCluster", format!("{t}, {rows}, {cols}, {vector}, {tx}, {chunk}, {threads}, {last}"));
        let arguments = [rounded(chunk.div_ceil(threads / tx)), MOST_GRADIENT_ROWS]
            .map(|held| format!("{t}, ANY, ANY, {vector}, {tx}, ANY, {threads}, {any}, {held}"));
        out.push(in_clusters(shape.code("cluster", ty, 0, cost_us), arguments, numbers, chunk));
    }
    out
}

/// The last arguments of a template for the normalisation of rows; the flag for rows that are not centred is added only
/// if it is set.
fn row_arguments(last: impl Display, rms: bool) -> String {
    if rms { format!("{last}, true") } else { last.to_string() }
}

fn layer_norm(shape: &Shape, eps: Scalar, rms: bool) -> CustomKernel {
    let Shape { real, rows, cols, multiprocessors, .. } = *shape;
    let groups = cols / shape.vector();
    let (per_row, threads) = if cols <= 1024 {
        let lanes = groups.next_power_of_two().min(32);
        (lanes, (rows * lanes / multiprocessors).next_power_of_two().clamp(32, 128))
    } else {
        let lanes = groups.div_ceil(2).next_power_of_two().clamp(64, 1024);
        (lanes, lanes)
    };
    let is_held = groups.div_ceil(per_row) * shape.vector() <= MOST_COLUMNS;
    // Rows that do not fit registers are read for each of their statistics and for the output, which is written.
    let passes = if is_held { 2 } else { 4 - usize::from(rms) };
    let last = row_arguments(cpp_bits(eps.get()), rms);
    let ty = ("LayerNorm", format!("{}, {rows}, {cols}, {per_row}, {threads}, {last}", real.cpp()));
    let kernel = shape.code("rows", ty, 0, LAUNCH_US + shape.move_us(passes));
    let (t, v) = (real.cpp(), shape.vector());
    // The number of groups of a thread matters only if it holds them in registers.
    let held = if is_held { [rounded(groups.div_ceil(per_row)), MOST_COLUMNS / v] } else { [64; 2] };
    let arguments = held.map(|held| format!("{t}, ANY, ANY, {per_row}, {threads}, {ANY_BITS}, {rms}, {v}, {held}"));
    general_or_wider(kernel, arguments, &[rows as u64, cols as u64, eps.get().to_bits()])
}

/// Only the gradients of parameters: a block sums a few columns, as wide as the smallest memory transaction.
fn column_sums(shape: &Shape, op: &ops::LayerNormBwd) -> CustomKernel {
    /// The same number of threads as small products, so that both can share a launch.
    const THREADS: usize = 256;
    let Shape { real, rows, cols, .. } = *shape;
    let (t, vector) = (real.cpp(), shape.vector());
    let wide = at_most((SECTOR_BYTES as usize / (vector * real.size())).max(1), cols / vector);
    let tx = if wide.is_power_of_two() { wide } else { wide.next_power_of_two() / 2 };
    let rest = format!("1, {tx}, {THREADS}, 1, {}, {}, {vector}, 1, NORM_COLUMNS", op.accumulate, op.rms);
    let ty = ("LayerNormBwdApart", format!("{t}, {rows}, {cols}, {rest}"));
    let trips = rows.div_ceil(4 * THREADS / tx) as f64;
    let kernel = shape.code("columns", ty, 0, LAUNCH_US + trips * TRIP_US);
    general(kernel, format!("{t}, ANY, ANY, {rest}"), &[rows as u64, cols as u64])
}

/// How threads share the rows of a gradient: the threads of a row and of a block, the blocks that a multiprocessor
/// holds, the vectors of a thread if it holds its part of a row in registers, and those of general members.
struct GradientRows {
    per_row: usize,
    threads: usize,
    blocks: usize,
    own: Option<usize>,
    general: [usize; 2],
}

impl GradientRows {
    fn of(shape: &Shape) -> Self {
        let (cols, vector) = (shape.cols, shape.vector());
        let groups = cols / vector;
        let of_thread = |per_row| groups.div_ceil(per_row);
        if shape.real.size() == 2 && vector == 8 && cols > 512 && groups <= 3 * 32 {
            // A warp holds such a row in three vectors of each lane, without the barriers that a block needs for each
            // row.
            return Self {
                per_row: 32,
                threads: 128,
                blocks: 4,
                own: Some(of_thread(32)),
                general: [of_thread(32); 2],
            };
        }
        let (per_row, threads, resident) = if cols <= 512 {
            // Fewer blocks leave fewer sums to add. On an H200, 16,384 rows of 128 to 512 columns in 16 bits take 12 to
            // 23 % less time with half as many; in 32 bits, 256 columns take 6 % more and 384 columns 5 % less.
            (groups.next_power_of_two().min(32), 128, if shape.real.size() == 2 { 512 } else { 1024 })
        } else {
            let lanes = cols.div_ceil(8).next_power_of_two().clamp(64, 1024);
            (lanes, lanes, 1024)
        };
        let own = Some(of_thread(per_row)).filter(|own| own * vector <= MOST_GRADIENT_COLUMNS);
        let general = own.map_or([1; 2], |own| [rounded(own), MOST_GRADIENT_COLUMNS / vector]);
        Self { per_row, threads, blocks: resident / threads, own, general }
    }
}

fn layer_norm_bwd(shape: &Shape, op: &ops::LayerNormBwd) -> Vec<CustomKernel> {
    let Shape { real, rows, cols, multiprocessors, .. } = *shape;
    let (t, vector, tx) = (real.cpp(), shape.vector(), shape.tile_vectors());
    let last = row_arguments(op.accumulate, op.rms);
    if op.part == GradientPart::Parameters {
        return vec![column_sums(shape, op)];
    }
    let GradientRows { per_row, threads, blocks, own, general: held } = GradientRows::of(shape);
    // Blocks that sum columns process their rows, two at a time for each thread.
    let columns_us = |threads: usize| rows.div_ceil(2 * threads / tx) as f64 * TRIP_US;
    let (numbers, whole) = ([rows as u64, cols as u64], format!("{}, {}, {vector}", op.accumulate, op.rms));
    if op.part == GradientPart::Input {
        // As many as small products have, so that they may share a launch.
        let threads = if cols <= 512 { 256 } else { threads };
        let part = if own.is_some() { "NORM_ROWS" } else { "NORM_LONG_ROWS" };
        let rest = |held: usize| format!("{per_row}, {tx}, {threads}, 1, {whole}, {held}, {part}");
        let ty = ("LayerNormBwdApart", format!("{t}, {rows}, {cols}, {}", rest(own.unwrap_or(1))));
        let kernel = shape.code("rows", ty, 0, LAUNCH_US + shape.move_us(3));
        let arguments = held.map(|held| format!("{t}, ANY, ANY, {}", rest(held)));
        return vec![general_or_wider(kernel, arguments, &numbers)];
    }
    if own.is_none() {
        let ty = ("LayerNormBwdApart", format!("{t}, {rows}, {cols}, 1024, {tx}, 1024, 2, {last}"));
        let cost_us = 2.0 * LAUNCH_US + columns_us(1024) + shape.move_us(7);
        let arguments = format!("{t}, ANY, ANY, 1024, {tx}, 1024, 2, {whole}, 1");
        return vec![general(shape.code("long_rows", ty, 0, cost_us), arguments, &numbers)];
    }
    let at_once = threads / per_row;
    // With few rows in a block its latency is short, with many there are fewer sums to add.
    let chunk = rows.div_ceil(multiprocessors * blocks).max(rows.div_ceil(multiprocessors).min(8));
    let chunk = chunk.next_multiple_of(at_once);
    let work_bytes = rows.div_ceil(chunk) * op.parameters() * cols * 4;
    let ty = ("LayerNormBwd", format!("{t}, {rows}, {cols}, {per_row}, {chunk}, {threads}, {last}"));
    let cost_us = 2.0 * LAUNCH_US + shape.move_us(3) + (2 * work_bytes) as f64 / BYTES_PER_US;
    let arguments = held.map(|held| format!("{t}, ANY, ANY, {per_row}, ANY, {threads}, {whole}, {held}"));
    let chunked = [numbers[0], numbers[1], chunk as u64];
    let mut out = vec![general_or_wider(shape.code("chunks", ty, work_bytes, cost_us), arguments, &chunked)];
    if rows <= 1_024 && rows * cols <= 1 << 20 {
        let ty = ("LayerNormBwdApart", format!("{t}, {rows}, {cols}, {per_row}, {tx}, {threads}, 1, {last}"));
        let kernel = shape.code("small", ty, 0, LAUNCH_US + columns_us(threads) + shape.move_us(5));
        let arguments = held.map(|held| format!("{t}, ANY, ANY, {per_row}, {tx}, {threads}, 1, {whole}, {held}"));
        out.push(general_or_wider(kernel, arguments, &numbers));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::target::Target;

    fn clusters(rows: usize, channels: usize, capability: (u32, u32)) -> Vec<KernelSpec> {
        let gpu = CudaFacts { capability, ..Target::h200().as_cuda().unwrap() };
        let (eps, momentum) = (Scalar::new(1e-5), Scalar::new(0.1));
        let forward = ops::BatchNorm { rows, channels, eps, momentum, act: None };
        let backward = ops::BatchNormBwd { rows, channels, act_grad: None, accumulate: false };
        let kinds = [OpKind::BatchNorm(forward), OpKind::BatchNormBwd(backward)];
        let specs = kinds.iter().flat_map(|kind| kernels(kind, Real::F32, &gpu)).map(|kernel| kernel.spec);
        specs.filter(|spec| spec.template.ends_with("Cluster")).collect()
    }

    #[test]
    fn every_block_of_a_cluster_has_rows() {
        for (rows, channels) in [(512, 3), (513, 16), (1_024, 32), (4_099, 68), (9_000, 64), (16_384, 8)] {
            let found = clusters(rows, channels, (9, 0));
            assert_eq!(found.len(), 2, "{rows} x {channels}");
            for spec in found {
                let numbers: Vec<usize> = spec.arguments.split(", ").skip(1).map_while(|n| n.parse().ok()).collect();
                let [_, _, vector, tx, chunk, threads] = numbers[..6] else { panic!("{}", spec.arguments) };
                assert!((CLUSTER - 1) * chunk < rows && rows <= CLUSTER * chunk, "{}", spec.arguments);
                assert!(threads / tx >= CLUSTER && tx * vector <= threads, "{}", spec.arguments);
                let most = if spec.template == "BatchNormCluster" { MOST_ROWS } else { MOST_GRADIENT_ROWS };
                assert!(chunk.div_ceil(threads / tx) <= most, "{}", spec.arguments);
                assert_eq!(tx, if channels == 68 { 2 } else { 1 }, "{}", spec.arguments);
                assert_eq!(spec.cluster_blocks, CLUSTER);
            }
        }
        assert!(clusters(511, 16, (9, 0)).is_empty());
        assert!(clusters(1 << 20, 16, (9, 0)).is_empty());
        assert!(clusters(4_096, 16, (8, 6)).is_empty());
    }
}
