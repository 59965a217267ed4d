//! Operations with everything fixed: which kernels or library calls carry them out, at which addresses.

use super::cublaslt::LtPlan;
use super::cudnn::{ConvKind, DnnArgs, DnnCall, DnnPlan, Fused};
use super::gpu::{Gpu, Kernel, Phase};
use super::memory::DeviceMemory;
use super::overlap::FLAGS;
use crate::compile::Compiled;
use crate::exec::ExecError;
use crate::lower::{Epilogue, Op, OpKind};
use crate::ops;
use crate::plan::{BindingPlan, EXTERNAL, Place};
use crate::select::{Variant, cuda};
use crate::tensor::align_up;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads that ask libraries for plans, at most.
const MAX_DRAFTERS: usize = 12;

/// The pointers that a kernel takes; equals that of `Args` in the kernels' prelude.
pub(super) const MAX_ARGS: usize = 20;

/// A kernel's pointers by slot; 0 where a slot is unused.
pub(super) type Row = [u64; MAX_ARGS];

/// Device memory that can be addressed and no longer changed in extent.
pub(super) struct DeviceEnv {
    pub(super) memory: Arc<DeviceMemory>,
    /// Keeps the memory of shared buffers alive.
    pub(super) shared: Option<Arc<DeviceMemory>>,
    /// Addresses of shared buffers, by buffer; 0 for own ones.
    pub(super) externals: Vec<u64>,
}

impl DeviceEnv {
    /// The address of a place.
    pub(super) fn address(&self, plan: &BindingPlan, place: Place) -> u64 {
        if place.offset >= EXTERNAL {
            return self.externals[place.buffer.0 as usize] + (place.offset - plan.buffer(place.buffer).offset);
        }
        self.memory.base() + place.offset
    }

    /// The planned addresses of one operation's arguments, worked out from the plan.
    pub(super) fn row(&self, plan: &BindingPlan, index: usize) -> Row {
        let count = plan.program.ops[index].kind.slots().len();
        let at = |slot| if slot < count { plan.argument(index, slot) } else { None };
        std::array::from_fn(|slot| at(slot).map_or(0, |p| self.address(plan, p)))
    }
}

/// One call of a driver or library.
#[derive(Clone)]
pub(super) enum Work {
    Kernel { kernel: Arc<Kernel>, args: Box<Row> },
    Lt { plan: Arc<LtPlan>, row: Box<Row>, kind: OpKind },
    Dnn { call: Arc<DnnCall>, plan: String },
}

/// Puts one phase on the stream. `args` are the kernel's pointers; for a group, those of its members one after the other.
pub(super) fn launch_phase(gpu: &Gpu, phase: Phase, threads: u32, args: &[u64]) -> Result<(), String> {
    let overlap = gpu.info().capability.0 >= 9;
    let mut attribute = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: phase.blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: phase.smem,
        hStream: gpu.stream(),
        attrs: &raw mut attribute,
        numAttrs: u32::from(overlap),
    };
    let mut params = [args.as_ptr().cast::<c_void>().cast_mut()];
    // SAFETY: the function is loaded for good; its one parameter is a structure of as many pointers as `args` holds, which the driver copies.
    unsafe { sys::cuLaunchKernelEx(&raw const config, phase.function, params.as_mut_ptr(), std::ptr::null_mut()) }
        .result()
        .map_err(|e| super::failed("cuLaunchKernelEx", e))
}

impl Work {
    /// Puts the call on the device's stream, with the flags of its launch.
    pub(super) fn launch(&self, gpu: &Gpu, flags: u64) -> Result<(), String> {
        match self {
            Self::Kernel { kernel, args } => {
                let mut args = **args;
                args[FLAGS] = flags;
                kernel.phases.iter().try_for_each(|phase| launch_phase(gpu, *phase, kernel.threads, &args[..]))
            }
            Self::Lt { plan, row, kind } => {
                let lt = gpu.lt();
                let lt = lt.as_ref().ok_or("cuBLASLt is gone")?;
                let at = |slot: &str| kind.slot(slot).map_or(0, |i| row[i]);
                let [a, b, bias, c, saved, z] = ["a", "b", "bias", "c", "saved", "z"].map(at);
                let bias = if at("bias_half") == 0 { bias } else { at("bias_half") };
                let pointers = super::cublaslt::Pointers { a, b, bias, c, saved, z };
                // SAFETY: the addresses are the plan's, and the scratch memory is as large as selection was told.
                unsafe { plan.run(lt, gpu.stream().cast(), &pointers, at("work")) }
            }
            Self::Dnn { call, .. } => {
                // Handles are used by one thread at a time: whoever holds this.
                let _turn = gpu.dnn();
                // SAFETY: the addresses are the plan's, and live as long as the step.
                unsafe { call.run(gpu.stream()) }
            }
        }
    }

    /// What a library does in it, in the library's own terms; nothing for own kernels.
    pub(super) fn describe(&self) -> Option<String> {
        match self {
            Self::Kernel { .. } => None,
            Self::Lt { plan, .. } => Some(plan.describe()),
            Self::Dnn { plan, .. } => Some(plan.clone()),
        }
    }

    /// Kernel launches, as far as they are known: a library's call counts as one.
    pub(super) fn launches(&self) -> usize {
        match self {
            Self::Kernel { kernel, .. } => kernel.phases.len(),
            Self::Lt { .. } | Self::Dnn { .. } => 1,
        }
    }
}

/// One of several plans of cuDNN's.
type Chosen = (Arc<Vec<DnnPlan>>, usize);

/// A call before its addresses are known.
enum Draft {
    /// The number of the unit among the operation's, and for each of the kernel's slots the operation's slot.
    Own(usize, Option<Vec<(usize, usize)>>),
    Lt(Arc<LtPlan>, OpKind),
    /// With the bytes at the front of the scratch memory that hold a gradient in half width.
    Dnn(Chosen, OpKind, u64),
}

/// A source to be compiled: the file and type of each of its operations.
pub(super) type Unit = Vec<(&'static str, String)>;

/// How an operation is to be run: drafts, with units that are compiled together with everybody else's.
pub(super) struct Drafts {
    list: Vec<Draft>,
    pub(super) units: Vec<Unit>,
    /// Whether an own kernel stands in for a library that refused.
    pub(super) stood_in: bool,
}

/// The own kernel of an operation by its number, or the cheapest.
pub(super) fn code_of(kind: &OpKind, compiled: &Compiled, op: &Op, number: Option<u8>) -> Result<cuda::Code, String> {
    let facts = compiled.selection.target.as_cuda().ok_or("the plan is for a CPU")?;
    let real = cuda::real_of(&compiled.selection.program, op, compiled.selection.real);
    let mut codes = cuda::codes(kind, real, &facts);
    let index = match number {
        Some(number) => usize::from(number),
        None => (0..codes.len()).min_by(|a, b| codes[*a].cost_us.total_cmp(&codes[*b].cost_us)).unwrap_or(0),
    };
    if index < codes.len() {
        Ok(codes.swap_remove(index))
    } else {
        Err(format!("there is no kernel {index} for {}", kind.name()))
    }
}

/// Whether a library is to do operation `index`.
pub(super) fn asks_library(compiled: &Compiled, index: usize) -> bool {
    !matches!(compiled.selection.choices[index].variant, Variant::Cuda(cuda::Route::Own(_)))
}

/// Decides the calls of operations, each given by its step and its place there. Libraries may compile what they are asked for, so that several threads ask.
pub(super) fn draft_all(gpu: &Gpu, ops: &[(&Compiled, usize)]) -> Result<Vec<Drafts>, ExecError> {
    let drafted: Mutex<HashMap<usize, Result<Drafts, ExecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((compiled, index)) = ops.get(number) else { break };
            let made = gpu.enter().map_err(ExecError::Gpu).and_then(|()| draft(gpu, compiled, *index));
            drafted.lock().unwrap_or_else(PoisonError::into_inner).insert(number, made);
        }
    };
    let most = ops.iter().filter(|(compiled, index)| asks_library(compiled, *index)).count().min(MAX_DRAFTERS);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most);
    std::thread::scope(|scope| {
        for number in 1..threads {
            let spawned = std::thread::Builder::new().name(format!("draft-{number}")).spawn_scoped(scope, work);
            if let Err(error) = spawned {
                log::warn!("a thread that asks the libraries could not be started: {error}");
            }
        }
        work();
    });
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
    let fail = |why: String| device_error(compiled, index, why);
    let Variant::Cuda(route) = choice.variant else {
        return Err(ExecError::MissingKernel { op: index, kernel: choice.kernel.clone() });
    };
    let mut units: Vec<Unit> = Vec::new();
    let mut own = |file: &'static str, ty: String| {
        units.push(vec![(file, ty)]);
        units.len() - 1
    };
    let mut list = Vec::new();
    // A library that refuses what was planned for it gives way to an own kernel that makes do with the same scratch memory.
    let mut stood_in = false;
    let route = match route {
        cuda::Route::Own(_) => route,
        _ => match library(gpu, compiled, index, route) {
            Ok((draft, done, widen)) => {
                list.push(draft);
                if let Some((ty, slots)) = widen {
                    list.push(Draft::Own(own("elementwise.cu", ty), Some(slots)));
                }
                for (kind, names) in cuda::epilogue_ops(&op.kind, done) {
                    let code = code_of(&kind, compiled, op, None).map_err(fail)?;
                    if code.work_bytes > 0 {
                        return Err(fail(format!("{} behind a library's product needs scratch memory", kind.name())));
                    }
                    let slots =
                        names.iter().filter_map(|(to, from)| Some((kind.slot(to)?, op.kind.slot(from)?))).collect();
                    list.push(Draft::Own(own(code.file, code.ty), Some(slots)));
                }
                return Ok(Drafts { list, units, stood_in: false });
            }
            Err(why) => {
                let number = own_instead(compiled, op, choice.workspace_bytes).ok_or_else(|| fail(why.clone()))?;
                log::debug!("op {index} ({}): {why}; an own kernel runs instead", choice.kernel);
                stood_in = true;
                cuda::Route::Own(number)
            }
        },
    };
    let cuda::Route::Own(number) = route else { return Err(fail("no kernel was found".into())) };
    let code = code_of(&op.kind, compiled, op, Some(number)).map_err(fail)?;
    list.push(Draft::Own(own(code.file, code.ty), None));
    Ok(Drafts { list, units, stood_in })
}

/// The own kernel that an operation falls back to, within `bytes` of scratch memory.
fn own_instead(compiled: &Compiled, op: &Op, bytes: u64) -> Option<u8> {
    let facts = compiled.selection.target.as_cuda()?;
    let real = cuda::real_of(&compiled.selection.program, op, compiled.selection.real);
    let codes = cuda::codes(&op.kind, real, &facts);
    let fits = (0u8..).zip(&codes).filter(|(_, c)| c.work_bytes <= bytes);
    fits.min_by(|a, b| a.1.cost_us.total_cmp(&b.1.cost_us)).map(|(i, _)| i)
}

/// The type and slots of the pass that widens a gradient that a library stored in half width.
type Widening = (String, Vec<(usize, usize)>);

/// A library's call, what it does of the epilogue, and the pass that its result needs.
fn library(
    gpu: &Gpu,
    compiled: &Compiled,
    index: usize,
    route: cuda::Route,
) -> Result<(Draft, Epilogue, Option<Widening>), String> {
    let op = &compiled.plan.program.ops[index];
    let choice = &compiled.selection.choices[index];
    let real = compiled.selection.real;
    match route {
        cuda::Route::Own(_) => Err("an own kernel is no library's".into()),
        cuda::Route::Lt(candidate) => {
            let OpKind::Gemm(gemm) = op.kind else { return Err("cuBLASLt does products only".into()) };
            let lt = gpu.lt();
            let lt = lt.as_ref().ok_or("there is no cuBLASLt")?;
            let plan = lt.plan(&gemm, real, choice.workspace_bytes as usize, usize::from(candidate))?;
            let done = plan.done();
            Ok((Draft::Lt(Arc::new(plan), op.kind.clone()), done, None))
        }
        cuda::Route::Dnn(candidate) => {
            let (kind, geometry) = match &op.kind {
                OpKind::Conv2d(ops::Conv2d { geometry, .. }) => (ConvKind::Forward, geometry),
                OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, .. }) => (ConvKind::BwdX, geometry),
                OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) => (ConvKind::BwdW, geometry),
                _ => return Err("cuDNN does convolutions only".into()),
            };
            // A gradient in half width lies at the front of the scratch memory until it is widened.
            let elements = geometry.f * geometry.kernel[0] * geometry.kernel[1] * (geometry.c / geometry.groups.max(1));
            let narrow_bytes = align_up((elements * real.size()) as u64, 256);
            let spare = if kind == ConvKind::BwdW && real.half().is_some() { narrow_bytes } else { 0 };
            let limit = choice.workspace_bytes.saturating_sub(spare);
            let (plan, done) = convolution(gpu, kind, geometry, &op.kind, real, limit, usize::from(candidate))?;
            let narrow = kind == ConvKind::BwdW && !plan.0[plan.1].dw_is_float();
            let slot = |name: &str| op.kind.slot(name).unwrap_or(0);
            let widen =
                narrow.then(|| (format!("Widen<{}, {elements}>", real.cpp()), vec![(0, slot("work")), (1, slot("c"))]));
            Ok((Draft::Dnn(plan, op.kind.clone(), if narrow { narrow_bytes } else { 0 }), done, widen))
        }
    }
}

/// A plan of cuDNN's with as much of the epilogue as it does, and what that is.
fn convolution(
    gpu: &Gpu,
    kind: ConvKind,
    geometry: &crate::lower::ConvGeometry,
    op: &OpKind,
    real: cuda::Real,
    limit: u64,
    number: usize,
) -> Result<(Chosen, Epilogue), String> {
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
    let pick = |plans: Arc<Vec<DnnPlan>>| {
        if number < plans.len() { Ok((plans, number)) } else { Err(format!("cuDNN offers no plan {number}")) }
    };
    if !done.is_empty() {
        let fused = Fused { bias, relu, relu_grad: done.act_grad.is_some() };
        match gpu.plans(kind, geometry, real, fused, limit, number).and_then(pick) {
            Ok(plan) => return Ok((plan, done)),
            Err(why) => log::debug!("cuDNN leaves the epilogue: {why}"),
        }
    }
    let plan = pick(gpu.plans(kind, geometry, real, Fused::default(), limit, number)?)?;
    Ok((plan, Epilogue::default()))
}

/// Gives drafts their addresses; `kernels` are those of the operation's units.
pub(super) fn bind(
    compiled: &Compiled,
    index: usize,
    drafts: &Drafts,
    kernels: &[Result<Arc<Kernel>, String>],
    row: &Row,
) -> Result<Vec<Work>, ExecError> {
    let choice = &compiled.selection.choices[index];
    let fail = |why: String| device_error(compiled, index, why);
    let mut out = Vec::with_capacity(drafts.list.len());
    for draft in &drafts.list {
        out.push(match draft {
            Draft::Own(unit, slots) => {
                let kernel = kernels[*unit].clone().map_err(fail)?;
                if slots.is_none() && kernel.work_bytes > choice.workspace_bytes {
                    let (needs, has) = (kernel.work_bytes, choice.workspace_bytes);
                    return Err(fail(format!(
                        "the kernel needs {needs} bytes of scratch memory and was planned with {has}"
                    )));
                }
                let args = match slots {
                    None => *row,
                    Some(pairs) => {
                        let mut args = [0; MAX_ARGS];
                        for (to, from) in pairs {
                            args[*to] = row[*from];
                        }
                        args
                    }
                };
                Work::Kernel { kernel, args: Box::new(args) }
            }
            Draft::Lt(plan, kind) => Work::Lt { plan: Arc::clone(plan), row: Box::new(*row), kind: kind.clone() },
            Draft::Dnn(plan, kind, narrow) => {
                let at = |slot: &str| kind.slot(slot).map_or(0, |i| row[i]);
                let product = at(cuda::product_slot(kind));
                // The image, the filters and the result, as the library sees them.
                let (x, w, y) = match kind {
                    OpKind::Conv2d { .. } => (at("a"), at("b"), product),
                    OpKind::Conv2dBwdX { .. } => (product, at("b"), at("a")),
                    _ => (at("a"), if *narrow > 0 { at("work") } else { product }, at("b")),
                };
                let args = DnnArgs { x, w, y, bias: at("bias"), saved: at("saved"), workspace: at("work") + narrow };
                let call = plan.0[plan.1].bind(&args).map_err(fail)?;
                Work::Dnn { call: Arc::new(call), plan: format!("cuDNN {}", plan.0[plan.1].describe()) }
            }
        });
    }
    Ok(out)
}

/// A failure on the device, with the operation it belongs to.
pub(super) fn device_error(compiled: &Compiled, index: usize, why: String) -> ExecError {
    let kernel = compiled.selection.choices[index].kernel.clone();
    ExecError::Device { op: index, kernel, layer: compiled.owner(index), why }
}
