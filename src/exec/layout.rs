//! The order of a sample's elements, in memory and in logical shape.

use crate::lower::Layout;
use crate::tensor::room;
use bytemuck::Pod;
use std::borrow::Cow;

/// The index, in logical order, of element `index` of a sample in memory order.
const fn logical_index(index: usize, c: usize, h: usize, w: usize) -> usize {
    let (ci, spot) = (index % c, index / c);
    ci * (h * w) + spot
}

/// Samples in logical order, from samples in stored order.
#[must_use]
pub(crate) fn to_logical<T: Copy + Default>(stored: &[T], layout: Layout) -> Vec<T> {
    let Layout::ChannelsLast { c, h, w } = layout else { return stored.to_vec() };
    let size = c * h * w;
    let mut out = vec![T::default(); stored.len()];
    for (i, &v) in stored.iter().enumerate() {
        out[i / size * size + logical_index(i % size, c, h, w)] = v;
    }
    out
}

/// Samples in stored order, from samples in logical order.
#[must_use]
pub(crate) fn samples_to_stored<T: Pod>(logical: &[T], layout: Layout) -> Cow<'_, [T]> {
    let Layout::ChannelsLast { c, h, w } = layout else { return Cow::Borrowed(logical) };
    let size = c * h * w;
    let mut out = room(logical.len());
    for sample in logical.chunks_exact(size.max(1)) {
        out.extend((0..size).map(|i| sample[logical_index(i, c, h, w)]));
    }
    Cow::Owned(out)
}
