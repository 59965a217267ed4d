//! The pieces into which chunks of equal length divide the segments of flat vectors.

use crate::exec::cpu::call::Part;
use crate::ops::Segment;
use crate::ops::chunks::FLAT_CHUNK;

/// The elements of a segment in a chunk: from `from` up to `to`. The sum of segment and chunk numbers is different for
/// each piece.
pub struct Piece {
    /// The number of the segment.
    pub segment: usize,
    /// The number of the chunk.
    pub chunk: usize,
    pub from: usize,
    pub to: usize,
}

/// The pieces of a part's chunks, in order.
pub struct Pieces<'a> {
    segments: &'a [Segment],
    segment: usize,
    chunk: usize,
    /// One past the last chunk.
    last: usize,
}

impl<'a> Pieces<'a> {
    /// The pieces of vectors of `len` elements.
    #[must_use]
    pub fn of(segments: &'a [Segment], len: usize, part: Part) -> Self {
        let (chunk, last) = part.range(len.div_ceil(FLAT_CHUNK), 1);
        let segment = segments.partition_point(|segment| segment.start + segment.len <= chunk * FLAT_CHUNK);
        Self { segments, segment, chunk, last }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        while self.chunk < self.last {
            let &mut Self { segments, segment, chunk, .. } = self;
            let (begin, end) = (chunk * FLAT_CHUNK, (chunk + 1) * FLAT_CHUNK);
            let Some(found) = segments.get(segment).filter(|segment| segment.start < end) else {
                self.chunk += 1;
                continue;
            };
            let stop = found.start + found.len;
            if stop > end {
                self.chunk += 1;
            } else {
                self.segment += 1;
            }
            return Some(Piece { segment, chunk, from: found.start.max(begin), to: stop.min(end) });
        }
        None
    }
}
