//! The entry points of a generic kernel: one for each instruction set, compiled with its features.

/// The entry point ([`KernelFn`](crate::exec::cpu::call::KernelFn)) of the generic kernel `$body` for `$isa`, compiled
/// with its features. Behind the lanes, the kernel takes these types and constants as parameters.
macro_rules! for_isa {
    ($isa:expr, $body:ident $(, $parameter:tt)*) => {{
        use crate::exec::cpu::call::{Call, KernelFn, Part};
        use crate::exec::cpu::kernels::lanes;
        use crate::select::Isa;

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512(call: &Call, part: Part) {
            // SAFETY: the caller's contract is the kernel's; selection asks for this instruction set only where the
            // processor has it.
            unsafe { $body::<lanes::Avx512 $(, $parameter)*>(call, part) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(call: &Call, part: Part) {
            // SAFETY: as above.
            unsafe { $body::<lanes::Avx2 $(, $parameter)*>(call, part) }
        }

        unsafe fn portable(call: &Call, part: Part) {
            // SAFETY: the caller's contract is the kernel's.
            unsafe { $body::<lanes::Portable $(, $parameter)*>(call, part) }
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
pub(in crate::exec::cpu::kernels) use for_isa;
