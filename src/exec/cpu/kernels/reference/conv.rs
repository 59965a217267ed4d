//! Convolutions: `x [n, h, w, c]`, weight `[kh, kw, c / groups, f]`, `y [n, ho, wo, f]`.

use crate::exec::cpu::kernels::reference::args::{Args, Buf, Tail};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, ConvGeometry, Epilogue, OpKind, slot::product as slot};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => forward::<T>(args, geometry, epilogue),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => backward_x::<T>(args, geometry, epilogue),
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate }) => backward_w::<T>(args, geometry, *accumulate),
        _ => return false,
    }
    true
}

/// Index calculations for a geometry.
#[derive(Clone, Copy)]
struct Layout<'a>(&'a ConvGeometry);

impl Layout<'_> {
    /// The input row or column for output position `out` at kernel position `k` along `axis`, if it is not padding.
    fn input(self, axis: usize, out: usize, k: usize) -> Option<usize> {
        let (g, size) = (self.0, [self.0.h, self.0.w][axis]);
        let at = (out * g.stride[axis] + k * g.dilation[axis]).checked_sub(g.padding[axis])?;
        (at < size).then_some(at)
    }

    /// The output row or column for input position `at` at kernel position `k` along `axis`, if there is one.
    fn output(self, axis: usize, at: usize, k: usize) -> Option<usize> {
        let (g, size) = (self.0, [self.0.ho, self.0.wo][axis]);
        let steps = (at + g.padding[axis]).checked_sub(k * g.dilation[axis])?;
        let out = steps / g.stride[axis];
        (steps % g.stride[axis] == 0 && out < size).then_some(out)
    }

    fn at_x(self, n: usize, row: usize, col: usize, c: usize) -> usize {
        ((n * self.0.h + row) * self.0.w + col) * self.0.c + c
    }

    fn at_y(self, n: usize, row: usize, col: usize, f: usize) -> usize {
        ((n * self.0.ho + row) * self.0.wo + col) * self.0.f + f
    }

    /// The positions of the kernel, row by row.
    fn taps(self) -> impl Iterator<Item = (usize, usize)> {
        let [rows, cols] = self.0.kernel;
        (0..rows).flat_map(move |i| (0..cols).map(move |j| (i, j)))
    }

    /// The index of the weight for filter `f` and channel `c` of its group.
    fn at_weight(self, i: usize, j: usize, c: usize, f: usize) -> usize {
        ((i * self.0.kernel[1] + j) * (self.0.c / self.0.groups) + c) * self.0.f + f
    }
}

/// Batch, row and column of each pixel of `n` images, in memory order.
fn pixels(n: usize, rows: usize, cols: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..n * rows * cols).map(move |at| (at / cols / rows, at / cols % rows, at % cols))
}

/// The two factors, the output, the indices, and the channels and filters of a group.
type Operands<'a, T> = (Buf<T>, Buf<T>, Tail<T>, Layout<'a>, [usize; 2]);

fn operands<'a, T: Real>(args: Args<'_>, g: &'a ConvGeometry, accumulate: bool, epilogue: Epilogue) -> Operands<'a, T> {
    let tail = Tail::new(args, accumulate, epilogue);
    (args.buf(slot::A), args.buf(slot::B), tail, Layout(g), [g.c / g.groups, g.f / g.groups])
}

/// `y = x * weight`: slots `a` is x, `b` is the weight, `c` is y.
fn forward<T: Real>(args: Args, g: &ConvGeometry, epilogue: &Epilogue) {
    let (x, weight, tail, at, [group_c, group_f]) = operands::<T>(args, g, false, *epilogue);
    for (n, row, col) in pixels(g.n, g.ho, g.wo) {
        for f in 0..g.f {
            let mut sum = T::ZERO;
            for (i, j) in at.taps() {
                let (Some(r), Some(s)) = (at.input(0, row, i), at.input(1, col, j)) else { continue };
                for c in 0..group_c {
                    let channel = f / group_f * group_c + c;
                    sum = sum + x.get(at.at_x(n, r, s, channel)) * weight.get(at.at_weight(i, j, c, f));
                }
            }
            tail.store(at.at_y(n, row, col, f), f, sum);
        }
    }
}

/// Gradient of the input: slots `a` is dy, `b` is the weight, `c` is dx.
fn backward_x<T: Real>(args: Args, g: &ConvGeometry, epilogue: &Epilogue) {
    let (dy, weight, tail, at, [group_c, group_f]) = operands::<T>(args, g, false, *epilogue);
    for (n, row, col) in pixels(g.n, g.h, g.w) {
        for channel in 0..g.c {
            let (group, c) = (channel / group_c, channel % group_c);
            let mut sum = T::ZERO;
            for (i, j) in at.taps() {
                let (Some(r), Some(s)) = (at.output(0, row, i), at.output(1, col, j)) else { continue };
                for f in group * group_f..(group + 1) * group_f {
                    sum = sum + dy.get(at.at_y(n, r, s, f)) * weight.get(at.at_weight(i, j, c, f));
                }
            }
            tail.store(at.at_x(n, row, col, channel), channel, sum);
        }
    }
}

/// Gradient of the weight: slots `a` is x, `b` is dy, `c` is dw.
fn backward_w<T: Real>(args: Args, g: &ConvGeometry, accumulate: bool) {
    let (x, dy, tail, at, [group_c, group_f]) = operands::<T>(args, g, accumulate, Epilogue::default());
    for (i, j) in at.taps() {
        for c in 0..group_c {
            for f in 0..g.f {
                let channel = f / group_f * group_c + c;
                let mut sum = T::ZERO;
                for (n, row, col) in pixels(g.n, g.ho, g.wo) {
                    let (Some(r), Some(s)) = (at.input(0, row, i), at.input(1, col, j)) else { continue };
                    sum = sum + x.get(at.at_x(n, r, s, channel)) * dy.get(at.at_y(n, row, col, f));
                }
                tail.store(at.at_weight(i, j, c, f), f, sum);
            }
        }
    }
}
