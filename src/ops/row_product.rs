//! Products whose rows are normalised where they are made, and products that are the gradient of normalised rows.

use super::Operation;
use super::geometry::{Scalar, Trans};
use super::operation::operation;

/// The numbers of columns for which a GPU has such products: those of which a row belongs to neighbouring threads.
pub const ROW_PRODUCT_COLUMNS: [usize; 3] = [32, 64, 128];

operation! {
    /// A product `c [m, n] = a b`, with `bias [n]` where it has one and added to what `c` holds where it accumulates,
    /// and the normalisation of its rows as [`LayerNorm`](super::LayerNorm) has it: `y [m, n]`, `mean` and `rstd [m]`.
    /// The first slots are those of [`product`](super::slot::product).
    pub struct GemmNorm {
        pub m: usize,
        pub n: usize,
        pub k: usize,
        pub trans: Trans,
        pub accumulate: bool,
        pub bias: bool,
        pub eps: Scalar,
        /// Whether rows are not centred: there is neither a mean nor a shift.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub rms: bool,
    }
    slots gemm_norm(op) {
        A: in activation [op.m * op.k],
        B: in [op.k * op.n],
        BIAS: in [op.n] if op.bias,
        GAMMA: in [op.n],
        C_PREV: in activation [op.m * op.n] if op.accumulate,
        C: out activation [op.m * op.n],
        BETA: in [op.n] if !op.rms,
        WORK: scratch,
        Y: out activation [op.m * op.n],
        MEAN: out [op.m] if !op.rms,
        RSTD: out [op.m],
    }
    if op.rms { "gemm_rms_norm" } else { "gemm_layer_norm" } => {
        dims: format!("m={} n={} k={}", op.m, op.n, op.k),
        flops: op.least_flops() + ((if op.rms { 4 } else { 7 }) * op.m * op.n) as u64,
        least_flops: (2 * op.m * op.n * op.k) as u64,
        is_for_gpus: true,
        weight: Some(gemm_norm::B),
    }
}

operation! {
    /// A product `c [m, n] = a b` that is the gradient of normalised rows, and the gradient `dx [m, n]` of what was
    /// normalised, as [`LayerNormBwd`](super::LayerNormBwd) has it. The first slots are those of
    /// [`product`](super::slot::product), as far as it reads them.
    pub struct GemmNormBwd {
        pub m: usize,
        pub n: usize,
        pub k: usize,
        pub trans: Trans,
        /// As in [`GemmNorm`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub rms: bool,
    }
    slots gemm_norm_bwd(op) {
        A: in activation [op.m * op.k],
        B: in [op.k * op.n],
        GAMMA: in [op.n],
        X: in activation [op.m * op.n],
        RESIDUAL: in activation [op.m * op.n] if OPTIONAL,
        C: out activation [op.m * op.n],
        MEAN: in [op.m] if !op.rms,
        WORK: scratch,
        RSTD: in [op.m],
        DX: out activation [op.m * op.n],
    }
    if op.rms { "gemm_rms_norm_bwd" } else { "gemm_layer_norm_bwd" } => {
        dims: format!("m={} n={} k={}", op.m, op.n, op.k),
        flops: op.least_flops() + ((if op.rms { 7 } else { 10 }) * op.m * op.n) as u64,
        least_flops: (2 * op.m * op.n * op.k) as u64,
        is_for_gpus: true,
        weight: Some(gemm_norm_bwd::B),
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::product;
    use super::*;

    #[test]
    fn the_first_slots_are_those_of_a_product() {
        let found = [gemm_norm::A, gemm_norm::B, gemm_norm::BIAS, gemm_norm::C_PREV, gemm_norm::C, gemm_norm::WORK];
        let wanted = [product::A, product::B, product::BIAS, product::C_PREV, product::C, product::WORK];
        assert_eq!(found, wanted);
        let found = [gemm_norm_bwd::A, gemm_norm_bwd::B, gemm_norm_bwd::C, gemm_norm_bwd::WORK];
        assert_eq!(found, [product::A, product::B, product::C, product::WORK]);
    }
}
