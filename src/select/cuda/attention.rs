//! Which types of `attention.cu` do an operation, and with which tiles.

use super::elementwise::dropout_scale;
use crate::ops::{self, AttentionGeometry, OpKind, dropout_threshold};
use crate::select::cuda::custom::CustomKernel;
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;

/// Multiplications and additions of all multiprocessors in a microsecond, as far as these kernels come.
const FLOPS_PER_US: f64 = 1e7;

/// What a phase costs in microseconds.
const PHASE_US: f64 = 1.5;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, _: &CudaFacts) -> Vec<CustomKernel> {
    let (template, g) = match kind {
        OpKind::Attention(ops::Attention { geometry }) => ("Attention", geometry),
        OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => ("AttentionBwd", geometry),
        _ => return Vec::new(),
    };
    if g.pairs() == 0 {
        return Vec::new();
    }
    let is_backward = template == "AttentionBwd";
    let tile = tile(g.head_dim);
    let AttentionGeometry { batch, positions, heads, kv_heads, head_dim, causal, rotary, dropout, stream, .. } = *g;
    let sizes = format!("{batch}, {positions}, {heads}, {kv_heads}, {head_dim}, {causal}, {rotary}");
    let (threshold, kept) = if g.has_dropout() {
        (dropout_threshold(dropout.get()), dropout_scale(dropout.get()))
    } else {
        (0, "0u".to_owned())
    };
    let scale = (g.scale() as f32).to_bits();
    let shape = format!("Attend<{}, {sizes}, {scale:#010x}u, {threshold}u, {kept}, {stream}u, {tile}>", real.cpp());
    let angles = if rotary { 8 * positions * (head_dim / 2) } else { 0 };
    let sums = if is_backward { 4 * batch * heads * positions } else { 0 };
    let phases = if is_backward || rotary { 2.0 } else { 1.0 };
    // The gradient computes the scores and their gradient twice.
    let flops = kind.flops() as f64 * if is_backward { 1.4 } else { 1.0 };
    vec![CustomKernel {
        tail: format!("{}_tiles{tile}_v0", real.name()),
        spec: KernelSpec::new(KernelFile::Attention, template, shape),
        work_bytes: (angles + sums) as u64,
        cost_us: phases * PHASE_US + flops / FLOPS_PER_US,
    }]
}

/// The positions of a tile: of the largest of which five fit into the shared memory of a block on every GPU.
const fn tile(head_dim: usize) -> usize {
    match head_dim {
        0..=64 => 64,
        65..=128 => 32,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{MOST_HEAD_DIM, Scalar};
    use crate::select::target::Target;

    #[test]
    fn tiles_fit_into_shared_memory() {
        // What a block may have on GPUs of capability 8.6 and 8.9, the least of all from 8.0 on.
        const LEAST: usize = 99 << 10;
        for head_dim in 1..=MOST_HEAD_DIM {
            let (tile, row) = (tile(head_dim), head_dim.next_multiple_of(4) + 4);
            let bytes = 4 * (4 * tile * row + tile * (tile + 4));
            assert!(bytes <= LEAST, "{head_dim}: {bytes}");
        }
    }

    #[test]
    fn types_say_what_is_turned_and_dropped() {
        let g = AttentionGeometry {
            batch: 2,
            positions: 70,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            causal: true,
            rotary: true,
            dropout: Scalar::new(0.5),
            stream: 3,
        };
        let gpu = Target::h200().as_cuda().unwrap();
        let found = kernels(&OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }), Real::Bf16, &gpu).remove(0);
        let shape = "Attend<bf16, 2, 70, 4, 2, 16, true, true, 0x3e800000u, 2147483648u, 0x40000000u, 3u, 64>";
        assert_eq!(found.spec.ty(), format!("AttentionBwd<{shape}>"));
        assert_eq!((found.work_bytes, found.tail.as_str()), (8 * 70 * 8 + 4 * 2 * 4 * 70, "bf16_tiles64_v0"));
    }
}
