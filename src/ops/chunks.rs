//! How the CPU's kernels cut reductions. An operation's scratch memory and its kernel read the same functions here, so
//! they cannot disagree.

/// Elements summed into one partial result where a reduction runs over a flat array.
pub const FLAT_CHUNK: usize = 16_384;

/// Elements of `[rows, cols]` that one chunk of rows holds at most, where its rows are not very long: what fits the
/// first-level cache.
const ROW_CHUNK: usize = 8_192;

/// Chunks of rows at most; keeps the combination of their results short.
const MAX_ROW_CHUNKS: usize = 512;

/// Rows summed into one partial result where `[rows, cols]` is reduced over its rows; a multiple of 64 unless rows are
/// long.
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
