//! General members of convolutions: what they are compiled for, and the numbers that they read.

use super::special::ThinUnit;
use super::*;
use crate::select::cuda::custom::{general_or_wider, packed};
use crate::select::cuda::epilogue::{any_epilogue, epilogue_functions};

/// The number that holds strides, dilations and functions.
const STEPS: usize = 10;
/// Bits of each stride and dilation in it.
const STEP_BITS: u32 = 12;
/// Bytes of shared memory for the rows of x of a unit in general members of `ConvThin`.
const THIN_BYTES: usize = 12 << 10;

/// The splits of a sum as a template argument of a general member: whether there are several is compiled in.
pub(super) const fn any_splits(splits: usize) -> &'static str {
    if splits > 1 { "ANY" } else { "1" }
}

impl Problem<'_> {
    /// The type of a geometry whose sizes are read: the widths of the copies of both factors, of stores, and of the
    /// second phase; `is_wide` if offsets need 64 bits. Strides and dilations above one are rarer: few kernels serve
    /// them, with copies of four elements or one. The second type is that of a wider class, which any geometry fits.
    pub(super) fn any_geometry(&self, [a, b, stored, added]: [usize; 4], is_wide: bool) -> [String; 2] {
        let is_dense = self.g.stride == [1, 1] && self.g.dilation == [1, 1];
        let [a, b] = [a, b].map(|width| if is_dense || width >= 4 { width } else { 1 });
        [
            format!("ConvAny<{is_dense}, {a}, {b}, {stored}, {added}, {is_wide}>"),
            format!("ConvAny<false, 1, 1, 1, 1, {is_wide}>"),
        ]
    }

    /// The type of the epilogue whose functions are read.
    pub(super) fn any_end(&self) -> String {
        any_epilogue(&self.epilogue, STEPS)
    }

    /// The geometry of the tiled product, with the widths that `ConvGeom` computes.
    pub(super) fn any_product(&self, splits: usize) -> [String; 2] {
        let Extent { cols, widths: [a, b], .. } = self.extent(self.real.size());
        let stores_one = self.kind == Kind::Forward && !self.tensor || !cols.is_multiple_of(4);
        self.any_geometry([a, b, if stores_one { 1 } else { 4 }, self.added(splits)], self.is_wide())
    }

    /// Neighbours that a thread of the second phase adds; 1 if there is no second phase.
    pub(super) fn added(&self, splits: usize) -> usize {
        let (g, len) = (self.g, self.results());
        let line = match self.kind {
            Kind::Forward => g.f,
            Kind::BackwardX => g.c,
            Kind::BackwardW => weights(g) / g.f,
        };
        let is_aligned = line.is_multiple_of(4) || !self.epilogue.bias && len >= 65_536;
        if splits > 1 && len.is_multiple_of(4) && is_aligned { 4 } else { 1 }
    }

    /// Whether an offset in an image may exceed 32 bits.
    fn is_wide(&self) -> bool {
        let g = self.g;
        let (x, y) = (g.n * g.h * g.w * g.c, g.n * g.ho * g.wo * g.f);
        x.max(y) + g.kernel[0] * g.dilation[0] * (g.w + g.wo) * g.c >= (1 << 31) - 4096
    }

    /// A kernel with the general member of these template arguments, and that for a wider class, if the sizes of the
    /// window fit 16 bits, and its strides and dilations 12 bits.
    pub(super) fn with_general(&self, kernel: CustomKernel, splits: usize, arguments: [String; 2]) -> CustomKernel {
        match self.numbers(splits, 0) {
            Some(numbers) => general_or_wider(kernel, arguments, &numbers),
            None => kernel,
        }
    }

    /// The numbers that general members read: with the ranges of a sum or blocks, and the rows of a unit of `ConvThin`.
    fn numbers(&self, parts: usize, unit_rows: usize) -> Option<Vec<u64>> {
        let g = self.g;
        let window = packed(&[g.kernel[0], g.kernel[1], g.padding[0], g.padding[1]], 16)?;
        let steps = packed(&[g.stride[0], g.stride[1], g.dilation[0], g.dilation[1]], STEP_BITS)?;
        let [n, h, w, c, f] = [g.n, g.h, g.w, g.c, g.f].map(|size| size as u64);
        let groups = g.groups as u64 | (unit_rows as u64) << 32;
        let numbers = [n, h, w, c, f, g.ho as u64, g.wo as u64, window, groups, parts as u64];
        Some([&numbers[..], &[steps | epilogue_functions(&self.epilogue)]].concat())
    }

    /// A kernel for images of few channels, which has a general member with these template arguments, and one for a
    /// wider class, unless the rows of x of a unit take more shared memory than general members have.
    pub(super) fn with_general_thin(
        &self,
        kernel: CustomKernel,
        (parts, unit): (usize, &ThinUnit),
        arguments: [String; 2],
    ) -> CustomKernel {
        let numbers = self.numbers(parts, unit.rows).filter(|_| unit.row_bytes <= THIN_BYTES && !self.is_wide());
        match numbers {
            Some(numbers) => general_or_wider(kernel, arguments, &numbers),
            None => kernel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Kernels;
    use crate::select::target::Target;

    fn kernels_of(geometry: ConvGeometry, real: Real) -> Vec<KernelSpec> {
        let gpu = Target::h200().as_cuda().unwrap();
        let epilogue = Epilogue { bias: true, ..Epilogue::default() };
        let all = [
            OpKind::Conv2d(ops::Conv2d { geometry, epilogue }),
            OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: Epilogue::default() }),
            OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate: false }),
        ];
        all.iter().flat_map(|kind| kernels(kind, real, &gpu)).map(|kernel| kernel.spec.of(Kernels::General)).collect()
    }

    fn geometry(n: usize, c: usize, groups: usize) -> ConvGeometry {
        ConvGeometry {
            n,
            h: 8,
            w: 9,
            c,
            f: c,
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups,
            ho: 8,
            wo: 9,
        }
    }

    #[test]
    fn the_numbers_of_a_convolution_are_its_sizes() {
        let found = kernels_of(geometry(7, 16, 1), Real::Bf16);
        let spec = found.iter().find(|spec| spec.template == "ConvGemm").unwrap();
        assert_eq!(spec.numbers()[..9], [7, 8, 9, 16, 16, 8, 9, 3 | 3 << 16 | 1 << 32 | 1 << 48, 1]);
        assert!(spec.arguments.contains("ConvAny<true, 8, 8, 4, "), "{}", spec.arguments);
    }

    #[test]
    fn the_rows_of_images_of_few_channels_fit_the_shared_memory_of_general_members() {
        let source = include_str!("../../../../kernels/conv.cu");
        assert!(source.contains(&format!("return {} << 10;", THIN_BYTES >> 10)));
        let gpu = Target::h200().as_cuda().unwrap();
        let (mut general, mut specialised) = (0, 0);
        for (size, c, window, stride, real) in (3..60).flat_map(|size| {
            let windows = [(1, 3, 1), (3, 3, 1), (1, 5, 2), (4, 2, 1), (2, 4, 3)];
            windows.into_iter().flat_map(move |(c, k, s)| [Real::Tf32, Real::F16].map(|real| (size, c, k, s, real)))
        }) {
            let (h, w, padding) = (size, 2 * size, window / 2);
            let out = |len: usize| (len + 2 * padding - window) / stride + 1;
            let geometry = ConvGeometry {
                n: 9,
                h,
                w,
                c,
                f: 64,
                kernel: [window; 2],
                stride: [stride; 2],
                padding: [padding; 2],
                ho: out(h),
                wo: out(w),
                ..ConvGeometry::UNIT
            };
            let epilogue = Epilogue::default();
            let forward = OpKind::Conv2d(ops::Conv2d { geometry, epilogue });
            let gradient = OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate: false });
            let found = [forward, gradient].into_iter().flat_map(|kind| kernels(&kind, real, &gpu));
            for kernel in found.filter(|kernel| kernel.spec.template.starts_with("ConvThin")) {
                let spec = kernel.spec.of(Kernels::General);
                if !spec.is_general() {
                    specialised += 1;
                    continue;
                }
                general += 1;
                // The rows and the pitch that `ConvThinSizes` computes from the numbers.
                let rows = (spec.numbers()[8] >> 32) as usize;
                let (step, x_rows) = (16 / real.size(), (rows - 1) * stride + window);
                let right = ((out(w) - 1) * stride + window).saturating_sub(padding + w) * c;
                let pitch = ((padding * c).next_multiple_of(step) + w * c + right).next_multiple_of(step);
                assert!(x_rows * pitch * real.size() <= THIN_BYTES, "{geometry:?}: {rows} rows");
            }
        }
        assert!(general > 300 && specialised > 20, "{general} {specialised}");
    }

    #[test]
    fn batches_of_one_class_share_their_kernels() {
        for (c, groups, template) in [(16, 1, "ConvGemm"), (16, 16, "ConvDirect"), (16, 16, "ConvDirectBwdW")] {
            let [a, b] = [64, 65].map(|n| {
                let found = kernels_of(geometry(n, c, groups), Real::F32);
                let found = found.into_iter().filter(|spec| spec.template == template);
                found.map(|spec| (spec.is_general(), spec.ty())).collect::<Vec<_>>()
            });
            assert!(!a.is_empty() && a.iter().all(|(is_general, _)| *is_general), "{a:?}");
            assert!(a.iter().any(|one| b.contains(one)), "{a:?} {b:?}");
        }
    }
}
