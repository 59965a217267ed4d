//! The entry points of a generic kernel: one for each instruction set, compiled with its features.

/// The entry point ([`KernelFn`](crate::exec::cpu::call::KernelFn)) of the generic kernel `$body` for `$isa`, compiled
/// with its features. The kernel's first parameter is the type of the instruction set; these types and constants
/// follow.
macro_rules! entry_point {
    ($isa:expr, $body:ident, [$Portable:ty, $Avx2:ty, $Avx512:ty] $(, $parameter:tt)*) => {{
        use crate::exec::cpu::call::{Call, KernelFn, Part};
        use crate::select::Isa;

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512(call: &Call, part: Part) {
            // SAFETY: the caller's contract is the kernel's; selection asks for this instruction set only where the
            // processor has it.
            unsafe { $body::<$Avx512 $(, $parameter)*>(call, part) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(call: &Call, part: Part) {
            // SAFETY: as above.
            unsafe { $body::<$Avx2 $(, $parameter)*>(call, part) }
        }

        unsafe fn portable(call: &Call, part: Part) {
            // SAFETY: the caller's contract is the kernel's.
            unsafe { $body::<$Portable $(, $parameter)*>(call, part) }
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
pub(in crate::exec::cpu::kernels) use entry_point;

/// The entry point of a kernel that is generic over [`Lanes`](super::Lanes).
macro_rules! for_isa {
    ($isa:expr, $body:ident $(, $parameter:tt)*) => {{
        use crate::exec::cpu::kernels::lanes;
        lanes::entry_point!($isa, $body, [lanes::Portable, lanes::Avx2, lanes::Avx512] $(, $parameter)*)
    }};
}
pub(in crate::exec::cpu::kernels) use for_isa;
