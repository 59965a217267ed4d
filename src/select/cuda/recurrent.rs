//! Which types of `recurrent.cu` compute an operation, and how they divide it.
//!
//! If the weight fits into the registers of a block, its threads hold it, and blocks need not synchronise. If it fits
//! into the shared memory or registers of all blocks together, each block has its own units, and blocks synchronise at
//! every position: there are never more blocks than multiprocessors, so that all are resident. Otherwise blocks read
//! the weight from memory.

use super::custom::{CustomKernel, general_or_wider};
use super::elementwise::vec_width;
use super::real::Real;
use super::spec::{KernelFile, KernelSpec};
use super::speed::LAUNCH_US;
use crate::model::Cell;
use crate::ops::{self, OpKind, RecurrenceGeometry};
use crate::select::target::CudaFacts;

/// Clock cycles in a microsecond.
const CYCLES_PER_US: f64 = 1_700.0;

/// Bytes that all multiprocessors, and one of them, read from the second-level cache in a microsecond.
const CACHED_BYTES_PER_US: f64 = 4e6;
const BLOCK_BYTES_PER_US: f64 = 1e5;

/// The largest number of threads of a block that holds the weight, and of weights that a thread holds.
const MOST_THREADS: usize = 512;
const MOST_HELD: usize = 96;

/// Registers of a thread in addition to weights, sums, and loads in flight: addresses and counters.
const OTHER_REGISTERS: usize = 18;

/// The largest number of samples of a block.
const MOST_SAMPLES: usize = 8;

/// Rows of a tile of matrix instructions.
const TILE: usize = 16;

/// The largest number of loads in flight for a thread of a grid.
const MOST_ON_THEIR_WAY: usize = 40;

/// Every type of this family for an operation, in rising order of preference among equals.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let (g, is_backward) = match kind {
        OpKind::Recurrence(ops::Recurrence { geometry }) => (geometry, false),
        OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry }) => (geometry, true),
        _ => return Vec::new(),
    };
    // Kernels count positions and values in 32 bits.
    if g.rows() * g.units == 0 || g.rows().max(g.units * g.wide()) >= 1 << 31 {
        return Vec::new();
    }
    let walk = Walk { g, real, is_backward, multiprocessors: gpu.multiprocessors.max(1) as usize };
    let mut found = vec![walk.general()];
    found.extend(walk.grid(gpu.shared_bytes()));
    found.extend(walk.held());
    found
}

/// An operation with numbers that are used in several places.
struct Walk<'a> {
    g: &'a RecurrenceGeometry,
    real: Real,
    is_backward: bool,
    multiprocessors: usize,
}

/// How threads divide a weight that they hold: units of a thread, and slices of the summed dimension.
#[derive(Clone, Copy)]
struct Division {
    units: usize,
    slices: usize,
    samples: usize,
}

/// How blocks divide units and samples.
#[derive(Clone, Copy)]
struct Grid {
    /// Units of a block.
    units: usize,
    /// Tiles of samples of a block.
    tiles: usize,
    /// The most ranges of states of a forward product with matrix instructions.
    ranges: usize,
    groups: usize,
    /// Blocks of a group.
    shares: usize,
}

impl Walk<'_> {
    fn gates(&self) -> usize {
        self.g.cell.gates()
    }

    /// The C++ type of the shape; general members leave sizes and flags open.
    fn shape(&self, is_general: bool) -> String {
        let cell = match self.g.cell {
            Cell::RnnTanh => "CELL_TANH",
            Cell::RnnRelu => "CELL_RELU",
            Cell::Gru => "CELL_GRU",
            Cell::Lstm => "CELL_LSTM",
        };
        let RecurrenceGeometry { batch, positions, units, reverse, bidirectional, last, .. } = *self.g;
        let sizes = if is_general {
            "ANY, ANY, ANY, false, false, false".to_owned()
        } else {
            format!("{batch}, {positions}, {units}, {reverse}, {bidirectional}, {last}")
        };
        format!("Walk<{}, {cell}, {sizes}>", self.real.cpp())
    }

    fn kernel(&self, way: &'static str, [forward, back]: [&'static str; 2], arguments: &str) -> CustomKernel {
        let template = if self.is_backward { back } else { forward };
        CustomKernel {
            tail: format!("{}_{way}", self.real.name()),
            spec: KernelSpec::new(KernelFile::Recurrent, template, format!("{}, {arguments}", self.shape(false))),
            work_bytes: 0,
            cost_us: LAUNCH_US,
        }
    }

    /// A block has some samples, and reads the weight at every position.
    fn general(&self) -> CustomKernel {
        let (batch, units) = (self.g.batch, self.g.units);
        let samples = batch.div_ceil(self.multiprocessors).clamp(1, MOST_SAMPLES / 2);
        let threads = if self.is_backward { 256 } else { units.next_multiple_of(32).min(256) };
        let mut kernel = self.kernel("stream", ["Recurrence", "RecurrenceBwd"], &format!("{samples}, {threads}"));
        let (bytes, blocks) = ((4 * units * self.g.wide()) as f64, batch.div_ceil(samples));
        let waves = blocks.div_ceil(self.multiprocessors) as f64;
        let together = blocks.min(self.multiprocessors) as f64 * bytes / CACHED_BYTES_PER_US;
        let position_us = 1.0 + waves * together.max(bytes / BLOCK_BYTES_PER_US);
        kernel.tail = format!("{}{samples}x{threads}_v0", kernel.tail);
        kernel.work_bytes = (8 * batch * units) as u64;
        kernel.cost_us += self.g.positions as f64 * position_us;
        kernel
    }

    /// Threads hold the weight.
    fn held(&self) -> Option<CustomKernel> {
        let powers = [1, 2, 4, 8, 16, 32];
        let most = self.g.batch.div_ceil(self.multiprocessors).min(MOST_SAMPLES);
        let all = powers.into_iter().flat_map(|units| powers.map(|slices| (units, slices)));
        let divisions =
            all.flat_map(|(units, slices)| (1..=most).map(move |samples| Division { units, slices, samples }));
        let fitting = divisions.filter(|d| (d.units == 1 || self.is_backward) && self.fits(*d));
        let d = fitting.min_by(|a, b| self.held_us(*a).total_cmp(&self.held_us(*b)))?;
        let Division { units, slices, samples } = d;
        let arguments =
            if self.is_backward { format!("{units}, {slices}, {samples}") } else { format!("{slices}, {samples}") };
        let mut kernel = self.kernel("held", ["RecurrenceHeld", "RecurrenceHeldBwd"], &arguments);
        kernel.tail = format!("{}{units}x{slices}x{samples}_v0", kernel.tail);
        kernel.cost_us += self.held_us(d);
        let (threads, quads) = (rounded_threads(self.threads(d)), rounded_quads(self.quads(d)));
        let any = |threads: usize, quads: usize| format!("{}, {arguments}, {threads}, {quads}", self.shape(true));
        let wider = any(threads.next_multiple_of(256.min(threads)), quads.next_power_of_two());
        Some(general_or_wider(kernel, [any(threads, quads), wider], &self.numbers()))
    }

    /// Groups of four numbers of a sum for each thread.
    fn quads(&self, d: Division) -> usize {
        let summed = if self.is_backward { self.g.wide() } else { self.g.units };
        summed.div_ceil(4 * d.slices)
    }

    /// Sums of a thread for each sample.
    fn sums(&self, d: Division) -> usize {
        if self.is_backward { d.units } else { self.gates() }
    }

    fn threads(&self, d: Division) -> usize {
        (self.g.units.div_ceil(d.units) * d.slices).next_multiple_of(32)
    }

    /// Whether threads have enough registers.
    fn fits(&self, d: Division) -> bool {
        if d.slices < d.units || self.threads(d) > MOST_THREADS {
            return false;
        }
        let held = 4 * self.quads(d) * self.sums(d);
        // The number of samples for which a thread computes the functions, and the number of loads in flight for each.
        let turns = d.samples.div_ceil(d.slices / d.units);
        let coming = turns * if self.is_backward { self.gates() + 4 } else { 2 * self.gates() };
        let registers = (65_536 / self.threads(d)).min(255) - OTHER_REGISTERS;
        held <= MOST_HELD && held + d.samples * self.sums(d) + coming <= registers
    }

    /// The time of the loop, without the launch, in microseconds.
    fn held_us(&self, d: Division) -> f64 {
        let (quads, sums) = (self.quads(d), self.sums(d));
        let steps = (d.slices / d.units).ilog2() as usize;
        let exchanged = if self.is_backward { d.units - 1 + steps } else { sums * steps };
        let turns = d.samples.div_ceil(d.slices / d.units);
        // Instructions of a warp at a position; a multiprocessor issues four at once.
        let issued = d.samples * (4 * quads * sums + quads + 3 * exchanged) + turns * 60;
        let warps = self.threads(d) / 32;
        let cycles = (warps * issued) as f64 / 4.0 + (20 * d.slices.ilog2()) as f64 + 300.0;
        let resident = (2_048 / self.threads(d)).min(65_536 / (self.threads(d) * 128)).max(1);
        let blocks = self.g.batch.div_ceil(d.samples);
        let waves = blocks.div_ceil(self.multiprocessors * resident) as f64;
        let beside = blocks.div_ceil(self.multiprocessors).min(resident) as f64;
        2.0 + waves * self.g.positions as f64 * (cycles + (beside - 1.0) * (warps * issued) as f64 / 4.0)
            / CYCLES_PER_US
    }

    /// Blocks have their own units.
    fn grid(&self, shared: usize) -> Option<CustomKernel> {
        let grids = [1, 2, 4].into_iter().filter_map(|tiles| {
            let groups = self.g.batch.div_ceil(TILE * tiles);
            let most = self.multiprocessors / groups;
            let units = if most == 0 { return None } else { self.g.units.div_ceil(most) };
            Some(Grid { units, tiles, ranges: GRID_WARPS, groups, shares: self.g.units.div_ceil(units) })
        });
        let grids: Vec<Grid> = grids.filter(|grid| self.on_their_way(*grid) <= MOST_ON_THEIR_WAY).collect();
        // Fewer ranges have fewer sums in shared memory, but with few of them a warp reads many states.
        let fitting = |divisors: [usize; 2]| {
            let of = |grid: &Grid| {
                let all = divisors.map(|divisor| Grid { ranges: GRID_WARPS / divisor, ..*grid });
                all.into_iter().find(|grid| self.grid_bytes(*grid) <= shared)
            };
            grids.iter().filter_map(of).min_by(|a, b| self.grid_us(*a).total_cmp(&self.grid_us(*b)))
        };
        let grid = fitting([1, 2]).or_else(|| fitting([4, 8]))?;
        let Grid { units, tiles, groups, shares, .. } = grid;
        let arguments = format!("{}, {units}, {tiles}{}", self.uses_matrices(), self.ranges_argument(grid));
        let mut kernel = self.kernel("grid", ["RecurrenceGrid", "RecurrenceGridBwd"], &arguments);
        kernel.spec.blocks_meet = true;
        let unit = if self.uses_matrices() { "mma" } else { "simt" };
        kernel.tail = format!("{}_{unit}_{units}x{}_v0", kernel.tail, tiles * TILE);
        let sent = if self.is_backward { 8 * TILE * tiles * self.states() * groups * shares } else { 0 };
        kernel.work_bytes = (COUNTER_BYTES * groups + sent) as u64;
        kernel.cost_us += LAUNCH_US + self.grid_us(grid);
        let Some(general) = self.general_grids(grid, shared) else { return Some(kernel) };
        let numbers = [&self.numbers()[..], &[units as u64]].concat();
        Some(general_or_wider(kernel, general, &numbers))
    }

    /// The arguments of the general member for a grid, and of the one for a wider class: few different units of a block
    /// and states, where shared memory is sufficient. `None` if it is not sufficient for either.
    fn general_grids(&self, grid: Grid, shared: usize) -> Option<[String; 2]> {
        let (units, states) = (grid.units, self.states().next_multiple_of(ROOM_STEP));
        // Threads need no more registers for these.
        let units = if units <= MOST_ROUNDED_UNITS { units.next_power_of_two() } else { units };
        let wide_states = states.next_power_of_two().max(WIDE_STATES);
        let sizes = [(units.max(WIDE_UNITS), wide_states), (units, wide_states), (units, states)];
        // Where there is no room for them, few different units of a block.
        let stepped = [8, 4].map(|step| (grid.units.next_multiple_of(step), states));
        let sizes = sizes.into_iter().chain(stepped).chain([(grid.units, states), (grid.units, self.states())]);
        let fits = |(units, states): &(usize, usize)| {
            self.general_grid_bytes(Grid { units: *units, ..grid }, *states) <= shared
        };
        let fitting: Vec<(usize, usize)> = sizes.filter(fits).collect();
        let widest = *fitting.first()?;
        let own = fitting.into_iter().find(|(own, room)| *own <= units && *room <= states).unwrap_or(widest);
        let any = |(units, room): (usize, usize), vectors: usize| {
            let vectors = if self.is_backward { String::new() } else { format!(", {vectors}") };
            let ranges = self.ranges_argument(grid);
            format!("{}, {}, {units}, {}{ranges}, {room}{vectors}", self.shape(true), self.uses_matrices(), grid.tiles)
        };
        Some([any(own, vec_width(self.real, self.g.units)), any(widest, 1)])
    }

    /// The numbers that general members read.
    fn numbers(&self) -> [u64; 4] {
        let RecurrenceGeometry { batch, positions, units, reverse, bidirectional, last, .. } = *self.g;
        let flags = u64::from(reverse) | u64::from(bidirectional) << 1 | u64::from(last) << 2;
        [batch as u64, positions as u64, units as u64, flags]
    }

    fn uses_matrices(&self) -> bool {
        self.real != Real::F32
    }

    /// States, rounded up to multiples of the size of a matrix instruction.
    fn states(&self) -> usize {
        self.g.units.next_multiple_of(8)
    }

    /// Values of the gates of a block, rounded up in the same way.
    fn columns(&self, grid: Grid) -> usize {
        (self.gates() * grid.units).next_multiple_of(8)
    }

    /// The argument of a forward pass for its ranges of states.
    fn ranges_argument(&self, grid: Grid) -> String {
        if self.is_backward { String::new() } else { format!(", {}", grid.ranges) }
    }

    /// Whether threads hold the weights of their matrix instructions in registers.
    fn holds_weights(&self, grid: Grid) -> bool {
        let (eights, columns) = (self.states() / 8, self.columns(grid) / 8);
        let (deep, span, chunk) = if self.is_backward {
            let span = eights.div_ceil(GRID_WARPS);
            (columns, span, span.min(4))
        } else {
            let deep = eights.div_ceil(grid.ranges);
            (deep, columns, deep.min(8))
        };
        let (weights, others) = (2 * deep * span, 4 * chunk + self.on_their_way(grid));
        let is_divided = self.is_backward || grid.ranges == GRID_WARPS;
        self.uses_matrices() && is_divided && weights <= MOST_HELD_BY_GRID && weights + others <= MOST_NUMBERS
    }

    /// Shared memory of a block.
    fn grid_bytes(&self, grid: Grid) -> usize {
        let (states, columns) = (self.states(), self.columns(grid));
        let weight = if self.holds_weights(grid) { 0 } else { self.weight_bytes(columns, states) };
        // Ranges of states of a forward product; with matrix instructions, each has sums of all gate values.
        let parts = if self.uses_matrices() { grid.ranges } else { (GRID_WARPS / (columns / 8)).max(1) };
        weight + self.factor_bytes(columns, states, parts.min(states / 8) * self.sum_pitch(columns))
    }

    /// Shared memory of a block of a general member, which has room for so many states: the weight is always there, and
    /// sums of products are in any number of ranges.
    fn general_grid_bytes(&self, grid: Grid, states: usize) -> usize {
        let columns = self.columns(grid);
        let sums = if self.uses_matrices() {
            grid.ranges * self.sum_pitch(columns)
        } else {
            columns.max(8 * GRID_WARPS) + 4 * GRID_WARPS
        };
        self.weight_bytes(columns, states) + self.factor_bytes(columns, states, sums)
    }

    /// The length of a row of the sums of a range of states.
    fn sum_pitch(&self, columns: usize) -> usize {
        if self.uses_matrices() { pitch(columns, 8) } else { columns + 4 }
    }

    /// Bytes of a block's weight.
    fn weight_bytes(&self, columns: usize, states: usize) -> usize {
        let is_read_along = self.is_backward || self.uses_matrices();
        4 * states * pitch(columns, if is_read_along { 4 } else { 8 })
    }

    /// Bytes of the other factors of a block's products: a backward pass has gradients of gates, a forward pass has
    /// states, which matrix instructions do not need, and `sums` sums for each of its rows.
    fn factor_bytes(&self, columns: usize, states: usize, sums: usize) -> usize {
        let row = match (self.is_backward, self.uses_matrices()) {
            (true, _) => pitch(columns, 4),
            (false, true) => sums,
            (false, false) => pitch(states, 4) + sums,
        };
        4 * TILE * row
    }

    /// Loads in flight for each thread.
    fn on_their_way(&self, grid: Grid) -> usize {
        let turns = (TILE * grid.units).div_ceil(32 * GRID_WARPS) * grid.tiles;
        turns * if self.is_backward { self.gates() + 6 } else { 2 * self.gates() + 2 }
    }

    /// The time of the loop, without the launches, in microseconds.
    fn grid_us(&self, grid: Grid) -> f64 {
        let (states, columns, blocks) = (self.states(), self.columns(grid), grid.groups * grid.shares);
        let travels = if self.is_backward { 2 * 4 * states } else { self.real.size() * states } * TILE * blocks;
        let products = (TILE * columns * states) as f64;
        let multiply = if self.real == Real::F32 { products / 80.0 } else { products / 1024.0 * 4.0 + 200.0 };
        let tile_us = 0.7 + travels as f64 / CACHED_BYTES_PER_US + multiply / CYCLES_PER_US;
        3.0 + self.g.positions as f64 * (1.1 + grid.tiles as f64 * tile_us)
    }
}

/// The threads of a general member: few different numbers, none of which leaves a thread fewer registers.
const fn rounded_threads(threads: usize) -> usize {
    if threads <= 256 { threads.next_power_of_two() } else { threads }
}

/// Groups of four numbers for which a thread of a general member has registers: few different numbers.
const fn rounded_quads(quads: usize) -> usize {
    if quads <= 4 { quads } else { quads.next_multiple_of(2) }
}

/// General members of grids have memory for a multiple of this many states, and up to this many units of a block are
/// rounded up.
const ROOM_STEP: usize = 32;
const MOST_ROUNDED_UNITS: usize = 64;
/// The least states and units of a block for which members for wider classes have memory.
const WIDE_STATES: usize = 256;
const WIDE_UNITS: usize = 16;

/// The most weights that a thread of a grid holds in registers, and the most of these and other numbers.
const MOST_HELD_BY_GRID: usize = 64;
const MOST_NUMBERS: usize = 96;
/// Warps of a block of a grid, and bytes of the counter of a group.
const GRID_WARPS: usize = 16;
const COUNTER_BYTES: usize = 128;

/// The length of rows of at least `least` numbers in shared memory: an odd multiple of `step`.
const fn pitch(least: usize, step: usize) -> usize {
    (least + step - 1) / (2 * step) * (2 * step) + step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::target::Target;

    const SMALL: RecurrenceGeometry = RecurrenceGeometry {
        cell: Cell::Gru,
        batch: 128,
        positions: 28,
        units: 128,
        reverse: false,
        bidirectional: false,
        last: true,
    };
    const LARGE: RecurrenceGeometry =
        RecurrenceGeometry { cell: Cell::Lstm, batch: 64, positions: 128, units: 512, last: false, ..SMALL };

    fn ops(geometry: RecurrenceGeometry) -> [OpKind; 2] {
        [OpKind::Recurrence(ops::Recurrence { geometry }), OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry })]
    }

    fn cheapest(kind: &OpKind, real: Real) -> CustomKernel {
        let found = kernels(kind, real, &Target::h200().as_cuda().unwrap());
        found.into_iter().min_by(|a, b| a.cost_us.total_cmp(&b.cost_us)).unwrap()
    }

    #[test]
    fn small_weights_are_held_by_threads_and_large_ones_by_blocks() {
        let ways = |g| ops(g).map(|op| cheapest(&op, Real::Tf32));
        let [forward, back] = ways(SMALL);
        let shape = "Walk<float, CELL_GRU, 128, 28, 128, false, false, true>";
        assert_eq!(forward.spec.ty(), format!("RecurrenceHeld<{shape}, 4, 1>"));
        assert_eq!(back.spec.ty(), format!("RecurrenceHeldBwd<{shape}, 2, 8, 1>"));
        assert_eq!((forward.tail.as_str(), forward.work_bytes), ("tf32_held1x4x1_v0", 0));
        let [forward, back] = ways(LARGE);
        let shape = "Walk<float, CELL_LSTM, 64, 128, 512, false, false, false>";
        assert_eq!(forward.spec.ty(), format!("RecurrenceGrid<{shape}, true, 16, 1, 16>"));
        assert_eq!(back.spec.ty(), format!("RecurrenceGridBwd<{shape}, true, 16, 1>"));
        assert_eq!((forward.work_bytes, back.work_bytes), (512, 512 + (8 << 20)));
        assert_eq!(back.tail, "tf32_grid_mma_16x16_v0");
    }

    #[test]
    fn sums_of_a_grid_leave_room_for_the_weight() {
        for (cell, batch, units) in [(Cell::Lstm, 512, 384), (Cell::Lstm, 256, 592), (Cell::Gru, 256, 632)] {
            let [forward, _] =
                ops(RecurrenceGeometry { cell, batch, units, ..LARGE }).map(|op| cheapest(&op, Real::Bf16));
            let ty = forward.spec.ty();
            assert!(ty.starts_with("RecurrenceGrid<") && !ty.ends_with(", 16>"), "{batch} x {units}: {ty}");
        }
    }

    #[test]
    fn every_size_has_a_kernel_and_blocks_that_meet_are_resident() {
        let gpu = Target::h200().as_cuda().unwrap();
        for multiprocessors in [1, 16, 132] {
            let gpu = CudaFacts { multiprocessors, ..gpu };
            for cell in Cell::ALL {
                for (batch, units) in [(1, 1), (3, 7), (40, 96), (64, 512), (700, 130), (2, 3000), (5000, 12)] {
                    for kind in ops(RecurrenceGeometry { cell, batch, units, ..SMALL }) {
                        let found = kernels(&kind, Real::Bf16, &gpu);
                        assert!(found[0].spec.template.ends_with(if kind.name().ends_with("bwd") {
                            "Bwd"
                        } else {
                            "e"
                        }));
                        for kernel in found.iter().filter(|k| k.tail.contains("grid")) {
                            let numbers: Vec<usize> =
                                kernel.spec.arguments.split(", ").filter_map(|n| n.parse().ok()).collect();
                            let [own, tiles] = match numbers[..] {
                                [.., own, tiles] if kind.name().ends_with("bwd") => [own, tiles],
                                [.., own, tiles, _] => [own, tiles],
                                _ => panic!("{numbers:?}"),
                            };
                            let blocks = batch.div_ceil(TILE * tiles) * units.div_ceil(own);
                            assert!(blocks <= multiprocessors as usize, "{}: {blocks}", kernel.spec.ty());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn threads_that_hold_a_weight_hold_all_of_it() {
        let gpu = Target::h200().as_cuda().unwrap();
        for units in 1..=230 {
            for cell in Cell::ALL {
                let g = RecurrenceGeometry { cell, units, ..SMALL };
                for (kind, is_backward) in ops(g).into_iter().zip([false, true]) {
                    let walk = Walk { g: &g, real: Real::F32, is_backward, multiprocessors: 132 };
                    let is_held = walk.held().is_some();
                    assert_eq!(is_held, kernels(&kind, Real::F32, &gpu).iter().any(|k| k.tail.contains("held")));
                    // The largest number of weights that all threads can hold.
                    let fits = units * g.wide() <= MOST_THREADS * MOST_HELD;
                    assert!(is_held == fits || (fits && units * g.wide() > 31_000), "{cell:?} {units}");
                }
            }
        }
    }
}
