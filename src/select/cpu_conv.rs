//! How the CPU's convolutions are divided: pure functions of shape and instruction set, shared by selection and
//! kernels.
//!
//! Forward convolution and the gradient of its input are both correlations: every output pixel sums, over its taps, a
//! product of an input pixel and a matrix. With stride 1 the gradient has the same taps flipped; with a larger stride
//! the output pixels form classes by their remainder, each with the taps that reach it. A class's pixels are the rows
//! of a matrix product whose left operand is never built: its rows are addresses in an image that includes its padding.

use super::cpu_gemm::{PARALLEL_US, separate_sums, tile_shape};
use crate::ops::{self, ConvGeometry, OpKind};
use crate::select::target::Isa;

/// One tap of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Rows and columns from a pixel's position in the input.
    pub offset: [isize; 2],
    /// Its index in the weight, `0..kh * kw`.
    pub weight: usize,
}

/// The output pixels that share their taps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The first output row and column.
    pub first: [usize; 2],
    /// Rows and columns of the class.
    pub count: [usize; 2],
    /// In rising order of their position in the input.
    pub taps: Vec<Tap>,
}

/// A convolution or the gradient of its input, as a correlation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correlation {
    pub n: usize,
    pub in_dims: [usize; 2],
    pub out_dims: [usize; 2],
    /// Channels of a pixel.
    pub in_c: usize,
    pub out_c: usize,
    pub groups: usize,
    /// The stride between pixels of a class, in input rows and columns, and in output ones.
    pub in_step: [usize; 2],
    pub out_step: [usize; 2],
    pub classes: Vec<Class>,
    /// The weight is read transposed.
    pub transposed: bool,
    /// Input columns that any pixel reads, from the first to one past the last; the same for rows.
    pub columns: [isize; 2],
    pub rows: [isize; 2],
}

impl Correlation {
    /// The correlation of an operation; `None` for other operations.
    #[must_use]
    pub fn of(op: &OpKind) -> Option<Self> {
        match op {
            OpKind::Conv2d(ops::Conv2d { geometry, .. }) => Some(Self::forward(geometry)),
            OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, .. }) => Some(Self::backward(geometry)),
            _ => None,
        }
    }

    fn forward(g: &ConvGeometry) -> Self {
        let mut taps = Vec::new();
        for kh in 0..g.kernel[0] {
            for kw in 0..g.kernel[1] {
                let at = |k: usize, a: usize| (k * g.dilation[a]) as isize - g.padding[a] as isize;
                taps.push(Tap { offset: [at(kh, 0), at(kw, 1)], weight: kh * g.kernel[1] + kw });
            }
        }
        let class = Class { first: [0, 0], count: [g.ho, g.wo], taps };
        let (ins, outs) = (([g.h, g.w], g.c), ([g.ho, g.wo], g.f));
        Self::new(g, ins, outs, [g.stride, [1, 1]], vec![class], false)
    }

    fn backward(g: &ConvGeometry) -> Self {
        let mut classes = Vec::new();
        for h0 in 0..g.stride[0].min(g.h) {
            for w0 in 0..g.stride[1].min(g.w) {
                // The taps along one axis that reach pixels with this remainder, with the output row they come from.
                let reach = |first: usize, a: usize| {
                    let taps = (0..g.kernel[a]).rev().filter_map(move |k| {
                        let at = (first + g.padding[a]) as isize - (k * g.dilation[a]) as isize;
                        let stride = g.stride[a] as isize;
                        (at.rem_euclid(stride) == 0).then_some((k, at.div_euclid(stride)))
                    });
                    let mut taps: Vec<(usize, isize)> = taps.collect();
                    taps.sort_by_key(|t| t.1);
                    taps
                };
                let (rows, columns) = (reach(h0, 0), reach(w0, 1));
                let pairs = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
                let taps = pairs.map(|(r, c)| Tap { offset: [r.1, c.1], weight: r.0 * g.kernel[1] + c.0 }).collect();
                let count = [(g.h - h0).div_ceil(g.stride[0]), (g.w - w0).div_ceil(g.stride[1])];
                classes.push(Class { first: [h0, w0], count, taps });
            }
        }
        let (ins, outs) = (([g.ho, g.wo], g.f), ([g.h, g.w], g.c));
        Self::new(g, ins, outs, [[1, 1], g.stride], classes, true)
    }

    fn new(
        g: &ConvGeometry,
        (in_dims, in_c): ([usize; 2], usize),
        (out_dims, out_c): ([usize; 2], usize),
        [in_step, out_step]: [[usize; 2]; 2],
        classes: Vec<Class>,
        transposed: bool,
    ) -> Self {
        let span = |a: usize| {
            let ends = classes.iter().flat_map(|c| {
                let last = (in_step[a] * (c.count[a] - 1)) as isize;
                c.taps.iter().map(move |t| (t.offset[a], t.offset[a] + last + 1))
            });
            ends.reduce(|x, y| (x.0.min(y.0), x.1.max(y.1))).map_or([0, 1], |(lo, hi)| [lo, hi])
        };
        let (rows, columns) = (span(0), span(1));
        Self {
            n: g.n,
            in_dims,
            out_dims,
            in_c,
            out_c,
            groups: g.groups,
            in_step,
            out_step,
            classes,
            transposed,
            columns,
            rows,
        }
    }

    /// True if no pixel reads outside the image, which is then read in place.
    #[must_use]
    pub fn in_place(&self) -> bool {
        let inside = |span: [isize; 2], size: usize| span[0] >= 0 && span[1] <= size as isize;
        inside(self.rows, self.in_dims[0]) && inside(self.columns, self.in_dims[1])
    }

    /// The first input column, and the number of columns, of an image as the kernel reads it.
    #[must_use]
    pub fn pitch(&self) -> (isize, usize) {
        if self.in_place() {
            (0, self.in_dims[1])
        } else {
            (self.columns[0], (self.columns[1] - self.columns[0]) as usize)
        }
    }

    /// The number of stripes of output rows that an image is divided into, so that there is enough work to share and a
    /// stripe's input stays in the cache.
    #[must_use]
    pub fn stripes(&self) -> usize {
        const UNITS: usize = 8;
        const STRIPE_BYTES: usize = 192 << 10;
        let image = 4 * self.pitch().1 * (self.rows[1] - self.rows[0]).max(1) as usize * self.in_c;
        let wanted = UNITS.div_ceil(self.n).max(image.div_ceil(STRIPE_BYTES));
        wanted.clamp(1, self.out_dims[0])
    }

    /// The input rows that output rows `from..to` read: first and one past the last.
    #[must_use]
    pub fn stripe_rows(&self, from: usize, to: usize) -> [isize; 2] {
        let mut span: Option<[isize; 2]> = None;
        for class in &self.classes {
            let (a, b) = class_rows(class.first[0], self.out_step[0], class.count[0], from, to);
            if a >= b {
                continue;
            }
            for tap in &class.taps {
                let lo = (a * self.in_step[0]) as isize + tap.offset[0];
                let hi = ((b - 1) * self.in_step[0]) as isize + tap.offset[0] + 1;
                span = Some(span.map_or([lo, hi], |s| [s[0].min(lo), s[1].max(hi)]));
            }
        }
        span.unwrap_or([0, 0])
    }

    /// Rows of the weight as the kernel reads it, for one group: taps times input channels.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.classes.iter().map(|c| c.taps.len()).sum::<usize>() * (self.in_c / self.groups)
    }

    /// Elements of the rearranged weight.
    #[must_use]
    pub fn packed_len(&self, isa: Isa) -> usize {
        let columns = (self.out_c / self.groups).next_multiple_of(tile_shape(isa).lanes);
        self.groups * self.depth() * columns
    }

    /// Elements of a thread's stripe, including its padding.
    #[must_use]
    pub fn stripe_len(&self) -> usize {
        if self.in_place() {
            return 0;
        }
        let stripes = self.stripes();
        let rows = (0..stripes).map(|s| {
            let (from, to) = stripe(self.out_dims[0], stripes, s);
            let [lo, hi] = self.stripe_rows(from, to);
            (hi - lo) as usize
        });
        (rows.max().unwrap_or(0) * self.pitch().1 * self.in_c).next_multiple_of(LINE)
    }
}

/// Elements in a cache line.
const LINE: usize = 16;

/// Output rows of stripe `index` of `count`.
#[must_use]
pub const fn stripe(rows: usize, count: usize, index: usize) -> (usize, usize) {
    (rows * index / count, rows * (index + 1) / count)
}

/// The pixels of a class along one axis that are in output rows `from..to`.
#[must_use]
pub fn class_rows(first: usize, step: usize, count: usize, from: usize, to: usize) -> (usize, usize) {
    let at = |limit: usize| limit.saturating_sub(first).div_ceil(step).min(count);
    (at(from), at(to))
}

/// How the gradient of a weight is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPlan {
    /// The number of images whose padded copies are concatenated, so that a reduction is long enough.
    pub images: usize,
    /// The number of chunks of the batch with separate sums; 1 if threads share the output instead.
    pub chunks: usize,
    /// Rows and columns of a padded image; the image's first row and column in it.
    pub padded: [usize; 2],
    pub in_place: bool,
    /// The number of taps along a row that are contiguous in memory.
    pub merged: bool,
}

/// How the gradient of a weight is divided.
#[must_use]
pub fn weight_plan(g: &ConvGeometry) -> WeightPlan {
    const REDUCTION: usize = 256;
    let images = REDUCTION.div_ceil(g.ho * g.wo).clamp(1, g.n);
    let groups = g.n.div_ceil(images);
    let weight = g.kernel[0] * g.kernel[1] * (g.c / g.groups) * g.f;
    let chunks = separate_sums(weight, groups);
    let reach = |a: usize, out: usize| (out - 1) * g.stride[a] + g.dilation[a] * (g.kernel[a] - 1) + 1;
    let (rows, columns) = (reach(0, g.ho), reach(1, g.wo));
    let in_place = g.padding == [0, 0] && rows <= g.h && columns <= g.w;
    let padded = if in_place { [g.h, g.w] } else { [rows, columns] };
    let merged = g.groups == 1 && (g.dilation[1] == 1 || g.kernel[1] == 1);
    WeightPlan { images, chunks, padded, in_place, merged }
}

impl WeightPlan {
    /// Elements of a thread's padded images.
    #[must_use]
    pub fn images_len(&self, g: &ConvGeometry) -> usize {
        if self.in_place { 0 } else { (self.images * self.padded[0] * self.padded[1] * g.c).next_multiple_of(LINE) }
    }

    /// Elements of the chunks' separate sums.
    #[must_use]
    pub fn partials_len(&self, g: &ConvGeometry) -> usize {
        let weight = g.kernel[0] * g.kernel[1] * (g.c / g.groups) * g.f;
        if self.chunks > 1 { self.chunks * weight.next_multiple_of(LINE) } else { 0 }
    }
}

/// Checks whether a kernel supports the convolution: its offsets must fit the tables.
///
/// # Errors
/// If they do not.
pub fn accepts(op: &OpKind) -> Result<(), String> {
    let (OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
    | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
    | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. })) = op
    else {
        return Ok(());
    };
    let image = |h: usize, w: usize, c: usize| {
        (h + 2 * g.padding[0] + g.kernel[0] * g.dilation[0]) * (w + 2 * g.padding[1] + g.kernel[1] * g.dilation[1]) * c
    };
    let largest = image(g.h, g.w, g.c).max(image(g.ho, g.wo, g.f)) * weight_plan(g).images;
    if largest < 1 << 30 {
        Ok(())
    } else {
        Err("an image of more than 2^30 elements does not fit the offset tables".into())
    }
}

/// Bytes of scratch that a convolution's kernel needs when up to `threads` threads share it.
#[must_use]
pub fn workspace_bytes(op: &OpKind, isa: Isa, threads: usize) -> usize {
    if let OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) = op {
        let plan = weight_plan(geometry);
        return 4 * (plan.partials_len(geometry) + threads * plan.images_len(geometry));
    }
    Correlation::of(op).map_or(0, |c| 4 * (c.packed_len(isa).next_multiple_of(LINE) + threads * c.stripe_len()))
}

/// Whether a convolution is large enough for its work to be shared among threads.
#[must_use]
pub fn is_parallel(op: &OpKind, isa: Isa) -> bool {
    let rate = match isa {
        Isa::Portable => 6e3,
        Isa::Avx2 => 4e4,
        Isa::Avx512 => 8e4,
    };
    op.flops() as f64 / 2.0 / rate > PARALLEL_US / 2.0
}
