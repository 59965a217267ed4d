//! Rearranges operands into the order in which the innermost kernel reads them.

use super::simd::{MAX_LANES, Vector};

/// Copies `rows` rows of `width` elements with a stride of `stride` to consecutive rows of `vectors` vectors; the rest
/// of each row is zero.
///
/// # Safety
/// Runs only if `V` may be used; `width` is `1..=vectors * LANES`, and more than `vectors - 1` vectors hold; `from` and
/// `to` are valid for what is read and written.
#[inline(always)]
pub unsafe fn copy_rows<V: Vector>(
    from: *const f32,
    stride: usize,
    rows: usize,
    width: usize,
    vectors: usize,
    to: *mut f32,
) {
    let full = vectors - 1;
    // SAFETY: as above; the last vector is read under a mask.
    unsafe {
        let mask = V::mask(width - full * V::LANES);
        for r in 0..rows {
            let (from, to) = (from.add(r * stride), to.add(r * vectors * V::LANES));
            for v in 0..full {
                V::load(from.add(v * V::LANES)).store(to.add(v * V::LANES));
            }
            V::load_mask(from.add(full * V::LANES), mask).store(to.add(full * V::LANES));
        }
    }
}

/// Transposes up to `LANES` rows: `to[p * step + r] = from[r * stride + p]` for `r < rows`, `p < columns`. `keep`
/// elements are written for each `p`; those past `rows` repeat the last row.
///
/// # Safety
/// Runs only if `V` may be used; `rows` and `keep` are `1..=LANES`; `from` and `to` are valid for what is read and
/// written.
#[inline(always)]
pub unsafe fn transpose_rows<V: Vector>(
    from: *const f32,
    stride: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
    step: usize,
    keep: usize,
) {
    // SAFETY: rows past the last are clamped to it, columns past the last are masked.
    unsafe {
        let zero = V::splat(0.0);
        let keep_mask = V::mask(keep);
        let mut block = [zero; MAX_LANES];
        let mut p = 0;
        while p < columns {
            let here = (columns - p).min(V::LANES);
            if here == V::LANES {
                for (r, v) in block.iter_mut().enumerate().take(V::LANES) {
                    *v = V::load(from.add(r.min(rows - 1) * stride + p));
                }
            } else {
                let mask = V::mask(here);
                for (r, v) in block.iter_mut().enumerate().take(V::LANES) {
                    *v = V::load_mask(from.add(r.min(rows - 1) * stride + p), mask);
                }
            }
            V::transpose(&mut block);
            if here == V::LANES && keep == V::LANES {
                for (r, v) in block.iter().enumerate().take(V::LANES) {
                    v.store(to.add((p + r) * step));
                }
            } else {
                for (r, v) in block.iter().enumerate().take(here) {
                    v.store_mask(to.add((p + r) * step), keep_mask);
                }
            }
            p += here;
        }
    }
}
