//! What runs an operation on an NVIDIA GPU: custom kernels, compiled for the shape at hand, or a library's.
//!
//! Everything here is plain data: a plan for a GPU is made, shown and tested on a machine without one. Custom kernels
//! are named by the C++ type that the run-time compiler instantiates (see `kernels/prelude.cuh`); a library's by its
//! place in the library's own ranking.

mod attention;
mod conv;
mod custom;
pub mod dnn;
mod elementwise;
mod families;
mod gemm;
mod horizontal;
mod loss;
pub mod lt;
mod norm;
mod optimizer;
mod pool;
mod rates;
mod real;
mod recurrent;
mod sequence;
mod spec;
mod times;

use crate::ops;
pub use custom::{CustomKernel, cpp_act, cpp_bits};
pub use elementwise::widening_kernel;
pub use families::{FAMILIES, KernelFamily};
pub use horizontal::fuse_horizontally;
pub use loss::loss_function;
pub use real::Real;
pub use spec::{GeneralMember, KernelFile, KernelSpec, Member, Pdl};
pub use times::{GpuTimes, NOT_OFFERED_US};

use super::CudaFacts;
use crate::lower::{Op, Program};
use crate::model::Activation;
use crate::ops::{Epilogue, OpKind};
use crate::tensor::DType;
use serde::{Deserialize, Serialize};

/// Who runs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// Custom kernel, by its place in [`custom_kernels`].
    Own(u8),
    /// cuBLASLt, by the place of the algorithm in its heuristic's answer. What its epilogues cannot do is left to
    /// custom kernels behind it.
    Lt(u8),
    /// cuDNN, by the place of the plan among those it offers. As above.
    Dnn(u8),
}

/// The type that an operation's kernels work in: that of the step, or `f32` where the operation touches none of the
/// step's reals.
#[must_use]
pub fn real_of(program: &Program, op: &Op, real: Real) -> Real {
    let is_half = |id: &crate::lower::LValueId| matches!(program.value(*id).dtype, DType::F16 | DType::Bf16);
    match op.kind {
        OpKind::Fill { .. } if !op.args.iter().flatten().any(is_half) => Real::F32,
        _ => real,
    }
}

/// Every custom kernel for an operation, in rising order of preference among equals.
#[must_use]
pub fn custom_kernels(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<CustomKernel> {
    let families = [
        gemm::kernels,
        conv::kernels,
        norm::kernels,
        pool::kernels,
        elementwise::kernels,
        sequence::kernels,
        attention::kernels,
        recurrent::kernels,
        loss::kernels,
        optimizer::kernels,
        rates::kernels,
    ];
    families.iter().flat_map(|family| family(kind, real, gpu)).collect()
}

/// Algorithms of cuBLASLt and plans of cuDNN that are offered for an operation.
const LT_OFFERS: u8 = 4;
/// Plans of cuDNN that are offered for a convolution: on the networks measured, the fastest was among these or within a
/// few percent of one of them. Custom kernels are faster at nearly every gradient of weights. A plan with a derivative
/// behind the gradient of an input is compiled for the purpose, which takes a second or more; the others are ready in
/// milliseconds.
pub(crate) const fn dnn_offers(is_weight_gradient: bool, has_derivative: bool) -> u8 {
    if has_derivative {
        2
    } else if is_weight_gradient {
        3
    } else {
        5
    }
}

/// A way to run an operation, with its id, its scratch memory and its estimated time; or why it cannot be.
pub(crate) struct Offer {
    pub route: Route,
    pub tail: String,
    pub work_bytes: u64,
    pub cost: Result<f64, String>,
}

/// Every way to run an operation on a GPU.
pub(crate) fn offers(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<Offer> {
    let mut out: Vec<Offer> = custom_kernels(kind, real, gpu)
        .into_iter()
        .zip(0u8..)
        .map(|(code, i)| Offer {
            route: Route::Own(i),
            tail: code.tail,
            work_bytes: code.work_bytes,
            cost: Ok(code.cost_us),
        })
        .collect();
    out.extend(attention::refused(kind, real, gpu));
    let rest = epilogue_us(kind, real);
    // The library ranks its algorithms itself, and is often wrong: several are offered, to be timed.
    let several = |route: fn(u8) -> Route, name: &str, count: u8, work_bytes: u64, cost: Result<f64, String>| {
        (0..count)
            .map(|i| Offer {
                route: route(i),
                tail: if i == 0 {
                    format!("{}_{name}_v0", real.name())
                } else {
                    format!("{}_{name}_a{i}_v0", real.name())
                },
                work_bytes,
                cost: cost.clone().map(|us| us * (1.0 + 0.001 * f64::from(i))),
            })
            .collect::<Vec<_>>()
    };
    match kind {
        OpKind::Gemm(gemm) => {
            let cost = match lt::lt_supports(gemm, real) {
                _ if !gpu.has_cublaslt => Err("there is no cuBLASLt".into()),
                Ok(()) => Ok(lt::cost_us(gemm, real, gpu) + rest),
                Err(why) => Err(why),
            };
            let count = if cost.is_ok() { LT_OFFERS } else { 1 };
            out.extend(several(Route::Lt, "cublaslt", count, lt::workspace_bytes(gemm), cost));
        }
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } | OpKind::Conv2dBwdW { .. } => {
            let cost = match dnn::dnn_supports(kind, real) {
                _ if !gpu.has_cudnn => Err("there is no cuDNN".into()),
                Ok(()) => Ok(dnn::cost_us(kind, real, gpu) + rest),
                Err(why) => Err(why),
            };
            let is_weight_gradient = matches!(kind, OpKind::Conv2dBwdW { .. });
            let has_derivative =
                matches!(kind, OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. }) if epilogue.act_grad.is_some());
            let count = if cost.is_ok() { dnn_offers(is_weight_gradient, has_derivative) } else { 1 };
            out.extend(several(Route::Dnn, "cudnn", count, dnn::workspace_bytes(kind), cost));
        }
        _ => {}
    }
    out
}

/// What the epilogue costs as passes of its own behind a library's product, in microseconds.
fn epilogue_us(kind: &OpKind, real: Real) -> f64 {
    let (epilogue, len) = match kind {
        OpKind::Gemm(g) => (g.epilogue, g.m * g.n),
        OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue }) => (*epilogue, g.n * g.ho * g.wo * g.f),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue }) => (*epilogue, g.n * g.h * g.w * g.c),
        _ => return 0.0,
    };
    let fused_act = epilogue.act == Some(Activation::Relu) && !epilogue.save_z;
    let passes = usize::from(epilogue.act_grad.is_some()) + usize::from(epilogue.act.is_some() && !fused_act);
    passes as f64 * (1.5 + (3 * len * real.size()) as f64 / 3.5e6)
}

/// What a library leaves to do of an epilogue: operations in order, with the slot of the product that each of their
/// slots stands for.
#[must_use]
pub fn epilogue_ops(kind: &OpKind, done: Epilogue) -> Vec<(OpKind, Vec<(&'static str, &'static str)>)> {
    let (e, rows, cols) = match kind {
        OpKind::Gemm(g) => (g.epilogue, g.m, g.n),
        OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue }) => (*epilogue, g.n * g.ho * g.wo, g.f),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue }) => (*epilogue, g.n * g.h * g.w, g.c),
        _ => return Vec::new(),
    };
    let len = rows * cols;
    let raw = product_slot(kind);
    let mut out = Vec::new();
    if e.bias && !done.bias {
        out.push((OpKind::BiasAdd(ops::BiasAdd { rows, cols }), vec![("x", raw), ("bias", "bias"), ("y", raw)]));
    }
    if let Some(func) = e.act.filter(|_| done.act.is_none()) {
        out.push((OpKind::Act(ops::Act { func, len }), vec![("x", raw), ("y", "c")]));
    }
    if let Some(func) = e.act_grad.filter(|_| done.act_grad.is_none()) {
        out.push((OpKind::ActBwd(ops::ActBwd { func, len }), vec![("dy", "c"), ("saved", "saved"), ("dx", "c")]));
    }
    out
}

/// The slot that a library's bare product is written to: where the value before the activation is kept, it goes there.
#[must_use]
pub fn product_slot(kind: &OpKind) -> &'static str {
    let e = match kind {
        OpKind::Gemm(g) => g.epilogue,
        OpKind::Conv2d(ops::Conv2d { epilogue, .. }) | OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. }) => {
            *epilogue
        }
        _ => Epilogue::default(),
    };
    if e.save_z { "z" } else { "c" }
}
