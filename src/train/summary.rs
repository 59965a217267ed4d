//! A summary of a tensor: statistics, a histogram, and a picture of two of its axes.

use crate::tensor::HostTensor;

/// Bars of a histogram.
const BARS: usize = 48;
/// A picture has at most this many cells along each side; larger ones are averaged.
pub const SIDE: usize = 96;

/// Statistics over all elements. Minimum to standard deviation are over the finite ones, and NaN if there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    pub count: usize,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Of the population, not of a sample.
    pub std: f64,
    pub zeros: usize,
    pub nans: usize,
    pub infinities: usize,
}

/// The number of values in equal intervals of `[from, to]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub from: f64,
    pub to: f64,
    /// `BARS` counts; empty if no element is finite.
    pub counts: Vec<u32>,
}

/// Two axes of a tensor: the last two, or all of a vector in one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Cells, each the mean of the elements under it; NaN if one of them is not finite.
    pub rows: usize,
    pub cols: usize,
    /// Row by row, `rows * cols` values.
    pub cells: Vec<f32>,
    /// Elements along the two axes before averaging.
    pub elements: [usize; 2],
    /// Which of the pictures along the leading axes it is, and how many there are.
    pub slice: usize,
    pub slices: usize,
    /// The indices of the slice in the leading axes, such as `[3, 0]` for sample 3, channel 0.
    pub at: Vec<usize>,
}

/// A tensor as statistics, histogram and picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub statistics: Statistics,
    pub histogram: Histogram,
    pub picture: Picture,
    /// The first element that is not finite, in logical order.
    pub first_bad: Option<usize>,
}

impl Summary {
    /// Summarises a tensor in logical order. `slice` selects one of the pictures along its leading axes; the last one
    /// if there are fewer.
    #[must_use]
    pub fn of(tensor: &HostTensor, slice: usize) -> Self {
        let values = tensor.to_f64().unwrap_or_default();
        let statistics = statistics(&values);
        Self {
            histogram: histogram(&values, &statistics),
            picture: picture(&values, &tensor.shape.0, slice),
            first_bad: values.iter().position(|v| !v.is_finite()),
            statistics,
        }
    }
}

fn statistics(values: &[f64]) -> Statistics {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let n = finite().count();
    let mean = finite().sum::<f64>() / n as f64;
    let variance = finite().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
    let or_nan = |v: f64| if n == 0 { f64::NAN } else { v };
    Statistics {
        count: values.len(),
        min: or_nan(finite().fold(f64::INFINITY, f64::min)),
        max: or_nan(finite().fold(f64::NEG_INFINITY, f64::max)),
        mean,
        std: variance.sqrt(),
        zeros: values.iter().filter(|v| **v == 0.0).count(),
        nans: values.iter().filter(|v| v.is_nan()).count(),
        infinities: values.iter().filter(|v| v.is_infinite()).count(),
    }
}

fn histogram(values: &[f64], s: &Statistics) -> Histogram {
    if s.min.is_nan() {
        return Histogram { from: 0.0, to: 0.0, counts: Vec::new() };
    }
    // A constant tensor is one bar in the middle of a small range.
    let room = if s.max > s.min { 0.0 } else { s.min.abs().max(1.0) * 0.5 };
    let (from, to) = (s.min - room, s.max + room);
    let mut counts = vec![0u32; BARS];
    for v in values.iter().filter(|v| v.is_finite()) {
        let bar = ((v - from) / (to - from) * BARS as f64) as usize;
        counts[bar.min(BARS - 1)] += 1;
    }
    Histogram { from, to, counts }
}

fn picture(values: &[f64], shape: &[usize], slice: usize) -> Picture {
    let (lead, height, width) = match shape {
        [] => (&[][..], 1, values.len()),
        [n] => (&[][..], 1, *n),
        [lead @ .., h, w] => (lead, *h, *w),
    };
    let slices = lead.iter().product::<usize>().max(1);
    let slice = slice.min(slices - 1);
    let (rows, cols) = (height.min(SIDE), width.min(SIDE));
    let size = height * width;
    let own = values.get(slice * size..(slice + 1) * size).unwrap_or(&[]);
    let mut cells = Vec::with_capacity(rows * cols);
    // A vector longer than a row of cells is averaged like everything else, over intervals of equal length.
    let cut = |i: usize, n: usize, of: usize| i * of / n..((i + 1) * of / n).max(i * of / n + 1);
    for row in 0..if own.is_empty() { 0 } else { rows } {
        for col in 0..cols {
            let (ys, xs) = (cut(row, rows, height), cut(col, cols, width));
            let n = (ys.len() * xs.len()) as f64;
            let sum: f64 = ys.flat_map(|y| xs.clone().map(move |x| own[y * width + x])).sum();
            cells.push(if sum.is_finite() { (sum / n) as f32 } else { f32::NAN });
        }
    }
    let mut at = vec![0; lead.len()];
    let mut rest = slice;
    for (place, &len) in at.iter_mut().zip(lead).rev() {
        *place = rest % len.max(1);
        rest /= len.max(1);
    }
    let rows = if own.is_empty() { 0 } else { rows };
    Picture { rows, cols, cells, elements: [height, width], slice, slices, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
        HostTensor::from_slice(shape.to_vec(), values).unwrap()
    }

    #[test]
    fn statistics_skip_and_count_values_that_are_not_finite() {
        let look = Summary::of(&tensor(&[6], &[0.0, 1.0, 3.0, f32::NAN, f32::INFINITY, 0.0]), 0);
        let s = look.statistics;
        assert_eq!((s.count, s.zeros, s.nans, s.infinities), (6, 2, 1, 1));
        assert_eq!((s.min, s.max, s.mean), (0.0, 3.0, 1.0));
        assert!((s.std - 1.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(look.first_bad, Some(3));
        assert_eq!(look.histogram.counts.iter().sum::<u32>(), 4);
        assert_eq!((look.histogram.counts[0], look.histogram.counts[BARS - 1]), (2, 1));
    }

    #[test]
    fn a_picture_is_one_slice_of_the_leading_axes() {
        let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
        let look = Summary::of(&tensor(&[2, 3, 2, 2], &values), 4);
        assert_eq!((look.picture.rows, look.picture.cols, look.picture.slices), (2, 2, 6));
        assert_eq!(look.picture.at, [1, 1]);
        assert_eq!(look.picture.cells, [16.0, 17.0, 18.0, 19.0]);
        assert_eq!(Summary::of(&tensor(&[2, 3, 2, 2], &values), 99).picture.slice, 5);
    }

    #[test]
    fn a_large_picture_is_averaged_and_nothing_is_left_out() {
        let values: Vec<f32> = (0..200 * 300).map(|v| (v % 300) as f32).collect();
        let p = Summary::of(&tensor(&[200, 300], &values), 0).picture;
        assert_eq!((p.rows, p.cols, p.elements), (SIDE, SIDE, [200, 300]));
        assert!(p.cells.chunks(SIDE).all(<[f32]>::is_sorted));
        assert_eq!(p.cells[0], 1.0);
        assert_eq!(p.cells[SIDE - 1], 297.5);
    }

    #[test]
    fn a_tensor_without_finite_values_is_described_without_numbers() {
        let look = Summary::of(&tensor(&[2], &[f32::NAN, f32::NAN]), 0);
        assert!(look.statistics.mean.is_nan() && look.histogram.counts.is_empty());
        assert!(look.picture.cells.iter().all(|c| c.is_nan()));
    }
}
