//! The flat vectors of parameters, gradients and moments, and the order of each parameter inside them.

use crate::model::{Model, ParamId};
use crate::ops::Segment;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

/// Each parameter starts at a multiple of this many elements: 256 bytes of f32.
pub const FLAT_ALIGN: usize = 64;

/// The order of the filters of convolutions in memory, which a device's kernels require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterOrder {
    /// `[kh, kw, c, f]`: filters are contiguous.
    #[default]
    Hwio,
    /// `[f, kh, kw, c]`: the elements of the reduction are contiguous.
    Ohwi,
}

/// The stored order of a parameter's elements. Files, the window and PyTorch use the logical order; kernels use this
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum ParamOrder {
    #[default]
    Plain,
    /// A convolution's logical `[f, c, kh, kw]` stored as `[kh, kw, c, f]`.
    Hwio { f: usize, c: usize, kh: usize, kw: usize },
    /// A convolution's logical `[f, c, kh, kw]` stored as `[f, kh, kw, c]`.
    Ohwi { f: usize, c: usize, kh: usize, kw: usize },
    /// The first axis counts the elements of a logical `[c, h, w]`, stored in the order `[h, w, c]`; `cols` values
    /// each.
    RowsHwc { c: usize, h: usize, w: usize, cols: usize },
}

impl ParamOrder {
    /// The logical position of the element stored at `index`.
    #[must_use]
    pub const fn logical(self, index: usize) -> usize {
        match self {
            Self::Plain => index,
            Self::Hwio { f, c, kh, kw } => {
                let (fi, rest) = (index % f, index / f);
                let (ci, tap) = (rest % c, rest / c);
                (fi * c + ci) * (kh * kw) + tap
            }
            Self::Ohwi { c, kh, kw, .. } => {
                let (ci, rest) = (index % c, index / c);
                let (tap, fi) = (rest % (kh * kw), rest / (kh * kw));
                (fi * c + ci) * (kh * kw) + tap
            }
            Self::RowsHwc { c, h, w, cols } => {
                let (col, row) = (index % cols, index / cols);
                let (ci, spot) = (row % c, row / c);
                (ci * (h * w) + spot) * cols + col
            }
        }
    }

    /// Values in logical order from values in stored order; borrowed if the two orders are the same.
    #[must_use]
    pub fn as_logical<T: Copy + Default>(self, stored: &[T]) -> Cow<'_, [T]> {
        if self == Self::Plain { Cow::Borrowed(stored) } else { Cow::Owned(self.to_logical(stored)) }
    }

    /// Values in logical order from values in stored order.
    #[must_use]
    pub fn to_logical<T: Copy + Default>(self, stored: &[T]) -> Vec<T> {
        let mut out = vec![T::default(); stored.len()];
        for (i, &v) in stored.iter().enumerate() {
            out[self.logical(i)] = v;
        }
        out
    }

    /// Values in stored order from values in logical order.
    #[must_use]
    pub fn to_stored<T: Copy>(self, logical: &[T]) -> Cow<'_, [T]> {
        match self {
            Self::Plain => Cow::Borrowed(logical),
            _ => (0..logical.len()).map(|i| logical[self.logical(i)]).collect(),
        }
    }
}

/// The range of the flat vectors that each trained parameter takes. Parameters of one group are contiguous, so that
/// those that a path of the network updates together are one range.
#[must_use]
pub fn segments(model: &Model) -> Vec<(ParamId, Segment)> {
    let mut start = 0;
    let mut out = Vec::new();
    let mut trained: Vec<usize> = (0..model.params.len()).filter(|i| model.params[*i].kind.is_trained()).collect();
    trained.sort_by_key(|index| model.params[*index].group);
    for index in trained {
        let len = model.params[index].shape.len();
        out.push((ParamId(index as u32), Segment { start, len }));
        start = (start + len).next_multiple_of(FLAT_ALIGN);
    }
    out
}

/// Parameters that are updated together, with their range of the flat vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub group: u32,
    /// The indices of its parameters among the segments that a step updates.
    pub segments: Range<usize>,
    /// The first element of the group, and the number of its elements, including padding: the same for every step.
    pub start: usize,
    pub len: usize,
}

/// The regions of a network; `is_run` says which parameters a step updates, and regions without any are left out. All
/// steps use the range of the whole group: the path of evaluations, which no step may take, can leave out some
/// parameters of a group.
pub(super) fn regions(model: &Model, is_run: impl Fn(&ParamId) -> bool) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    let mut place = 0;
    for (param, segment) in segments(model) {
        let group = model.param(param).group;
        if out.last().is_none_or(|last| last.group != group) {
            out.push(Region { group, segments: place..place, start: segment.start, len: 0 });
        }
        place += usize::from(is_run(&param));
        if let Some(last) = out.last_mut() {
            last.segments.end = place;
            last.len = (segment.start + segment.len).next_multiple_of(FLAT_ALIGN) - last.start;
        }
    }
    out.retain(|region| !region.segments.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_with_the_stated_meaning() {
        let hwio = ParamOrder::Hwio { f: 2, c: 3, kh: 2, kw: 2 };
        let logical: Vec<usize> = (0..24).collect();
        let stored = hwio.to_stored(&logical);
        // Stored element (kh 1, kw 0, c 2, f 1) is the logical [1, 2, 1, 0].
        assert_eq!(stored[((2 * 3) + 2) * 2 + 1], ((3 + 2) * 2 + 1) * 2);
        assert_eq!(hwio.to_logical(&stored), logical);
        let ohwi = ParamOrder::Ohwi { f: 2, c: 3, kh: 2, kw: 2 };
        let stored = ohwi.to_stored(&logical);
        // Stored element (f 1, kh 1, kw 0, c 2) is the logical [1, 2, 1, 0].
        assert_eq!(stored[((2 + 1) * 2) * 3 + 2], ((3 + 2) * 2 + 1) * 2);
        assert_eq!(ohwi.to_logical(&stored), logical);
        let rows = ParamOrder::RowsHwc { c: 2, h: 2, w: 3, cols: 4 };
        let logical: Vec<usize> = (0..48).collect();
        let stored = rows.to_stored(&logical);
        // Stored row (h 1, w 2, c 0) is the logical row c 0, h 1, w 2.
        assert_eq!(stored[((3 + 2) * 2) * 4], 5 * 4);
        assert_eq!(rows.to_logical(&stored), logical);
    }
}
