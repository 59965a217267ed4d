//! Convolutions and attention with cuDNN's backend (graph) interface.
//!
//! A convolution with what follows it, or attention, is described as a graph of operations on tensors of fixed shape.
//! cuDNN's heuristics name engine configurations for the graph; each becomes a [`DnnPlan`] unless it breaks a rule of
//! this program: results that differ from run to run, sums in reduced precision, inputs rounded more than the precision
//! allows, a workspace that is too large. The caller times the plans and binds the fastest to its buffers
//! ([`DnnCall`]). A bound call allocates nothing on the device, so that it can be captured.
//!
//! Images are in memory as `[n, h, w, c]`, weights as `[f, kh, kw, c / groups]`. cuDNN is given `[n, c, h, w]` and
//! `[f, c / groups, kh, kw]` with the strides that say so; it infers the groups from the channels of both.
//!
//! Source: <https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html>.

mod attention;
mod backend;
mod convolution;
mod graph;
mod request;

use super::error::CudaError;
use crate::select::cuda::Real;
use backend::{Address, Attr, DataType, Descriptor, Heuristic, Kind, Knob, Library, Note, Raw};
use cudarc::cudnn::sys::cudnnBackendNumericalNote_t as Numerical;
use cudarc::driver::sys::CUstream;
use graph::{ALIGNMENT, Graph, Stored, data_type};
pub use request::{ConvKind, ConvTask, Fused, Operand, PlanRequest, Task};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest number of knobs of an engine; cuDNN 9.21 knows 44.
const MAX_KNOBS: usize = 64;

/// The oldest version whose attention is used: the gradients of 9.10.0 and 9.10.1 are wrong.
const OLDEST_ATTENTION: usize = 91_002;

/// The library, opened for one GPU. Its handle is used by one thread at a time, the one that holds the GPU's lock.
pub struct Dnn {
    library: Arc<Library>,
    version: usize,
}

impl Dnn {
    /// Opens cuDNN for the GPU whose context is current on this thread. Allocates on the device, so it must not be
    /// called during capture.
    ///
    /// # Errors
    /// If cuDNN is not installed, is older than version 9, or cannot use the GPU.
    pub fn open() -> Result<Self, CudaError> {
        let (library, version) = Library::open()?;
        Ok(Self { library, version })
    }

    /// The library's version, such as `9.12.0`.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}.{}.{}", self.version / 10_000, self.version / 100 % 100, self.version % 100)
    }

    /// At most `max` ways to compute a task that satisfy the rules at the top of this file, the most promising
    /// first. Each is ready to run; some were compiled for this call, which takes a fraction of a second each. Results
    /// are the same in every run.
    ///
    /// Weight gradients are stored as float if cuDNN supports it, also for the 16-bit types: see
    /// [`DnnPlan::dw_is_float`].
    ///
    /// # Errors
    /// If there are none, with what happened to those that cuDNN named.
    pub fn plans(&self, wanted: &PlanRequest) -> Result<Vec<DnnPlan>, CudaError> {
        self.search(wanted, ways(wanted))
    }

    /// Like [`Self::plans`], for a weight gradient that is stored in the step's 16-bit type, computed by cuDNN's
    /// precompiled kernels. The caller times them together with the conversion that must follow.
    ///
    /// # Errors
    /// As for [`Self::plans`].
    pub fn plans_with_narrow_dw(&self, wanted: &PlanRequest) -> Result<Vec<DnnPlan>, CudaError> {
        self.search(wanted, &[Stored::Own])
    }

    /// The graph of a task.
    fn graph(&self, wanted: &PlanRequest, stored: Stored) -> Result<Graph, CudaError> {
        if !matches!(wanted.task, Task::Conv(_)) && self.version < OLDEST_ATTENTION {
            return Err(format!("attention needs cuDNN 9.10.2 or newer, and this is {}", self.version()).into());
        }
        match &wanted.task {
            Task::Conv(task) => convolution::convolution(&self.library, task, wanted.real, stored),
            Task::Attention(geometry) => attention::attention(&self.library, geometry, wanted.real),
            Task::AttentionBwd(geometry) => attention::attention_bwd(&self.library, geometry, wanted.real),
        }
    }

    /// Plans that store the result in the first of these formats that has any plans.
    fn search(&self, wanted: &PlanRequest, ways: &[Stored]) -> Result<Vec<DnnPlan>, CudaError> {
        let mut fates = Vec::new();
        for stored in ways {
            let mut plans = Vec::new();
            match self.graph(wanted, *stored) {
                Ok(graph) => {
                    let graph = Arc::new(graph);
                    for mode in [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK] {
                        let configs = self.configs(&graph, mode).unwrap_or_else(|why| {
                            fates.push(why.to_string());
                            Vec::new()
                        });
                        if configs.is_empty() {
                            fates.push(format!("{mode:?} names no engine for {stored:?} results"));
                        }
                        self.extend(&mut plans, &mut fates, wanted, &graph, (*stored, configs));
                    }
                }
                Err(why) => fates.push(why.to_string()),
            }
            if !plans.is_empty() {
                return Ok(plans);
            }
        }
        let mut unique = Vec::new();
        for fate in fates {
            if unique.len() < 6 && !unique.contains(&fate) {
                unique.push(fate);
            }
        }
        Err(format!("cuDNN {} has no plan for this operation: {}", self.version(), unique.join("; ")).into())
    }

    /// Adds a heuristic's plans up to the required number, and the reasons why others were rejected.
    fn extend(
        &self,
        plans: &mut Vec<DnnPlan>,
        fates: &mut Vec<String>,
        wanted: &PlanRequest,
        graph: &Arc<Graph>,
        (stored, configs): (Stored, Vec<Descriptor>),
    ) {
        for config in configs {
            if plans.len() >= wanted.max {
                break;
            }
            let config = match Config::read(config, wanted.real, stored) {
                Ok(config) => config,
                Err(why) => {
                    fates.push(why.to_string());
                    continue;
                }
            };
            let is_old = plans.iter().any(|p| p.description == config.description);
            if is_old {
                continue;
            }
            match self.prepare(graph, &config, wanted) {
                Ok(plan) => plans.push(plan),
                Err(why) => fates.push(format!("{}: {why}", config.description)),
            }
        }
    }

    /// The engine configurations that a heuristic names, best first.
    fn configs(&self, graph: &Graph, mode: Heuristic) -> Result<Vec<Descriptor>, CudaError> {
        let heuristic = Descriptor::new(&self.library, Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristic
            .set(Attr::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.graph.raw])?
            .set(Attr::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
        let heuristic = heuristic.finalize(&format!("{mode:?}"))?;
        let results = Attr::CUDNN_ATTR_ENGINEHEUR_RESULTS;
        heuristic.children(results, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, heuristic.count::<Raw>(results)?)
    }

    fn prepare(&self, graph: &Arc<Graph>, config: &Config, wanted: &PlanRequest) -> Result<DnnPlan, CudaError> {
        let limit = wanted.workspace_limit_bytes;
        let plan = Descriptor::new(&self.library, Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Attr::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[self.library.handle])?;
        plan.set(Attr::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config.config.raw])?;
        let plan = plan.finalize("execution plan")?;
        let workspace_bytes = plan.int(Attr::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?.max(0).cast_unsigned();
        if workspace_bytes > limit {
            return Err(format!("needs {workspace_bytes} bytes of workspace, more than {limit}").into());
        }
        Ok(DnnPlan {
            plan: Arc::new(plan),
            graph: Arc::clone(graph),
            workspace_bytes,
            description: config.description.clone(),
            dw_is_float: wanted.task.is_weight_gradient()
                && (data_type(wanted.real) == DataType::CUDNN_DATA_FLOAT || config.stored != Stored::Own),
        })
    }
}

/// How the result may be stored, in order of preference.
fn ways(wanted: &PlanRequest) -> &'static [Stored] {
    if wanted.task.is_weight_gradient() && data_type(wanted.real) != DataType::CUDNN_DATA_FLOAT {
        &[Stored::Float, Stored::Widened, Stored::Own]
    } else {
        &[Stored::Own]
    }
}

/// An engine configuration that satisfies the rules.
struct Config {
    config: Descriptor,
    description: String,
    stored: Stored,
}

impl Config {
    /// Reads an engine's notes and knobs.
    fn read(config: Descriptor, real: Real, stored: Stored) -> Result<Self, CudaError> {
        let engines = config.children(Attr::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
        let engine = engines.first().ok_or("a configuration has no engine")?;
        let mut description = format!("eng{}", engine.int(Attr::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?);
        let mut notes = [Note(u32::MAX); 64];
        let count = engine.get(Attr::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?;
        let notes = &notes[..count.min(notes.len())];
        if let Some((_, why)) = refused(real).iter().find(|(note, _)| notes.contains(&Note(*note as u32))) {
            return Err(format!("{description} {why}").into());
        }
        // The array has the maximum length, because the number of knobs is not known in advance.
        let choice = Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        for choice in config.children(Attr::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choice, MAX_KNOBS)? {
            let mut knob = [Knob(0)];
            choice.get(Attr::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &mut knob)?;
            let value = choice.int(Attr::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
            description += &format!("_k{}={value}", knob[0].0);
        }
        // Engines are numbered separately for each graph.
        description += match stored {
            Stored::Own => "",
            Stored::Float => "_float",
            Stored::Widened => "_widened",
        };
        Ok(Self { config, description, stored })
    }
}

/// The properties that an engine must not have, each with the reason.
fn refused(real: Real) -> &'static [(Numerical, &'static str)] {
    const ALWAYS: [(Numerical, &str); 6] = [
        (Numerical::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "is not deterministic"),
        (Numerical::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, "sums in reduced precision"),
        (Numerical::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds its inputs"),
        (Numerical::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, "loses digits to large Winograd tiles"),
        (Numerical::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, "loses digits to large Winograd tiles"),
        // The last one, so that other precisions can omit it. For float tensors, tensor cores mean TF32.
        (Numerical::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "rounds its inputs to TF32"),
    ];
    if real == Real::F32 { &ALWAYS } else { &ALWAYS[..5] }
}

/// A prepared way to compute one task.
pub struct DnnPlan {
    plan: Arc<Descriptor>,
    graph: Arc<Graph>,
    workspace_bytes: u64,
    description: String,
    dw_is_float: bool,
}

impl DnnPlan {
    /// The engine and its knobs, such as `eng38_k2=7_k4=1`; the same for the same plan in every run of the program.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// For a weight gradient: true if it is stored as float, false if it has the step's 16-bit type and must still be
    /// converted.
    #[must_use]
    pub const fn dw_is_float(&self) -> bool {
        self.dw_is_float
    }

    /// Binds the plan to the addresses of its operands and of the scratch memory that was reserved when the plan was
    /// made. Nothing runs and nothing is allocated on the device.
    ///
    /// # Errors
    /// If an address that the plan uses is missing or not a multiple of 16, or if cuDNN refuses.
    pub fn bind(&self, at: impl Fn(Operand) -> u64, workspace: u64) -> Result<DnnCall, CudaError> {
        let Graph { tensors, numbers, .. } = &*self.graph;
        let mut addresses: Vec<u64> = tensors.iter().map(|tensor| at(tensor.operand)).collect();
        let scratch = (self.workspace_bytes > 0).then_some(workspace);
        if let Some(bad) = addresses.iter().copied().chain(scratch).find(|a| *a == 0 || a % ALIGNMENT != 0) {
            return Err(format!("cuDNN was given the address {bad:#x}").into());
        }
        let pack = Descriptor::new(&self.plan.library, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        for (address, tensor) in addresses.iter_mut().zip(tensors) {
            *address += tensor.offset_bytes;
        }
        addresses.extend(numbers.iter().map(|(_, number)| std::ptr::from_ref(&**number).expose_provenance() as u64));
        let addresses: Vec<Address> = addresses.into_iter().map(Address).collect();
        let ids = tensors.iter().map(|tensor| tensor.id).chain(numbers.iter().map(|(id, _)| *id));
        let ids: Vec<i64> = ids.collect();
        pack.set(Attr::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .set(Attr::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .set(Attr::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(scratch.unwrap_or(0))])?;
        let pack = pack.finalize("variant pack")?;
        Ok(DnnCall { plan: Arc::clone(&self.plan), _graph: Arc::clone(&self.graph), pack })
    }
}

/// A plan bound to addresses.
pub struct DnnCall {
    plan: Arc<Descriptor>,
    _graph: Arc<Graph>,
    pack: Descriptor,
}

impl DnnCall {
    /// Enqueues the call on a stream, also during capture.
    ///
    /// # Errors
    /// If cuDNN reports an error.
    ///
    /// # Safety
    /// The bound addresses are device memory that contains the plan's whole tensors, in the context that the plan was
    /// made in; results overlap nothing; nothing else uses the results and the workspace until the stream has passed
    /// this call; and no other thread uses the plan's handle during the call.
    pub unsafe fn run(&self, stream: CUstream) -> Result<(), CudaError> {
        let library = &self.plan.library;
        if library.handle.is_null() {
            return Err("cuDNN was opened without a GPU".into());
        }
        if library.stream.swap(stream.addr(), Ordering::AcqRel) != stream.addr() {
            // SAFETY: the handle is alive, and the stream is that of the caller's thread.
            let status = unsafe { (library.api.set_stream)(library.handle, stream.cast()) };
            library.api.check(status, || "cudnnSetStream".into())?;
        }
        // SAFETY: plan, pack and handle are alive, and the caller vouches for the addresses.
        let status = unsafe { (library.api.execute)(library.handle, self.plan.raw, self.pack.raw) };
        library.api.check(status, || "cudnnBackendExecute".into())
    }
}
