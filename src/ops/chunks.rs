//! How the CPU's kernels divide reductions. An operation's scratch memory and its kernel use the same functions, so
//! that they cannot disagree.

/// The number of elements of one partial result, if a flat array is reduced.
pub const FLAT_CHUNK: usize = 16_384;

/// The largest number of elements of `[rows, cols]` in one chunk of rows, unless its rows are very long: the size of
/// the first-level cache.
const ROW_CHUNK: usize = 8_192;

/// The largest number of chunks of rows; it limits the time of combining their results.
const MAX_ROW_CHUNKS: usize = 512;

/// The number of rows of one partial result, if `[rows, cols]` is reduced over its rows; a multiple of 64 unless rows
/// are long.
#[must_use]
pub fn rows_per_chunk(rows: usize, cols: usize) -> usize {
    let by_cache = ROW_CHUNK / cols.max(1);
    let fitting = if by_cache >= 64 { by_cache / 64 * 64 } else { by_cache.max(16) };
    if rows.div_ceil(fitting) <= MAX_ROW_CHUNKS { fitting } else { rows.div_ceil(MAX_ROW_CHUNKS).next_multiple_of(64) }
}

/// Chunks of rows of `[rows, cols]`.
#[must_use]
pub fn row_chunks(rows: usize, cols: usize) -> usize {
    rows.div_ceil(rows_per_chunk(rows, cols))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_rows_cover_all_rows_and_stay_few() {
        for rows in [1, 2, 63, 64, 4_096, 802_816] {
            for cols in [1, 6, 16, 64, 129, 512, 2_048] {
                let (size, chunks) = (rows_per_chunk(rows, cols), row_chunks(rows, cols));
                assert!(size * chunks >= rows && size * (chunks - 1) < rows);
                assert!(chunks <= MAX_ROW_CHUNKS);
                assert!(cols >= 64 || size.is_multiple_of(64), "{rows} x {cols}: {size}");
            }
        }
    }
}
