//! Which convolutions are offered to cuDNN, and estimates of its time. Pure functions of the shape.

use super::speed::LIBRARY_BYTES_PER_US;
use crate::ops::{self, ConvGeometry, OpKind};
use crate::select::cuda::real::Real;
use crate::select::target::CudaFacts;

/// The least time of a call in microseconds.
const FLOOR_US: f64 = 6.0;

/// Elements of the result tile of one multiprocessor.
const TILE: usize = 128 * 64;

/// Bytes of workspace for split sums and index tables, independent of the size of the tensors.
const SMALL_WORKSPACE_BYTES: u64 = 8 << 20;

/// The largest workspace, in bytes.
const LARGEST_WORKSPACE_BYTES: u64 = 256 << 20;

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

/// An estimate of the time in microseconds, without the epilogue.
#[must_use]
pub fn cost_us(kind: &OpKind, real: Real, gpu: &CudaFacts) -> f64 {
    let Some(g) = geometry(kind) else { return f64::INFINITY };
    let [x, w, y] = elements(g);
    let flops = 2.0 * (y * g.kernel[0] * g.kernel[1]) as f64 * channels(g) as f64;
    // Rates of an H200 if all of its 132 multiprocessors are busy, in TFLOP/s. Tensor cores process 16 channels at a
    // time.
    let fraction = (channels(g).min(g.f / g.groups.max(1)) as f64 / 16.0).clamp(1.0 / 16.0, 1.0);
    let rate = match real {
        Real::F32 => 35.0,
        Real::Tf32 => 200.0 * fraction,
        Real::Bf16 | Real::F16 => 450.0 * fraction,
    };
    // The sums of a weight's gradient are long enough to be split among all multiprocessors.
    let tiles = match kind {
        OpKind::Conv2d { .. } => y.div_ceil(TILE),
        OpKind::Conv2dBwdX { .. } => x.div_ceil(TILE),
        _ => usize::MAX,
    };
    let multiprocessors = f64::from(gpu.multiprocessors.max(1));
    let busy = (tiles as f64).min(multiprocessors) / 132.0;
    let arithmetic = flops / (rate * busy * 1e6);
    let memory = ((x + w + y) * real.size()) as f64 / LIBRARY_BYTES_PER_US;
    FLOOR_US + arithmetic.max(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Epilogue;

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
}
