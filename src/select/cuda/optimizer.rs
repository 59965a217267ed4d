//! Which types of `optimizer.cu` compute an operation, with the table of segments that is declared before them.

use super::speed::{CACHED_BYTES_PER_US, STREAM_BYTES_PER_US};
use crate::ops::{self, FlatUpdate, OpKind, PARTS_ALIGN, RuleText, Segment};
use crate::select::cuda::custom::{CustomKernel, cpp_bits};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{GeneralMember, KernelFile, KernelSpec, Pdl};
use crate::select::target::CudaFacts;

/// Elements of a unit: segments start at multiples of it.
const UNIT: usize = 64;

/// The largest number of blocks of a cluster, and the number of units that such a cluster processes: two for each of
/// its warps.
const CLUSTER: usize = 8;
const CLUSTER_UNITS: usize = CLUSTER * 64;

/// The number of units above which blocks loop several times, and the number of blocks above which they loop more
/// often.
const MANY_UNITS: usize = 1 << 16;
const MANY_BLOCKS: usize = 8192;

/// The capacity of general members that sum a step's metrics; equal to that of `AnyMetrics` in the kernels.
const MOST_METRIC_UNITS: usize = 2048;
const MOST_METRIC_SEGMENTS: usize = 512;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    match kind {
        OpKind::StepMetrics(ops::StepMetrics { segments }) => vec![step_metrics(segments)],
        OpKind::ScaleUpdate(op) => scale_update(op, real, gpu).into_iter().collect(),
        _ => match (RuleType::of(kind), kind.flat_update()) {
            (Some(rule), Some(flat)) => update(&rule, &flat, (real, gpu)),
            _ => Vec::new(),
        },
    }
}

/// The C++ types of the rule of an optimizer, in a separate update or fused into the gradient.
pub(super) struct RuleType {
    /// The type with its constants.
    pub own: String,
    /// The type that reads its constants from memory, for general members; `own` if the rule has no constants.
    pub any: String,
    /// The words that it reads: each constant as an `f32`, and 1 minus the constant.
    pub words: Vec<u32>,
}

impl RuleType {
    /// The type of an operation's rule, if it is an update.
    pub fn of(kind: &OpKind) -> Option<Self> {
        let RuleText { name, constants, flags } = kind.rule()?;
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let all: Vec<String> = constants.iter().copied().map(cpp_bits).chain(flags.iter().cloned()).collect();
        let own = format!("{name}<{}>", all.join(", "));
        // A rule without states multiplies nothing by a constant.
        if kind.update()?.states.is_empty() {
            return Some(Self { any: own.clone(), own, words: Vec::new() });
        }
        let any = if flags.is_empty() { format!("Any{name}") } else { format!("Any{name}<{}>", flags.join(", ")) };
        let words = constants.iter().flat_map(|c| [*c as f32, (1.0 - c) as f32].map(f32::to_bits)).collect();
        Some(Self { own, any, words })
    }
}

/// The operation that combines the partial metrics of updates that are fused into gradients.
fn step_metrics(segments: &[Segment]) -> CustomKernel {
    /// Bytes that one multiprocessor reads in a microsecond.
    const ALONE_BYTES_PER_US: f64 = 8e4;
    let (count, units) = (segments.len(), segments.iter().map(|s| s.len / PARTS_ALIGN).sum::<usize>());
    let declarations = plain_table(segments.iter().map(|s| [s.start / PARTS_ALIGN, s.len / PARTS_ALIGN]));
    let pdl = Pdl { reads_flags: true, fetches_early: false, leaves_room: true };
    let spec = KernelSpec::new(KernelFile::Optimizer, "StepMetrics", format!("Segments, {units}")).with_pdl(pdl);
    let spec = KernelSpec { declarations, ..spec };
    let places = segments.iter().flat_map(|s| [s.start / PARTS_ALIGN, s.len / PARTS_ALIGN]);
    let table: Option<Vec<u32>> = places.map(|n| u32::try_from(n).ok()).collect();
    let fits = units <= MOST_METRIC_UNITS && count <= MOST_METRIC_SEGMENTS;
    CustomKernel {
        tail: "f32_block_v0".to_owned(),
        spec: match table.filter(|_| fits) {
            Some(table) => {
                let warps = units.clamp(4, 8);
                let flight = units.div_ceil(warps).next_power_of_two().min(8);
                let arguments = format!("AnyMetrics, ANY, {warps}, {flight}");
                let counts = count as u64 | (units as u64) << 32;
                spec.with_general_member(GeneralMember::new(arguments, vec![counts]).with_last_table(table))
            }
            None => spec,
        },
        work_bytes: 0,
        cost_us: 1.8 + (256 * units) as f64 / ALONE_BYTES_PER_US,
    }
}

/// The declaration of segments of which a kernel needs only the rows.
fn plain_table(rows: impl Iterator<Item = [usize; 2]>) -> String {
    let rows: Vec<String> = rows.map(|[start, len]| format!("{start}, {len}")).collect();
    let count = rows.len();
    format!(
        "static __device__ const u32 SEGMENT_ROWS[{count} * 2] = {{\n    {},\n}};\n\
         struct Segments {{\n    \
         static constexpr int COUNT = {count};\n    \
         static __device__ const u32* rows() {{ return SEGMENT_ROWS; }}\n\
         }};",
        rows.join(",\n    ")
    )
}

/// The bounds of the segments in units, and the units of the longest; `None` if there is nothing to do.
fn bounds(segments: &[Segment]) -> Option<(usize, usize, usize)> {
    let first = segments.first()?.start / UNIT;
    let end = segments.iter().map(|s| (s.start + s.len).div_ceil(UNIT)).max()?;
    let longest = segments.iter().map(|s| s.len.div_ceil(UNIT)).max()?;
    // The kernels count a segment's elements in 31 bits.
    (longest > 0 && longest < (1 << 31) / UNIT).then_some((first, end, longest))
}

/// The declarations that `optimizer.cu` requires: the first element in units, and the elements of each segment; and the
/// segments without weight decay, one bit each.
fn table(flat: &FlatUpdate<'_>, (first, end, longest): (usize, usize, usize)) -> String {
    let FlatUpdate { len, segments, options, .. } = *flat;
    let rows: Vec<String> = segments.iter().map(|s| format!("{}, {}", s.start / UNIT, s.len)).collect();
    let dense = is_dense(segments);
    let (count, scaled, exempts) = (segments.len(), options.clipped, !options.exempt.is_empty());
    let (bits, exempt) = if exempts {
        let mut words = vec![0u32; count.div_ceil(32)];
        options.exempt.iter().for_each(|segment| words[segment / 32] |= 1 << (segment % 32));
        let words: Vec<String> = words.iter().map(|word| format!("{word:#x}")).collect();
        let array = format!("static __device__ const u32 EXEMPT_BITS[{}] = {{{}}};\n", words.len(), words.join(", "));
        (array, "EXEMPT_BITS[segment / 32] >> segment % 32 & 1")
    } else {
        (String::new(), "false")
    };
    format!(
        "static __device__ const u32 SEGMENT_ROWS[{count} * 2] = {{\n    {},\n}};\n{bits}\
         struct Segments {{\n    \
         static constexpr int COUNT = {count};\n    \
         static constexpr u32 FIRST = {first}, END = {end}, LONGEST = {longest};\n    \
         static constexpr bool DENSE = {dense}, SCALED = {scaled}, EXEMPTS = {exempts};\n    \
         static constexpr i64 LEN = {len};\n    \
         static __device__ const u32* rows() {{ return SEGMENT_ROWS; }}\n    \
         static __device__ bool exempt(int segment) {{ return {exempt}; }}\n\
         }};",
        rows.join(",\n    ")
    )
}

/// The same data for a general member, in the format of `AnySegments`, with the constants of its rule; `None` if there
/// are more segments than its shared memory holds.
fn any_table(flat: &FlatUpdate<'_>, (first, end, _): (usize, usize, usize), constants: &[u32]) -> Option<Vec<u32>> {
    /// The capacity of general members, in segments.
    const MOST_SEGMENTS: usize = 1024;
    let FlatUpdate { len, segments, options, .. } = *flat;
    let count = segments.len();
    let low_and_high = [len as u64 & u64::from(u32::MAX), len as u64 >> 32];
    let head = [count, first, end].map(|number| u32::try_from(number).ok());
    let head: Vec<u32> = head.into_iter().collect::<Option<_>>()?;
    let rows = segments.iter().flat_map(|s| [(s.start / UNIT) as u32, s.len as u32]);
    let mut bits = vec![0u32; count.div_ceil(32)];
    options.exempt.iter().for_each(|segment| bits[segment / 32] |= 1 << (segment % 32));
    let head = head.into_iter().chain(low_and_high.map(|word| word as u32));
    let words = head.chain(constants.iter().copied()).chain(rows).chain(bits);
    (count <= MOST_SEGMENTS).then(|| words.collect())
}

/// Whether no segment is empty and each starts at the first unit after the one before.
fn is_dense(segments: &[Segment]) -> bool {
    let follow = segments.windows(2).all(|s| s[1].start / UNIT == (s[0].start + s[0].len).div_ceil(UNIT));
    follow && segments.iter().all(|s| s.len > 0)
}

/// An update of parameters by one rule, with the common arguments of all of its kernels.
struct Update<'a> {
    rule: &'a RuleType,
    real: Real,
    /// The table of segments, as declarations and in the form that general members read.
    table: String,
    any_table: Option<Vec<u32>>,
    /// Whether segments are contiguous, gradients are scaled, and some segments have no weight decay.
    dense: bool,
    scaled: bool,
    exempts: bool,
    segments: usize,
    units: usize,
    /// The time to move all arguments once, in microseconds.
    moving_us: f64,
    /// From capability 9 on, a launch that waits for another one can start early, and there are clusters.
    hopper: bool,
}

impl Update<'_> {
    fn spec(&self, threads: usize, each: usize, rounds: usize, finish: &str) -> KernelSpec {
        let (rule, t) = (self.rule, self.real.cpp());
        let arguments = format!("{}, {t}, Segments, {threads}, {each}, {rounds}, FINISH_{finish}", rule.own);
        // These kernels wait only where they need a result of the preceding launch.
        let pdl = Pdl { fetches_early: true, ..Pdl::default() };
        let spec = KernelSpec::new(KernelFile::Optimizer, "Update", arguments).with_pdl(pdl);
        let spec = KernelSpec { declarations: self.table.clone(), ..spec };
        match &self.any_table {
            Some(table) => {
                let segments = self.any_segments(threads, threads / 16 * each * rounds, finish);
                // A cluster's units may be shared among more threads, because each unit and each segment has a separate
                // sum.
                let threads = match finish {
                    "CLUSTER" if self.units <= 16 => 256,
                    "CLUSTER" => 32 * self.units.div_ceil(2 * CLUSTER).next_power_of_two(),
                    _ => threads,
                };
                let rule = &rule.any;
                let arguments = format!("{rule}, {t}, {segments}, {threads}, {each}, {rounds}, FINISH_{finish}");
                spec.with_general_member(GeneralMember::new(arguments, Vec::new()).with_last_table(table.clone()))
            }
            None => spec,
        }
    }

    /// The type of the segments of a general member: the number of threads that share a segment, and whether no partial
    /// result is empty, by the formulas of `Update`.
    fn any_segments(&self, threads: usize, per_block: usize, finish: &str) -> String {
        let share = [32, 16, 8].into_iter().find(|share| self.segments * share <= threads).unwrap_or(4);
        let blocks = self.units.div_ceil(per_block);
        let direct = finish == "CLUSTER" || (self.dense && blocks + self.segments - 1 <= 1024);
        let (scaled, exempts) = (self.scaled, self.exempts);
        format!("AnySegments<{direct}, {scaled}, {exempts}, {share}, {}>", blocks == 1)
    }

    /// Blocks that leave their partial metrics to a second phase, or to the last block.
    fn spread(&self, threads: usize, each: usize, rounds: usize, by_phase: bool) -> CustomKernel {
        /// The additional cost of the metrics, in microseconds: with a second launch, or by the last block.
        const PHASE_US: f64 = 1.6;
        const TICKET_US: f64 = 2.6;
        let (name, finish, more) = match by_phase {
            true => ("phases", "PHASE", if self.hopper { PHASE_US } else { 2.0 * PHASE_US }),
            false => ("ticket", "TICKET", TICKET_US),
        };
        let parts = self.units.div_ceil(threads / 16 * each * rounds) + self.segments - 1;
        CustomKernel {
            tail: format!("{}_{name}{threads}x{each}x{rounds}_v0", self.real.name()),
            spec: self.spec(threads, each, rounds, finish),
            work_bytes: 8 * parts as u64,
            cost_us: self.moving_us + more,
        }
    }

    /// Blocks that process two units for each warp and combine the metrics among themselves; at most `most` of them.
    fn together(&self, most: usize) -> CustomKernel {
        let threads = 32 * self.units.div_ceil(most).div_ceil(2);
        let blocks = self.units.div_ceil(threads / 16);
        let spec = self.spec(threads, 1, 1, "CLUSTER");
        CustomKernel {
            tail: format!("{}_cluster{blocks}x{threads}_v0", self.real.name()),
            // All blocks form one cluster.
            spec: if blocks > 1 { spec.in_clusters(blocks, CLUSTER) } else { spec },
            work_bytes: 0,
            cost_us: self.moving_us + if blocks > 1 { 1.0 } else { 0.6 },
        }
    }

    /// The kernels that are worth trying.
    fn kernels(&self) -> Vec<CustomKernel> {
        let (units, hopper) = (self.units, self.hopper);
        if units <= 16 {
            return vec![self.together(1)];
        }
        let spread =
            |threads: usize, each: usize, rounds: usize, by_phase: bool| self.spread(threads, each, rounds, by_phase);
        let small = units <= CLUSTER_UNITS;
        let mut rounds = 1;
        while units > MANY_UNITS && (rounds < 8 || units.div_ceil(32 * rounds) > MANY_BLOCKS) {
            rounds *= 2;
        }
        match (hopper, small) {
            (true, true) => vec![spread(256, 1, 1, false), spread(256, 1, 1, true), self.together(CLUSTER)],
            (false, true) => vec![spread(256, 1, 1, true), spread(256, 1, 1, false)],
            _ if rounds > 1 => vec![spread(512, 1, rounds, false), spread(512, 1, rounds, true)],
            (true, false) => {
                vec![spread(512, 2, 1, true), spread(384, 2, 1, true), spread(384, 1, 1, true), spread(512, 1, 1, true)]
            }
            (false, false) => vec![spread(512, 1, 1, true), spread(256, 2, 1, false), spread(512, 1, 1, false)],
        }
    }
}

/// An update of the flat parameters by `rule`.
fn update(rule: &RuleType, flat: &FlatUpdate<'_>, (real, gpu): (Real, &CudaFacts)) -> Vec<CustomKernel> {
    /// The size of arrays, in bytes, that the second-level cache holds.
    const CACHED_BYTES: usize = 32 << 20;
    /// The cost of the launch in microseconds.
    const LAUNCH_US: f64 = 1.0;
    let (segments, states) = (flat.segments, flat.slots.states.len());
    let Some((first, end, longest)) = bounds(segments) else { return Vec::new() };
    let elements: usize = segments.iter().map(|segment| segment.len).sum();
    let half = if real.half().is_some() { real.size() } else { 0 };
    let bytes = elements * (12 + 8 * states + half);
    let pace = if bytes <= CACHED_BYTES { CACHED_BYTES_PER_US } else { STREAM_BYTES_PER_US };
    let update = Update {
        rule,
        real,
        table: table(flat, (first, end, longest)),
        any_table: any_table(flat, (first, end, longest), &rule.words),
        dense: is_dense(segments),
        scaled: flat.options.clipped,
        exempts: !flat.options.exempt.is_empty(),
        segments: segments.len(),
        units: end - first,
        moving_us: LAUNCH_US + bytes as f64 / pace,
        hopper: gpu.capability.0 >= 9,
    };
    update.kernels()
}

/// Dynamic loss scaling; `None` if there is no gradient.
fn scale_update(op: &ops::ScaleUpdate, real: Real, gpu: &CudaFacts) -> Option<CustomKernel> {
    let ops::ScaleUpdate { len, segments } = op;
    bounds(segments)?;
    let groups = len / 4;
    let (threads, blocks) = if groups <= 4096 {
        (groups.next_multiple_of(32).clamp(32, 1024), 1)
    } else {
        (256, groups.div_ceil(512).min(8 * gpu.multiprocessors as usize).clamp(1, 1024))
    };
    let rows = segments.iter().map(|s| [s.start / UNIT, s.len]);
    let declarations = plain_table(rows.clone());
    let general = format!("AnyRows, ANY, {}", if blocks == 1 { "1024, 1" } else { "256, ANY" });
    let table = std::iter::once(segments.len()).chain(rows.flatten()).map(|number| number as u32).collect();
    let general = GeneralMember::new(general, vec![*len as u64, blocks as u64]).with_last_table(table);
    let arguments = format!("Segments, {len}, {threads}, {blocks}");
    let spec = KernelSpec::new(KernelFile::Optimizer, "ScaleUpdate", arguments);
    Some(CustomKernel {
        tail: format!("{}_flat_v0", real.name()),
        spec: KernelSpec { declarations, ..spec }.with_general_member(general),
        work_bytes: 0,
        cost_us: 1.5 + (4 * len) as f64 / STREAM_BYTES_PER_US,
    })
}
