//! Which types of `attention.cu`, `attention_mma.cu` and `attention_wgmma.cu` compute an operation, and with which
//! tiles.

use super::elementwise::{dropout_scale, scale_bits};
use crate::ops::{self, AttentionGeometry, OpKind, dropout_threshold};
use crate::select::cuda::custom::{CustomKernel, general_or_wider};
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;

/// Multiplications and additions of all multiprocessors in a microsecond, as these kernels reach: in floats, and on
/// tensor cores with factors of 16 bits and of TF32.
const FLOPS_PER_US: f64 = 1e7;
const HALF_FLOPS_PER_US: f64 = 1.5e8;
const TF32_FLOPS_PER_US: f64 = 6e7;

/// The same with the matrix instructions of warpgroups, once a block streams its tiles.
const WGMMA_FLOPS_PER_US: f64 = 5.7e8;

/// What a multiprocessor needs for the start and the end of a part of the work of those kernels, in microseconds.
const WGMMA_PART_US: f64 = 3.1;

/// The positions of a part.
const WGMMA_POSITIONS: usize = 128;

/// The cost of a phase in microseconds.
const PHASE_US: f64 = 1.5;

/// The largest number of tiles of a head for which a gradient computes the sums of its queries tile by tile.
const FEW_TILES: usize = 4;

/// The smallest number of features of a head for which members for wider classes have memory.
const LEAST_FEATURES: usize = 16;

/// The smallest tile.
const LEAST_TILE: usize = 16;

/// The largest number of features of a head for which tensor cores are used.
const MOST_MMA_DIM: usize = 128;

/// The number of features of a head for which the matrix instructions of warpgroups are used.
const WGMMA_DIM: usize = 64;

/// The geometry of attention or its gradient, and whether it is the gradient.
const fn geometry(kind: &OpKind) -> Option<(&AttentionGeometry, bool)> {
    match kind {
        OpKind::Attention(ops::Attention { geometry }) => Some((geometry, false)),
        OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => Some((geometry, true)),
        _ => None,
    }
}

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let Some((g, is_backward)) = geometry(kind).filter(|(g, _)| g.pairs() > 0) else { return Vec::new() };
    if is_backward && !has_few_rows(g) {
        return Vec::new();
    }
    // The gradient computes the scores and their gradient twice.
    let flops = kind.flops() as f64 * if is_backward { 1.4 } else { 1.0 };
    let problem = Problem { g, is_backward, real, gpu, flops };
    let tile = tile(g.head_dim);
    let mut out = vec![problem.plain(tile, FLOPS_PER_US)];
    // If there are fewer of the largest tiles than multiprocessors, smaller tiles use more multiprocessors, but process
    // every key more often. Tensor cores are faster than either.
    let blocks = |tile: usize| g.batch * g.heads * g.positions.div_ceil(tile);
    let is_idle = blocks(tile) < gpu.multiprocessors as usize && mma_supports(g, real, gpu).is_err();
    if !g.rotary && tile > LEAST_TILE && g.positions > LEAST_TILE && is_idle {
        out.push(problem.plain(tile / 2, 1.25 * FLOPS_PER_US));
    }
    out.extend(mma_supports(g, real, gpu).is_ok().then(|| problem.mma()));
    out.extend(wgmma_supports(g, real, gpu).then(|| problem.wgmma()));
    out
}

/// An attention or its gradient, with its multiplications and additions.
struct Problem<'a> {
    g: &'a AttentionGeometry,
    is_backward: bool,
    real: Real,
    gpu: &'a CudaFacts,
    flops: f64,
}

impl Problem<'_> {
    /// A kernel in one phase or two that reaches this rate, with the types of its general members.
    fn kernel(
        &self,
        tail: &str,
        spec: KernelSpec,
        any: [String; 2],
        is_one_phase: bool,
        flops_per_us: f64,
    ) -> CustomKernel {
        let g = self.g;
        let angles = if g.rotary { 8 * g.positions * (g.head_dim / 2) } else { 0 };
        let sums = if self.is_backward { 4 * g.batch * g.heads * g.positions } else { 0 };
        let kernel = CustomKernel {
            tail: format!("{}_{tail}_v0", self.real.name()),
            spec,
            work_bytes: if is_one_phase { 0 } else { (angles + sums) as u64 },
            cost_us: if is_one_phase { PHASE_US } else { 2.0 * PHASE_US } + self.flops / flops_per_us,
        };
        general_or_wider(kernel, any, &numbers(g))
    }

    /// The kernel in floats with tiles of so many positions.
    fn plain(&self, tile: usize, flops_per_us: f64) -> CustomKernel {
        let g = self.g;
        let [own, any @ ..] = shapes(g, self.real, tile);
        let (template, any, is_one_phase) = if self.is_backward {
            // A gradient whose heads have few tiles has the sums of its queries in shared memory.
            let has_sums = !g.rotary && g.positions.div_ceil(tile) <= FEW_TILES;
            ("AttentionBwd", any.map(|any| format!("{any}, {has_sums}")), has_sums)
        } else {
            ("Attention", any, !g.rotary)
        };
        let spec = KernelSpec::new(KernelFile::Attention, template, own);
        self.kernel(&format!("tiles{tile}"), spec, any, is_one_phase, flops_per_us)
    }

    /// The kernel on tensor cores.
    fn mma(&self) -> CustomKernel {
        let (g, real) = (self.g, self.real);
        let MmaTiles { warps, streamed, buffers } = MmaTiles::of(g.head_dim, real);
        let template = if self.is_backward { "AttentionMmaBwd" } else { "AttentionMma" };
        let [own, any, _] = shapes(g, real, tile(g.head_dim))
            .map(|shape| format!("AttendMma<{shape}, {warps}, {streamed}, {buffers}>"));
        let rate = if real == Real::Tf32 { TF32_FLOPS_PER_US } else { HALF_FLOPS_PER_US };
        let (spec, tail) =
            (KernelSpec::new(KernelFile::AttentionMma, template, own), format!("mma{}x{streamed}", 16 * warps));
        self.kernel(&tail, spec, [any.clone(), any], !g.rotary && !self.is_backward, rate)
    }

    /// The kernel with the matrix instructions of warpgroups.
    fn wgmma(&self) -> CustomKernel {
        let (g, blocks) = (self.g, self.gpu.multiprocessors);
        let [own, any, _] =
            shapes(g, self.real, tile(g.head_dim)).map(|shape| format!("AttendWgmma<{shape}, {blocks}>"));
        let (template, tail) =
            if self.is_backward { ("AttentionWgmmaBwd", "wgmma128x64") } else { ("AttentionWgmma", "wgmma128x128") };
        let spec = KernelSpec::new(KernelFile::AttentionWgmma, template, own);
        let kernel = self.kernel(tail, spec, [any.clone(), any], !self.is_backward, WGMMA_FLOPS_PER_US);
        // The parts are positions of each head of queries and, in a gradient, of each head of keys and values.
        let heads = if self.is_backward { g.heads + g.kv_heads } else { g.heads };
        let parts = (g.batch * heads * g.positions.div_ceil(WGMMA_POSITIONS)) as f64;
        let cost_us = kernel.cost_us + WGMMA_PART_US * parts / f64::from(blocks.max(1));
        // The exponents of rows are stored beside the sums.
        CustomKernel { work_bytes: 2 * kernel.work_bytes, cost_us, ..kernel }
    }
}

/// The name of the member on tensor cores, or the reason why an attention has none.
pub(super) fn refused(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Option<(String, String)> {
    let (g, _) = geometry(kind)?;
    Some((format!("{}_mma_v0", real.name()), mma_supports(g, real, gpu).err()?))
}

/// Checks whether tensor cores can compute this attention.
fn mma_supports(g: &AttentionGeometry, real: Real, gpu: &CudaFacts) -> Result<(), String> {
    if real == Real::F32 {
        return Err("tensor cores would round f32 to TF32".into());
    }
    if gpu.capability.0 < 8 {
        return Err(format!("capability {}.{} lacks the instructions", gpu.capability.0, gpu.capability.1));
    }
    if !g.head_dim.is_multiple_of(8) || g.head_dim > MOST_MMA_DIM {
        return Err(format!(
            "the number of features of a head, {}, is not a multiple of 8 up to {MOST_MMA_DIM}",
            g.head_dim
        ));
    }
    if !has_few_rows(g) {
        return Err("it supports fewer rows".into());
    }
    Ok(())
}

/// Whether the matrix instructions of warpgroups, which only Hopper has, can compute this attention.
fn wgmma_supports(g: &AttentionGeometry, real: Real, gpu: &CudaFacts) -> bool {
    let is_plain = g.head_dim == WGMMA_DIM && !g.rotary && !g.has_dropout();
    is_plain && real.size() == 2 && gpu.capability == (9, 0) && has_few_rows(g)
}

/// Whether 32 bits can count the rows of scores.
const fn has_few_rows(g: &AttentionGeometry) -> bool {
    g.batch * g.heads * g.positions <= i32::MAX as usize
}

/// The C++ types of an attention for a specialised and for a general member, with the tile of the kernels in floats.
/// The last type is that of a wider class, which reads the features of a head and the factor of the scores.
fn shapes(g: &AttentionGeometry, real: Real, tile: usize) -> [String; 3] {
    let AttentionGeometry { batch, positions, heads, kv_heads, head_dim, causal, rotary, dropout, stream } = *g;
    let (threshold, kept, any) = if g.has_dropout() {
        (dropout_threshold(dropout.get()), dropout_scale(dropout.get()), "ANY")
    } else {
        (0, "0u".to_owned(), "0u")
    };
    let of = |sizes: &str, features: usize, scale: u32, drops: &str| {
        let t = real.cpp();
        format!("Attend<{t}, {sizes}, {features}, {causal}, {rotary}, {scale:#010x}u, {drops}, {tile}>")
    };
    let (sizes, drops) =
        (format!("{batch}, {positions}, {heads}, {kv_heads}"), format!("{threshold}u, {kept}, {stream}u"));
    let (any_sizes, any_drops) = ("ANY, ANY, ANY, ANY", format!("{any}, {any}, {any}"));
    let scale = scale_number(g) as u32;
    [
        of(&sizes, head_dim, scale, &drops),
        of(any_sizes, head_dim, scale, &any_drops),
        of(any_sizes, head_dim.next_power_of_two().max(LEAST_FEATURES), 0, &any_drops),
    ]
}

/// The bits of the factor of the scores, which is never zero.
fn scale_number(g: &AttentionGeometry) -> u64 {
    u64::from((g.scale() as f32).to_bits())
}

/// The numbers of general members; without dropout, those of dropout are zero. Only members for wider classes read the
/// last two.
fn numbers(g: &AttentionGeometry) -> [u64; 9] {
    let [samples, positions, heads, kv_heads] = [g.batch, g.positions, g.heads, g.kv_heads].map(|n| n as u64);
    let [threshold, kept, stream] = match g.dropout.get() {
        rate if g.has_dropout() => [dropout_threshold(rate), scale_bits(rate), g.stream].map(u64::from),
        _ => [0; 3],
    };
    [samples, positions, heads, kv_heads, threshold, kept, stream, g.head_dim as u64, scale_number(g)]
}

/// The positions of a tile: the largest number for which five tiles fit into the shared memory of a block on every GPU.
const fn tile(head_dim: usize) -> usize {
    match head_dim {
        0..=64 => 64,
        65..=128 => 32,
        _ => 16,
    }
}

/// The tiles of the kernels on tensor cores: warps, each of which owns 16 positions, the streamed positions, and the
/// number of their tiles in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MmaTiles {
    warps: usize,
    streamed: usize,
    buffers: usize,
}

impl MmaTiles {
    /// The largest that fit into the shared memory of a block on every GPU.
    const fn of(head_dim: usize, real: Real) -> Self {
        match head_dim * real.size() {
            0..=128 => Self { warps: 4, streamed: 64, buffers: 2 },
            129..=256 => Self { warps: 4, streamed: 32, buffers: 2 },
            _ => Self { warps: 2, streamed: 32, buffers: 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{MOST_HEAD_DIM, Scalar};
    use crate::select::target::{Kernels, Target};

    /// Attention over 70 positions with dropout, causal and rotary or neither.
    fn geometry_of(is_causal: bool) -> AttentionGeometry {
        AttentionGeometry {
            batch: 2,
            positions: 70,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            causal: is_causal,
            rotary: is_causal,
            dropout: Scalar::new(0.5),
            stream: 3,
        }
    }

    #[test]
    fn tiles_fit_into_shared_memory() {
        // The shared memory of a block on GPUs of capability 8.6 and 8.9, the smallest of all from 8.0 on.
        const LEAST: usize = 99 << 10;
        for head_dim in 1..=MOST_HEAD_DIM {
            let (tile, row) = (tile(head_dim), head_dim.next_multiple_of(4) + 4);
            let bytes = 4 * (4 * tile * row + tile * (tile + 4));
            assert!(bytes <= LEAST, "{head_dim}: {bytes}");
        }
    }

    #[test]
    fn types_contain_rotation_and_dropout() {
        let g = geometry_of(true);
        let gpu = Target::h200().as_cuda().unwrap();
        let kind = OpKind::AttentionBwd(ops::AttentionBwd { geometry: g });
        let [found, mma] = kernels(&kind, Real::Bf16, &gpu).try_into().unwrap();
        let shape = "Attend<bf16, 2, 70, 4, 2, 16, true, true, 0x3e800000u, 2147483648u, 0x40000000u, 3u, 64>";
        assert_eq!(found.spec.ty(), format!("AttentionBwd<{shape}>"));
        assert_eq!((found.work_bytes, found.tail.as_str()), (8 * 70 * 8 + 4 * 2 * 4 * 70, "bf16_tiles64_v0"));
        assert_eq!(mma.spec.ty(), format!("AttentionMmaBwd<AttendMma<{shape}, 4, 64, 2>>"));
        assert_eq!((mma.work_bytes, mma.tail.as_str()), (found.work_bytes, "bf16_mma64x64_v0"));
        assert!(mma.cost_us < found.cost_us && refused(&kind, Real::Bf16, &gpu).is_none());
        // An attention without such a member has a reason.
        let of = |head_dim: usize, real: Real, capability: (u32, u32)| {
            let kind = OpKind::Attention(ops::Attention { geometry: AttentionGeometry { head_dim, ..g } });
            let gpu = CudaFacts { capability, ..gpu };
            assert_eq!(kernels(&kind, real, &gpu).len(), 1);
            refused(&kind, real, &gpu).unwrap().1
        };
        assert!(of(16, Real::F32, (9, 0)).contains("round f32"));
        assert!(of(12, Real::Bf16, (9, 0)).contains("multiple of 8") && of(136, Real::F16, (9, 0)).contains("136"));
        assert!(of(16, Real::Tf32, (7, 5)).contains("7.5"));
    }

    #[test]
    fn heads_of_64_features_have_a_member_for_warpgroups() {
        let gpu = Target::h200().as_cuda().unwrap();
        let g = AttentionGeometry::gpt2();
        let of = |g: AttentionGeometry, gpu: &CudaFacts| {
            let kinds = [
                OpKind::Attention(ops::Attention { geometry: g }),
                OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }),
            ];
            let found = kinds.iter().flat_map(|kind| kernels(kind, Real::Bf16, gpu));
            found.filter(|kernel| kernel.tail.contains("wgmma")).collect::<Vec<_>>()
        };
        let [forward, backward] = of(g, &gpu).try_into().unwrap();
        assert_eq!((forward.tail.as_str(), forward.work_bytes), ("bf16_wgmma128x128_v0", 0));
        // Two floats for each row of scores.
        let rows = (g.batch * g.heads * g.positions) as u64;
        assert_eq!((backward.tail.as_str(), backward.work_bytes), ("bf16_wgmma128x64_v0", 8 * rows));
        assert!(backward.spec.ty().starts_with("AttentionWgmmaBwd<AttendWgmma<Attend<bf16, "));
        assert!(backward.spec.ty().ends_with(", 132>>"), "{}", backward.spec.ty());
        for other in [
            AttentionGeometry { head_dim: 32, ..g },
            AttentionGeometry { rotary: true, ..g },
            AttentionGeometry { dropout: Scalar::new(0.5), ..g },
        ] {
            assert!(of(other, &gpu).is_empty(), "{other:?}");
        }
        assert!(of(g, &CudaFacts { capability: (10, 0), ..gpu }).is_empty());
    }

    #[test]
    fn general_members_read_sizes_and_dropout() {
        let g = geometry_of(false);
        let gpu = Target::h200().as_cuda().unwrap();
        let general = |geometry: AttentionGeometry, is_backward: bool| {
            let kind = if is_backward {
                OpKind::AttentionBwd(ops::AttentionBwd { geometry })
            } else {
                OpKind::Attention(ops::Attention { geometry })
            };
            let found = kernels(&kind, Real::Bf16, &gpu).into_iter().map(|code| code.spec.of(Kernels::General));
            found.map(|spec| (spec.ty(), spec.numbers().to_vec())).collect::<Vec<_>>()
        };
        let shape = "Attend<bf16, ANY, ANY, ANY, ANY, 16, false, false, 0x3e800000u, ANY, ANY, ANY, 64>";
        let numbers = vec![2, 70, 4, 2, 1 << 31, 0x4000_0000, 3, 16, 0x3e80_0000];
        assert_eq!(
            general(g, false),
            [
                (format!("Attention<{shape}>"), numbers.clone()),
                (format!("AttentionMma<AttendMma<{shape}, 4, 64, 2>>"), numbers.clone()),
            ]
        );
        assert_eq!(
            general(g, true),
            [
                (format!("AttentionBwd<{shape}, true>"), numbers.clone()),
                (format!("AttentionMmaBwd<AttendMma<{shape}, 4, 64, 2>>"), numbers),
            ]
        );
        // Without dropout, and with more tiles than a gradient in one phase has.
        let long = AttentionGeometry { positions: 257, dropout: Scalar::new(0.0), ..g };
        let shape = "Attend<bf16, ANY, ANY, ANY, ANY, 16, false, false, 0x3e800000u, 0u, 0u, 0u, 64>";
        assert_eq!(
            general(long, true)[0],
            (format!("AttentionBwd<{shape}, false>"), vec![2, 257, 4, 2, 0, 0, 0, 16, 0x3e80_0000])
        );
        // The angles of rotary embedding need two phases.
        assert!(general(AttentionGeometry { rotary: true, ..g }, true)[0].0.ends_with(", 64>, false>"));
        assert!(general(AttentionGeometry { batch: 1 << 9, positions: 1 << 20, ..g }, true).is_empty());
    }

    #[test]
    fn tiles_of_tensor_cores_fit_into_shared_memory() {
        const LEAST: usize = 99 << 10;
        for (real, head_dim) in
            [Real::Tf32, Real::Bf16, Real::F16].into_iter().flat_map(|r| (1..=16).map(move |d| (r, 8 * d)))
        {
            let MmaTiles { warps, streamed, buffers } = MmaTiles::of(head_dim, real);
            let each = 16 / real.size();
            let (row, own) = ((head_dim.next_multiple_of(2 * each) + each) * real.size(), 16 * warps);
            let bytes = 2 * own * row + 2 * buffers * streamed * row + 8 * buffers * streamed + own * streamed / 8;
            assert!(bytes <= LEAST, "{real:?} {head_dim}: {bytes}");
        }
    }
}
