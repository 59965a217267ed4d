//! Zeros and transposition.

use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind};
use crate::select::{Isa, cpu_rest};

/// Rows and columns of the blocks in which a matrix is transposed: 16 lines of the cache are read while 16 are written.
const BLOCK: usize = 16;

/// The fast kernel of an operation of this family; the same code for every instruction set, as it only moves data.
#[must_use]
pub fn resolve(op: &OpKind, _isa: Isa, threads: usize) -> Option<KernelImpl> {
    let run = match op {
        OpKind::Fill { .. } => fill,
        OpKind::Transpose { .. } => transpose,
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
