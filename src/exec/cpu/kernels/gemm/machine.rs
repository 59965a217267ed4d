//! The kernels of each instruction set, in tables by tile size.

use super::micro::{MicroFn, Tile, micro};
use super::simd::{Plain, Vector};
use crate::exec::cpu::kernels::lanes::{self, Lanes};
use crate::select::Isa;

/// An instruction set with its kernels.
pub trait Machine {
    const ISA: Isa;
    type V: Vector;
    /// The type that elementary functions are computed with.
    type L: Lanes;
    /// Kernels by rows minus one and vectors minus one, for `a` with rows at arbitrary addresses.
    const ROWS: &'static [[MicroFn; 2]];
    /// The same for `a` with consecutive rows.
    const COLUMN: &'static [[MicroFn; 2]];
}

/// The entry point of a kernel that is generic over a [`Machine`], for an instruction set.
macro_rules! for_machine {
    ($isa:expr, $body:ident) => {{
        use crate::exec::cpu::kernels::gemm::machine;
        use crate::exec::cpu::kernels::lanes::entry_point;
        entry_point!($isa, $body, [machine::Portable, machine::Avx2Fma, machine::Avx512Full])
    }};
}
pub(in crate::exec::cpu::kernels) use for_machine;

/// Makes a machine of a kernel for tiles and its vectors: for each number of rows, the kernels of one and of two
/// vectors, with and without consecutive rows.
macro_rules! machine {
    ($machine:ident, $isa:expr, $kernel:ident, $vectors:ty, $lanes:ty, $($rows:literal)*) => {
        impl Machine for $machine {
            const ISA: Isa = $isa;
            type V = $vectors;
            type L = $lanes;
            const ROWS: &'static [[MicroFn; 2]] =
                &[$([$kernel::<$rows, 1, false> as MicroFn, $kernel::<$rows, 2, false> as MicroFn]),*];
            const COLUMN: &'static [[MicroFn; 2]] =
                &[$([$kernel::<$rows, 1, true> as MicroFn, $kernel::<$rows, 2, true> as MicroFn]),*];
        }
    };
}

/// Plain code.
pub struct Portable;

unsafe fn micro_portable<const ROWS: usize, const VECTORS: usize, const COLUMN: bool>(t: &Tile) {
    // SAFETY: plain code runs everywhere; the tile is the caller's.
    unsafe { micro::<Plain, ROWS, VECTORS, COLUMN>(t) }
}

machine!(Portable, Isa::Portable, micro_portable, Plain, lanes::Portable, 1 2 3 4);

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2Fma, Avx512Full};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Isa, Machine, MicroFn, Tile, lanes, micro};
    use crate::exec::cpu::kernels::gemm::simd_x86::{Avx2, Avx512};

    /// AVX2 and FMA.
    pub struct Avx2Fma;
    /// AVX-512 F, BW, DQ and VL.
    pub struct Avx512Full;

    #[target_feature(enable = "avx2,fma")]
    unsafe fn micro_avx2<const ROWS: usize, const VECTORS: usize, const COLUMN: bool>(t: &Tile) {
        // SAFETY: compiled for the instruction set; the tile is the caller's.
        unsafe { micro::<Avx2, ROWS, VECTORS, COLUMN>(t) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn micro_avx512<const ROWS: usize, const VECTORS: usize, const COLUMN: bool>(t: &Tile) {
        // SAFETY: compiled for the instruction set; the tile is the caller's.
        unsafe { micro::<Avx512, ROWS, VECTORS, COLUMN>(t) }
    }

    machine!(Avx2Fma, Isa::Avx2, micro_avx2, Avx2, lanes::Avx2, 1 2 3 4 5 6);
    machine!(Avx512Full, Isa::Avx512, micro_avx512, Avx512, lanes::Avx512, 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
}
