//! Chunks of a curve file: kind, length and checksum before each body, all little endian.

use crate::tensor::Fnv;

/// Bytes before a body.
pub(super) const HEAD: usize = 16;

/// Reads numbers one after the other.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn f32(&mut self) -> Option<f32> {
        self.u32().map(f32::from_bits)
    }
}

/// Kind and body of the first chunk, and what follows it; `None` if it is incomplete or damaged.
pub(super) fn chunk(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let mut r = Reader(bytes);
    let (kind, len, sum) = (r.u32()?, r.u32()?, r.u64()?);
    let body = r.bytes(usize::try_from(len).ok()?)?;
    (Fnv::of(body) == sum).then_some((kind, body, r.0))
}

/// Appends a chunk whose body `fill` writes.
pub(super) fn put_chunk(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.resize(at + HEAD, 0);
    fill(out);
    let body = &out[at + HEAD..];
    let (len, sum) = (body.len() as u32, Fnv::of(body));
    out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
    out[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
    out[at + 8..at + 16].copy_from_slice(&sum.to_le_bytes());
}
