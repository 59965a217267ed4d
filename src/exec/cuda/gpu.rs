//! One GPU: its context, the streams that steps run on, its kernels and libraries.

use super::compiler::Arch;
use super::error::{CudaError, failed};
use super::kernel_store::{FoundKernel, KernelStore};
use super::libraries::Libraries;
use super::source::KernelSource;
use super::stream::stream_of_thread;
use crate::exec::cuda::probe::{DeviceInfo, Probe, primary_context, probe};
use crate::model::Precision;
use crate::select::{CudaFacts, Kernels, Target};
use cudarc::driver::{result, sys};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;

/// An open device. A step is used by one thread at a time, and its work is enqueued on the stream of that thread.
pub struct Gpu {
    info: DeviceInfo,
    context: sys::CUcontext,
    /// The stream of threads that could not get their own.
    stream: sys::CUstream,
    kernels: KernelStore,
    /// Kernels that steps would run if they had been compiled.
    missing: Mutex<HashSet<KernelSource>>,
    libraries: Libraries,
    /// Whether the kernels of steps are specialised or general, unless a target overrides it.
    members: Kernels,
}

// SAFETY: the handles may be used from any thread once the context is current there ([`Gpu::enter`]); the libraries are
// behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// The GPU with this number, opened once in the process.
///
/// # Errors
/// Why it cannot be used.
pub fn gpu(ordinal: u32) -> Result<Arc<Gpu>, CudaError> {
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

/// The GPU with this number, if it can run steps: kernels must be compiled for it.
///
/// # Errors
/// Why it cannot run steps.
pub fn usable(ordinal: u32) -> Result<Arc<Gpu>, CudaError> {
    let gpu = gpu(ordinal)?;
    if probe().has("nvrtc") { Ok(gpu) } else { Err("NVRTC, which compiles kernels, is missing".into()) }
}

/// What the machine has, and the primary context of a device. Libraries that are not known yet are loaded while the
/// driver creates the context.
fn look_and_open(ordinal: u32) -> (Probe, Result<sys::CUcontext, CudaError>) {
    /// A context may be used by any thread.
    struct Context(sys::CUcontext);
    // SAFETY: as above; the handle is only passed on.
    unsafe impl Send for Context {}
    std::thread::scope(|scope| {
        let open = move || primary_context(ordinal).map(Context);
        let opening = Builder::new().name("stepgraph-context".into()).spawn_scoped(scope, open);
        let found = probe();
        let opened = match opening {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // There is no thread to be had; one after the other works too.
            Err(_) => open(),
        };
        (found, opened.map(|context| context.0))
    })
}

/// The kind of kernels in `STEPGRAPH_KERNELS`, or specialised ones if it is not set.
///
/// # Errors
/// If it is not a kind of kernels.
pub fn kernels_variable() -> Result<Kernels, String> {
    let asked = std::env::var("STEPGRAPH_KERNELS").unwrap_or_default();
    Kernels::named(&asked).map_err(|why| format!("STEPGRAPH_KERNELS: {why}"))
}

impl Gpu {
    fn open(ordinal: u32) -> Result<Self, CudaError> {
        let (found, context) = look_and_open(ordinal);
        if !found.why_none.is_empty() {
            return Err(found.why_none.into());
        }
        let members = kernels_variable()?;
        let info = found.devices.iter().find(|d| d.ordinal == ordinal).cloned();
        let info =
            info.ok_or_else(|| format!("there is no GPU {ordinal}; the driver offers {}", found.devices.len()))?;
        let context = context?;
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(context) }.map_err(|e| failed("cuCtxSetCurrent", e))?;
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).map_err(|e| failed("cuStreamCreate", e))?;
        let libraries = Libraries::new(&found);
        Ok(Self {
            info,
            context,
            stream,
            kernels: KernelStore::default(),
            missing: Mutex::default(),
            libraries,
            members,
        })
    }

    /// The properties that planning needs. `STEPGRAPH_KERNELS` says which kernels are chosen; without it they are
    /// specialised.
    #[must_use]
    pub fn target(&self) -> Target {
        let facts = CudaFacts {
            ordinal: self.info.ordinal,
            capability: self.info.capability,
            multiprocessors: self.info.multiprocessors,
            memory_bytes: self.info.memory_bytes,
            has_cublaslt: self.libraries.has_lt,
            has_cudnn: self.libraries.has_dnn,
        };
        Target::cuda(self.info.name.clone(), facts).with_kernels(self.members)
    }

    /// Its name for the user, which shows if its kernels are general or interchangeable.
    #[must_use]
    pub fn label(&self) -> String {
        let note = match self.members {
            Kernels::Specialised => "",
            Kernels::General => ", general kernels",
            Kernels::Widest => ", widest kernels",
            Kernels::FirstGeneral => ", general kernels first",
            Kernels::Interchangeable => ", interchangeable kernels",
        };
        format!("cuda:{} ({}{note})", self.info.ordinal, self.info.name)
    }

    /// The device's properties.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes the device current on this thread, which every call of the driver requires.
    pub(super) fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| failed("cuCtxSetCurrent", e))
    }

    /// The stream of this thread.
    pub(super) fn stream(&self) -> sys::CUstream {
        stream_of_thread(self.info.ordinal, self.stream)
    }

    /// Waits until the stream has done all its work.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream()) }.map_err(|e| failed("cuStreamSynchronize", e))
    }

    /// A number that the driver reports of the device.
    pub(super) fn attribute(&self, which: sys::CUdevice_attribute) -> Result<i32, CudaError> {
        let device = result::device::get(self.info.ordinal as i32).map_err(|e| failed("cuDeviceGet", e))?;
        // SAFETY: the device comes from the driver.
        unsafe { result::device::get_attribute(device, which) }.map_err(|e| failed("cuDeviceGetAttribute", e))
    }

    /// Free memory of the device, in bytes.
    ///
    /// # Errors
    /// If the driver does not report it.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        self.enter().and_then(|()| self.memory()).map(|(free, _)| free)
    }

    /// Free and total bytes of the device's memory.
    pub(super) fn memory(&self) -> Result<(u64, u64), CudaError> {
        result::mem_get_info().map(|(free, total)| (free as u64, total as u64)).map_err(|e| failed("cuMemGetInfo", e))
    }

    /// The libraries that were found for it.
    pub(super) const fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Whether libraries prepare all their algorithms, to be timed, or only the chosen one.
    pub fn prepare_all(&self, all: bool) {
        self.libraries.prepare_all(all);
    }

    /// Asks each library for the plan of something small in this precision, so that the next answers come soon.
    pub fn ask_libraries(&self, precision: Precision) {
        match self.enter() {
            Ok(()) => self.libraries.ask_once(precision.into()),
            Err(why) => log::debug!("the libraries are not asked: {why}"),
        }
    }

    const fn arch(&self) -> Arch {
        Arch(self.info.capability.0, self.info.capability.1)
    }

    /// Compiles (or finds) the kernels of several sources at once. The order is preserved.
    ///
    /// # Errors
    /// For each source, why its kernel is not available.
    pub(super) fn kernels(&self, sources: &[KernelSource]) -> Vec<FoundKernel> {
        self.kernels.get(self.arch(), sources)
    }

    /// For each source, whether its kernel is loaded or on the disk.
    pub(super) fn has_kernels(&self, sources: &[KernelSource]) -> Vec<bool> {
        self.kernels.has(self.arch(), sources)
    }

    /// Compiles the kernels that are neither loaded nor on the disk, and writes them to the disk, `threads` at a time,
    /// as long as `goes_on`. Returns the number of kernels.
    pub fn compile_ahead(&self, sources: &[KernelSource], threads: usize, goes_on: impl Fn() -> bool + Sync) -> usize {
        self.kernels.compile_ahead(self.arch(), sources, threads, goes_on)
    }

    /// Notes kernels that a step would run if they had been compiled, at most a few hundred.
    pub(super) fn note_missing(&self, sources: impl IntoIterator<Item = KernelSource>) {
        const MOST: usize = 256;
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST.saturating_sub(missing.len());
        missing.extend(sources.into_iter().take(room));
    }

    /// Compiles the kernels that steps would have run since the last call, as [`Self::compile_ahead`]: those of
    /// launches that general kernels share. Steps that are prepared after this run them, with the same results.
    pub fn compile_missing(&self, threads: usize, goes_on: impl Fn() -> bool + Sync) -> usize {
        if !goes_on() {
            return 0;
        }
        let missing = std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        let missing: Vec<KernelSource> = missing.into_iter().collect();
        let count = self.compile_ahead(&missing, threads, &goes_on);
        if !goes_on() {
            // The next call compiles the rest.
            let are_there = self.has_kernels(&missing).into_iter();
            self.note_missing(missing.into_iter().zip(are_there).filter(|(_, is_there)| !is_there).map(|(s, _)| s));
        }
        count
    }

    /// Whether a note with this text was left in the cache folder for this GPU, compiler and version of the kernels.
    #[must_use]
    pub fn has_note(&self, what: &str) -> bool {
        KernelStore::has_note(self.arch(), what)
    }

    /// Leaves a note in the cache folder. If it cannot be written, there is none.
    pub fn leave_note(&self, what: &str) {
        KernelStore::leave_note(self.arch(), what);
    }

    /// The kernel of one source.
    ///
    /// # Errors
    /// Why it is not available.
    pub(super) fn kernel(&self, source: impl Into<KernelSource>) -> FoundKernel {
        self.kernels.get_one(self.arch(), source.into())
    }
}
