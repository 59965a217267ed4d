//! Which types of `pool.cu` do an operation.

use super::elementwise::{row_chunks, row_sum_us, vec_width, width_name};
use super::speed::{BYTES_PER_US, LAUNCH_US};
use crate::ops::{self, OpKind, PoolGeometry};
use crate::select::cuda::custom::CustomKernel;
use crate::select::cuda::real::Real;
use crate::select::cuda::spec::{KernelFile, KernelSpec};
use crate::select::target::CudaFacts;

/// Every type of this family for an operation.
#[must_use]
pub fn kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    match kind {
        OpKind::MaxPool(ops::MaxPool { geometry }) => windows("MaxPool", geometry, real, index_bytes(geometry)),
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) => {
            windows("MaxPoolBwd", geometry, real, index_bytes(geometry))
        }
        OpKind::AvgPool(ops::AvgPool { geometry }) => windows("AvgPool", geometry, real, 0),
        OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) => windows("AvgPoolBwd", geometry, real, 0),
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }) if n * hw * c > 0 => global(real, *n, *hw, *c, gpu),
        OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) if n * hw * c > 0 => {
            let ty = ("GlobalAvgPoolBwd", format!("{}, {n}, {hw}, {c}", real.cpp()));
            vec![code(real, *c, ty, n * (hw + 1) * c * real.size())]
        }
        _ => Vec::new(),
    }
}

/// Bytes of one position in a window.
const fn index_bytes(g: &PoolGeometry) -> usize {
    if g.size[0] * g.size[1] > 256 { 2 } else { 1 }
}

/// A template with its arguments.
type Type = (&'static str, String);

fn code(real: Real, channels: usize, (template, arguments): Type, bytes: usize) -> CustomKernel {
    CustomKernel {
        tail: format!("{}_{}_v0", real.name(), width_name(vec_width(real, channels))),
        spec: KernelSpec::new(KernelFile::Pool, template, arguments),
        work_bytes: 0,
        cost_us: LAUNCH_US + bytes as f64 / BYTES_PER_US,
    }
}

/// A type over windows; `index` is the bytes of a position, where positions are moved.
fn windows(name: &'static str, g: &PoolGeometry, real: Real, index: usize) -> Vec<CustomKernel> {
    let (inputs, outputs) = (g.n * g.h * g.w * g.c, g.n * g.ho * g.wo * g.c);
    // The kernels count vectors in 32 bits.
    let most = inputs.max(outputs) / vec_width(real, g.c);
    if inputs == 0 || outputs == 0 || most > u32::MAX as usize {
        return Vec::new();
    }
    let PoolGeometry { n, h, w, c, size: [kh, kw], stride: [sh, sw], padding: [ph, pw], ho, wo } = *g;
    let t = real.cpp();
    let arguments = format!("{t}, {n}, {h}, {w}, {c}, {kh}, {kw}, {sh}, {sw}, {ph}, {pw}, {ho}, {wo}");
    vec![code(real, c, (name, arguments), (inputs + outputs) * real.size() + outputs * index)]
}

fn global(real: Real, n: usize, hw: usize, c: usize, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let row_bytes = c * real.size();
    let [one, two] = row_sum_us(n, hw, row_bytes);
    let type_of = |chunks: usize| ("GlobalAvgPool", format!("{}, {n}, {hw}, {c}, {chunks}", real.cpp()));
    let whole = CustomKernel { cost_us: one, ..code(real, c, type_of(1), 0) };
    match row_chunks(n, hw, row_bytes, gpu) {
        1 => vec![whole],
        chunks => {
            let split = CustomKernel {
                tail: format!("{}_{}_split_v0", real.name(), width_name(vec_width(real, c))),
                work_bytes: 4 * (n * chunks * c) as u64,
                cost_us: two + (8 * n * chunks * c) as f64 / BYTES_PER_US,
                ..code(real, c, type_of(chunks), 0)
            };
            vec![whole, split]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometry_is_written_out_in_the_order_of_the_kernels() {
        let geometry =
            PoolGeometry { n: 2, h: 8, w: 9, c: 16, size: [2, 3], stride: [1, 2], padding: [0, 1], ho: 7, wo: 5 };
        let gpu = crate::select::target::Target::h200().as_cuda().unwrap();
        let codes = kernels(&OpKind::MaxPool(ops::MaxPool { geometry }), Real::Bf16, &gpu);
        let types: Vec<String> = codes.iter().map(|code| code.spec.ty()).collect();
        assert_eq!(types, ["MaxPool<bf16, 2, 8, 9, 16, 2, 3, 1, 2, 0, 1, 7, 5>"]);
        assert_eq!(codes[0].tail, "bf16_vec8_v0");
    }
}
