//! Decides which calls compute an operation, before their addresses are known.

use super::any_feed::any_feeds;
use super::crew::share_work;
use super::cublaslt::LtPlan;
use super::cudnn::{ConvKind, ConvTask, DnnPlan, Fused, PlanRequest, Task};
use super::error::CudaError;
use super::libraries::LtRequest;
use super::source::KernelSource;
use crate::compile::Compiled;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::lower::Op;
use crate::ops::{self, Epilogue, OpKind};
use crate::select::cuda::{CustomKernel, KernelSpec, widening_kernel};
use crate::select::{Variant, cuda};
use crate::tensor::align_up;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest number of threads that request plans from libraries.
const MAX_DRAFTERS: usize = 12;

/// One of several plans of cuDNN's.
pub(super) type ChosenPlan = (Arc<Vec<DnnPlan>>, usize);

/// A call before its addresses are known.
pub(super) enum Draft {
    /// A kernel with the operation's own slots.
    Kernel(Arc<KernelSpec>),
    /// A pass after a library's product: for each used slot of its kernel, the slot of the operation.
    Pass(Arc<KernelSpec>, Vec<(usize, usize)>),
    CublasLt(Arc<LtPlan>, OpKind),
    /// With the bytes at the start of the scratch memory that hold a gradient in half width, or the sums of attention's
    /// gradient.
    Cudnn(ChosenPlan, OpKind, u64),
}

/// How an operation is computed.
pub(super) struct Drafts {
    pub(super) calls: Vec<Draft>,
    /// Whether a custom kernel replaces a library that refused.
    pub(super) stood_in: bool,
}

impl Drafts {
    /// The sources of its kernels, which are compiled together with those of the other operations.
    pub(super) fn sources(&self) -> impl Iterator<Item = KernelSource> {
        let specs = self.calls.iter().filter_map(|draft| match draft {
            Draft::Kernel(spec) | Draft::Pass(spec, _) => Some(spec),
            Draft::CublasLt(..) | Draft::Cudnn(..) => None,
        });
        specs.map(|spec| KernelSource::from(KernelSpec::clone(spec)))
    }
}

/// The custom kernel of an operation with this number, or the cheapest one.
fn custom_kernel(kind: &OpKind, compiled: &Compiled, op: &Op, number: Option<u8>) -> Result<CustomKernel, CudaError> {
    let facts = compiled.selection.target.as_cuda().ok_or("the plan is for a CPU")?;
    let real = cuda::real_of(&compiled.selection.program, op, compiled.selection.real);
    let mut all = cuda::custom_kernels(kind, real, &facts);
    let wanted = compiled.selection.target.kernels;
    let index = match number {
        Some(number) => usize::from(number),
        None => (0..all.len()).min_by(|a, b| all[*a].cost_us.total_cmp(&all[*b].cost_us)).unwrap_or(0),
    };
    if index < all.len() {
        let kernel = all.swap_remove(index);
        Ok(CustomKernel { spec: kernel.spec.of(wanted), ..kernel })
    } else {
        Err(format!("there is no kernel {index} for {}", kind.name()).into())
    }
}

/// Whether a library computes operation `index`.
pub(super) fn asks_library(compiled: &Compiled, index: usize) -> bool {
    !matches!(compiled.selection.choices[index].variant, Variant::Cuda(cuda::Route::Own(_)))
}

/// Decides the calls of operations, each given by its step and its index there. Several threads query the libraries,
/// which may compile plans.
pub(super) fn draft_all(gpu: &Gpu, ops: &[(&Compiled, usize)]) -> Result<Vec<Drafts>, ExecError> {
    let drafted: Mutex<HashMap<usize, Result<Drafts, ExecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((compiled, index)) = ops.get(number) else { break };
            let made = gpu.enter().map_err(ExecError::from).and_then(|()| draft(gpu, compiled, *index));
            drafted.lock().unwrap_or_else(PoisonError::into_inner).insert(number, made);
        }
    };
    let most = ops.iter().filter(|(compiled, index)| asks_library(compiled, *index)).count().min(MAX_DRAFTERS);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most);
    share_work(threads, "draft", "asks the libraries", &work);
    let mut drafted = drafted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let made = |(number, (compiled, index)): (usize, &(&Compiled, usize))| {
        drafted.remove(&number).unwrap_or_else(|| draft(gpu, compiled, *index))
    };
    ops.iter().enumerate().map(made).collect()
}

/// Decides the calls of operation `index`.
fn draft(gpu: &Gpu, compiled: &Compiled, index: usize) -> Result<Drafts, ExecError> {
    let op = &compiled.plan.program.ops[index];
    let choice = &compiled.selection.choices[index];
    let fail = |why: CudaError| ExecError::device(compiled, index, why);
    let Variant::Cuda(route) = choice.variant else {
        return Err(ExecError::MissingKernel { op: index, kernel: choice.kernel.clone() });
    };
    // A library that refuses an operation that was planned for it is replaced by a custom kernel with at most the same
    // scratch memory.
    let (number, stood_in) = match route {
        cuda::Route::Own(number) => (number, false),
        _ => match library(gpu, compiled, index, route) {
            Ok(product) => {
                let calls = with_passes(compiled, op, product).map_err(fail)?;
                return Ok(Drafts { calls, stood_in: false });
            }
            Err(why) => {
                let number = own_instead(compiled, op, choice.workspace_bytes).ok_or_else(|| fail(why.clone()))?;
                log::debug!("op {index} ({}): {why}; a custom kernel runs instead", choice.kernel);
                (number, true)
            }
        },
    };
    let kernel = custom_kernel(&op.kind, compiled, op, Some(number)).map_err(fail)?;
    Ok(Drafts { calls: vec![Draft::Kernel(Arc::new(kernel.spec))], stood_in })
}

/// A kernel for any size, and the one for a wider class of sizes that can stand in for it.
pub struct KernelForAnySize {
    pub own: KernelSource,
    pub wider: Option<KernelSource>,
}

/// The kernels for any size that a plan needs, without a device: those that it chose, those that follow the products of
/// libraries if these compute no epilogue, and the feeds of its type.
#[must_use]
pub fn kernels_for_any_size(compiled: &Compiled) -> Vec<KernelForAnySize> {
    let program = &compiled.plan.program;
    let feeds = any_feeds(program.value(program.samples()).dtype).into_iter();
    let mut found: Vec<_> = feeds.map(|own| KernelForAnySize { own, wider: None }).collect();
    for (op, choice) in program.ops.iter().zip(&compiled.selection.choices) {
        let kernels: Vec<_> = match choice.variant {
            Variant::Cuda(cuda::Route::Own(number)) => vec![custom_kernel(&op.kind, compiled, op, Some(number))],
            _ => {
                let passes = cuda::epilogue_ops(&op.kind, Epilogue::default());
                passes.iter().map(|(kind, _)| custom_kernel(kind, compiled, op, None)).collect()
            }
        };
        let with_wider = |CustomKernel { spec, .. }: CustomKernel| KernelForAnySize {
            wider: spec.wider().map(KernelSource::from),
            own: KernelSource::from(spec),
        };
        found.extend(kernels.into_iter().flatten().map(with_wider));
    }
    found.retain(|kernel| kernel.own.is_for_any_size());
    found
}

/// A library's product with the passes that follow it.
fn with_passes(compiled: &Compiled, op: &Op, product: LibraryProduct) -> Result<Vec<Draft>, CudaError> {
    let LibraryProduct { draft, done, widening } = product;
    let mut calls = vec![draft];
    calls.extend(widening.map(|(spec, slots)| Draft::Pass(Arc::new(spec), slots)));
    for (kind, names) in cuda::epilogue_ops(&op.kind, done) {
        let kernel = custom_kernel(&kind, compiled, op, None)?;
        if kernel.work_bytes > 0 {
            return Err(format!("{} after a library's product needs scratch memory", kind.name()).into());
        }
        let slots = names.iter().filter_map(|(to, from)| Some((kind.slot(to)?, op.kind.slot(from)?))).collect();
        calls.push(Draft::Pass(Arc::new(kernel.spec), slots));
    }
    Ok(calls)
}

/// The custom kernel that replaces a library which refused an operation, within `bytes` of scratch memory.
fn own_instead(compiled: &Compiled, op: &Op, bytes: u64) -> Option<u8> {
    let facts = compiled.selection.target.as_cuda()?;
    let real = cuda::real_of(&compiled.selection.program, op, compiled.selection.real);
    let all = cuda::custom_kernels(&op.kind, real, &facts);
    let fits = (0u8..).zip(&all).filter(|(_, kernel)| kernel.work_bytes <= bytes);
    fits.min_by(|a, b| a.1.cost_us.total_cmp(&b.1.cost_us)).map(|(i, _)| i)
}

/// A library's call, the part of the epilogue that it does, and the pass that its result needs.
struct LibraryProduct {
    draft: Draft,
    done: Epilogue,
    /// Converts a gradient that a library stored in half width: the kernel, and the operation's slot for each of its
    /// own.
    widening: Option<(KernelSpec, Vec<(usize, usize)>)>,
}

/// Decides a library's call.
fn library(gpu: &Gpu, compiled: &Compiled, index: usize, route: cuda::Route) -> Result<LibraryProduct, CudaError> {
    match route {
        cuda::Route::Own(_) => Err("a custom kernel was chosen where a library kernel is needed".into()),
        cuda::Route::Lt(candidate) => by_cublaslt(gpu, compiled, index, usize::from(candidate)),
        cuda::Route::Dnn(candidate) => by_cudnn(gpu, compiled, index, usize::from(candidate), true),
        cuda::Route::DnnPlain => by_cudnn(gpu, compiled, index, 0, false),
    }
}

fn by_cublaslt(gpu: &Gpu, compiled: &Compiled, index: usize, number: usize) -> Result<LibraryProduct, CudaError> {
    let op = &compiled.plan.program.ops[index];
    let OpKind::Gemm(gemm) = op.kind else { return Err("cuBLASLt only computes products".into()) };
    let limit = compiled.selection.choices[index].workspace_bytes as usize;
    let wanted = LtRequest { gemm, real: compiled.selection.real, workspace_limit_bytes: limit, number };
    let plan = gpu.libraries().lt_plan(&wanted)?;
    let done = plan.done();
    Ok(LibraryProduct { draft: Draft::CublasLt(plan, op.kind.clone()), done, widening: None })
}

/// Decides a call of cuDNN, with what it supports of the epilogue if it `fuses`, otherwise with none of it.
fn by_cudnn(
    gpu: &Gpu,
    compiled: &Compiled,
    index: usize,
    number: usize,
    fuses: bool,
) -> Result<LibraryProduct, CudaError> {
    let op = &compiled.plan.program.ops[index];
    let real = compiled.selection.real;
    let planned_bytes = compiled.selection.choices[index].workspace_bytes;
    let max = number + 1;
    let (kind, geometry) = match &op.kind {
        OpKind::Conv2d(ops::Conv2d { geometry, .. }) => (ConvKind::Forward, geometry),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, .. }) => (ConvKind::BwdX, geometry),
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) => (ConvKind::BwdW, geometry),
        OpKind::Attention(_) | OpKind::AttentionBwd(_) => return attention(gpu, op, real, planned_bytes, max),
        _ => return Err("cuDNN only computes convolutions and attention".into()),
    };
    // A gradient in half width is stored at the start of the scratch memory until it is converted.
    let elements = geometry.f * geometry.kernel[0] * geometry.kernel[1] * (geometry.c / geometry.groups.max(1));
    let narrow_bytes = align_up((elements * real.size()) as u64, 256);
    let spare = if kind == ConvKind::BwdW && real.half().is_some() { narrow_bytes } else { 0 };
    let limit = planned_bytes.saturating_sub(spare);
    let task = ConvTask { kind, geometry: *geometry, fused: Fused::default() };
    let wanted = PlanRequest { task: Task::Conv(task), real, workspace_limit_bytes: limit, max };
    let (plan, done) = if fuses {
        convolution(gpu, &op.kind, task, wanted)?
    } else {
        (pick(gpu.libraries().plans(&wanted)?, number)?, Epilogue::default())
    };
    let narrow = kind == ConvKind::BwdW && !plan.0[plan.1].dw_is_float();
    let slot = |name: &str| op.kind.slot(name).unwrap_or(0);
    let widening = narrow.then(|| {
        let (spec, kernels) = (widening_kernel(real, elements), compiled.selection.target.kernels);
        (spec.of(kernels), vec![(0, slot("work")), (1, slot("c"))])
    });
    let draft = Draft::Cudnn(plan, op.kind.clone(), if narrow { narrow_bytes } else { 0 });
    Ok(LibraryProduct { draft, done, widening })
}

/// cuDNN's attention; the last of `max` plans is used.
fn attention(
    gpu: &Gpu,
    op: &Op,
    real: cuda::Real,
    planned_bytes: u64,
    max: usize,
) -> Result<LibraryProduct, CudaError> {
    let task = match op.kind {
        OpKind::AttentionBwd(ops::AttentionBwd { geometry }) => Task::AttentionBwd(geometry),
        OpKind::Attention(ops::Attention { geometry }) => Task::Attention(geometry),
        _ => return Err("this is no attention".into()),
    };
    let sums_bytes = cuda::attention_sums_bytes(&op.kind);
    let limit = planned_bytes.saturating_sub(sums_bytes);
    let plans = gpu.libraries().plans(&PlanRequest { task, real, workspace_limit_bytes: limit, max })?;
    let draft = Draft::Cudnn(pick(plans, max - 1)?, op.kind.clone(), sums_bytes);
    Ok(LibraryProduct { draft, done: Epilogue::default(), widening: None })
}

/// One of several plans.
fn pick(plans: Arc<Vec<DnnPlan>>, number: usize) -> Result<ChosenPlan, CudaError> {
    let is_there = number < plans.len();
    if is_there { Ok((plans, number)) } else { Err(format!("cuDNN offers no plan {number}").into()) }
}

/// A convolution plan of cuDNN with as much of the epilogue as it supports, and which part that is. The last of the
/// requested plans is used.
fn convolution(
    gpu: &Gpu,
    op: &OpKind,
    task: ConvTask,
    wanted: PlanRequest,
) -> Result<(ChosenPlan, Epilogue), CudaError> {
    use crate::model::Activation::Relu;
    let e = match op {
        OpKind::Conv2d(ops::Conv2d { epilogue, .. }) | OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. }) => {
            *epilogue
        }
        _ => Epilogue::default(),
    };
    let relu = e.act == Some(Relu) && !e.save_z;
    let bias = e.bias && (e.act.is_none() || relu);
    let done =
        Epilogue { bias, act: e.act.filter(|_| relu), save_z: false, act_grad: e.act_grad.filter(|a| *a == Relu) };
    let number = wanted.max - 1;
    if !done.is_empty() {
        let fused = Fused { bias, relu, relu_grad: done.act_grad.is_some() };
        let task = Task::Conv(ConvTask { fused, ..task });
        match gpu.libraries().plans(&PlanRequest { task, ..wanted }).and_then(|plans| pick(plans, number)) {
            Ok(plan) => return Ok((plan, done)),
            Err(why) => log::debug!("cuDNN does not compute the epilogue: {why}"),
        }
    }
    let plan = pick(gpu.libraries().plans(&wanted)?, number)?;
    Ok((plan, Epilogue::default()))
}
