//! A custom kernel as a candidate, and the text of values in its C++ type.

use super::spec::{GeneralMember, KernelSpec};
use crate::model::Activation;
use crate::ops::Trans;

/// A custom kernel that can compute an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomKernel {
    /// The suffix of the kernel id, such as `f32_simt_64x64_v0`.
    pub tail: String,
    pub spec: KernelSpec,
    /// Bytes of scratch memory; equals the type's `WORK`.
    pub work_bytes: u64,
    /// An estimate of the time in microseconds, for ranking.
    pub cost_us: f64,
}

/// A kernel with the general member of its family: the template's arguments and the numbers.
#[must_use]
pub fn general(kernel: CustomKernel, arguments: String, numbers: &[u64]) -> CustomKernel {
    CustomKernel { spec: kernel.spec.with_general(arguments, numbers.to_vec()), ..kernel }
}

/// Like [`general`], with the arguments of a member for a wider class.
#[must_use]
pub fn general_or_wider(kernel: CustomKernel, [own, wider]: [String; 2], numbers: &[u64]) -> CustomKernel {
    let member = GeneralMember::new(own, numbers.to_vec()).with_wider(wider);
    CustomKernel { spec: kernel.spec.with_general_member(member), ..kernel }
}

/// The name of an activation in the kernels' sources.
#[must_use]
pub fn cpp_act(act: Option<Activation>) -> &'static str {
    match act {
        None => "NONE",
        Some(Activation::Relu) => "RELU",
        Some(Activation::LeakyRelu) => "LEAKY_RELU",
        Some(Activation::Gelu) => "GELU",
        Some(Activation::Silu) => "SILU",
        Some(Activation::Sigmoid) => "SIGMOID",
        Some(Activation::Tanh) => "TANH",
    }
}

/// The number of an activation in the kernels' sources, for members that read it.
#[must_use]
pub const fn act_number(act: Option<Activation>) -> u64 {
    match act {
        None => 0,
        Some(Activation::Relu) => 1,
        Some(Activation::LeakyRelu) => 2,
        Some(Activation::Gelu) => 3,
        Some(Activation::Silu) => 4,
        Some(Activation::Sigmoid) => 5,
        Some(Activation::Tanh) => 6,
    }
}

/// A derivative as a template argument of a general member: whether there is one is compiled in, because kernels
/// without one read less.
#[must_use]
pub const fn any_act(act: Option<Activation>) -> &'static str {
    if act.is_some() { "ANY" } else { "NONE" }
}

/// A real number as a template argument of a general member: zero is compiled in, and others are read.
#[must_use]
pub fn any_bits(value: f64) -> String {
    if value == 0.0 { cpp_bits(0.0) } else { "(u64)ANY".to_owned() }
}

/// Numbers of this many bits each as one number, the first one in the lowest bits; `None` if one has more bits.
#[must_use]
pub fn packed(parts: &[usize], bits: u32) -> Option<u64> {
    let fit = parts.iter().all(|&part| part >> bits == 0);
    fit.then(|| parts.iter().rev().fold(0, |all, &part| all << bits | part as u64))
}

/// Which factor of a product is transposed, in the kernels' sources.
#[must_use]
pub const fn cpp_trans(trans: Trans) -> &'static str {
    match trans {
        Trans::Nn => "GEMM_NN",
        Trans::Nt => "GEMM_NT",
        Trans::Tn => "GEMM_TN",
    }
}

/// The bits of a number, as a template argument.
#[must_use]
pub fn cpp_bits(value: f64) -> String {
    format!("{:#018x}ull", value.to_bits())
}
