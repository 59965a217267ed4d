//! The types of `gemm.cu` that compute a product whose rows are normalised: with tiles that hold whole rows.

use super::custom::{CustomKernel, cpp_bits, cpp_trans};
use super::elementwise::vec_width;
use super::real::Real;
use super::spec::{KernelFile, KernelSpec, Pdl};
use super::speed::LAUNCH_US;
use crate::ops::{self, OpKind, ROW_PRODUCT_COLUMNS, Trans};
use crate::select::target::CudaFacts;

/// The number of threads of a block, the same for all small products.
const THREADS: usize = 256;
/// Microseconds until the first factors are loaded, and for writing the last results.
const FIRST_US: f64 = 0.5;
/// The number of multiply-adds of a multiprocessor in a microsecond.
const MULTIPLIES_PER_US: f64 = 1e5;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let ([m, n, k], trans, accumulate, ending) = match *kind {
        OpKind::GemmNorm(ops::GemmNorm { m, n, k, trans, accumulate, bias, eps, rms }) => {
            ([m, n, k], trans, accumulate, format!("gemm::Normalising<{bias}, {}, {rms}, {n}>", cpp_bits(eps.get())))
        }
        OpKind::GemmNormBwd(ops::GemmNormBwd { m, n, k, trans, rms }) => {
            ([m, n, k], trans, false, format!("gemm::NormGradient<{rms}, {n}>"))
        }
        _ => return Vec::new(),
    };
    if real != Real::F32 || gpu.capability.0 < 8 || !ROW_PRODUCT_COLUMNS.contains(&n) || m == 0 || k == 0 {
        return Vec::new();
    }
    // A thread has two or four rows of four columns.
    let tile = |across: usize| {
        let (rows, groups) = (4 * across, THREADS / n);
        let stretch = if k <= 8 * groups { 8 } else { 16 };
        let shape = format!("{rows}, {n}, {stretch}, {across}, 4, {groups}");
        let [a, b] = [(matches!(trans, Trans::Tn), m, k), (!matches!(trans, Trans::Nt), n, k)]
            .map(|(is_across, across, along)| vec_width(real, if is_across { across } else { along }));
        let trans = cpp_trans(trans);
        let arguments = format!("{m}, {n}, {k}, {trans}, {accumulate}, {ending}, {shape}, 1");
        let general = format!("ANY, ANY, ANY, {trans}, {accumulate}, {ending}, {shape}, 1, {a}, {b}, 4");
        // No function follows.
        let numbers = [m, n, k, 1, 0].map(|number| number as u64).to_vec();
        let waves = m.div_ceil(rows).div_ceil(gpu.multiprocessors.max(1) as usize);
        let pdl = Pdl { reads_flags: true, fetches_early: true, leaves_room: true };
        CustomKernel {
            tail: format!("{}_rows{rows}_v0", real.name()),
            spec: KernelSpec::new(KernelFile::Gemm, "GemmSimt", arguments).with_pdl(pdl).with_general(general, numbers),
            work_bytes: 0,
            cost_us: LAUNCH_US + FIRST_US + (waves * rows * n * k) as f64 / MULTIPLIES_PER_US,
        }
    };
    // Tiles hold existing rows only.
    [4, 2].into_iter().filter(|across| m.is_multiple_of(4 * across)).map(tile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;
    use crate::select::target::Target;

    #[test]
    fn tiles_hold_whole_rows_that_exist() {
        let gpu = Target::h200().as_cuda().unwrap();
        let of = |m: usize, n: usize, real: Real| {
            let (trans, eps) = (Trans::Nn, Scalar::new(1e-5));
            let op = ops::GemmNorm { m, n, k: 256, trans, accumulate: true, bias: false, eps, rms: false };
            kernels(&OpKind::GemmNorm(op), real, &gpu)
        };
        let [tall, flat] = of(1024, 64, Real::F32).try_into().unwrap();
        assert!(tall.spec.ty().ends_with(", 64>, 16, 64, 16, 4, 4, 4, 1>"), "{}", tall.spec.ty());
        assert!(flat.spec.ty().ends_with(", 64>, 8, 64, 16, 2, 4, 4, 1>"), "{}", flat.spec.ty());
        assert!(flat.cost_us < tall.cost_us);
        let counts =
            [of(1024, 96, Real::F32), of(1024, 64, Real::Bf16), of(1032, 64, Real::F32), of(12, 64, Real::F32)];
        assert_eq!(counts.map(|found| found.len()), [0, 0, 1, 0]);
    }
}
