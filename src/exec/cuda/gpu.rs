//! One GPU: its context, the one stream that all steps run on, its kernels and libraries.

use super::compiler::{Arch, META_LEN, cache_folder, cached, compile_unit, entry_name, is_kept, keep, unit};
use super::cublaslt::Lt;
use super::cudnn::{ConvKind, Dnn, DnnPlan, Fused};
use super::workers::{Compiler, crew_for};
use super::{DeviceInfo, failed, probe};
use crate::lower::ConvGeometry;
use crate::select::cuda::{Real, dnn_offers};
use crate::select::{CudaFacts, Target};
use cudarc::driver::{result, sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// One phase of an operation: a kernel with its geometry.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub(super) function: sys::CUfunction,
    pub(super) blocks: u32,
    pub(super) smem: u32,
}

/// The compiled kernels of one operation, or of several that share a launch.
pub(super) struct Kernel {
    pub(super) phases: Vec<Phase>,
    pub(super) threads: u32,
    pub(super) work_bytes: u64,
}

// SAFETY: functions of a loaded module may be launched from any thread whose context is current.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The number of a source among those that were missing, and what became of it.
type Compilation = (usize, Result<Vec<u8>, String>);

/// A convolution that cuDNN was asked for, with the scratch memory that it may take.
type PlanKey = (u8, ConvGeometry, Real, [bool; 3], u64, usize);

/// What cuDNN answered.
pub(super) type Plans = Result<Arc<Vec<DnnPlan>>, String>;

/// A stream's handle.
#[derive(Clone, Copy)]
struct Stream(sys::CUstream);

// SAFETY: streams may be used from any thread; a lease is used by one.
unsafe impl Send for Stream {}

/// A stream that a thread works on.
struct Lease {
    ordinal: u32,
    stream: Stream,
}

/// Streams whose threads have ended.
static SPARE: Mutex<Vec<Lease>> = Mutex::new(Vec::new());

/// What this thread has leased; goes to the spare ones when it ends.
#[derive(Default)]
struct Leases(Vec<Lease>);

impl Drop for Leases {
    fn drop(&mut self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.0);
    }
}

thread_local! {
    static LEASES: RefCell<Leases> = RefCell::default();
}

/// A device that is open. A step is used by the thread that made it: each thread works on a stream of its own.
pub struct Gpu {
    info: DeviceInfo,
    context: sys::CUcontext,
    stream: sys::CUstream,
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
    lt: Mutex<Option<Lt>>,
    /// Held by whoever runs something of cuDNN's.
    dnn: Mutex<()>,
    /// Handles that nobody plans with.
    spares: Mutex<Vec<Dnn>>,
    plans: Mutex<HashMap<PlanKey, Arc<OnceLock<Plans>>>>,
    prepares_all: std::sync::atomic::AtomicBool,
    has_lt: bool,
    has_dnn: bool,
}

// SAFETY: the handles may be used from any thread once the context is current there ([`Gpu::enter`]); the libraries are behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// The GPU with this number, opened once for the whole process.
///
/// # Errors
/// Why it cannot be used, in words.
pub fn gpu(ordinal: u32) -> Result<Arc<Gpu>, String> {
    type Opened = Mutex<HashMap<u32, Arc<Gpu>>>;
    static OPEN: OnceLock<Opened> = OnceLock::new();
    let mut open = OPEN.get_or_init(Opened::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = open.get(&ordinal) {
        return Ok(Arc::clone(found));
    }
    let opened = Arc::new(Gpu::open(ordinal)?);
    open.insert(ordinal, Arc::clone(&opened));
    Ok(opened)
}

/// The GPU with this number, where it can run steps: kernels must be compiled for it.
///
/// # Errors
/// Why it cannot, in words.
pub fn usable(ordinal: u32) -> Result<Arc<Gpu>, String> {
    let gpu = gpu(ordinal)?;
    if probe().has("nvrtc") { Ok(gpu) } else { Err("there is no NVRTC to compile kernels with".into()) }
}

impl Gpu {
    fn open(ordinal: u32) -> Result<Self, String> {
        let found = probe();
        if !found.why_none.is_empty() {
            return Err(found.why_none);
        }
        let info = found.devices.iter().find(|d| d.ordinal == ordinal).cloned();
        let info =
            info.ok_or_else(|| format!("there is no GPU {ordinal}; the driver offers {}", found.devices.len()))?;
        let device = result::device::get(ordinal as i32).map_err(|e| failed("cuDeviceGet", e))?;
        // SAFETY: the device comes from the driver; the primary context is kept for the life of the process.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(|e| failed("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: the context was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(|e| failed("cuCtxSetCurrent", e))?;
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(|e| failed("cuStreamCreate", e))?;
        let lt =
            if found.has("cublaslt") { Lt::open().inspect_err(|e| log::warn!("cuBLASLt: {e}")).ok() } else { None };
        let dnn = if found.has("cudnn") { Dnn::open().inspect_err(|e| log::warn!("cuDNN: {e}")).ok() } else { None };
        Ok(Self {
            info,
            context,
            stream,
            kernels: Mutex::default(),
            has_lt: lt.is_some(),
            has_dnn: dnn.is_some(),
            lt: Mutex::new(lt),
            dnn: Mutex::default(),
            spares: Mutex::new(dnn.into_iter().collect()),
            plans: Mutex::default(),
            prepares_all: std::sync::atomic::AtomicBool::new(false),
        })
    }

    /// What planning needs to know of it.
    #[must_use]
    pub fn target(&self) -> Target {
        let facts = CudaFacts {
            ordinal: self.info.ordinal,
            capability: self.info.capability,
            multiprocessors: self.info.multiprocessors,
            memory_bytes: self.info.memory_bytes,
            has_cublaslt: self.has_lt,
            has_cudnn: self.has_dnn,
        };
        Target::cuda(self.info.name.clone(), facts)
    }

    /// The device's own facts.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes the device current on this thread; every call of the driver needs it.
    pub(super) fn enter(&self) -> Result<(), String> {
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| failed("cuCtxSetCurrent", e))
    }

    /// The stream of this thread: what several threads do on one device, each with steps of its own, stays apart, above all while one of them captures.
    pub(super) fn stream(&self) -> sys::CUstream {
        let ordinal = self.info.ordinal;
        let found = LEASES.try_with(|leases| {
            let mut leases = leases.borrow_mut();
            if let Some(lease) = leases.0.iter().find(|l| l.ordinal == ordinal) {
                return lease.stream.0;
            }
            let spare = {
                let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
                spare.iter().position(|l| l.ordinal == ordinal).map(|at| spare.swap_remove(at).stream)
            };
            let made = || result::stream::create(result::stream::StreamKind::NonBlocking).map(Stream);
            let stream = spare.map_or_else(made, Ok).unwrap_or_else(|error| {
                log::warn!("{}; this thread shares a stream", failed("cuStreamCreate", error));
                Stream(self.stream)
            });
            leases.0.push(Lease { ordinal, stream });
            stream.0
        });
        found.unwrap_or(self.stream)
    }

    /// Waits until the stream has done everything.
    pub(super) fn synchronize(&self) -> Result<(), String> {
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream()) }.map_err(|e| failed("cuStreamSynchronize", e))
    }

    /// A number that the driver tells of the device.
    pub(super) fn attribute(&self, which: sys::CUdevice_attribute) -> Result<i32, String> {
        let device = result::device::get(self.info.ordinal as i32).map_err(|e| failed("cuDeviceGet", e))?;
        // SAFETY: the device comes from the driver.
        unsafe { result::device::get_attribute(device, which) }.map_err(|e| failed("cuDeviceGetAttribute", e))
    }

    /// Bytes of the device's memory that are free now.
    ///
    /// # Errors
    /// Where the driver does not say.
    pub fn free_bytes(&self) -> Result<u64, String> {
        self.enter().and_then(|()| self.memory()).map(|(free, _)| free)
    }

    /// Free and total bytes of the device's memory.
    pub(super) fn memory(&self) -> Result<(u64, u64), String> {
        result::mem_get_info().map(|(free, total)| (free as u64, total as u64)).map_err(|e| failed("cuMemGetInfo", e))
    }

    pub(super) fn lt(&self) -> MutexGuard<'_, Option<Lt>> {
        self.lt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dnn(&self) -> MutexGuard<'_, ()> {
        self.dnn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plans that cuDNN offers for a convolution, prepared once for the whole process.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn plans(
        &self,
        kind: ConvKind,
        geometry: &ConvGeometry,
        real: Real,
        fused: Fused,
        limit: u64,
        number: usize,
    ) -> Plans {
        let key = |most: usize| -> PlanKey {
            (kind as u8, *geometry, real, [fused.bias, fused.relu, fused.relu_grad], limit, most)
        };
        let known = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // Where everything is timed, all plans are wanted; where one was chosen, preparing those behind it would only take time.
        let all = usize::from(dnn_offers(kind == ConvKind::BwdW, fused.relu_grad));
        let everything = self.prepares_all.load(std::sync::atomic::Ordering::Relaxed);
        let most = if everything || known().contains_key(&key(all)) { all } else { number + 1 };
        let cell = Arc::clone(known().entry(key(most)).or_default());
        // Who asks for what somebody is preparing waits for it.
        cell.get_or_init(|| self.ask_for_plans(kind, geometry, real, fused, limit, most)).clone()
    }

    /// Asks cuDNN. Several threads do at once, each with a handle of its own: some plans are compiled for the purpose.
    fn ask_for_plans(
        &self,
        kind: ConvKind,
        geometry: &ConvGeometry,
        real: Real,
        fused: Fused,
        limit: u64,
        most: usize,
    ) -> Plans {
        let started = std::time::Instant::now();
        let dnn = self.spare_dnn()?;
        // Stored in half width and widened by a pass of our own, weight gradients are several times as fast as what stores floats itself.
        let narrow = if kind == ConvKind::BwdW && real.half().is_some() {
            dnn.plans_with_narrow_dw(geometry, real, limit, most).ok()
        } else {
            None
        };
        let plans = narrow.map_or_else(|| dnn.plans(kind, geometry, real, fused, limit, most), Ok).map(Arc::new);
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(dnn);
        let count = plans.as_ref().map_or(0, |p| p.len());
        log::debug!("cuDNN, {kind:?} {fused:?}: {count} of {most} plans in {:.0?}", started.elapsed());
        plans
    }

    /// A handle of cuDNN's that nobody plans with.
    fn spare_dnn(&self) -> Result<Dnn, String> {
        if !self.has_dnn {
            return Err("there is no cuDNN".into());
        }
        if let Some(dnn) = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(dnn);
        }
        Dnn::open()
    }

    /// Whether libraries prepare all their algorithms, to be timed, or only the one that was chosen.
    pub fn prepare_all(&self, all: bool) {
        self.prepares_all.store(all, std::sync::atomic::Ordering::Relaxed);
    }

    const fn arch(&self) -> Arch {
        Arch(self.info.capability.0, self.info.capability.1)
    }

    /// Compiles (or finds) the kernels of several units at once, each given by the file and type of its operations. The order is kept.
    ///
    /// # Errors
    /// For each unit, why it cannot be had.
    pub(super) fn kernels(&self, units: &[Vec<(&'static str, String)>]) -> Vec<Result<Arc<Kernel>, String>> {
        let known = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: Vec<String> =
            units.iter().map(|u| unit(&u.iter().map(|(f, t)| (*f, t.as_str())).collect::<Vec<_>>())).collect();
        let mut missing: Vec<&String> = {
            let known = known();
            texts.iter().filter(|t| !known.contains_key(*t)).collect()
        };
        // Convolutions take longest to compile: nobody shall wait for one that began last.
        missing.sort_unstable_by_key(|text| (!text.contains("using Op = Conv"), *text));
        missing.dedup();
        let names: HashMap<&String, Vec<&str>> =
            texts.iter().zip(units).map(|(text, u)| (text, u.iter().map(|(_, t)| t.as_str()).collect())).collect();
        let (arch, folder) = (self.arch(), cache_folder());
        let next = std::sync::atomic::AtomicUsize::new(0);
        let compiled: Mutex<Vec<Compilation>> = Mutex::default();
        let can_compile = probe().has("nvrtc");
        let is_cached = |text: &&&String| folder.as_deref().is_some_and(|f| is_kept(f, text, arch));
        let uncached = missing.len() - missing.iter().filter(is_cached).count();
        let (threads, several) = crew_for(missing.len(), uncached);
        let work = || {
            let mut worker = None;
            while let Some(text) = missing.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                let index = missing.iter().position(|t| t == text).unwrap_or(0);
                let found = folder.as_deref().and_then(|f| cached(f, text, arch));
                let code = match found {
                    Some(code) => Ok(code),
                    None if !can_compile => {
                        Err("the kernel is not in the cache, and there is no NVRTC to compile it".into())
                    }
                    None => {
                        let started = std::time::Instant::now();
                        if several && worker.is_none() {
                            worker = Some(Compiler::start());
                        }
                        compile(&mut worker, text, arch).inspect(|code| {
                            if let Some(folder) = &folder {
                                keep(folder, text, arch, code);
                            }
                            let name = entry_name(&names[text], 0);
                            log::debug!("{name}: compiled in {:.0?}", started.elapsed());
                        })
                    }
                };
                compiled.lock().unwrap_or_else(PoisonError::into_inner).push((index, code));
            }
        };
        std::thread::scope(|scope| {
            for number in 1..threads {
                let spawned = std::thread::Builder::new().name(format!("compile-{number}")).spawn_scoped(scope, work);
                if let Err(error) = spawned {
                    log::warn!("a compiling thread could not be started: {error}");
                }
            }
            work();
        });
        let mut known = known();
        let mut failures: HashMap<&String, String> = HashMap::new();
        for (index, code) in compiled.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match code.and_then(|code| load(&code, &names[missing[index]])) {
                Ok(kernel) => {
                    known.insert(missing[index].clone(), Arc::new(kernel));
                }
                Err(why) => {
                    failures.insert(missing[index], why);
                }
            }
        }
        let find = |text: &String| match known.get(text) {
            Some(kernel) => Ok(Arc::clone(kernel)),
            None => Err(failures.get(text).cloned().unwrap_or_else(|| "the kernel was not compiled".into())),
        };
        texts.iter().map(find).collect()
    }
}

/// Compiles a source in the process of its own that was started for that, or here where there is none.
fn compile(worker: &mut Option<std::io::Result<Compiler>>, source: &str, arch: Arch) -> Result<Vec<u8>, String> {
    if let Some(Ok(compiler)) = worker {
        match compiler.compile(source, arch) {
            Ok(Ok(code)) => return Ok(code),
            // A mistake repeats itself here, and what was missing there may be here.
            Ok(Err(why)) => log::debug!("a process could not compile: {why}"),
            Err(error) => *worker = Some(Err(error)),
        }
    }
    if let Some(Err(error)) = worker {
        Compiler::give_up(error);
    }
    compile_unit(source, arch)
}

/// Loads machine code into the current context and reads what it tells about itself. Modules stay loaded as long as the process lives.
fn load(code: &[u8], types: &[&str]) -> Result<Kernel, String> {
    // SAFETY: the image was made by the compiler for this device, and outlives the call.
    let module =
        unsafe { result::module::load_data(code.as_ptr().cast()) }.map_err(|e| failed("cuModuleLoadData", e))?;
    // SAFETY: the module was just loaded.
    let (address, bytes) = unsafe { result::module::get_global(module, CString::from(c"meta")) }
        .map_err(|e| failed("cuModuleGetGlobal", e))?;
    let mut meta = [0i64; META_LEN];
    if bytes != size_of_val(&meta) {
        return Err(format!("a kernel's facts take {bytes} bytes, not {}", size_of_val(&meta)));
    }
    // SAFETY: the global has exactly this size.
    unsafe { result::memcpy_dtoh_sync(&mut meta, address) }.map_err(|e| failed("cuMemcpyDtoH", e))?;
    let mut phases = Vec::new();
    for phase in 0..meta[0] as usize {
        let name = CString::new(entry_name(types, phase)).map_err(|e| e.to_string())?;
        // SAFETY: the module is loaded for good.
        let function =
            unsafe { result::module::get_function(module, name) }.map_err(|e| failed("cuModuleGetFunction", e))?;
        let (blocks, smem) = (meta[3 + 2 * phase] as u32, meta[4 + 2 * phase] as u32);
        // The 48 KiB that need no asking for hold what a kernel declares by itself too.
        if smem > 40 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module.
            unsafe { result::function::set_function_attribute(function, attribute, smem as i32) }
                .map_err(|e| failed("cuFuncSetAttribute (shared memory)", e))?;
        }
        // A chain of small products runs faster where no multiprocessor has to change how it divides its memory from one to the next; whatever
        // streams through the first-level cache runs slower so, and is left to the driver.
        if types.iter().any(|t| t.contains("GemmDirect")) {
            let carveout = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            // SAFETY: as above; this is a hint.
            let _ = unsafe { result::function::set_function_attribute(function, carveout, 100) };
        }
        phases.push(Phase { function, blocks, smem });
    }
    Ok(Kernel { phases, threads: meta[1] as u32, work_bytes: meta[2] as u64 })
}
