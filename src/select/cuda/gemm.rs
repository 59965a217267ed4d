//! Which types of `gemm.cu` compute a product: tile shapes and splits of the reduction, ranked by an approximate model
//! of their times.

mod product;

use self::product::{L2_BYTES_PER_US, Product};
use super::elementwise::vec_width;
use super::speed::LAUNCH_US;
use crate::ops::{self, Gemm, OpKind, Trans};
use crate::rewrite::LONE_UPDATE_TILE;
use crate::select::cuda::custom::CustomKernel;
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{GeneralMember, KernelFile, KernelSpec, Pdl};
use crate::select::target::CudaFacts;

/// The least time of a direct kernel.
const DIRECT_US: f64 = 1.31;

/// Multiprocessors of the machine whose rates of arithmetic are given below.
const RATED_MULTIPROCESSORS: f64 = 132.0;

/// The largest scratch memory of partial products.
const PARTIAL_BYTES: usize = 64 << 20;

/// The number of kernels offered for one product, and the largest ratio of the slowest estimate to the best one.
const OFFERS: usize = 5;
const SLOWEST: f64 = 2.0;

/// Products with at most this many multiplications are also offered without tensor cores, if these would round to TF32.
const TINY: usize = 1 << 21;

/// The arithmetic units, and the parts of a block's tile: rows and columns of a thread, or warps down and across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Simt { rows: usize, cols: usize },
    Mma { down: usize, across: usize },
}

/// A block's tile, with the groups of threads that share the reduction inside the block, and the longest range of it
/// that a group processes at a time, in units of 16 bytes for tensor cores and of elements otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    cols: usize,
    unit: Unit,
    groups: usize,
    stretch: usize,
}

impl Tile {
    /// The threads of its block.
    const fn threads(&self) -> usize {
        self.groups
            * match self.unit {
                Unit::Simt { rows, cols } => self.rows / rows * (self.cols / cols),
                Unit::Mma { down, across } => 32 * down * across,
            }
    }
}

const fn simt(rows: usize, cols: usize, part: [usize; 2], groups: usize, stretch: usize) -> Tile {
    Tile { rows, cols, unit: Unit::Simt { rows: part[0], cols: part[1] }, groups, stretch }
}

const fn mma(rows: usize, cols: usize, warps: [usize; 2], groups: usize) -> Tile {
    Tile { rows, cols, unit: Unit::Mma { down: warps[0], across: warps[1] }, groups, stretch: 4 }
}

/// All have 256 threads, so that small products can share a launch with their neighbours.
const SIMT_TILES: [Tile; 11] = [
    simt(8, 16, [2, 2], 8, 16),
    simt(16, 16, [2, 4], 8, 16),
    simt(32, 16, [4, 4], 8, 16),
    simt(16, 32, [4, 4], 8, 16),
    simt(32, 32, [4, 4], 4, 16),
    simt(32, 32, [8, 4], 8, 16),
    simt(64, 64, [4, 4], 1, 16),
    simt(64, 32, [8, 8], 8, 8),
    simt(64, 64, [8, 8], 4, 16),
    simt(128, 64, [8, 8], 2, 16),
    simt(128, 128, [8, 8], 1, 16),
];

const MMA_TILES: [Tile; 11] = [
    mma(16, 16, [1, 1], 8),
    mma(16, 32, [1, 1], 8),
    mma(32, 16, [1, 1], 8),
    mma(32, 32, [2, 2], 2),
    mma(32, 32, [1, 1], 8),
    mma(32, 64, [1, 2], 4),
    mma(64, 32, [2, 1], 4),
    mma(64, 64, [2, 2], 2),
    mma(64, 128, [2, 4], 1),
    mma(128, 64, [4, 2], 1),
    mma(128, 128, [2, 4], 1),
];

/// A tile of `GemmDirect`: rows and columns that a lane holds, warps down and across, groups of them that share the
/// reduction, and which factors are loaded through shared memory (1: those whose rows run across the reduction, 2:
/// those whose rows run along it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Direct {
    lane: [usize; 2],
    warps: [usize; 2],
    groups: usize,
    via: usize,
}

const fn direct(lane: [usize; 2], warps: [usize; 2], groups: usize, via: usize) -> Direct {
    Direct { lane, warps, groups, via }
}

/// The fastest of all that were tried on products of a few microseconds, or at most one percent slower.
const DIRECT_TILES: [Direct; 13] = [
    direct([2, 2], [1, 1], 8, 0),
    direct([2, 2], [1, 1], 8, 1),
    direct([2, 2], [2, 1], 4, 0),
    direct([2, 2], [1, 2], 4, 0),
    direct([2, 2], [2, 1], 4, 1),
    direct([2, 2], [2, 2], 2, 3),
    direct([2, 4], [1, 1], 8, 0),
    direct([2, 4], [1, 1], 8, 1),
    direct([2, 4], [2, 1], 4, 1),
    direct([4, 4], [1, 1], 8, 0),
    direct([4, 4], [1, 1], 8, 1),
    direct([4, 4], [1, 2], 4, 1),
    direct([4, 4], [2, 1], 4, 1),
];

/// The tile of updates that run without other operations, the multiprocessors left to the biases in the same launch,
/// and the longest reduction whose loads can all be in flight.
const ALONE: Direct = direct([4, 4], [3, 2], 2, 1);
// The pass that counts such tiles counts these.
const _: () = assert!(ALONE.tile()[0] == LONE_UPDATE_TILE[0] && ALONE.tile()[1] == LONE_UPDATE_TILE[1]);
const ALONE_SPARE: usize = 8;
/// On GPUs where a block may have more than half of about 228 KiB of shared memory, and launches overlap.
const ALONE_CAPABILITIES: std::ops::Range<(u32, u32)> = (9, 0)..(12, 0);
const ALONE_DEPTH: usize = 128;

/// The number of direct kernels offered for one product, and of other kernels in addition.
const DIRECT_OFFERS: usize = 8;
const BESIDE_DIRECT: usize = 2;

/// Direct kernels are for products of at most this many multiplications, and chunks of the reduction for each group.
const SMALL: usize = 1 << 28;
const DIRECT_STEPS: usize = 16;

/// Ranges of the reduction for separate blocks.
const SPLITS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let alone = is_alone(kind, real, gpu);
    let Some(product) = Product::of(kind, alone) else { return Vec::new() };
    let Product { gemm, .. } = &product;
    let fits = |len: usize| len > 0 && len < 1 << 30;
    if !(fits(gemm.m) && fits(gemm.n) && fits(gemm.k)) || gpu.capability.0 < 8 {
        return Vec::new();
    }
    if alone {
        let cost = ALONE.estimate(gemm, real, gpu.multiprocessors.max(1) as usize);
        return cost.map(|cost_us| ALONE.code(&product, real, cost_us)).into_iter().collect();
    }
    let mut out = if real == Real::F32 { Vec::new() } else { Direct::best(&product, real, gpu) };
    let (tiles, most): (&[Tile], usize) = match real {
        Real::F32 => (&SIMT_TILES, OFFERS),
        Real::Tf32 | Real::Bf16 | Real::F16 => (&MMA_TILES, if out.is_empty() { OFFERS } else { BESIDE_DIRECT }),
    };
    if gemm.together > 0 {
        // Its time alone says little about a launch that it shares with others: one kernel is chosen, by estimate.
        out.extend(best(tiles, &product, real, gpu, 1));
        return out.into_iter().min_by(|a, b| a.cost_us.total_cmp(&b.cost_us)).into_iter().collect();
    }
    out.extend(best(tiles, &product, real, gpu, most));
    if real == Real::Tf32 && product.stepping.is_none() && gemm.m.saturating_mul(gemm.n).saturating_mul(gemm.k) <= TINY
    {
        out.extend(best(&SIMT_TILES, &product, real, gpu, 1));
    }
    out.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    out
}

/// Whether a gradient that updates its weight is one of several that run at the same time and that use the machine best
/// with tiles of which each multiprocessor has exactly one: with smaller tiles some multiprocessors would have two,
/// with larger ones some would have none.
fn is_alone(kind: &OpKind, real: Real, gpu: &CudaFacts) -> bool {
    let OpKind::WeightStep(ops::WeightStep { m, n, k, together, .. }) = *kind else { return false };
    let multiprocessors = gpu.multiprocessors as usize;
    let fills = 3 * together > 2 * multiprocessors && together + ALONE_SPARE <= multiprocessors;
    let vectors = [m, n].iter().all(|len| (len * real.size()).is_multiple_of(16));
    fills
        && vectors
        && ALONE_CAPABILITIES.contains(&gpu.capability)
        && real != Real::F32
        && (17..=ALONE_DEPTH * 4 / real.size()).contains(&k)
        && n > 16
}

/// A kernel of this family: all of them load factors early and leave space for the next launch.
fn spec(template: &'static str, arguments: String) -> KernelSpec {
    let pdl = Pdl { reads_flags: true, fetches_early: true, leaves_room: true };
    KernelSpec::new(KernelFile::Gemm, template, arguments).with_pdl(pdl)
}

/// The number of tiles of a product, and the approximate number of all tiles of the launch that it shares with others.
fn tiles(gemm: &Gemm, [rows, cols]: [usize; 2]) -> (usize, usize) {
    let own = gemm.m.div_ceil(rows) * gemm.n.div_ceil(cols);
    (own, own.max(gemm.together.div_ceil(rows * cols)))
}

/// The tiles and splits with the least estimates, at most two splits of a tile.
fn best(tiles: &[Tile], product: &Product, real: Real, gpu: &CudaFacts, count: usize) -> Vec<CustomKernel> {
    let gemm = &product.gemm;
    // An update is made of whole sums; with tiles of several products, a launch fills the machine without splits.
    let is_whole = product.stepping.is_some() || gemm.together > 0;
    let splits = if is_whole { &SPLITS[..1] } else { &SPLITS[..] };
    let mut ways: Vec<Way> = Vec::new();
    for &tile in tiles {
        let mut of_tile: Vec<Way> = splits.iter().filter_map(|&split| Way::new(gemm, real, tile, split, gpu)).collect();
        of_tile.sort_by(|a, b| a.cost_us.total_cmp(&b.cost_us));
        ways.extend(of_tile.into_iter().take(2));
    }
    ways.sort_by(|a, b| a.cost_us.total_cmp(&b.cost_us));
    let limit = ways.first().map_or(0.0, |way| SLOWEST * way.cost_us);
    ways.iter().filter(|way| way.cost_us <= limit).take(count).map(|way| way.code(product, real)).collect()
}

impl Direct {
    /// The direct kernels with the lowest estimates; empty for products that are not small.
    fn best(product: &Product, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
        let gemm = &product.gemm;
        if gemm.m.saturating_mul(gemm.n).saturating_mul(gemm.k) > SMALL {
            return Vec::new();
        }
        let multiprocessors = gpu.multiprocessors.max(1) as usize;
        let mut ways: Vec<(f64, Self)> = DIRECT_TILES
            .iter()
            .filter_map(|tile| tile.estimate(gemm, real, multiprocessors).map(|cost_us| (cost_us, *tile)))
            .collect();
        ways.sort_by(|a, b| a.0.total_cmp(&b.0));
        ways.iter().take(DIRECT_OFFERS).map(|(cost_us, tile)| tile.code(product, real, *cost_us)).collect()
    }

    /// Rows and columns of a block's tile.
    const fn tile(&self) -> [usize; 2] {
        [8 * self.lane[0] * self.warps[0], 8 * self.lane[1] * self.warps[1]]
    }

    /// Microseconds: a sum over the work of the busiest multiprocessor, fitted to times measured on an H200 alone and
    /// between other kernels (mean error 15 %). `None` if the product is too large for the tile, or if another tile has
    /// the same code.
    fn estimate(&self, gemm: &Gemm, real: Real, multiprocessors: usize) -> Option<f64> {
        let Gemm { m, n, k, trans, .. } = *gemm;
        let Self { lane, warps, groups, via } = *self;
        let ([rows, cols], size) = (self.tile(), real.size());
        // A chunk of the reduction is 64 bytes of a row along it.
        let steps = k.div_ceil(64 / size).div_ceil(groups);
        let (own, all) = tiles(gemm, self.tile());
        let (depth, blocks) = (steps * groups * (64 / size), all);
        if steps > DIRECT_STEPS || blocks > 4 * multiprocessors {
            return None;
        }
        let along = [!matches!(trans, Trans::Tn), matches!(trans, Trans::Nt)];
        let aligned =
            [if along[0] { k } else { m }, if along[1] { k } else { n }].map(|row| (row * size).is_multiple_of(16));
        let through = [0, 1].map(|f| {
            let bit = if along[f] { 2 } else { 1 };
            aligned[f] && via & bit != 0
        });
        // If the rows of both factors run across the reduction, loading directly into registers was always slower.
        if via == 1 && through == [false, false] || via == 0 && along == [false, false] && aligned == [true, true] {
            return None;
        }
        let most = blocks.div_ceil(multiprocessors);
        // Bytes that move to and from shared memory, including the groups' sums, and cache lines that loads into
        // registers access.
        let mut shared = 8 * groups * rows * cols;
        let mut lines = 0;
        for f in [0, 1] {
            if through[f] {
                shared += depth * 8 * lane[f] * warps[f] * size * (1 + warps[1 - f]);
            } else {
                let touched = if along[f] { 8 * lane[f] } else { 16 * lane[f] };
                lines += steps * groups * warps[0] * warps[1] * touched;
            }
        }
        let loaded = (rows + cols) * depth * size;
        let written = m * n * if matches!(trans, Trans::Tn) { 4 } else { size };
        let busiest = |work: usize| (most * work) as f64;
        let launch_us = DIRECT_US
            + 0.0715 * steps as f64
            + 1.7e-4 * busiest(lines)
            + 2.6e-6 * busiest(shared)
            + 9.5e-7 * busiest(rows * cols * depth * size / 4)
            + 9.9e-8 * written as f64
            + 8.0e-8 * (blocks * loaded) as f64;
        Some(launch_us * (own as f64 / all as f64))
    }

    fn code(&self, product: &Product, real: Real, cost_us: f64) -> CustomKernel {
        let Self { lane: [down, across], warps: [wm, wn], groups, via } = *self;
        let [rows, cols] = self.tile();
        let (t, problem) = (real.cpp(), product.problem(false));
        let arguments = format!("{t}, {problem}, {down}, {across}, {wm}, {wn}, {groups}, {via}");
        CustomKernel {
            tail: format!("{}_direct_{rows}x{cols}_{wm}x{wn}x{groups}_via{via}_v0", real.name()),
            spec: KernelSpec { prefers_shared_memory: true, ..spec("GemmDirect", arguments) },
            work_bytes: 0,
            cost_us: cost_us + product.stepping_us(),
        }
    }
}

/// Elements of both factors and of the product that one access moves, as they appear in the types of a general member
/// and of one for a wider class. An update sums its metrics in an order that depends on the last number, so that it is
/// the same in both. If the block has a thread for each element of its tile, the last number is 1 for all sizes.
fn widths(product: &Product, real: Real, has_thread_for_each: bool) -> [String; 2] {
    let Gemm { m, n, k, trans, .. } = product.gemm;
    let a = vec_width(real, if matches!(trans, Trans::Tn) { m } else { k });
    let b = vec_width(real, if matches!(trans, Trans::Nt) { k } else { n });
    let end = [4, 2].into_iter().find(|width| !has_thread_for_each && n.is_multiple_of(*width)).unwrap_or(1);
    [format!("{a}, {b}, {end}"), format!("1, 1, {}", if product.stepping.is_some() { end } else { 1 })]
}

/// A tile with the range that a group processes at a time and the number of blocks that share the reduction.
struct Way {
    tile: Tile,
    stretch: usize,
    split: usize,
    cost_us: f64,
}

impl Way {
    /// `None` if a split would leave blocks without work, or would need more waves than the tiles alone.
    fn new(gemm: &Gemm, real: Real, tile: Tile, split: usize, gpu: &CudaFacts) -> Option<Self> {
        // The shortest range is sufficient if the groups cover the whole reduction with it.
        let (least, most) = match tile.unit {
            Unit::Simt { .. } => (8, tile.stretch),
            Unit::Mma { .. } => (32 / real.size(), tile.stretch * 16 / real.size()),
        };
        let stretch = if gemm.k <= least * tile.groups { least } else { most };
        let steps = gemm.k.div_ceil(stretch * tile.groups);
        let (own, tiles) = tiles(gemm, [tile.rows, tile.cols]);
        let multiprocessors = gpu.multiprocessors.max(1) as usize;
        let wasteful = steps.div_ceil(split) * (split - 1) >= steps || tiles * split > 4 * multiprocessors;
        if split > 1 && (wasteful || split * gemm.m * gemm.n * 4 > PARTIAL_BYTES) {
            return None;
        }
        let way = Self { tile, stretch, split, cost_us: 0.0 };
        let launch_us = way.estimate(gemm, real, tiles, steps.div_ceil(split), multiprocessors);
        Some(Self { cost_us: launch_us * (own as f64 / tiles as f64), ..way })
    }

    /// Microseconds, with `tiles` tiles, whose blocks make `steps` steps.
    fn estimate(&self, gemm: &Gemm, real: Real, tiles: usize, steps: usize, multiprocessors: usize) -> f64 {
        /// Microseconds before the first step's factors have arrived, including the last access to memory.
        const FIRST_US: f64 = 0.5;
        /// The least time of a step of a block in microseconds, with copies in flight for the following steps.
        const STEP_US: f64 = 0.07;
        /// Bytes that a multiprocessor reads from L2 in a microsecond.
        const SM_BYTES_PER_US: f64 = 80e3;
        /// Bytes that a multiprocessor moves to or from its shared memory in a microsecond.
        const SHARED_BYTES_PER_US: f64 = 150e3;
        /// Bytes that all multiprocessors together read from memory in a microsecond.
        const MEMORY_BYTES_PER_US: f64 = 4.2e6;
        let Tile { rows, cols, unit, groups, .. } = self.tile;
        let blocks = tiles * self.split;
        // The number of blocks of the busiest multiprocessor, and the number of waves of two blocks at a time.
        let (most, rounds) = (blocks.div_ceil(multiprocessors) as f64, blocks.div_ceil(2 * multiprocessors) as f64);
        let area = (rows * cols) as f64;
        // The number of products for each element read from shared memory determines the utilisation of the arithmetic
        // units.
        let reuse = |down: usize, across: usize| (down * across) as f64 / (down + across) as f64;
        let (rate, efficiency) = match (unit, real) {
            (Unit::Simt { rows, cols }, _) => (40e6, (0.1 + reuse(rows, cols) / 4.0).min(1.0)),
            (Unit::Mma { down, across }, _) => {
                let rate = if real.size() == 4 { 200e6 } else { 400e6 };
                (rate, (reuse(rows / down, cols / across) / reuse(64, 32)).min(1.0))
            }
        };
        // Eight warps alone do not keep a multiprocessor busy.
        let busy = if most < 2.0 { 0.75 } else { 1.0 };
        let depth = (steps * self.stretch * groups) as f64;
        let compute = most * 2.0 * area * depth * RATED_MULTIPROCESSORS / (rate * efficiency * busy);
        let loaded = ((rows + cols) * gemm.k.div_ceil(self.split) * real.size()) as f64;
        let unique = ((gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) * real.size()) as f64;
        let copies = (most * loaded / SM_BYTES_PER_US)
            .max(blocks as f64 * loaded / L2_BYTES_PER_US)
            .max(unique / MEMORY_BYTES_PER_US);
        let staging = most * groups as f64 * area * 8.0 / SHARED_BYTES_PER_US;
        let product = LAUNCH_US + FIRST_US + compute.max(copies).max(rounds * steps as f64 * STEP_US) + staging;
        if self.split == 1 {
            return product;
        }
        let partials = (4 * gemm.m * gemm.n * (self.split + 1)) as f64;
        product + LAUNCH_US + FIRST_US + partials / (0.5 * L2_BYTES_PER_US) + 0.02 * self.split as f64
    }

    fn code(&self, product: &Product, real: Real) -> CustomKernel {
        let gemm = &product.gemm;
        let Self { tile: Tile { rows, cols, unit, groups, .. }, stretch, split, cost_us } = *self;
        let (name, template, t, [down, across]) = match unit {
            Unit::Simt { rows, cols } => ("simt", "GemmSimt", String::new(), [rows, cols]),
            Unit::Mma { down, across } => ("mma", "GemmMma", format!("{}, ", real.cpp()), [down, across]),
        };
        let tile = format!("{rows}, {cols}, {stretch}, {down}, {across}, {groups}");
        let any_split = if split == 1 { "1" } else { "ANY" };
        let [general, wider] = widths(product, real, split == 1 && rows * cols <= self.tile.threads())
            .map(|widths| format!("{t}{}, {tile}, {any_split}, {widths}", product.problem(true)));
        let general = GeneralMember::new(general, product.numbers(split)).with_wider(wider);
        let spec = spec(template, format!("{t}{}, {tile}, {split}", product.problem(false)));
        let suffix = if split == 1 { String::new() } else { format!("_split{split}") };
        let constants = product.constants().to_vec();
        CustomKernel {
            tail: format!("{}_{name}_{rows}x{cols}x{stretch}_{down}x{across}x{groups}{suffix}_v0", real.name()),
            spec: spec.with_general_member(general.with_last_table(constants)),
            work_bytes: if split == 1 { 0 } else { 4 * (split * gemm.m * gemm.n) as u64 },
            cost_us: cost_us + product.stepping_us(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> CudaFacts {
        crate::select::target::Target::h200().as_cuda().unwrap()
    }

    fn offers(m: usize, n: usize, k: usize, trans: Trans, real: Real) -> Vec<CustomKernel> {
        let gemm = Gemm::plain(m, n, k, trans);
        kernels(&OpKind::Gemm(gemm), real, &h200())
    }

    #[test]
    fn every_product_has_a_few_kernels_with_distinct_ids() {
        for real in [Real::F32, Real::Tf32, Real::Bf16, Real::F16] {
            for m in [1, 10, 128, 4096] {
                for n in [1, 10, 512, 4097] {
                    for k in [1, 10, 784, 12_544] {
                        let codes = offers(m, n, k, Trans::Nn, real);
                        assert!(
                            (1..=DIRECT_OFFERS + BESIDE_DIRECT + 1).contains(&codes.len()),
                            "{m} {n} {k}: {}",
                            codes.len()
                        );
                        assert!(codes.is_sorted_by(|a, b| a.cost_us >= b.cost_us));
                        assert!(codes.iter().all(|code| code.cost_us.is_finite() && code.cost_us > DIRECT_US));
                        let mut tails: Vec<&str> = codes.iter().map(|code| code.tail.as_str()).collect();
                        tails.sort_unstable();
                        tails.dedup();
                        assert_eq!(tails.len(), codes.len());
                    }
                }
            }
        }
        assert!(offers(0, 1, 1, Trans::Nn, Real::F32).is_empty());
    }

    #[test]
    fn long_reductions_of_few_tiles_are_split_and_small_products_are_one_launch() {
        let first =
            |m, n, k, trans, real| offers(m, n, k, trans, real).pop().map(|code| (code.work_bytes, code.spec.ty()));
        let split = first(128, 128, 12_544, Trans::Tn, Real::F32);
        assert!(split.is_some_and(|(work, _)| work > 0 && work.is_multiple_of(4 * 128 * 128)));
        for (m, n, k) in [(128, 512, 784), (128, 10, 512), (256, 256, 256)] {
            assert!(first(m, n, k, Trans::Nn, Real::Tf32).is_some_and(|(work, _)| work == 0));
        }
        for real in [Real::Tf32, Real::Bf16, Real::F16] {
            assert!(first(256, 256, 256, Trans::Nt, real).is_some_and(|(_, ty)| ty.starts_with("GemmDirect<")));
        }
        let large = first(4096, 4096, 4096, Trans::Nt, Real::Bf16);
        assert!(large.is_some_and(|(_, ty)| ty.contains(", 128, 128, 32, 2, 4, 1, 1>")));
    }
}
