//! Zeros, transposition, concatenation of rows, and slices of rows.

use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind};
use crate::select::{Isa, cpu_rest};

/// Rows and columns of the blocks in which a matrix is transposed: 16 cache lines are read and 16 are written.
const BLOCK: usize = 16;

/// The fast kernel of an operation of this family; it is the same code for every instruction set, because it only moves
/// data.
#[must_use]
pub fn resolve(op: &OpKind, _isa: Isa, threads: usize) -> Option<KernelImpl> {
    let run = match op {
        OpKind::Fill { .. } => fill,
        OpKind::Transpose { .. } => transpose,
        OpKind::Concat { .. } => concat,
        OpKind::Slice { .. } => slice,
        _ => return None,
    };
    Some(KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)))
}

unsafe fn fill(call: &Call, part: Part) {
    use crate::ops::slot::fill as slot;
    let OpKind::Fill(ops::Fill { len }) = call.op else { return };
    let (from, to) = part.range(len, 4_096);
    // SAFETY: the buffer holds `len` floats.
    unsafe { call.arg::<f32>(slot::Y).add(from).write_bytes(0, to - from) };
}

/// `x [n, rows, cols]` to `y [n, cols, rows]`. Threads share the bands of 16 output rows of all samples.
unsafe fn transpose(call: &Call, part: Part) {
    use crate::ops::slot::transpose as slot;
    let OpKind::Transpose(ops::Transpose { n, rows, cols }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    let bands = cols.div_ceil(BLOCK);
    let (from, to) = part.range(n * bands, 1);
    for unit in from..to {
        let (sample, col) = (unit / bands, unit % bands * BLOCK);
        let width = (cols - col).min(BLOCK);
        for row in (0..rows).step_by(BLOCK) {
            let height = (rows - row).min(BLOCK);
            // SAFETY: the block is within the sample's matrix.
            unsafe {
                let source = x.add((sample * rows + row) * cols + col);
                let target = y.add((sample * cols + col) * rows + row);
                if width == BLOCK && height == BLOCK {
                    move_block(source, target, rows, cols, BLOCK, BLOCK);
                } else {
                    move_block(source, target, rows, cols, width, height);
                }
            }
        }
    }
}

/// Floats of joined rows that a thread writes before it continues with the next source: they are still in the
/// first-level cache when the next source fills the gaps between them.
const BAND: usize = 4_096;

/// Concatenates the sources `[rows, widths[i]]` to `y [rows, cols]`. Threads share bands of rows.
unsafe fn concat(call: &Call, part: Part) {
    use crate::ops::slot::concat as slot;
    let OpKind::Concat(op) = &call.op else { return };
    let (y, cols) = (call.arg::<f32>(slot::Y), op.cols());
    let band = (BAND / cols.max(1)).max(1);
    let (mut row, end) = part.range(op.rows, band);
    while row < end {
        let (count, mut column) = (band.min(end - row), 0);
        for (&source, &width) in ops::Concat::SOURCES.iter().zip(&op.widths) {
            // SAFETY: the rows are within the source and within `y`, and the columns within those of `y`.
            unsafe {
                let from = call.arg::<f32>(source).add(row * width);
                move_rows(
                    Rows { first: from, stride: width },
                    Rows { first: y.add(row * cols + column), stride: cols },
                    count,
                    width,
                );
            }
            column += width;
        }
        row += count;
    }
}

/// Copies columns of `x [rows, cols]` to `y [rows, width]`. Threads share the rows.
unsafe fn slice(call: &Call, part: Part) {
    use crate::ops::slot::slice as slot;
    let OpKind::Slice(ops::Slice { rows, cols, from, width }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    let (row, end) = part.range(rows, (BAND / width.max(1)).max(1));
    // SAFETY: the rows are within both matrices, and the columns within those of `x`.
    unsafe {
        let source = Rows { first: x.add(row * cols + from), stride: cols };
        move_rows(source, Rows { first: y.add(row * width), stride: width }, end - row, width);
    }
}

/// Rows in memory.
#[derive(Clone, Copy)]
struct Rows {
    first: *mut f32,
    /// Floats between the starts of two consecutive rows.
    stride: usize,
}

/// Copies the first `width` elements of `count` rows.
///
/// # Safety
/// The rows are within their matrices, which do not overlap.
#[inline(always)]
unsafe fn move_rows(from: Rows, to: Rows, count: usize, width: usize) {
    /// For narrower rows, calling a copy function takes longer than the copy.
    const WIDE: usize = 16;
    for row in 0..count {
        // SAFETY: promised by the caller.
        unsafe {
            let (source, target) = (from.first.add(row * from.stride), to.first.add(row * to.stride));
            if width >= WIDE {
                source.copy_to_nonoverlapping(target, width);
            } else {
                for at in 0..width {
                    *target.add(at) = *source.add(at);
                }
            }
        }
    }
}

/// Moves a block of `width` columns and `height` rows of `x`.
///
/// # Safety
/// The block is within both matrices.
#[inline(always)]
unsafe fn move_block(x: *const f32, y: *mut f32, rows: usize, cols: usize, width: usize, height: usize) {
    for i in 0..width {
        for j in 0..height {
            // SAFETY: promised by the caller.
            unsafe { *y.add(i * rows + j) = *x.add(j * cols + i) };
        }
    }
}
