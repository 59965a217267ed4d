//! Which of the kernels in `conv.cu` can compute a convolution, with which tiles, and estimates of their times.
//!
//! Times come from a simple model of the implicit product: tiles are distributed over the multiprocessors in waves,
//! steps of the sum take at least a barrier and the latency of shared memory, copies are narrow if there are few
//! channels, and bytes must be moved.

mod general;
mod special;

use super::speed::{BYTES_PER_US, LAUNCH_US};
use crate::ops::{self, ConvGeometry, Epilogue, OpKind};
use crate::select::cuda::custom::CustomKernel;
use crate::select::cuda::epilogue::epilogue_type;
use crate::select::cuda::real::{Real, copy_width};
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;
use general::any_splits;

/// The largest number of candidates of any geometry for one operation.
const MOST: usize = 4;

/// If the estimate exceeds this number of microseconds, one candidate is enough if there is also a library or a kernel
/// for the specific geometry: on an H200 none of these tiles was faster than both in any large convolution (1.2 to 2.2
/// times as slow), and compiling them takes most of the time of the first preparation.
const LONG_US: f64 = 15.0;

/// Clock cycles in a microsecond.
const CYCLES_PER_US: f64 = 1_700.0;

/// Shared memory of a multiprocessor, in bytes.
const SHARED_BYTES: usize = 227 << 10;

/// Which of the three products is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Forward,
    BackwardX,
    BackwardW,
}

/// The tile of a block: `ConvGemm`'s BM, BN, BKB, WM, WN and STAGES, and the share of the peak rate that it reaches
/// when the GPU is full.
#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    cols: usize,
    step_bytes: usize,
    part_rows: usize,
    part_cols: usize,
    stages: usize,
    share: f64,
}

const fn tile(size: [usize; 2], step_bytes: usize, part: [usize; 2], stages: usize, share: f64) -> Tile {
    Tile { rows: size[0], cols: size[1], step_bytes, part_rows: part[0], part_cols: part[1], stages, share }
}

/// Tiles for tensor cores; their parts are those of warps.
const TENSOR: [Tile; 13] = [
    tile([128, 128], 64, [64, 32], 4, 1.0),
    tile([128, 64], 128, [64, 32], 3, 0.95),
    tile([64, 128], 128, [32, 64], 3, 0.95),
    tile([64, 64], 128, [32, 32], 3, 0.75),
    tile([64, 64], 64, [32, 32], 4, 0.7),
    tile([128, 32], 64, [32, 32], 4, 0.6),
    tile([64, 32], 128, [32, 16], 3, 0.5),
    tile([64, 32], 64, [32, 16], 3, 0.5),
    tile([32, 64], 128, [16, 32], 3, 0.5),
    tile([32, 32], 128, [16, 16], 3, 0.35),
    tile([32, 32], 64, [16, 16], 4, 0.35),
    tile([64, 16], 64, [16, 16], 4, 0.3),
    tile([32, 16], 128, [16, 16], 3, 0.3),
];

/// Tiles for plain multiply-adds; their parts are those of threads.
const SIMT: [Tile; 8] = [
    tile([128, 128], 64, [8, 8], 3, 1.0),
    tile([128, 64], 64, [8, 8], 3, 0.95),
    tile([64, 64], 64, [8, 4], 3, 0.8),
    tile([128, 32], 64, [8, 4], 3, 0.75),
    tile([64, 32], 64, [4, 4], 4, 0.65),
    tile([32, 64], 64, [4, 4], 4, 0.65),
    tile([32, 32], 64, [4, 4], 4, 0.55),
    tile([64, 16], 64, [4, 4], 4, 0.5),
];

/// A convolution with numbers that are used in several places.
struct Problem<'a> {
    kind: Kind,
    g: &'a ConvGeometry,
    real: Real,
    tensor: bool,
    multiprocessors: usize,
    /// The largest shared memory of a block.
    shared_bytes: usize,
    epilogue: Epilogue,
    accumulate: bool,
    /// Elements that the epilogue moves in addition to the result.
    extra: usize,
}

/// The implicit product of a convolution: rows and columns of one class of positions of one group, the classes, the
/// longest and the mean sum of a class, and the width of copies of both factors.
struct Extent {
    rows: usize,
    cols: usize,
    classes: usize,
    longest: usize,
    mean: usize,
    widths: [usize; 2],
}

/// Every custom kernel of this family for `kind`, in rising order of preference among equals; empty if the family has
/// none for the operation.
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let (kind, g, epilogue, accumulate) = match kind {
        OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => (Kind::Forward, geometry, *epilogue, false),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => (Kind::BackwardX, geometry, *epilogue, false),
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate }) => {
            (Kind::BackwardW, geometry, Epilogue::default(), *accumulate)
        }
        _ => return Vec::new(),
    };
    // Kernels count positions and weights in 32 bits.
    let most = (1usize << 31) - 256;
    let counts = [g.n * g.h * g.w, g.n * g.ho * g.wo, weights(g)];
    if counts.iter().any(|&count| count == 0 || count >= most) || g.groups == 0 {
        return Vec::new();
    }
    let tensor = real != Real::F32 && gpu.capability >= (8, 0);
    let result = if kind == Kind::Forward { g.n * g.ho * g.wo * g.f } else { g.n * g.h * g.w * g.c };
    let problem = Problem {
        kind,
        g,
        real,
        tensor,
        multiprocessors: gpu.multiprocessors.max(1) as usize,
        shared_bytes: gpu.shared_bytes(),
        epilogue,
        accumulate,
        extra: (usize::from(epilogue.save_z) + usize::from(epilogue.act_grad.is_some())) * result,
    };
    let mut found: Vec<CustomKernel> = match (tensor, real) {
        (true, _) => TENSOR.iter().map(|tile| problem.product(tile)).collect(),
        (false, Real::F32 | Real::Tf32) => SIMT.iter().map(|tile| problem.product(tile)).collect(),
        (false, Real::Bf16 | Real::F16) => Vec::new(),
    };
    if g.groups > 1 {
        found.push(problem.direct());
    }
    found.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    // These are always offered, regardless of the estimates: they are few, and usually faster. They require padding
    // that is the same on both sides.
    let special = [problem.wgmma(gpu.capability), problem.taps(), problem.thin(), problem.sliced()];
    let special = if g.is_padded_alike() { special } else { [const { None }; 4] };
    let special: Vec<CustomKernel> = special.into_iter().flatten().collect();
    let beaten = !special.is_empty() || gpu.has_cudnn && g.is_padded_alike() && kind != Kind::BackwardW;
    let is_long = found.last().is_some_and(|best| best.cost_us > LONG_US);
    let most = if tensor && beaten && is_long { 1 } else { MOST };
    let mut found = found.split_off(found.len().saturating_sub(most));
    found.extend(special);
    found.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    found
}

/// A kernel of this family.
fn spec(template: &'static str, arguments: String) -> KernelSpec {
    KernelSpec::new(KernelFile::Conv, template, arguments)
}

/// Elements of the weight.
const fn weights(g: &ConvGeometry) -> usize {
    g.f * g.kernel[0] * g.kernel[1] * (g.c / g.groups)
}

/// The greatest common divisor.
const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Problem<'_> {
    /// Elements of the result.
    fn results(&self) -> usize {
        match self.kind {
            Kind::Forward => self.g.n * self.g.ho * self.g.wo * self.g.f,
            Kind::BackwardX => self.g.n * self.g.h * self.g.w * self.g.c,
            Kind::BackwardW => weights(self.g),
        }
    }

    /// The time of moving each argument once, in microseconds.
    fn memory_us(&self) -> f64 {
        let g = self.g;
        let images = g.n * g.h * g.w * g.c + g.n * g.ho * g.wo * g.f + self.extra;
        (images * self.real.size() + weights(g) * 4) as f64 / BYTES_PER_US
    }

    /// Scratch memory of a sum that is divided into `splits` ranges.
    fn work_bytes(&self, splits: usize) -> u64 {
        if splits > 1 { (splits * self.results() * 4) as u64 } else { 0 }
    }

    /// The C++ types of the numbers and of the geometry.
    fn types(&self) -> (&'static str, String) {
        let g = self.g;
        let geometry = format!(
            "ConvGeom<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>",
            g.n,
            g.h,
            g.w,
            g.c,
            g.f,
            g.kernel[0],
            g.kernel[1],
            g.stride[0],
            g.stride[1],
            g.padding[0],
            g.padding[1],
            g.dilation[0],
            g.dilation[1],
            g.groups,
            g.ho,
            g.wo
        );
        (self.real.cpp(), geometry)
    }

    /// The implicit product, with elements of `elem` bytes.
    fn extent(&self, elem: usize) -> Extent {
        let g = self.g;
        let (group_c, group_f, taps) = (g.c / g.groups, g.f / g.groups, g.kernel[0] * g.kernel[1]);
        let positions = g.n * g.ho * g.wo;
        match self.kind {
            Kind::Forward => {
                let k = taps * group_c;
                let widths = [copy_width(group_c, elem), copy_width(k, elem)];
                Extent { rows: positions, cols: group_f, classes: 1, longest: k, mean: k, widths }
            }
            Kind::BackwardX => Extent {
                rows: g.n * g.h.div_ceil(g.stride[0]) * g.w.div_ceil(g.stride[1]),
                cols: group_c,
                classes: g.stride[0] * g.stride[1],
                longest: g.kernel[0].div_ceil(g.stride[0]) * g.kernel[1].div_ceil(g.stride[1]) * group_f,
                mean: (taps * group_f).div_ceil(g.stride[0] * g.stride[1]),
                widths: [copy_width(group_f, elem), copy_width(group_c, elem)],
            },
            Kind::BackwardW => Extent {
                rows: group_f,
                cols: taps * group_c,
                classes: 1,
                longest: positions,
                mean: positions,
                widths: [copy_width(group_f, elem), copy_width(group_c, elem)],
            },
        }
    }

    /// The number of splits of the sum with the lowest estimate, and that estimate in microseconds.
    fn best_splits(&self, tile: &Tile) -> (usize, f64) {
        let elem = self.real.size();
        let step = tile.step_bytes / elem;
        let Extent { rows, cols, classes, longest, mean, widths } = self.extent(elem);
        let threads = tile.rows / tile.part_rows * (tile.cols / tile.part_cols) * if self.tensor { 32 } else { 1 };
        let smem = tile.stages * (tile.rows + tile.cols) * tile.step_bytes * 21 / 20 + 1_024 + tile.rows * 16;
        let resident = (SHARED_BYTES / smem).min(2_048 / threads).min(65_536 / (threads * 128)).max(1);
        let tiles = self.g.groups * classes * rows.div_ceil(tile.rows) * cols.div_ceil(tile.cols);
        let (steps, mean_steps) = (longest.div_ceil(step), mean.div_ceil(step));

        // The time of one step of a block that is alone on a multiprocessor, in microseconds: arithmetic, and the
        // instructions of the copies.
        let peak = match (self.tensor, elem) {
            (false, _) => 35e6,
            (true, 4) => 150e6,
            (true, _) => 300e6,
        } / 132.0;
        let arithmetic = (2 * tile.rows * tile.cols * step) as f64 / (peak * tile.share);
        let copies = tile.rows * step / widths[0] + tile.cols * step / widths[1];
        let step_us = arithmetic + copies as f64 * 8.0 / 128.0 / CYCLES_PER_US;
        // A step takes at least this long, even with little work: a barrier, shared memory, and dependent arithmetic.
        let least_us = 0.1 + 0.00025 * (tile.step_bytes * tile.part_rows.min(32)) as f64 / 8.0;

        let cost = |splits: usize| {
            let blocks = (tiles * splits).div_ceil(self.multiprocessors);
            let (each, mean_each) = (steps.div_ceil(splits), mean_steps.div_ceil(splits));
            let full = (blocks * mean_each) as f64 * step_us;
            let alone = (blocks.div_ceil(resident) * each) as f64 * least_us.max(step_us);
            LAUNCH_US + 0.8 + full.max(alone).max(self.memory_us()) + self.second_phase_us(splits)
        };
        let mut best = (1, cost(1));
        let mut wanted = 2;
        while wanted <= 512 && wanted * 2 <= steps.max(2) {
            // The number of ranges that are not empty.
            let splits = steps.div_ceil(steps.div_ceil(wanted));
            let now = cost(splits);
            if now < best.1 && self.work_bytes(splits) <= 256 << 20 {
                best = (splits, now);
            }
            wanted *= 2;
        }
        best
    }

    /// The time of adding the splits of a sum, in microseconds. Partial results usually stay in the second-level cache;
    /// a warp of the second phase adds a few of them one after the other.
    fn second_phase_us(&self, splits: usize) -> f64 {
        if splits > 1 {
            LAUNCH_US + (2 * splits * self.results() * 4) as f64 / (2.0 * BYTES_PER_US) + splits as f64 * 0.01
        } else {
            0.0
        }
    }

    /// The tiled product with the number of splits that has the lowest estimate.
    fn product(&self, tile: &Tile) -> CustomKernel {
        let (splits, cost_us) = self.best_splits(tile);
        let (number, geometry) = self.types();
        let kind = match self.kind {
            Kind::Forward => "CONV_FORWARD",
            Kind::BackwardX => "CONV_BACKWARD_X",
            Kind::BackwardW => "CONV_BACKWARD_W",
        };
        let (math, unit) = if self.tensor { ("CONV_TENSOR", "mma") } else { ("CONV_SIMT", "simt") };
        let Tile { rows, cols, step_bytes, part_rows, part_cols, stages, .. } = *tile;
        let step = step_bytes / self.real.size();
        let shape = format!("{rows}, {cols}, {step_bytes}, {part_rows}, {part_cols}, {stages}");
        let ends = format!("{}, {}", self.accumulate, epilogue_type(&self.epilogue));
        let kernel = CustomKernel {
            tail: format!("{}_{unit}_{rows}x{cols}x{step}_k{splits}_v0", self.real.name()),
            spec: spec("ConvGemm", format!("{kind}, {math}, {number}, {geometry}, {shape}, {splits}, {ends}")),
            work_bytes: self.work_bytes(splits),
            cost_us,
        };
        let any = self.any_product(splits);
        let (of_splits, any_ends) = (any_splits(splits), format!("{}, {}", self.accumulate, self.any_end()));
        let any = any.map(|any| format!("{kind}, {math}, {number}, {any}, {shape}, {of_splits}, {any_ends}"));
        self.with_general(kernel, splits, any)
    }

    /// The kernel without tiles, for groups of few channels.
    fn direct(&self) -> CustomKernel {
        let g = self.g;
        let (group_c, taps) = (g.c / g.groups, g.kernel[0] * g.kernel[1]);
        let positions = g.n * g.ho * g.wo;
        let products = (positions * g.f * taps * group_c) as f64;
        let full = self.multiprocessors as f64 / 132.0;
        let (number, geometry) = self.types();
        let (splits, spec, any, cost_us) = if self.kind == Kind::BackwardW {
            let k = taps * group_c;
            let blocks = k.div_ceil(k.min(9)) * g.f.div_ceil(32);
            let wanted = (8 * self.multiprocessors).div_ceil(blocks).min(positions.div_ceil(32)).clamp(1, 256);
            let splits = positions.div_ceil(positions.div_ceil(wanted));
            let spec = spec("ConvDirectBwdW", format!("{number}, {geometry}, {splits}, {}", self.accumulate));
            let any = self.any_geometry([1, 1, 1, self.added(splits)], false);
            let rest = format!("{}, {}, {}", any_splits(splits), self.accumulate, k.min(9));
            let any = any.map(|any| format!("{number}, {any}, {rest}"));
            // Lanes beyond the last filter do no useful work.
            let padded = products / g.f as f64 * g.f.next_multiple_of(32) as f64;
            (splits, spec, any, padded / (1.2e6 * full) + if splits > 1 { LAUNCH_US } else { 0.0 })
        } else {
            let kind = if self.kind == Kind::Forward { "CONV_FORWARD" } else { "CONV_BACKWARD_X" };
            let spec = spec("ConvDirect", format!("{kind}, {number}, {geometry}, {}", epilogue_type(&self.epilogue)));
            let is_depthwise = group_c == 1 && g.f == g.groups;
            let width = if is_depthwise { copy_width(g.c, self.real.size()).min(4) } else { 1 };
            let any = self.any_geometry([width, 1, 1, 1], false);
            let any = any.map(|any| format!("{kind}, {number}, {any}, {}", self.any_end()));
            (1, spec, any, products / (1.5e6 * full))
        };
        let kernel = CustomKernel {
            tail: format!("{}_direct_k{splits}_v0", self.real.name()),
            spec,
            work_bytes: self.work_bytes(splits),
            cost_us: cost_us.max(self.memory_us()) + LAUNCH_US + 0.5,
        };
        self.with_general(kernel, splits, any)
    }

    /// The number of ranges of a sum over `units`, each of which makes `tiles` blocks: as many as fill the GPU once,
    /// none of them empty.
    const fn stretches(&self, tiles: usize, units: usize) -> usize {
        let wanted = self.multiprocessors / tiles;
        let wanted = if wanted == 0 {
            1
        } else if wanted > units {
            units
        } else {
            wanted
        };
        units.div_ceil(units.div_ceil(wanted))
    }
}
