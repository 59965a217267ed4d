//! The kernels of one GPU: compiled or found on disk when they are first asked for, and loaded for good.

use super::compile_workers::{Compiler, crew_for};
use super::compiler::{Arch, compile_source};
use super::error::{CudaError, failed};
use super::kernel_cache::{cache_folder, cached, is_kept, keep};
use super::probe::probe;
use super::source::{KernelSource, META_LEN};
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A kernel that was asked for, or why it cannot be had.
pub(super) type FoundKernel = Result<Arc<Kernel>, CudaError>;

/// The number of a source among those that were missing, and what became of it.
type Compilation = (usize, Result<Vec<u8>, CudaError>);

/// Loaded kernels by their whole text.
#[derive(Default)]
pub(super) struct KernelStore {
    loaded: Mutex<HashMap<String, Arc<Kernel>>>,
}

impl KernelStore {
    /// Compiles (or finds) the kernels of several sources at once. The order is kept.
    ///
    /// # Errors
    /// For each source, why its kernel cannot be had.
    pub(super) fn get(&self, arch: Arch, sources: &[KernelSource]) -> Vec<FoundKernel> {
        let loaded = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: Vec<String> = sources.iter().map(KernelSource::text).collect();
        let by_text: HashMap<&String, &KernelSource> = texts.iter().zip(sources).collect();
        let mut missing: Vec<&String> = {
            let loaded = loaded();
            texts.iter().filter(|t| !loaded.contains_key(*t)).collect()
        };
        // Nobody shall wait for a source that takes long to compile and began last.
        missing.sort_unstable_by_key(|text| (!by_text[text].is_slow_to_compile(), *text));
        missing.dedup();
        let wanted: Vec<(&String, &KernelSource)> = missing.into_iter().map(|text| (text, by_text[text])).collect();
        let compiled = compile_all(arch, &wanted);
        let mut loaded = loaded();
        let mut failures: HashMap<&String, CudaError> = HashMap::new();
        for (index, code) in compiled {
            let (text, source) = wanted[index];
            match code.and_then(|code| load(&code, source)) {
                Ok(kernel) => {
                    loaded.insert(text.clone(), Arc::new(kernel));
                }
                Err(why) => {
                    failures.insert(text, why);
                }
            }
        }
        let find = |text: &String| match loaded.get(text) {
            Some(kernel) => Ok(Arc::clone(kernel)),
            None => Err(failures.get(text).cloned().unwrap_or_else(|| "the kernel was not compiled".into())),
        };
        texts.iter().map(find).collect()
    }

    /// The kernel of one source.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) fn get_one(&self, arch: Arch, source: KernelSource) -> FoundKernel {
        self.get(arch, &[source]).pop().unwrap_or_else(|| Err("no kernel came back".into()))
    }
}

/// The machine code of sources, from the disk or by the compiler, on as many threads as they are worth.
fn compile_all(arch: Arch, wanted: &[(&String, &KernelSource)]) -> Vec<Compilation> {
    let folder = cache_folder();
    let next = AtomicUsize::new(0);
    let compiled: Mutex<Vec<Compilation>> = Mutex::default();
    let is_cached = |wanted: &&(&String, &KernelSource)| folder.as_deref().is_some_and(|f| is_kept(f, wanted.0, arch));
    let uncached = wanted.len() - wanted.iter().filter(is_cached).count();
    let (threads, several) = crew_for(wanted.len(), uncached);
    let work = || {
        let mut crew = Crew { folder: folder.clone(), arch, has_workers: several, worker: None };
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((text, source)) = wanted.get(index) else { break };
            let code = crew.code_of(text, source);
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
    compiled.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What one thread compiles with.
struct Crew {
    folder: Option<PathBuf>,
    arch: Arch,
    /// Whether each thread has a process that compiles.
    has_workers: bool,
    worker: Option<std::io::Result<Compiler>>,
}

impl Crew {
    /// The machine code of a source, from the disk or by the compiler.
    fn code_of(&mut self, text: &str, source: &KernelSource) -> Result<Vec<u8>, CudaError> {
        let (folder, arch) = (self.folder.clone(), self.arch);
        if let Some(code) = folder.as_deref().and_then(|f| cached(f, text, arch)) {
            return Ok(code);
        }
        if !probe().has("nvrtc") {
            return Err("the kernel is not in the cache, and there is no NVRTC to compile it".into());
        }
        let started = std::time::Instant::now();
        if self.has_workers && self.worker.is_none() {
            self.worker = Some(Compiler::start());
        }
        compile(&mut self.worker, text, arch).inspect(|code| {
            if let Some(folder) = &folder {
                keep(folder, text, arch, code);
            }
            log::debug!("{}: compiled in {:.0?}", source.entry_name(0), started.elapsed());
        })
    }
}

/// Compiles a source in the process of its own that was started for that, or here where there is none.
fn compile(worker: &mut Option<std::io::Result<Compiler>>, source: &str, arch: Arch) -> Result<Vec<u8>, CudaError> {
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
    compile_source(source, arch)
}

/// Loads machine code into the current context and reads what it reports about itself. Modules stay loaded as long as
/// the process lives.
fn load(code: &[u8], source: &KernelSource) -> Result<Kernel, CudaError> {
    // SAFETY: the image was made by the compiler for this device, and outlives the call.
    let module =
        unsafe { result::module::load_data(code.as_ptr().cast()) }.map_err(|e| failed("cuModuleLoadData", e))?;
    // SAFETY: the module was just loaded.
    let (address, bytes) = unsafe { result::module::get_global(module, CString::from(c"meta")) }
        .map_err(|e| failed("cuModuleGetGlobal", e))?;
    let mut meta = [0i64; META_LEN];
    if bytes != size_of_val(&meta) {
        return Err(format!("a kernel's facts take {bytes} bytes, not {}", size_of_val(&meta)).into());
    }
    // SAFETY: the global has exactly this size.
    unsafe { result::memcpy_dtoh_sync(&mut meta, address) }.map_err(|e| failed("cuMemcpyDtoH", e))?;
    let mut phases = Vec::new();
    for phase in 0..meta[0] as usize {
        let (blocks, smem) = (meta[3 + 2 * phase] as u32, meta[4 + 2 * phase] as u32);
        phases.push(Phase { function: function_of(module, source, phase, smem)?, blocks, smem });
    }
    Ok(Kernel { phases, threads: meta[1] as u32, work_bytes: meta[2] as u64 })
}

/// The function of a phase, which may have as much shared memory as it asks for.
fn function_of(
    module: sys::CUmodule,
    source: &KernelSource,
    phase: usize,
    smem: u32,
) -> Result<sys::CUfunction, CudaError> {
    let name = CString::new(source.entry_name(phase)).map_err(|e| e.to_string())?;
    // SAFETY: the module is loaded for good.
    let function =
        unsafe { result::module::get_function(module, name) }.map_err(|e| failed("cuModuleGetFunction", e))?;
    // The 48 KiB that need no asking for hold what a kernel declares by itself too.
    if smem > 40 << 10 {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a loaded module.
        unsafe { result::function::set_function_attribute(function, attribute, smem as i32) }
            .map_err(|e| failed("cuFuncSetAttribute (shared memory)", e))?;
    }
    if source.prefers_shared_memory() {
        let carveout = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: as above; this is a hint.
        let _ = unsafe { result::function::set_function_attribute(function, carveout, 100) };
    }
    Ok(function)
}
