//! All ways to run an operation on a GPU: custom kernels, and the algorithms of libraries.

use super::custom::CustomKernel;
use super::epilogue::epilogue_of;
use super::real::Real;
use super::route::Route;
use super::speed::{BYTES_PER_US, LAUNCH_US};
use super::{
    attention, conv, dnn, elementwise, gemm, loss, lt, norm, optimizer, pool, rates, recurrent, row_product, sequence,
};
use crate::model::Activation;
use crate::ops::{self, Gemm, OpKind};
use crate::select::target::CudaFacts;

/// Every custom kernel for an operation. If estimates are equal, a later one is preferred.
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
        row_product::kernels,
        loss::kernels,
        optimizer::kernels,
        rates::kernels,
    ];
    families.iter().flat_map(|family| family(kind, real, gpu)).collect()
}

/// The number of algorithms of cuBLASLt that are offered for a product. In the products of two language models, the
/// fastest of 16 was among the first 8; small products differ less.
const fn lt_offers(gemm: &Gemm) -> u8 {
    const LARGE: usize = 1 << 31;
    if gemm.m * gemm.n * gemm.k >= LARGE { 8 } else { 4 }
}
/// The number of plans of cuDNN that are offered for a convolution: on the measured networks, the fastest was among
/// these or within a few percent of one of them. Custom kernels are faster for nearly every gradient of weights. A plan
/// with a derivative after the gradient of an input is compiled by cuDNN, which takes a second or more; the others are
/// ready in milliseconds.
pub(crate) const fn dnn_offers(is_weight_gradient: bool, has_derivative: bool) -> u8 {
    if has_derivative {
        2
    } else if is_weight_gradient {
        3
    } else {
        5
    }
}

/// The number of plans of cuDNN that are offered for attention: its fastest engine is one of the first two, and the
/// first one for the gradient. All are compiled, which takes half a second each.
pub(crate) const fn attention_offers(is_gradient: bool) -> u8 {
    if is_gradient { 1 } else { 2 }
}

/// A way to run an operation, with its id, its scratch memory and its estimated time; or why it is not possible.
pub(crate) struct Offer {
    pub route: Route,
    pub tail: String,
    pub work_bytes: u64,
    pub cost: Result<f64, String>,
    /// Why it must be compiled first in a network whose sizes are new; `None` if it need not.
    pub slow_start: Option<&'static str>,
}

/// All ways to run an operation on a GPU.
pub(crate) fn offers(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<Offer> {
    let mut out = own_offers(kind, real, gpu);
    let rest = epilogue_us(kind, real, gpu);
    match kind {
        OpKind::Gemm(gemm) => {
            let cost = match lt::lt_supports(gemm, real) {
                _ if !gpu.has_cublaslt => Err("cuBLASLt is missing".into()),
                _ if gemm.together > 0 => Err("the product shares a launch, which a library cannot do".into()),
                Ok(()) => Ok(lt::cost_us(gemm, real, gpu) + rest),
                Err(why) => Err(why),
            };
            let count = if cost.is_ok() { lt_offers(gemm) } else { 1 };
            let one = Offer {
                route: Route::Lt(0),
                tail: format!("{}_cublaslt", real.name()),
                work_bytes: lt::workspace_bytes(gemm),
                cost,
                slow_start: None,
            };
            out.extend(several(one, Route::Lt, count));
        }
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } | OpKind::Conv2dBwdW { .. } => {
            out.extend(convolutions_of_cudnn(kind, real, gpu, rest));
        }
        OpKind::Attention(ops::Attention { geometry }) | OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => {
            let cost = dnn::attention_cost_us(kind, geometry, real, gpu);
            let work_bytes = dnn::attention_workspace_bytes(kind, geometry);
            let count = attention_offers(matches!(kind, OpKind::AttentionBwd(_)));
            out.extend(by_cudnn(real, gpu, (cost, work_bytes), count, true));
        }
        _ => {}
    }
    out
}

/// The plans of cuDNN for a convolution, whose epilogue takes `rest` microseconds if kernels after it compute it. A
/// plan that computes the derivative of ReLU too must be compiled; one without it, and a kernel after it, are ready at
/// once.
fn convolutions_of_cudnn(kind: &OpKind, real: Real, gpu: &CudaFacts, rest: f64) -> Vec<Offer> {
    let fuses_derivative = matches!(kind, OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. })
        if epilogue.act_grad == Some(Activation::Relu));
    let (cost, work_bytes) = (dnn::dnn_supports(kind, real), dnn::workspace_bytes(kind));
    let cost = cost.map(|()| dnn::cost_us(kind, real, gpu) + rest);
    let count = dnn_offers(matches!(kind, OpKind::Conv2dBwdW(_)), fuses_derivative);
    let mut out: Vec<Offer> = by_cudnn(real, gpu, (cost, work_bytes), count, fuses_derivative).collect();
    let plain = out.first().filter(|_| fuses_derivative).map(|fused| Offer {
        route: Route::DnnPlain,
        tail: format!("{}_cudnn_plain_v0", real.name()),
        // Where both are possible, the plan that does all is preferred.
        cost: fused.cost.clone().map(|us| us * 1.002),
        slow_start: None,
        ..*fused
    });
    out.extend(plain);
    out
}

/// The plans of cuDNN for an operation, with its cost and workspace.
fn by_cudnn(
    real: Real,
    gpu: &CudaFacts,
    (cost, work_bytes): (Result<f64, String>, u64),
    count: u8,
    is_compiled: bool,
) -> impl Iterator<Item = Offer> {
    let cost = if gpu.has_cudnn { cost } else { Err("cuDNN is missing".into()) };
    let count = if cost.is_ok() { count } else { 1 };
    let slow_start = is_compiled.then_some("cuDNN compiles its plan");
    let tail = format!("{}_cudnn", real.name());
    several(Offer { route: Route::Dnn(0), tail, work_bytes, cost, slow_start }, Route::Dnn, count)
}

/// The custom kernels for an operation, and those that were refused.
fn own_offers(kind: &OpKind, real: Real, gpu: &CudaFacts) -> Vec<Offer> {
    let function = function_us(kind, gpu);
    let usable = custom_kernels(kind, real, gpu).into_iter().zip(0u8..).map(|(code, i)| Offer {
        route: Route::Own(i),
        work_bytes: code.work_bytes,
        cost: Ok(code.cost_us + function),
        slow_start: (!code.spec.has_general()).then_some("it has no general member"),
        tail: code.tail,
    });
    let refused = attention::refused(kind, real, gpu).into_iter().map(|(tail, why)| Offer {
        route: Route::Own(u8::MAX),
        tail,
        work_bytes: 0,
        cost: Err(why),
        slow_start: None,
    });
    usable.chain(refused).collect()
}

/// The first `count` algorithms of a library, which ranks them itself. The ranking is often wrong, so several are
/// offered and timed.
fn several(one: Offer, route: fn(u8) -> Route, count: u8) -> impl Iterator<Item = Offer> {
    (0..count).map(move |i| Offer {
        route: route(i),
        tail: if i == 0 { format!("{}_v0", one.tail) } else { format!("{}_a{i}_v0", one.tail) },
        cost: one.cost.clone().map(|us| us * (1.0 + 0.001 * f64::from(i))),
        ..one
    })
}

/// The cost of the epilogue as separate passes after a library's product, in microseconds.
fn epilogue_us(kind: &OpKind, real: Real, gpu: &CudaFacts) -> f64 {
    let Some((epilogue, [rows, cols])) = epilogue_of(kind) else { return 0.0 };
    let fused_act = epilogue.act == Some(Activation::Relu) && !epilogue.save_z;
    let passes = usize::from(epilogue.act_grad.is_some()) + usize::from(epilogue.act.is_some() && !fused_act);
    let moving_us = (passes * 3 * rows * cols * real.size()) as f64 / BYTES_PER_US;
    passes as f64 * LAUNCH_US + moving_us.max(function_us(kind, gpu))
}

/// The time of the functions of an epilogue that take longer than the other work of a thread, in microseconds: that of
/// GELU and its derivative, measured on an H200, which has 132 multiprocessors.
fn function_us(kind: &OpKind, gpu: &CudaFacts) -> f64 {
    const GELU_US: f64 = 2.1e-6;
    let Some((epilogue, [rows, cols])) = epilogue_of(kind) else { return 0.0 };
    let is_gelu = |act: &Option<Activation>| *act == Some(Activation::Gelu);
    let count = [epilogue.act, epilogue.act_grad].iter().filter(|act| is_gelu(act)).count();
    (count * rows * cols) as f64 * GELU_US * 132.0 / f64::from(gpu.multiprocessors.max(1))
}
