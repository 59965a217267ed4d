//! Which convolutions and attentions are offered to cuDNN, and estimates of its time. Pure functions of the shape.

use super::speed::LIBRARY_BYTES_PER_US;
use crate::ops::{self, AttentionGeometry, ConvGeometry, OpKind};
use crate::select::cuda::real::Real;
use crate::select::target::CudaFacts;
use crate::tensor::align_up;

/// The least time of a call in microseconds.
const FLOOR_US: f64 = 6.0;

/// Elements of the result tile of one multiprocessor.
const TILE: usize = 128 * 64;

/// Bytes of workspace for split sums and index tables, independent of the size of the tensors.
const SMALL_WORKSPACE_BYTES: u64 = 8 << 20;

/// The largest workspace, in bytes.
const LARGEST_WORKSPACE_BYTES: u64 = 256 << 20;

/// The largest number of features of a head for which cuDNN's attention is used.
const MOST_HEAD_DIM: usize = 128;

/// The positions of a tile of attention.
const ATTENTION_TILE: usize = 128;

/// The largest workspace of attention's gradient, in bytes. It grows with the square of the number of positions.
const LARGEST_ATTENTION_BYTES: u64 = 512 << 20;

/// The convolution's geometry, if the operation is one.
const fn geometry(kind: &OpKind) -> Option<&ConvGeometry> {
    match kind {
        OpKind::Conv2d(ops::Conv2d { geometry, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) => Some(geometry),
        _ => None,
    }
}

/// The number of input channels of one filter.
fn channels(g: &ConvGeometry) -> usize {
    g.c / g.groups.max(1)
}

/// Elements of input, weight and output.
fn elements(g: &ConvGeometry) -> [usize; 3] {
    [g.n * g.h * g.w * g.c, g.f * g.kernel[0] * g.kernel[1] * channels(g), g.n * g.ho * g.wo * g.f]
}

/// Succeeds if cuDNN can compute the plain product. The part of an epilogue that it does not fuse is left to other
/// kernels.
///
/// # Errors
/// The reason why it cannot.
pub fn dnn_supports(kind: &OpKind, _real: Real) -> Result<(), String> {
    let g = geometry(kind).ok_or_else(|| format!("cuDNN is not used for {}", kind.name()))?;
    if matches!(kind, OpKind::Conv2dBwdW(ops::Conv2dBwdW { accumulate: true, .. })) {
        return Err("cuDNN's fast kernels overwrite a gradient and do not add to it".into());
    }
    if elements(g).contains(&0) {
        return Err("there is nothing to compute".into());
    }
    if !g.is_padded_alike() {
        return Err("cuDNN is not used if the padding is on one side only".into());
    }
    Ok(())
}

/// Bytes of workspace to offer; the chosen plan may use less. Some of cuDNN's kernels work on a copy of all three
/// tensors in another layout, for which this is sufficient unless they are large. The address must be a multiple of
/// 256.
#[must_use]
pub fn workspace_bytes(kind: &OpKind) -> u64 {
    let Some(g) = geometry(kind) else { return 0 };
    let copies = elements(g).iter().sum::<usize>() as u64 * size_of::<f32>() as u64;
    (SMALL_WORKSPACE_BYTES + copies.next_multiple_of(256)).min(LARGEST_WORKSPACE_BYTES)
}

/// What the time of cuDNN's convolutions depends on: a time that each takes, in microseconds, a rate in TFLOP/s, the
/// number of channels that a tile of each image has, that of the factor first, and what channels that are no whole
/// number of 16 bytes cost.
struct Rates {
    floor_us: f64,
    rate: f64,
    tile: [usize; 2],
    uneven_us: f64,
    uneven_times: f64,
}

impl Rates {
    /// The rates of a convolution or of a gradient of its input. They and those of [`Self::of_weight_gradient`]
    /// describe the plan that cuDNN ranks first, on an H200 whose 132 multiprocessors are all busy. They were fitted to
    /// times of 300 convolutions of 3x3.
    const fn of(real: Real) -> Self {
        let (floor_us, rate, tile, uneven_times) = match real {
            Real::F32 => (8.0, 25.0, [32, 32], 1.0),
            Real::Tf32 => (FLOOR_US, 230.0, [32, 64], 2.0),
            Real::Bf16 | Real::F16 => (FLOOR_US, 500.0, [64, 64], 2.0),
        };
        Self { floor_us, rate, tile, uneven_us: 0.0, uneven_times }
    }

    /// The rates of a gradient of the weight, whose sums are split among all multiprocessors.
    const fn of_weight_gradient(real: Real) -> Self {
        let (floor_us, rate, tile, uneven_us) = match real {
            Real::F32 => (100.0, 25.0, [32, 32], 0.0),
            Real::Tf32 => (35.0, 170.0, [64, 64], 60.0),
            Real::Bf16 | Real::F16 => (30.0, 700.0, [64, 64], 30.0),
        };
        Self { floor_us, rate, tile, uneven_us, uneven_times: 1.0 }
    }
}

/// An estimate of the time in microseconds, without the epilogue.
#[must_use]
pub fn cost_us(kind: &OpKind, real: Real, gpu: &CudaFacts) -> f64 {
    let Some(g) = geometry(kind) else { return f64::INFINITY };
    let [x, w, y] = elements(g);
    let is_weight_gradient = matches!(kind, OpKind::Conv2dBwdW { .. });
    let rates = if is_weight_gradient { Rates::of_weight_gradient(real) } else { Rates::of(real) };
    let (channels, filters) = (channels(g), g.f / g.groups.max(1));
    let flops = 2.0 * (y * g.kernel[0] * g.kernel[1] * channels) as f64;
    // The part of a tile that has channels and filters. Groups have other kernels.
    let used = match g.groups {
        1 => {
            let counts =
                if matches!(kind, OpKind::Conv2dBwdX { .. }) { [filters, channels] } else { [channels, filters] };
            let part = |i: usize| counts[i] as f64 / counts[i].next_multiple_of(rates.tile[i]) as f64;
            part(0) * part(1)
        }
        _ => (channels.min(filters) as f64 / 16.0).clamp(1.0 / 16.0, 1.0),
    };
    let tiles = match kind {
        OpKind::Conv2d { .. } => y.div_ceil(TILE),
        OpKind::Conv2dBwdX { .. } => x.div_ceil(TILE),
        _ => usize::MAX,
    };
    let multiprocessors = f64::from(gpu.multiprocessors.max(1));
    let busy = (tiles as f64).min(multiprocessors) / 132.0;
    let is_even = g.groups > 1 || [channels, filters].iter().all(|count| (count * real.size()).is_multiple_of(16));
    let (uneven_us, uneven_times) = if is_even { (0.0, 1.0) } else { (rates.uneven_us, rates.uneven_times) };
    let arithmetic = flops * uneven_times / (rates.rate * used * busy * 1e6);
    let memory = ((x + w + y) * real.size()) as f64 / LIBRARY_BYTES_PER_US;
    rates.floor_us + uneven_us + arithmetic.max(memory)
}

/// Whether cuDNN may compute an operation only after its results were compared with those of a custom kernel: attention
/// is a graph of twenty operations, in which cuDNN must recognise what is meant.
#[must_use]
pub const fn is_compared(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Attention(_) | OpKind::AttentionBwd(_))
}

/// Bytes of the sums of `dy y` of each query, which cuDNN's gradient of attention stores; otherwise 0.
pub(crate) fn attention_sums_bytes(kind: &OpKind) -> u64 {
    match kind {
        OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }) => {
            align_up((size_of::<f32>() * g.rows() * g.heads) as u64, 256)
        }
        _ => 0,
    }
}

/// Bytes of scratch memory for cuDNN's attention, or for its gradient: the sums of each query, and the gradient of the
/// scores in 16 bits, in whole tiles.
pub(super) fn attention_workspace_bytes(kind: &OpKind, g: &AttentionGeometry) -> u64 {
    const OTHERS: u64 = 4 << 10;
    let sums = attention_sums_bytes(kind);
    let positions = g.positions.next_multiple_of(ATTENTION_TILE) as u64;
    let scores = if sums > 0 { 2 * (g.batch * g.heads) as u64 * positions * positions } else { 0 };
    sums + scores + OTHERS
}

/// An estimate of the time of attention or its gradient in microseconds.
///
/// # Errors
/// The reason why cuDNN is not used.
pub(super) fn attention_cost_us(
    kind: &OpKind,
    g: &AttentionGeometry,
    real: Real,
    gpu: &CudaFacts,
) -> Result<f64, String> {
    let is_gradient = matches!(kind, OpKind::AttentionBwd(_));
    let megabytes = attention_workspace_bytes(kind, g) >> 20;
    let reasons = [
        (real.half().is_none(), "cuDNN's attention computes in 16 bits".to_owned()),
        (g.rotary, "cuDNN does not rotate queries and keys".to_owned()),
        (g.has_dropout(), "cuDNN's dropout has other random numbers".to_owned()),
        (g.heads != g.kv_heads, "cuDNN is not used if heads share keys and values".to_owned()),
        (
            !g.head_dim.is_multiple_of(8) || g.head_dim > MOST_HEAD_DIM,
            format!("the number of features of a head, {}, is not a multiple of 8 up to {MOST_HEAD_DIM}", g.head_dim),
        ),
        (g.pairs() == 0, "there is nothing to compute".to_owned()),
        (gpu.capability.0 < 8, "the GPU lacks the instructions".to_owned()),
        (
            is_gradient && gpu.capability.0 != 9,
            "on this GPU, cuDNN's gradient was not tested to be the same in every run".to_owned(),
        ),
        (
            megabytes > LARGEST_ATTENTION_BYTES >> 20,
            format!("cuDNN would need {megabytes} MiB of workspace, more than {}", LARGEST_ATTENTION_BYTES >> 20),
        ),
    ];
    if let Some((_, why)) = reasons.into_iter().find(|(is_so, _)| *is_so) {
        return Err(why);
    }
    // Rates of an H200 if all of its multiprocessors are busy, for many positions and 64 features. Twice as many
    // features take 1.2 times as long.
    let rate = if is_gradient { 2.1e8 } else { 3.1e8 };
    let tiles = g.batch * g.heads * g.positions.div_ceil(ATTENTION_TILE);
    let busy = (tiles as f64).min(f64::from(gpu.multiprocessors.max(1))) / 132.0;
    Ok(FLOOR_US + kind.flops() as f64 / (rate * busy * (g.head_dim as f64 / 64.0).powf(0.72)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Epilogue, Scalar};

    const G: ConvGeometry =
        ConvGeometry { n: 256, h: 32, w: 32, c: 64, f: 64, kernel: [3, 3], padding: [1, 1], ho: 32, wo: 32, ..UNIT };
    const UNIT: ConvGeometry = ConvGeometry::UNIT;

    fn gpu() -> CudaFacts {
        crate::select::target::Target::h200().as_cuda().unwrap()
    }

    #[test]
    fn narrower_types_are_faster_and_small_shapes_take_the_least_time() {
        let forward = |geometry| OpKind::Conv2d(ops::Conv2d { geometry, epilogue: Epilogue::default() });
        let us = |geometry, real| cost_us(&forward(geometry), real, &gpu());
        assert!(us(G, Real::F32) > us(G, Real::Tf32) && us(G, Real::Tf32) > us(G, Real::Bf16));
        let small = ConvGeometry { n: 1, h: 4, w: 4, ho: 4, wo: 4, ..G };
        assert!(us(small, Real::Bf16) < 2.0 * FLOOR_US);
        assert!(workspace_bytes(&forward(small)) < workspace_bytes(&forward(G)));
    }

    #[test]
    fn accumulating_gradients_are_refused() {
        assert!(
            dnn_supports(&OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: G, accumulate: false }), Real::F16).is_ok()
        );
        assert!(
            dnn_supports(&OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: G, accumulate: true }), Real::F16).is_err()
        );
    }

    fn attention(geometry: AttentionGeometry, is_gradient: bool, real: Real, gpu: &CudaFacts) -> Result<f64, String> {
        let forward = OpKind::Attention(ops::Attention { geometry });
        let gradient = OpKind::AttentionBwd(ops::AttentionBwd { geometry });
        attention_cost_us(if is_gradient { &gradient } else { &forward }, &geometry, real, gpu)
    }

    #[test]
    fn attention_is_estimated_as_it_was_measured() {
        // Measured on an H200 with cuDNN 9.14 and 9.19: 84 and 307 to 320 us; 4 x 2,048 positions of 16 heads with 128
        // features 140 and 485 us.
        let long = AttentionGeometry {
            batch: 4,
            positions: 2048,
            heads: 16,
            kv_heads: 16,
            head_dim: 128,
            ..AttentionGeometry::gpt2()
        };
        for (geometry, is_gradient, us) in [
            (AttentionGeometry::gpt2(), false, 84.0),
            (AttentionGeometry::gpt2(), true, 313.0),
            (long, false, 140.0),
            (long, true, 485.0),
        ] {
            let estimate = attention(geometry, is_gradient, Real::Bf16, &gpu()).unwrap();
            assert!((0.6..1.7).contains(&(estimate / us)), "{estimate} for {us}");
        }
        let gradient = OpKind::AttentionBwd(ops::AttentionBwd { geometry: AttentionGeometry::gpt2() });
        // What cuDNN asked for, and the sums.
        assert!(
            (402_653_440 + 786_432..410_000_000)
                .contains(&attention_workspace_bytes(&gradient, &AttentionGeometry::gpt2()))
        );
    }

    #[test]
    fn attention_that_cudnn_does_not_compute_has_a_reason() {
        let ampere = CudaFacts { capability: (8, 0), ..gpu() };
        let why =
            |geometry, is_gradient, real, gpu: &CudaFacts| attention(geometry, is_gradient, real, gpu).unwrap_err();
        assert!(why(AttentionGeometry::gpt2(), false, Real::F32, &gpu()).contains("16 bits"));
        assert!(
            why(AttentionGeometry { rotary: true, ..AttentionGeometry::gpt2() }, false, Real::F16, &gpu())
                .contains("rotate")
        );
        let dropout = AttentionGeometry { dropout: Scalar::new(0.1), ..AttentionGeometry::gpt2() };
        assert!(why(dropout, false, Real::F16, &gpu()).contains("random numbers"));
        assert!(
            why(AttentionGeometry { kv_heads: 4, ..AttentionGeometry::gpt2() }, false, Real::F16, &gpu())
                .contains("share keys")
        );
        assert!(
            why(AttentionGeometry { head_dim: 12, ..AttentionGeometry::gpt2() }, false, Real::F16, &gpu())
                .contains("12")
        );
        assert!(why(AttentionGeometry::gpt2(), true, Real::Bf16, &ampere).contains("same in every run"));
        assert!(attention(AttentionGeometry::gpt2(), false, Real::Bf16, &ampere).is_ok());
        let long = AttentionGeometry { batch: 1, positions: 8192, ..AttentionGeometry::gpt2() };
        assert!(why(long, true, Real::Bf16, &gpu()).contains("1536 MiB"));
        assert!(attention(long, false, Real::Bf16, &gpu()).is_ok());
    }
}
