//! All kernels, with their ids, their preconditions and estimated costs.

use super::{cpu_attention, cpu_classifier, cpu_conv, cpu_gemm, cpu_recurrence, cpu_rest};
use crate::ops::OpKind;
use crate::select::target::{CpuFacts, Isa};
use crate::select::variant::Variant;
use crate::tensor::DType;

/// A kernel's full id.
#[must_use]
pub fn id(kind: &OpKind, variant: Variant) -> String {
    format!("{}_{}", kind.stem(), variant.suffix())
}

/// The variants that exist for an operation on any CPU, the plain-loop reference first.
#[must_use]
pub const fn variants(real: DType) -> &'static [Variant] {
    match real {
        DType::F64 => &[Variant::RefF64],
        _ => &[Variant::RefF32, Variant::Fast(Isa::Portable), Variant::Fast(Isa::Avx2), Variant::Fast(Isa::Avx512)],
    }
}

/// Whether the operation is a product, whose kernels are the gemm and convolution families.
#[must_use]
pub const fn is_product(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Gemm(_) | OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } | OpKind::Conv2dBwdW { .. })
}

/// Checks whether a kernel may run: the machine must support the instructions, and the shape must be suitable.
///
/// # Errors
/// The reason why it may not.
pub fn accepts(kind: &OpKind, variant: Variant, cpu: CpuFacts) -> Result<(), String> {
    match variant {
        Variant::RefF32 | Variant::RefF64 => Ok(()),
        Variant::Fast(isa) if isa > cpu.isa => Err(format!("this processor has no {}", isa.name())),
        Variant::Fast(_) if is_product(kind) => cpu_conv::accepts(kind),
        Variant::Fast(_) => Ok(()),
        Variant::Cuda(_) => Err("this is not a GPU".into()),
    }
}

/// Scratch memory of a kernel, in bytes.
#[must_use]
pub fn workspace_bytes(kind: &OpKind, variant: Variant, threads: usize) -> usize {
    match variant {
        Variant::Fast(isa) if matches!(kind, OpKind::Gemm(_)) => cpu_gemm::workspace_bytes(kind, isa, threads),
        Variant::Fast(isa) if is_product(kind) => cpu_conv::workspace_bytes(kind, isa, threads),
        Variant::Fast(isa) => cpu_attention::workspace_bytes(kind, isa, threads)
            .or_else(|| cpu_recurrence::workspace_bytes(kind, isa))
            .or_else(|| cpu_classifier::workspace_bytes(kind, isa, threads))
            .unwrap_or_else(|| cpu_rest::workspace_bytes(kind, variant)),
        _ => cpu_rest::workspace_bytes(kind, variant),
    }
}

/// An estimate of a kernel's time in microseconds, for ranking and for a first overview; measured times replace it.
#[must_use]
pub fn cost_us(kind: &OpKind, variant: Variant, cpu: CpuFacts) -> f64 {
    // Rates of one core in operations and bytes in a microsecond, for products and for everything else.
    let (product, other, bytes) = match variant {
        Variant::RefF32 | Variant::RefF64 | Variant::Cuda(_) => (1.0e3, 0.5e3, 4.0e3),
        Variant::Fast(Isa::Portable) => (12.0e3, 4.0e3, 12.0e3),
        Variant::Fast(Isa::Avx2) => (70.0e3, 12.0e3, 24.0e3),
        Variant::Fast(Isa::Avx512) => (140.0e3, 20.0e3, 32.0e3),
    };
    let elem = if variant == Variant::RefF64 { 8 } else { 4 };
    let multiplies = matches!(kind, OpKind::Recurrence(_) | OpKind::RecurrenceBwd(_) | OpKind::ClassifierCe(_));
    let rate = if is_product(kind) || multiplies { product } else { other };
    let one = (kind.flops() as f64 / rate).max(kind.bytes_moved(elem) as f64 / bytes);
    let reference = matches!(variant, Variant::RefF32 | Variant::RefF64);
    // A barrier costs 0.3 us, so that small operations run on one thread.
    let shared = one / cpu.threads as f64 + 0.3;
    0.02 + if reference || cpu.threads == 1 { one } else { one.min(shared) }
}
