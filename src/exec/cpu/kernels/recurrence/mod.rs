//! Recurrent layers: the walk over the positions, and back.
//!
//! Both have two phases. In the first all threads rearrange the weight into panels, in which the matrix kernels read it
//! ([`pack`]). In the second each thread takes samples of its own through all positions, some tiles of samples
//! together, so that threads need not meet at a position ([`forward`], [`backward`]): at each position the state of
//! these samples is multiplied with the panels, and the functions of the gates follow while their arguments are in the
//! cache ([`cells`]). Every element is summed in one order, whatever the number of threads.

mod backward;
mod cells;
mod forward;
mod pack;

use self::backward::run as walk_back;
use self::forward::run as walk;
use super::gemm::machine::{self, Machine};
use super::gemm::micro::Tile;
use super::gemm::simd::Vector;
use crate::exec::cpu::call::{Call, KernelFn, KernelImpl, Part};
use crate::ops::{OpKind, RecurrenceGeometry};
use crate::select::Isa;
use crate::select::cpu_gemm::stretch;
use crate::select::cpu_recurrence::{is_parallel, samples_together};

/// The entry point of a kernel that is generic over a [`Machine`], for an instruction set.
macro_rules! for_machine {
    ($isa:expr, $body:ident) => {{
        unsafe fn portable(call: &Call, part: Part) {
            // SAFETY: plain code runs everywhere; the call is the caller's.
            unsafe { $body::<machine::Portable>(call, part) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(call: &Call, part: Part) {
            // SAFETY: compiled for the instruction set; the call is the caller's.
            unsafe { $body::<machine::Avx2Fma>(call, part) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512(call: &Call, part: Part) {
            // SAFETY: compiled for the instruction set; the call is the caller's.
            unsafe { $body::<machine::Avx512Full>(call, part) }
        }

        let run: KernelFn = match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2,
            _ => portable,
        };
        run
    }};
}

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let (run, geometry) = match op {
        OpKind::Recurrence(op) => (for_machine!(isa, walk), &op.geometry),
        OpKind::RecurrenceBwd(op) => (for_machine!(isa, walk_back), &op.geometry),
        _ => return None,
    };
    Some(KernelImpl { phases: 2, ..KernelImpl::simple(run, is_parallel(op, geometry, threads)) })
}

/// The row of `[batch, positions]` of a sample after so many steps.
const fn row(g: &RecurrenceGeometry, sample: usize, step: usize) -> usize {
    sample * g.positions + if g.reverse { g.positions - 1 - step } else { step }
}

/// The groups of samples of a part that walk together. Vector code is called in plain loops over them: a closure would
/// be compiled without the instruction set's features.
struct Groups {
    from: usize,
    samples: usize,
    count: usize,
}

impl Groups {
    fn of(g: &RecurrenceGeometry, isa: Isa, part: Part) -> Self {
        let (from, to) = part.range(g.batch, 1);
        Self { from, samples: to - from, count: (to - from).div_ceil(samples_together(isa)) }
    }

    /// The first sample of a group, and the number of its samples.
    fn at(&self, group: usize) -> (usize, usize) {
        let (first, count) = stretch(self.samples, self.count, group);
        (self.from + first, count)
    }
}

/// A product of some rows with packed panels.
struct PanelProduct {
    /// Panels of `depth` rows of a tile's columns.
    panels: *const f32,
    /// Length of the reduction.
    depth: usize,
    /// Columns of the result.
    columns: usize,
    /// Whether the product is added to what is there.
    add: bool,
    /// One element for each column, or null.
    bias: *const f32,
}

impl PanelProduct {
    /// Computes the product of `count` rows; `a` gives where a row is and `c` where its result goes.
    ///
    /// # Safety
    /// As for the matrix kernels: all rows and panels are as long as is said here.
    #[inline(always)]
    unsafe fn run<M: Machine>(&self, count: usize, a: impl Fn(usize) -> *const f32, c: impl Fn(usize) -> *mut f32) {
        let (lanes, segment) = (M::V::LANES, [0i32]);
        let base = c(0);
        let mut t = Tile { segments: segment.as_ptr(), segment_count: 1, segment_len: self.depth, ..Tile::EMPTY };
        (t.a_step, t.b_step, t.add) = (1, 2 * lanes, self.add);
        let tiles = count.div_ceil(M::ROWS.len());
        for panel in 0..self.columns.div_ceil(2 * lanes) {
            let first = panel * 2 * lanes;
            let width = (self.columns - first).min(2 * lanes);
            let vectors = width.div_ceil(lanes);
            t.lanes = width - (vectors - 1) * lanes;
            t.b = self.panels.wrapping_add(first * self.depth);
            t.bias = if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(first) };
            t.c = base.wrapping_add(first);
            for tile in 0..tiles {
                let (row0, rows) = stretch(count, tiles, tile);
                for i in 0..rows {
                    t.a[i] = a(row0 + i);
                    // Offsets are whole numbers of elements within one buffer, whose rows rise.
                    t.c_row[i] = (c(row0 + i) as usize - base as usize) / size_of::<f32>();
                }
                // SAFETY: the caller promises the rows, the panels and the result.
                unsafe { M::ROWS[rows - 1][vectors - 1](&t) };
            }
        }
    }
}
