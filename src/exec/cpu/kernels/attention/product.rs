//! Small products in scratch memory: sums of a block of rows and two vectors of columns stay in registers.

use crate::exec::cpu::kernels::gemm::simd::Vector;

/// `c[row, column] = sum over k of a[row, k] b[k, column]`. Strides count elements.
#[derive(Clone, Copy)]
pub struct Product {
    pub a: *const f32,
    /// The strides between rows of `a`, and between successive `k`.
    pub a_steps: [usize; 2],
    pub b: *const f32,
    pub b_step: usize,
    pub c: *mut f32,
    pub c_step: usize,
    /// Terms of each sum.
    pub depth: usize,
    /// Whether to add to the contents of `c`.
    pub add: bool,
}

impl Product {
    /// Computes `rows` rows of `columns` columns, a multiple of the vector's lanes.
    ///
    /// # Safety
    /// Runs only if `V` may be used. All pointers are valid for the dimensions; `c` overlaps neither factor.
    #[inline(always)]
    pub unsafe fn run<V: Vector>(&self, rows: usize, columns: usize) {
        let mut column = 0;
        // SAFETY: the columns are within the operands.
        unsafe {
            while column + 2 * V::LANES <= columns {
                self.columns::<V, 2>(rows, column);
                column += 2 * V::LANES;
            }
            if column < columns {
                self.columns::<V, 1>(rows, column);
            }
        }
    }

    #[inline(always)]
    unsafe fn columns<V: Vector, const VECTORS: usize>(&self, rows: usize, column: usize) {
        let mut row = 0;
        // SAFETY: every block of rows is within the operands.
        unsafe {
            while row + 6 <= rows {
                self.block::<V, 6, VECTORS>(row, column);
                row += 6;
            }
            if row + 4 <= rows {
                self.block::<V, 4, VECTORS>(row, column);
                row += 4;
            }
            if row + 2 <= rows {
                self.block::<V, 2, VECTORS>(row, column);
                row += 2;
            }
            if row < rows {
                self.block::<V, 1, VECTORS>(row, column);
            }
        }
    }

    #[inline(always)]
    unsafe fn block<V: Vector, const ROWS: usize, const VECTORS: usize>(&self, row: usize, column: usize) {
        let [a_row, a_step] = self.a_steps;
        // SAFETY: promised by the caller.
        unsafe {
            let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
            let (a, b) = (self.a.add(row * a_row), self.b.add(column));
            for k in 0..self.depth {
                let mut factors = [V::splat(0.0); VECTORS];
                for (j, factor) in factors.iter_mut().enumerate() {
                    *factor = V::load(b.add(k * self.b_step + j * V::LANES));
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let a = V::splat(*a.add(i * a_row + k * a_step));
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = sum.fma(a, factor);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    let c = self.c.add((row + i) * self.c_step + column + j * V::LANES);
                    let sum = if self.add { V::load(c).add(*sum) } else { *sum };
                    sum.store(c);
                }
            }
        }
    }
}
