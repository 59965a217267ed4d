//! Which products cublasLt computes, which part of their epilogues, and estimates of its time. Pure functions of the
//! shape.
//!
//! Types follow the table of `cublasLtMatmul` (<https://docs.nvidia.com/cuda/cublas/#cublasltmatmul>): a bias has the
//! type of the product it is added to, so a product of 16-bit type reads the bias from the 16-bit copy of the
//! parameters.

use super::speed::LIBRARY_BYTES_PER_US;
use crate::model::Activation;
use crate::ops::{Epilogue, Gemm, Trans};
use crate::select::cuda::real::Real;
use crate::select::target::CudaFacts;

/// Bytes of workspace offered for large products: NVIDIA's recommendation for Hopper.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// Bytes of workspace offered for small products, and for those that need no split reduction: eight float copies of the
/// product fit, one for each part of a split reduction.
pub const SMALL_WORKSPACE_BYTES: u64 = 4 << 20;

/// The number of elements of a product above which every multiprocessor has its own tiles, so that no algorithm splits
/// the reduction.
const MANY_TILES: u64 = 1 << 23;

/// Bytes of workspace to offer for a product; the chosen algorithm may use less. The address must be a multiple of 256.
#[must_use]
pub const fn workspace_bytes(gemm: &Gemm) -> u64 {
    let elements = gemm.m as u64 * gemm.n as u64;
    // The product must also be short: for long products every algorithm is worth trying.
    if elements >= MANY_TILES || elements * 4 * 8 <= SMALL_WORKSPACE_BYTES && elements * gemm.k as u64 <= 1 << 28 {
        SMALL_WORKSPACE_BYTES
    } else {
        WORKSPACE_BYTES
    }
}

/// True if the product is stored as float: always in the float precisions, and for weight gradients (`Tn`) in all.
#[must_use]
pub const fn stores_float(gemm: &Gemm, real: Real) -> bool {
    real.size() == 4 || matches!(gemm.trans, Trans::Tn)
}

/// Succeeds if cublasLt can compute the product. The part of its epilogue that [`done`] does not include is left to
/// custom kernels, whose input is rounded to the type of `c`.
///
/// # Errors
/// The reason why it cannot.
pub fn lt_supports(gemm: &Gemm, _real: Real) -> Result<(), String> {
    if gemm.m == 0 || gemm.n == 0 || gemm.k == 0 {
        return Err("cuBLASLt does not compute empty products".into());
    }
    let Epilogue { bias, act, save_z, act_grad } = gemm.epilogue;
    if save_z && act.is_none() {
        return Err("a value kept before no activation would be written twice".into());
    }
    if act_grad.is_some() && (save_z || act.is_some() || bias) {
        return Err("a derivative after a bias or an activation is not cut off".into());
    }
    Ok(())
}

/// The part of an epilogue that cublasLt computes: a bias of the product's type, then ReLU.
///
/// Its GELU is the tanh approximation whereas ours is exact, and its derivative of ReLU reads a bit mask whereas ours
/// reads the saved output. If the value before the activation is kept, the product is written there and the activation
/// follows.
#[must_use]
pub const fn done(gemm: &Gemm, _real: Real) -> Epilogue {
    let asked = gemm.epilogue;
    let bias = asked.bias;
    let act = match asked.act {
        Some(Activation::Relu) if bias == asked.bias && !asked.save_z => asked.act,
        _ => None,
    };
    Epilogue { bias, act, save_z: false, act_grad: None }
}

/// An estimate of the time of the product in microseconds, without the rest of the epilogue.
#[must_use]
pub fn cost_us(gemm: &Gemm, real: Real, gpu: &CudaFacts) -> f64 {
    /// The least time of a product.
    const FLOOR_US: f64 = 3.5;
    let multiprocessors = f64::from(gpu.multiprocessors.max(1));
    // Operations in a microsecond on one multiprocessor, derived from the rate of an H200 with 132 of them at large
    // shapes.
    let rate = match real {
        Real::F32 => 45e6,
        Real::Tf32 => 350e6,
        Real::Bf16 | Real::F16 => 650e6,
    } / 132.0;
    // Large tiles reuse more of the loaded data, small ones fill the machine sooner; the reduction is also split if
    // there are few tiles.
    let tiled = |edge: usize, efficiency: f64| {
        let tiles = (gemm.m.div_ceil(edge) * gemm.n.div_ceil(edge)) as f64;
        let splits = (multiprocessors / tiles).floor().clamp(1.0, (gemm.k as f64 / 256.0).max(1.0));
        let waves = (tiles * splits / multiprocessors).ceil();
        waves * 2.0 * (edge * edge * gemm.k) as f64 / (splits * rate * efficiency)
    };
    let compute_us = tiled(128, 1.0).min(tiled(64, 0.7)).max(reduction_us(gemm, real, multiprocessors));
    let c_size = if stores_float(gemm, real) { 4 } else { real.size() };
    let c_passes = if gemm.accumulate { 2 } else { 1 };
    let bytes = real.size() * gemm.k * (gemm.m + gemm.n) + c_passes * c_size * gemm.m * gemm.n;
    FLOOR_US + compute_us.max(bytes as f64 / LIBRARY_BYTES_PER_US)
}

/// The time in microseconds that one reduction takes on a multiprocessor, one step of 16 to 128 numbers after another.
/// The algorithm that cuBLASLt ranks first splits a reduction among multiprocessors reliably only if the product has
/// several large tiles; for a narrow one it is often 100 times as slow as others, and sometimes as fast. In `f32`, it
/// splits 27 tiles (m=260, n=1040, k=11856: 200 us) and does not split three (m=128, n=384, k=3584: 557 us).
fn reduction_us(gemm: &Gemm, real: Real, multiprocessors: f64) -> f64 {
    /// The extent of a large tile, and of what is narrow.
    const TILE: usize = 128;
    const NARROW: usize = 64;
    /// The least number of numbers that a part of a reduction has.
    const PART: usize = 1024;
    /// The number of tiles from which a long reduction in `f32` is expected to be split.
    const SPLIT_TILES: usize = 8;
    let (is_long, is_narrow) = (gemm.k >= PART, gemm.m.min(gemm.n) < NARROW);
    let tiles = gemm.m.div_ceil(TILE) * gemm.n.div_ceil(TILE);
    let (parts, us_each) = match real {
        Real::F32 if (2..SPLIT_TILES).contains(&tiles) && is_long && !is_narrow => (1.0, 0.155),
        _ if tiles > 1 && gemm.n >= NARROW => {
            let most = (gemm.k as f64 / PART as f64).max(1.0);
            ((multiprocessors / tiles as f64).floor().clamp(1.0, most), 0.006)
        }
        Real::F32 => (1.0, 0.003),
        Real::Tf32 | Real::Bf16 | Real::F16 => (1.0, 0.02),
    };
    gemm.k as f64 / parts * us_each
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> CudaFacts {
        crate::select::target::Target::h200().as_cuda().unwrap()
    }

    fn gemm(trans: Trans, epilogue: Epilogue) -> Gemm {
        Gemm { epilogue, ..Gemm::plain(64, 128, 784, trans) }
    }

    #[test]
    fn bias_and_relu_are_fused_for_every_type() {
        let both = Epilogue { bias: true, act: Some(Activation::Relu), ..Epilogue::default() };
        assert_eq!(done(&gemm(Trans::Nn, both), Real::F32), both);
        assert_eq!(done(&gemm(Trans::Nn, both), Real::Tf32), both);
        assert_eq!(done(&gemm(Trans::Nn, both), Real::Bf16), both);
        assert_eq!(done(&gemm(Trans::Tn, both), Real::Bf16), both);
        let relu = Epilogue { bias: false, ..both };
        assert_eq!(done(&gemm(Trans::Nn, relu), Real::F16), relu);
    }

    #[test]
    fn other_epilogues_are_not_fused() {
        let silu = Epilogue { bias: true, act: Some(Activation::Silu), save_z: true, act_grad: None };
        assert_eq!(done(&gemm(Trans::Nn, silu), Real::F32), Epilogue { bias: true, ..Epilogue::default() });
        let kept = Epilogue { act: Some(Activation::Relu), ..silu };
        assert_eq!(done(&gemm(Trans::Nn, kept), Real::F32).act, None);
        let backward = Epilogue { act_grad: Some(Activation::Relu), ..Epilogue::default() };
        assert!(lt_supports(&gemm(Trans::Nt, backward), Real::Bf16).is_ok());
        assert!(done(&gemm(Trans::Nt, backward), Real::Bf16).is_empty());
    }

    #[test]
    fn times_follow_size_and_type() {
        let plain = |m, n, k| Gemm::plain(m, n, k, Trans::Nn);
        let small = plain(32, 10, 64);
        assert!(cost_us(&small, Real::Bf16, &gpu()) < 5.0);
        // Measured: 557 and 200 us.
        let [few_tiles, many_tiles] = [[128, 384, 3_584], [260, 1_040, 11_856]]
            .map(|[m, n, k]| cost_us(&Gemm::plain(m, n, k, Trans::Tn), Real::F32, &gpu()));
        assert!(
            (500.0..600.0).contains(&few_tiles) && (100.0..300.0).contains(&many_tiles),
            "{few_tiles}, {many_tiles}"
        );
        let (large, long) = (plain(8192, 8192, 8192), plain(512, 1024, 65_536));
        let bf16_us = cost_us(&large, Real::Bf16, &gpu());
        assert!((1_600.0..2_000.0).contains(&bf16_us), "{bf16_us}");
        assert!(cost_us(&large, Real::F32, &gpu()) > 10.0 * bf16_us);
        assert_eq!(workspace_bytes(&small), SMALL_WORKSPACE_BYTES);
        assert_eq!(workspace_bytes(&large), SMALL_WORKSPACE_BYTES);
        assert_eq!(workspace_bytes(&long), WORKSPACE_BYTES);
    }
}
