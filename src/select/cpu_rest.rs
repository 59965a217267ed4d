//! What the CPU kernels that are neither products nor convolutions ask for: workspace, the sizes of the chunks over which they sum, and
//! whether an operation is worth sharing among threads. Plans and kernels read the same functions here, so they cannot disagree.
//!
//! Also, for every operation, the bytes it has to move and the arithmetic it has to do.

use super::Variant;
use crate::lower::{ConvGeometry, Epilogue, Gemm, OpKind, PoolGeometry};
use crate::model::Activation;
use crate::ops;

/// Elements summed into one partial result where a reduction runs over a flat array.
pub const FLAT_CHUNK: usize = 16_384;

/// Elements of `[rows, cols]` that one chunk of rows holds at most, where its rows are not very long: what fits the first-level cache.
const ROW_CHUNK: usize = 8_192;

/// Chunks of rows at most; keeps the combination of their results short.
const MAX_ROW_CHUNKS: usize = 512;

/// Numbers that batch normalisation keeps for each chunk of rows and channel.
pub const BATCH_NORM_MOMENTS: usize = 3;

/// Work below which a second thread costs more than it saves, in nanoseconds.
const PARALLEL_NS: u64 = 4_000;

/// Rows summed into one partial result where `[rows, cols]` is reduced over its rows; a multiple of 64 unless rows are long.
#[must_use]
pub fn rows_per_chunk(rows: usize, cols: usize) -> usize {
    let by_cache = ROW_CHUNK / cols.max(1);
    let fitting = if by_cache >= 64 { by_cache / 64 * 64 } else { by_cache.max(16) };
    if rows.div_ceil(fitting) <= MAX_ROW_CHUNKS { fitting } else { rows.div_ceil(MAX_ROW_CHUNKS).next_multiple_of(64) }
}

/// Chunks of rows of `[rows, cols]`.
#[must_use]
pub fn row_chunks(rows: usize, cols: usize) -> usize {
    rows.div_ceil(rows_per_chunk(rows, cols))
}

/// Bytes of workspace that a kernel of this variant needs when it is shared among up to `threads` threads. Zero for products and
/// convolutions, whose kernels have a plan of their own, and for references, which need none.
#[must_use]
pub fn workspace_bytes(op: &OpKind, variant: Variant, _threads: usize) -> usize {
    if !matches!(variant, Variant::Fast(_)) {
        return 0;
    }
    let floats = match op {
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => row_chunks(*rows, *cols) * cols,
        OpKind::BatchNorm(ops::BatchNorm { rows, channels: cols, .. }) => {
            BATCH_NORM_MOMENTS * row_chunks(*rows, *cols) * cols
        }
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels: cols, .. })
        | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }) => 2 * row_chunks(*rows, *cols) * cols,
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, .. }) => 2 * rows,
        OpKind::Mse(ops::Mse { len }) | OpKind::MseFused(ops::MseFused { len }) => len.div_ceil(FLAT_CHUNK),
        OpKind::AdamStep(ops::AdamStep { len, segments, .. }) | OpKind::SgdStep(ops::SgdStep { len, segments, .. }) => {
            2 * (segments.len() + len.div_ceil(FLAT_CHUNK))
        }
        _ => 0,
    };
    floats * size_of::<f32>()
}

/// Whether the fast kernel of this operation is shared among threads.
#[must_use]
pub fn is_parallel(op: &OpKind, threads: usize) -> bool {
    threads > 1 && work_ns(op) >= PARALLEL_NS
}

/// Bytes that a second-level cache holds.
const CACHED_BYTES: u64 = 1 << 20;

/// A rough time on one core, in nanoseconds: the larger of what memory takes (160 bytes a nanosecond from the second-level cache, 64 from
/// beyond) and what arithmetic takes at the operation's own rate, as measured with AVX-512. Zero arithmetic stands for less than memory's.
#[must_use]
pub fn work_ns(op: &OpKind) -> u64 {
    let bytes = bytes_moved(op, size_of::<f32>());
    let memory = if bytes <= CACHED_BYTES { bytes / 160 } else { bytes / 64 };
    let picoseconds = match op {
        OpKind::Act(ops::Act { func, len }) => len * activation_ps(*func),
        OpKind::ActBwd(ops::ActBwd { func: Activation::Gelu, len }) => len * 540,
        OpKind::ActBwd(ops::ActBwd { func: Activation::Silu, len }) => len * 380,
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, act, .. }) => {
            rows * channels * (130 + act.map_or(0, activation_ps))
        }
        OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, act, .. }) => {
            rows * channels * (60 + act.map_or(0, activation_ps))
        }
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }) => rows * channels * 220,
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. })
        | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }) => rows * (cols * 130 + 6_000),
        OpKind::MaxPool(ops::MaxPool { geometry }) | OpKind::AvgPool(ops::AvgPool { geometry }) => {
            pool_ps(geometry, 3_000)
        }
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) => {
            pool_ps(geometry, 4_000)
        }
        OpKind::Dropout(ops::Dropout { len, .. }) => len * 340,
        OpKind::DropoutBwd(ops::DropoutBwd { len, .. }) => len * 65,
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. })
        | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. }) => rows * (classes * 500 + 12_000),
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => n * rows * cols * 350,
        OpKind::AdamStep(ops::AdamStep { len, .. }) => len * 140,
        _ => 0,
    };
    memory.max(picoseconds as u64 / 1_000)
}

/// Picoseconds that one element of an activation function takes.
fn activation_ps(func: Activation) -> usize {
    match func {
        Activation::Relu | Activation::LeakyRelu => 0,
        Activation::Gelu => 250,
        Activation::Silu | Activation::Sigmoid => 310,
        Activation::Tanh => 160,
    }
}

/// Picoseconds of a pooling: those given and 1,000 for each position of the window, for each output and 16 channels.
fn pool_ps(g: &PoolGeometry, output_ps: usize) -> usize {
    g.n * g.ho * g.wo * g.c.div_ceil(16) * (output_ps + g.size[0] * g.size[1] * 1_000)
}

fn pool_inputs(g: &PoolGeometry) -> usize {
    g.n * g.h * g.w * g.c
}

fn pool_outputs(g: &PoolGeometry) -> usize {
    g.n * g.ho * g.wo * g.c
}

fn pool_reads(g: &PoolGeometry) -> usize {
    pool_outputs(g) * g.size[0] * g.size[1]
}

/// Bytes of one element of a maximum pooling's index.
fn index_bytes(g: &PoolGeometry) -> usize {
    if g.size[0] * g.size[1] > 256 { 2 } else { 1 }
}

/// Elements of a convolution's input, weight and output.
fn conv_elements(g: &ConvGeometry) -> [usize; 3] {
    [g.n * g.h * g.w * g.c, g.kernel[0] * g.kernel[1] * (g.c / g.groups.max(1)) * g.f, g.n * g.ho * g.wo * g.f]
}

/// Elements that an epilogue moves besides the result, for a result of `rows` by `cols`.
fn epilogue_elements(e: &Epilogue, rows: usize, cols: usize) -> usize {
    usize::from(e.bias) * cols + (usize::from(e.save_z) + usize::from(e.act_grad.is_some())) * rows * cols
}

/// The bytes that an operation has to read and write when each of its arguments is touched once, with reals of `elem` bytes and every
/// optional output bound.
#[must_use]
pub fn bytes_moved(op: &OpKind, elem: usize) -> u64 {
    let label = size_of::<i32>();
    let bytes = match op {
        OpKind::Fill(ops::Fill { len }) => len * elem,
        OpKind::Transpose(ops::Transpose { n, rows, cols }) => 2 * n * rows * cols * elem,
        OpKind::Gemm(Gemm { m, n, k, accumulate, epilogue, .. }) => {
            let result = (1 + usize::from(*accumulate)) * m * n;
            (m * k + k * n + result + epilogue_elements(epilogue, *m, *n)) * elem
        }
        OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue }) => {
            (conv_elements(g).iter().sum::<usize>() + epilogue_elements(epilogue, g.n * g.ho * g.wo, g.f)) * elem
        }
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue }) => {
            (conv_elements(g).iter().sum::<usize>() + epilogue_elements(epilogue, g.n * g.h * g.w, g.c)) * elem
        }
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, accumulate }) => {
            let [x, weight, y] = conv_elements(g);
            (x + weight * (1 + usize::from(*accumulate)) + y) * elem
        }
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) => (2 * rows * cols + cols) * elem,
        OpKind::Act(ops::Act { len, .. }) => 2 * len * elem,
        OpKind::ActBwd(ops::ActBwd { len, .. }) | OpKind::Add(ops::Add { len }) => 3 * len * elem,
        OpKind::AddAct(ops::AddAct { len, act_grad, .. }) => (3 + usize::from(act_grad.is_some())) * len * elem,
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate }) => {
            (rows * cols + (1 + usize::from(*accumulate)) * cols) * elem
        }
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, .. }) => (3 * rows * channels + 8 * channels) * elem,
        OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. }) => (2 * rows * channels + 4 * channels) * elem,
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad, accumulate }) => {
            let passes = 5 + 2 * usize::from(act_grad.is_some());
            (passes * rows * channels + (5 + 2 * usize::from(*accumulate)) * channels) * elem
        }
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. }) => (2 * rows * cols + 2 * cols + 2 * rows) * elem,
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate }) => {
            (3 * rows * cols + (3 + 2 * usize::from(*accumulate)) * cols + 2 * rows) * elem
        }
        OpKind::MaxPool(ops::MaxPool { geometry: g }) => {
            pool_inputs(g) * elem + pool_outputs(g) * (elem + index_bytes(g))
        }
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }) => {
            pool_inputs(g) * elem + pool_outputs(g) * (elem + index_bytes(g))
        }
        OpKind::AvgPool(ops::AvgPool { geometry: g }) | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }) => {
            (pool_inputs(g) + pool_outputs(g)) * elem
        }
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c })
        | OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) => n * c * (hw + 1) * elem,
        OpKind::Dropout(ops::Dropout { len, .. }) | OpKind::DropoutBwd(ops::DropoutBwd { len, .. }) => {
            2 * len * elem + len.div_ceil(8)
        }
        OpKind::SignBits(ops::SignBits { len }) => len * elem + len.div_ceil(8),
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. }) => (2 * rows * classes + rows) * elem + rows * label,
        OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, .. }) => 2 * rows * classes * elem + rows * label,
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. }) => {
            (2 * rows * classes + 2) * elem + rows * label
        }
        OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }) => {
            (2 * rows * features + features * classes + rows * classes) * elem
                + 2 * rows * size_of::<f32>()
                + rows * label
        }
        OpKind::LossMean(ops::LossMean { rows }) => (rows + 1) * elem,
        OpKind::Accuracy(ops::Accuracy { rows, classes }) => (rows * classes + 1) * elem + rows * label,
        OpKind::Mse(ops::Mse { len }) => (2 * len + 1) * elem,
        OpKind::MseGrad(ops::MseGrad { len }) => 3 * len * elem,
        OpKind::MseFused(ops::MseFused { len }) => (3 * len + 1) * elem,
        OpKind::StepInc => 4 * size_of::<i64>(),
        OpKind::BiasCorr { .. } => 2 * size_of::<i64>() + 2 * elem,
        OpKind::AdamStep(ops::AdamStep { len, segments, .. }) => (7 * len + 4 + 2 * segments.len()) * elem,
        OpKind::SgdStep(ops::SgdStep { len, segments, momentum, .. }) => {
            let streams = if momentum.get() == 0.0 { 3 } else { 5 };
            (streams * len + 2 + 2 * segments.len()) * elem
        }
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => (2 * segments + 2) * elem,
        OpKind::WeightStep(ops::WeightStep { m, n, k, .. }) => {
            (m * k + k * n) * elem + (6 * m * n + 4) * size_of::<f32>()
        }
        OpKind::BiasStep(ops::BiasStep { rows, cols, .. }) => rows * cols * elem + (6 * cols + 4) * size_of::<f32>(),
        OpKind::StepMetrics(ops::StepMetrics { segments }) => {
            (segments.iter().map(|s| 2 * s.len).sum::<usize>() + 2 * segments.len() + 2) * size_of::<f32>()
        }
        OpKind::Cast(ops::Cast { len }) => (size_of::<f32>() + elem) * len,
        OpKind::ScaleUpdate(ops::ScaleUpdate { len }) => (len + 8) * size_of::<f32>(),
    };
    bytes as u64
}

/// Floating-point operations, a multiplication and an addition counted each; a transcendental function counts as one.
#[must_use]
pub fn flops(op: &OpKind) -> u64 {
    let count = match op {
        OpKind::Fill { .. } | OpKind::Transpose { .. } | OpKind::StepInc | OpKind::Cast { .. } => 0,
        OpKind::Gemm(Gemm { m, n, k, .. }) => 2 * m * n * k,
        OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) => {
            2 * g.n * g.ho * g.wo * g.f * g.kernel[0] * g.kernel[1] * (g.c / g.groups.max(1))
        }
        OpKind::BiasAdd(ops::BiasAdd { rows, cols }) | OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => {
            rows * cols
        }
        OpKind::Act(ops::Act { len, .. }) | OpKind::Add(ops::Add { len }) | OpKind::SignBits(ops::SignBits { len }) => {
            *len
        }
        OpKind::AddAct(ops::AddAct { len, .. }) => 2 * len,
        OpKind::ActBwd(ops::ActBwd { len, .. })
        | OpKind::Dropout(ops::Dropout { len, .. })
        | OpKind::DropoutBwd(ops::DropoutBwd { len, .. }) => 2 * len,
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, .. }) => 7 * rows * channels,
        OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. }) => 3 * rows * channels,
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }) => 9 * rows * channels,
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. }) => 7 * rows * cols,
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }) => 13 * rows * cols,
        OpKind::MaxPool(ops::MaxPool { geometry: g })
        | OpKind::AvgPool(ops::AvgPool { geometry: g })
        | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }) => pool_reads(g),
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }) => pool_outputs(g),
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }) => n * hw * c,
        OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, c, .. }) => n * c,
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. }) => 5 * rows * classes,
        OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, .. }) => 2 * rows * classes,
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. }) => 7 * rows * classes,
        OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }) => {
            4 * rows * features * classes + 7 * rows * classes
        }
        OpKind::LossMean(ops::LossMean { rows }) => *rows,
        OpKind::Accuracy(ops::Accuracy { rows, classes }) => rows * classes,
        OpKind::Mse(ops::Mse { len }) => 3 * len,
        OpKind::MseGrad(ops::MseGrad { len }) => 2 * len,
        OpKind::MseFused(ops::MseFused { len }) => 4 * len,
        OpKind::BiasCorr { .. } => 6,
        OpKind::AdamStep(ops::AdamStep { len, .. }) => 16 * len,
        OpKind::SgdStep(ops::SgdStep { len, momentum, .. }) => {
            if momentum.get() == 0.0 {
                4 * len
            } else {
                7 * len
            }
        }
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => 2 * segments,
        OpKind::WeightStep(ops::WeightStep { m, n, k, .. }) => 2 * m * n * k + 16 * m * n,
        OpKind::BiasStep(ops::BiasStep { rows, cols, .. }) => rows * cols + 16 * cols,
        OpKind::StepMetrics(ops::StepMetrics { segments }) => segments.iter().map(|s| 2 * s.len).sum(),
        OpKind::ScaleUpdate(ops::ScaleUpdate { len }) => *len,
    };
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Trans;

    #[test]
    fn chunks_of_rows_cover_all_rows_and_stay_few() {
        for rows in [1, 2, 63, 64, 4_096, 802_816] {
            for cols in [1, 6, 16, 64, 129, 512, 2_048] {
                let (size, chunks) = (rows_per_chunk(rows, cols), row_chunks(rows, cols));
                assert!(size * chunks >= rows && size * (chunks - 1) < rows);
                assert!(chunks <= MAX_ROW_CHUNKS);
                assert!(cols >= 64 || size.is_multiple_of(64), "{rows} x {cols}: {size}");
            }
        }
    }

    #[test]
    fn a_product_moves_its_factors_and_its_result() {
        let gemm = Gemm { m: 2, n: 3, k: 5, trans: Trans::Nn, accumulate: false, epilogue: Epilogue::default() };
        assert_eq!(bytes_moved(&OpKind::Gemm(gemm), 4), 4 * (10 + 15 + 6));
        assert_eq!(flops(&OpKind::Gemm(gemm)), 60);
        let epilogue = Epilogue { bias: true, save_z: true, ..Epilogue::default() };
        let op = OpKind::Gemm(Gemm { accumulate: true, epilogue, ..gemm });
        assert_eq!(bytes_moved(&op, 8), 8 * (10 + 15 + 12 + 3 + 6));
    }

    #[test]
    fn only_large_operations_are_shared() {
        assert!(!is_parallel(&OpKind::Add(ops::Add { len: 1_000 }), 8));
        assert!(is_parallel(&OpKind::Add(ops::Add { len: 1_000_000 }), 2));
        assert!(!is_parallel(&OpKind::Add(ops::Add { len: 1_000_000 }), 1));
    }
}
