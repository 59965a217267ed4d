//! Which elements of an image its windows access: elements in the padding are neither read nor multiplied.

use super::{ConvGeometry, PoolGeometry};

/// Windows along one axis of an image.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    size: usize,
    windows: usize,
    taps: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Windows {
    /// The windows of a convolution, along both axes.
    pub(super) fn of_conv(g: &ConvGeometry) -> [Self; 2] {
        windows([g.h, g.w], [g.ho, g.wo], |i| [g.kernel[i], g.stride[i], g.padding[i], g.dilation[i]])
    }

    /// The windows of a pooling, along both axes.
    pub(super) fn of_pool(g: &PoolGeometry) -> [Self; 2] {
        windows([g.h, g.w], [g.ho, g.wo], |i| [g.size[i], g.stride[i], g.padding[i], 1])
    }

    /// The index in the image for a tap of a window; `None` in the padding.
    fn at(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|at| *at < self.size)
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        let own = *self;
        (0..own.windows).flat_map(move |window| (0..own.taps).filter_map(move |tap| own.at(window, tap)))
    }

    /// The number of taps of all windows that are inside the image.
    pub(super) fn taps(&self) -> usize {
        self.all().count()
    }

    /// The number of elements that some window accesses, and their total number.
    fn touched(&self) -> (usize, usize) {
        let mut places = vec![false; self.size];
        self.all().for_each(|at| places[at] = true);
        (places.into_iter().filter(|p| *p).count(), self.size)
    }
}

/// The windows along both axes of an image; `along` returns taps, stride, padding and dilation of an axis.
fn windows(sizes: [usize; 2], counts: [usize; 2], along: impl Fn(usize) -> [usize; 4]) -> [Windows; 2] {
    [0, 1].map(|axis| {
        let [taps, stride, padding, dilation] = along(axis);
        Windows { size: sizes[axis], windows: counts[axis], taps, stride, padding, dilation }
    })
}

/// The share of an image's bytes that windows access.
pub(super) fn touched_bytes(all: u64, axes: [Windows; 2]) -> u64 {
    all.min(share(all, axes.map(|w| w.touched())))
}

/// The accessed elements along each axis, as a share of all bytes.
fn share(all: u64, axes: [(usize, usize); 2]) -> u64 {
    axes.iter().fold(all, |bytes, (some, of)| bytes * *some as u64 / (*of).max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Conv2d, Epilogue, Operation};

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
    fn padding_needs_no_arithmetic_and_skipped_elements_are_not_read() {
        let flops_of = |geometry| Conv2d { geometry, epilogue: Epilogue::default() }.least_flops();
        // Along an axis of eight places a window of three with a padding of one has 24 taps, two of them outside.
        assert_eq!(flops_of(conv(3, 1, 1)), 2 * 2 * 3 * 4 * 22 * 22);
        assert_eq!(flops_of(conv(3, 1, 0)), 2 * 2 * 3 * 4 * 18 * 18);
        assert_eq!(Windows::of_conv(&conv(1, 2, 0)).map(|w| w.touched()), [(4, 8); 2]);
        assert_eq!(share(1024, [(4, 8), (4, 8)]), 256);
        assert_eq!(Windows::of_conv(&conv(3, 2, 1))[0].touched(), (8, 8));
    }
}
