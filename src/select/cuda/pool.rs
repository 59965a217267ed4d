//! Which types of `pool.cu` compute an operation.

use super::elementwise::{row_chunks, row_sum_us, vec_width, width_name};
use super::speed::{BYTES_PER_US, LAUNCH_US};
use crate::ops::{self, OpKind, PoolGeometry};
use crate::select::cuda::custom::{CustomKernel, general, general_or_wider, packed};
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
            let (t, v) = (real.cpp(), vec_width(real, *c));
            let ty = ("GlobalAvgPoolBwd", format!("{t}, {n}, {hw}, {c}"));
            let each = if n * hw * (c / v) >= 1 << 18 { 2 } else { 1 };
            let code = code(real, *c, ty, n * (hw + 1) * c * real.size());
            vec![general(code, format!("{t}, ANY, ANY, ANY, {v}, {each}"), &[*n, *hw, *c].map(|n| n as u64))]
        }
        _ => Vec::new(),
    }
}

/// The size, stride and padding of a window.
type Window = ([usize; 2], [usize; 2], [usize; 2]);

/// Windows for which general members are compiled, because most networks have them, and whether only maxima do.
const USUAL: [(Window, bool); 2] = [(([2, 2], [2, 2], [0, 0]), false), (([3, 3], [2, 2], [1, 1]), true)];

/// The size of a position in a window, in bytes.
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

/// A type over windows; `index` is the size of a position in bytes, if positions are moved.
fn windows(name: &'static str, g: &PoolGeometry, real: Real, index: usize) -> Vec<CustomKernel> {
    let (inputs, outputs) = (g.n * g.h * g.w * g.c, g.n * g.ho * g.wo * g.c);
    // The kernels count vectors in 32 bits.
    let most = inputs.max(outputs) / vec_width(real, g.c);
    if inputs == 0 || outputs == 0 || most > u32::MAX as usize {
        return Vec::new();
    }
    let PoolGeometry { n, h, w, c, size: [kh, kw], stride: [sh, sw], padding: [ph, pw], ho, wo } = *g;
    let (t, window, v) = (real.cpp(), format!("{kh}, {kw}, {sh}, {sw}, {ph}, {pw}"), vec_width(real, c));
    // Whether a window may reach beyond the image.
    let padded = ph > 0 || pw > 0 || (ho - 1) * sh + kh > h || (wo - 1) * sw + kw > w;
    let arguments = format!("{t}, {n}, {h}, {w}, {c}, {window}, {ho}, {wo}");
    let code = code(real, c, (name, arguments), (inputs + outputs) * real.size() + outputs * index);
    // Whether a pixel belongs to at most one window, which only gradients use.
    let disjoint = name.ends_with("Bwd") && kh <= sh && kw <= sw && sh * sw <= 16 && !padded;
    let is_maximum = name.starts_with("Max");
    let is_usual =
        USUAL.iter().any(|(usual, of_maxima)| *usual == (g.size, g.stride, g.padding) && (is_maximum || !of_maxima));
    let any = |window: &str, padded: bool| {
        format!("{t}, ANY, ANY, ANY, ANY, {window}, ANY, ANY, {v}, {padded}, {disjoint}, {}", index_bytes(g) > 1)
    };
    let every_window = ["ANY"; 6].join(", ");
    let own = any(if is_usual { &window } else { &every_window }, padded);
    let (window, padding) = (packed(&[kh, kw, sh, sw], 16), packed(&[ph, pw], 16));
    let (Some(window), Some(padding)) = (window, padding) else { return vec![code] };
    let sizes = [n, h, w, c, ho, wo].map(|n| n as u64);
    vec![general_or_wider(code, [own, any(&every_window, !disjoint)], &[&sizes[..], &[window, padding]].concat())]
}

fn global(real: Real, n: usize, hw: usize, c: usize, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let row_bytes = c * real.size();
    let [one, two] = row_sum_us(n, hw, row_bytes);
    let (t, v) = (real.cpp(), vec_width(real, c));
    let tx = (c / v).min(if hw <= 64 { 32 } else { 8 });
    let of = |chunks: usize| {
        let ty = ("GlobalAvgPool", format!("{t}, {n}, {hw}, {c}, {chunks}"));
        let any = if chunks == 1 { "1" } else { "ANY" };
        general(
            code(real, c, ty, 0),
            format!("{t}, ANY, ANY, ANY, {any}, {v}, {tx}"),
            &[n, hw, c, chunks].map(|n| n as u64),
        )
    };
    let whole = CustomKernel { cost_us: one, ..of(1) };
    match row_chunks(n, hw, row_bytes, gpu) {
        1 => vec![whole],
        chunks => {
            let split = CustomKernel {
                tail: format!("{}_{}_split_v0", real.name(), width_name(vec_width(real, c))),
                work_bytes: 4 * (n * chunks * c) as u64,
                cost_us: two + (8 * n * chunks * c) as f64 / BYTES_PER_US,
                ..of(chunks)
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
        let general = codes[0].spec.clone().of(crate::select::Kernels::General);
        assert_eq!(
            general.ty(),
            "MaxPool<bf16, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, 8, true, false, false>"
        );
        let (window, padding) = (2 | 3 << 16 | 1 << 32 | 2 << 48, 1 << 16);
        assert_eq!(general.numbers(), [2, 8, 9, 16, 7, 5, window, padding]);
        let halves = PoolGeometry { size: [2, 2], stride: [2, 2], padding: [0, 0], ..geometry };
        let codes = kernels(&OpKind::AvgPool(ops::AvgPool { geometry: halves }), Real::F32, &gpu);
        assert!(codes[0].spec.clone().of(crate::select::Kernels::General).ty().contains(" 2, 2, 2, 2, 0, 0, "));
    }
}
