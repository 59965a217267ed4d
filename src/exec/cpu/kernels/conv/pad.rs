//! Copies of images that include their padding.

/// The window of an image to copy: rows and columns outside the image are filled with zeros.
pub struct Window {
    /// Rows, columns and channels of the image.
    pub h: usize,
    pub w: usize,
    pub c: usize,
    /// First row and column of the window.
    pub row: isize,
    pub column: isize,
    /// Rows and columns of the window.
    pub rows: usize,
    pub columns: usize,
}

/// Copies a window of an image to `to`, row by row.
///
/// # Safety
/// `from` holds `h * w * c` elements, `to` has room for `rows * columns * c`.
#[inline(always)]
pub unsafe fn copy(from: *const f32, to: *mut f32, win: &Window) {
    let Window { h, w, c, row, column, rows, columns } = *win;
    // The columns of the window that are inside the image.
    let first = (-column).clamp(0, columns as isize) as usize;
    let last = (w as isize - column).clamp(first as isize, columns as isize) as usize;
    for r in 0..rows {
        // SAFETY: the row is inside `to`, and the copied elements are inside the image.
        unsafe {
            let to = to.add(r * columns * c);
            let source = row + r as isize;
            if source < 0 || source >= h as isize || first == last {
                std::ptr::write_bytes(to, 0, columns * c);
                continue;
            }
            std::ptr::write_bytes(to, 0, first * c);
            let from = from.offset((source * w as isize + column + first as isize) * c as isize);
            std::ptr::copy_nonoverlapping(from, to.add(first * c), (last - first) * c);
            std::ptr::write_bytes(to.add(last * c), 0, (columns - last) * c);
        }
    }
}
