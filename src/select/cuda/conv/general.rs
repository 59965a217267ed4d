//! General members of convolutions: what they are compiled for, and the numbers that they read.

use super::*;
use crate::select::cuda::custom::{general_or_wider, packed};
use crate::select::cuda::epilogue::{any_epilogue, epilogue_functions};

/// The number that holds strides, dilations and functions.
const STEPS: usize = 10;
/// Bytes of shared memory for the rows of x of a unit in general members of `ConvThin`.
const THIN_BYTES: usize = 12 << 10;
/// Bits of each stride and dilation in it.
const STEP_BITS: u32 = 12;

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

    /// A kernel for images of few channels with units of `rows` rows, with its general member unless the rows of x of a
    /// unit take more shared memory than that has. `arguments` are those of the template for a geometry, and for
    /// classes of the weights of a filter and of the lines of a warp.
    pub(super) fn with_general_thin(
        &self,
        kernel: CustomKernel,
        (parts, rows, row_bytes): (usize, usize, usize),
        (widths, classes): ([usize; 4], [[usize; 2]; 2]),
        arguments: impl Fn(&str, [usize; 2]) -> String,
    ) -> CustomKernel {
        let numbers = self.numbers(parts, rows).filter(|_| row_bytes <= THIN_BYTES && !self.is_wide());
        let Some(numbers) = numbers else { return kernel };
        let [own, wider] = self.any_geometry(widths, false);
        general_or_wider(kernel, [arguments(&own, classes[0]), arguments(&wider, classes[1])], &numbers)
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
