//! What no kernel can do without: the bytes that an operation must move and the arithmetic that it must do.
//!
//! Times are held against these figures, so they never count more than is needed: an argument is moved once however
//! often a kernel passes over it, what a window skips or finds in the padding is left out, and so is what is between
//! the segments of a flat vector.

use crate::lower::{ConvGeometry, Dir, LValueId, Op, OpKind, PoolGeometry, Program, Segment};
use crate::ops;

/// The bytes that an operation must read and write.
#[must_use]
pub fn bytes(program: &Program, op: &Op) -> u64 {
    let mut sum = 0;
    for dir in [Dir::In, Dir::Out] {
        let mut seen: Vec<(LValueId, usize, u64)> = Vec::new();
        for (slot, value) in op.bound(dir) {
            let (root, start) = program.root(value);
            let place = (root, start, program.value(value).bytes());
            // The same numbers in two slots are moved once.
            if !seen.contains(&place) {
                seen.push(place);
                sum += touched(program, &op.kind, slot, value);
            }
        }
    }
    sum
}

/// The bytes of an argument that an operation must touch.
fn touched(program: &Program, kind: &OpKind, slot: &str, value: LValueId) -> u64 {
    let value = program.value(value);
    let all = value.bytes();
    let inside = |segments: &[Segment]| segments.iter().map(|s| (s.len * value.dtype.size()) as u64).sum::<u64>();
    match kind {
        OpKind::AdamStep(ops::AdamStep { len, segments, .. }) | OpKind::SgdStep(ops::SgdStep { len, segments, .. })
            if value.shape.len() == *len =>
        {
            inside(segments).min(all)
        }
        OpKind::Conv2d(ops::Conv2d { geometry: g, .. }) if slot == "a" => {
            all.min(share(all, conv_windows(g).map(|w| w.touched())))
        }
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) if slot == "a" => {
            all.min(share(all, conv_windows(g).map(|w| w.touched())))
        }
        OpKind::MaxPool(ops::MaxPool { geometry: g }) | OpKind::AvgPool(ops::AvgPool { geometry: g })
            if slot == "x" =>
        {
            all.min(share(all, pool_windows(g).map(|w| w.touched())))
        }
        _ => all,
    }
}

/// So many of the places along each axis, as a part of all bytes.
fn share(all: u64, axes: [(usize, usize); 2]) -> u64 {
    axes.iter().fold(all, |bytes, (some, of)| bytes * *some as u64 / (*of).max(1) as u64)
}

/// The floating-point operations that an operation must do, as fused multiply-adds count: two each. Of what is no
/// product half of the usual count is taken, as two of those operations may be one instruction.
#[must_use]
pub fn flops(kind: &OpKind) -> u64 {
    let usual = super::cpu_rest::flops(kind);
    match kind {
        OpKind::Gemm(_) => usual,
        OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }) => {
            let [rows, columns] = conv_windows(g).map(|w| w.taps());
            (2 * g.n * g.f * (g.c / g.groups.max(1)) * rows * columns) as u64
        }
        OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }) => (4 * rows * features * classes) as u64,
        OpKind::WeightStep(ops::WeightStep { m, n, k, .. }) => (2 * m * n * k) as u64,
        _ => usual / 2,
    }
}

/// As [`flops`], where a library may work on tiles: of the multiplications of a window of 3 by 3 that moves by one
/// place, 4 in 9 are left then (Lavin and Gray, "Fast algorithms for convolutional neural networks").
#[must_use]
pub fn flops_with_tiles(kind: &OpKind) -> u64 {
    let (OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
    | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
    | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. })) = kind
    else {
        return flops(kind);
    };
    let has_tiles = (g.kernel, g.stride, g.dilation) == ([3; 2], [1; 2], [1; 2]);
    if has_tiles { flops(kind) * 4 / 9 } else { flops(kind) }
}

/// Windows along one axis of an image.
#[derive(Clone, Copy)]
struct Windows {
    size: usize,
    windows: usize,
    taps: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Windows {
    /// The place inside of the image that a tap of a window is at; `None` in the padding.
    fn at(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|at| *at < self.size)
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        let own = *self;
        (0..own.windows).flat_map(move |window| (0..own.taps).filter_map(move |tap| own.at(window, tap)))
    }

    /// Taps of all windows that are inside of the image.
    fn taps(&self) -> usize {
        self.all().count()
    }

    /// Places that some window touches, of how many.
    fn touched(&self) -> (usize, usize) {
        let mut places = vec![false; self.size];
        self.all().for_each(|at| places[at] = true);
        (places.into_iter().filter(|p| *p).count(), self.size)
    }
}

fn conv_windows(g: &ConvGeometry) -> [Windows; 2] {
    windows([g.h, g.w], [g.ho, g.wo], |i| [g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]])
}

fn pool_windows(g: &PoolGeometry) -> [Windows; 2] {
    windows([g.h, g.w], [g.ho, g.wo], |i| [g.size[i], g.stride[i], g.padding[i], 1])
}

/// The windows along both axes of an image; `along` gives taps, stride, padding and dilation of an axis.
fn windows(sizes: [usize; 2], counts: [usize; 2], along: impl Fn(usize) -> [usize; 4]) -> [Windows; 2] {
    [0, 1].map(|axis| {
        let [taps, stride, padding, dilation] = along(axis);
        Windows { size: sizes[axis], windows: counts[axis], taps, stride, padding, dilation }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::lower::Epilogue;
    use crate::model::{BUNDLED, check, read_preset};
    use crate::select::{Isa, Target, cpu_rest};

    fn conv(kernel: usize, stride: usize, padding: usize) -> ConvGeometry {
        let ho = (8 + 2 * padding - kernel) / stride + 1;
        let pair = |n| [n, n];
        ConvGeometry {
            n: 2,
            h: 8,
            w: 8,
            c: 4,
            f: 3,
            kernel: pair(kernel),
            stride: pair(stride),
            padding: pair(padding),
            dilation: pair(1),
            groups: 1,
            ho,
            wo: ho,
        }
    }

    #[test]
    fn padding_is_no_arithmetic_and_skipped_places_are_not_read() {
        let flops_of = |geometry| flops(&OpKind::Conv2d(ops::Conv2d { geometry, epilogue: Epilogue::default() }));
        // Along an axis of eight places a window of three with a padding of one has 24 taps, two of them outside.
        assert_eq!(flops_of(conv(3, 1, 1)), 2 * 2 * 3 * 4 * 22 * 22);
        assert_eq!(flops_of(conv(3, 1, 0)), 2 * 2 * 3 * 4 * 18 * 18);
        assert_eq!(conv_windows(&conv(1, 2, 0)).map(|w| w.touched()), [(4, 8); 2]);
        assert_eq!(share(1024, [(4, 8), (4, 8)]), 256);
        assert_eq!(conv_windows(&conv(3, 2, 1))[0].touched(), (8, 8));
    }

    #[test]
    fn what_is_needed_is_never_more_than_what_is_counted() {
        for bundled in BUNDLED {
            let Some(model) = check(&read_preset(bundled.text).unwrap()).model else { continue };
            let compiled = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap();
            let found = &compiled.selection;
            for (op, choice) in found.program.ops.iter().zip(&found.choices) {
                let name = op.kind.name();
                assert!(choice.bytes > 0 && choice.least_flops <= choice.flops, "{}: {name}", bundled.name);
                // The estimate may pass over an argument twice; labels and counters have sizes of their own.
                let counted = cpu_rest::bytes_moved(&op.kind, 4);
                assert!(choice.bytes <= counted + 64, "{}: {name} {} {counted}", bundled.name, choice.bytes);
            }
        }
    }
}
