//! The kernels of one GPU: compiled or found on disk when they are first requested, and unloaded when too many are
//! unused.

use super::compile_thread::compile_on_thread;
use super::compile_workers::{Compiler, crew_for};
use super::compiler::{Arch, compile_source, compiler_and_options};
use super::crew::share_work;
use super::error::{CudaError, failed};
use super::kernel_cache::KernelCache;
use super::source::{KernelSource, META_LEN, source_hash};
use cudarc::driver::{result, sys};
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One phase of an operation: a kernel with its geometry.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub(super) function: sys::CUfunction,
    pub(super) blocks: u32,
    pub(super) smem: u32,
    /// Whether its blocks wait for each other, if it has several.
    meets: bool,
}

impl Phase {
    /// Whether all blocks of its launch must be resident at the same time.
    pub(super) const fn is_cooperative(&self) -> bool {
        self.meets && self.blocks > 1
    }
}

/// Loaded code.
struct Module(sys::CUmodule);

/// The compiled kernels of one operation, or of several that share a launch.
pub(super) struct Kernel {
    /// Its code, also for launches with another geometry.
    module: Arc<Module>,
    pub(super) phases: Vec<Phase>,
    pub(super) threads: u32,
    pub(super) work_bytes: u64,
    /// Computes the geometry of a general member's launch; its phases contain none.
    pub(super) geometry: Option<sys::CUfunction>,
}

impl Kernel {
    /// A general member with the geometry of one launch: blocks and shared memory of each phase.
    pub(super) fn with_geometry(&self, geometry: &[[u32; 2]]) -> Self {
        let phase = |(phase, [blocks, smem]): (&Phase, &[u32; 2])| Phase { blocks: *blocks, smem: *smem, ..*phase };
        let phases = self.phases.iter().zip(geometry).map(phase).collect();
        Self { module: Arc::clone(&self.module), phases, geometry: None, ..*self }
    }
}

// SAFETY: functions of a loaded module may be launched from any thread whose context is current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: functions of a loaded module may be launched from any thread whose context is current.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// A requested kernel, or why it is not available.
pub(super) type FoundKernel = Result<Arc<Kernel>, CudaError>;

/// The index of a source among those that were missing, and its result.
type Loading = (usize, FoundKernel);

/// The largest number of unused kernels that stay loaded, so that undoing an edit needs no loading: general ones, which
/// most networks share, and others. A loaded kernel takes a third of a mebibyte of the process's memory.
const MOST_UNUSED: [usize; 2] = [4_096, 256];

/// Loaded kernels by their source, with the processes that compile more of them.
#[derive(Default)]
pub(super) struct KernelStore {
    loaded: Mutex<Loaded>,
    /// Processes that wait for the next source.
    idle: Mutex<Vec<Compiler>>,
}

#[derive(Default)]
struct Loaded {
    by_source: HashMap<KernelSource, (Arc<Kernel>, u64)>,
    /// Counts the requests.
    now: u64,
}

impl Loaded {
    fn find(&mut self, source: &KernelSource) -> Option<Arc<Kernel>> {
        let now = self.now;
        let (kernel, asked) = self.by_source.get_mut(source)?;
        *asked = now;
        Some(Arc::clone(kernel))
    }

    /// Unloads kernels that only the store holds, the least recently requested ones first, if there are more than
    /// `most` of them: general ones, and others.
    fn unload(&mut self, most: [usize; 2]) {
        for (is_general, most) in [true, false].into_iter().zip(most) {
            if self.by_source.len() <= most {
                continue;
            }
            let unused = self.by_source.iter().filter(|(source, (kernel, asked))| {
                let is_held = Arc::strong_count(kernel) > 1 || Arc::strong_count(&kernel.module) > 1;
                source.is_general() == is_general && !is_held && *asked != self.now && !source.stays_in_graphs()
            });
            let mut unused: Vec<(u64, &KernelSource)> = unused.map(|(source, (_, asked))| (*asked, source)).collect();
            let Some(surplus @ 1..) = unused.len().checked_sub(most) else { continue };
            unused.sort_unstable_by_key(|(asked, _)| *asked);
            // Space is freed for a whole network at a time.
            let oldest: Vec<KernelSource> =
                unused.into_iter().take(surplus + most / 8).map(|(_, source)| source.clone()).collect();
            for (kernel, _) in oldest.iter().filter_map(|source| self.by_source.remove(source)) {
                // SAFETY: no other code holds the kernel, so that neither a stream nor a graph launches it any more;
                // the device is current.
                let _ = unsafe { result::module::unload(kernel.module.0) };
            }
        }
    }
}

impl KernelStore {
    /// Loads, finds on disk or compiles the kernels of several sources at once, on the thread's current device. The
    /// order is preserved.
    ///
    /// # Errors
    /// For each source, why its kernel is not available.
    pub(super) fn get(&self, arch: Arch, sources: &[KernelSource]) -> Vec<FoundKernel> {
        let loaded = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut missing) = (Vec::with_capacity(sources.len()), Vec::new());
        {
            let mut loaded = loaded();
            loaded.now += 1;
            for source in sources {
                let kernel = loaded.find(source);
                if kernel.is_none() {
                    missing.push(source);
                }
                found.push(kernel.map(Ok));
            }
        }
        if !missing.is_empty() {
            let unique: HashSet<&KernelSource> = missing.drain(..).collect();
            missing.extend(unique);
            // A source that takes long to compile should not start last.
            missing.sort_by_cached_key(|source| (!source.is_slow_to_compile(), source.entry_name(0)));
            let results: HashMap<&KernelSource, FoundKernel> =
                self.load_all(arch, &missing).into_iter().map(|(index, kernel)| (missing[index], kernel)).collect();
            let mut loaded = loaded();
            let now = loaded.now;
            for (source, kernel) in &results {
                if let Ok(kernel) = kernel {
                    // If two threads loaded the same kernel, the first one's is shared from now on.
                    loaded.by_source.entry(KernelSource::clone(source)).or_insert((Arc::clone(kernel), now));
                }
            }
            for (source, found) in sources.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                *found = loaded.find(source).map(Ok).or_else(|| results.get(source).cloned());
            }
            loaded.unload(MOST_UNUSED);
        }
        found.into_iter().map(|found| found.unwrap_or_else(|| Err("the kernel was not compiled".into()))).collect()
    }

    /// For each source, whether its kernel is loaded or on the disk.
    pub(super) fn has(&self, arch: Arch, sources: &[KernelSource]) -> Vec<bool> {
        let is_loaded: Vec<bool> = {
            let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            sources.iter().map(|source| loaded.by_source.contains_key(source)).collect()
        };
        // If all are loaded, no file is read.
        let cache = LazyCell::new(|| KernelCache::of_user().zip(Some(compiler_and_options(arch))));
        let is_cached =
            |source| cache.as_ref().is_some_and(|(cache, compiler)| cache.seems_to_hold(&key_of(compiler, source)));
        sources.iter().zip(is_loaded).map(|(source, is_loaded)| is_loaded || is_cached(source)).collect()
    }

    /// The kernel of one source.
    ///
    /// # Errors
    /// Why it is not available.
    pub(super) fn get_one(&self, arch: Arch, source: KernelSource) -> FoundKernel {
        self.get(arch, &[source]).pop().unwrap_or_else(|| Err("no kernel came back".into()))
    }

    /// Compiles the kernels that are neither loaded nor on the disk in separate processes, `threads` at a time, and
    /// writes them to the disk, as long as `goes_on`; does nothing if there is no cache folder. Returns the number of
    /// kernels.
    pub(super) fn compile_ahead(
        &self,
        arch: Arch,
        sources: &[KernelSource],
        threads: usize,
        goes_on: impl Fn() -> bool + Sync,
    ) -> usize {
        let (Some(cache), compiler @ Ok(_)) = (KernelCache::of_user(), compiler_and_options(arch)) else { return 0 };
        let is_loaded = |source: &KernelSource| {
            self.loaded.lock().unwrap_or_else(PoisonError::into_inner).by_source.contains_key(source)
        };
        let unique: HashSet<&KernelSource> = sources.iter().filter(|source| !is_loaded(source)).collect();
        let keyed = unique.into_iter().map(|source| (key_of(&compiler, source), source));
        let mut missing: Vec<_> = keyed.filter(|(key, _)| !cache.seems_to_hold(key)).collect();
        missing.sort_by_cached_key(|(_, source)| (!source.is_slow_to_compile(), source.entry_name(0)));
        let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (most, _) = crew_for(missing.len(), missing.len(), self.idle().len());
        let work = || {
            let (need, has_workers) = (Need::Later, Compiler::may_start());
            let mut crew = Crew { store: self, cache: Some(&cache), arch, need, has_workers, worker: None };
            while goes_on() {
                let Some((key, source)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                // Another thread may have compiled it since.
                if is_loaded(source) || cache.seems_to_hold(key) {
                    continue;
                }
                match crew.compiled(key, source) {
                    Ok(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                    Err(why) => log::debug!("{}: not compiled ahead: {why}", source.entry_name(0)),
                }
            }
        };
        share_work(threads.min(most), "compile-ahead", "compiles kernels ahead", &work);
        count.into_inner()
    }

    /// Whether the disk has a note that was left with the same compiler and kernels.
    pub(super) fn has_note(arch: Arch, what: &str) -> bool {
        let found = KernelCache::of_user().zip(note_key(arch, what)).and_then(|(cache, key)| cache.get(&key));
        found.is_some()
    }

    /// Leaves a note on the disk, which is removed like a kernel that is not used.
    pub(super) fn leave_note(arch: Arch, what: &str) {
        if let Some((cache, key)) = KernelCache::of_user().zip(note_key(arch, what)) {
            cache.keep(&key, b"noted");
        }
    }

    /// The processes that wait for the next source.
    fn idle(&self) -> MutexGuard<'_, Vec<Compiler>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kernels from the disk or from the compiler, on an appropriate number of threads.
    fn load_all(&self, arch: Arch, wanted: &[&KernelSource]) -> Vec<Loading> {
        let (cache, need) = (KernelCache::of_user(), Need::Now);
        let compiler = compiler_and_options(arch);
        let keys: Vec<String> = wanted.iter().map(|source| key_of(&compiler, source)).collect();
        let next = AtomicUsize::new(0);
        let compiled: Mutex<Vec<(usize, Result<Machine, CudaError>)>> = Mutex::default();
        let is_cached = |key: &&String| cache.as_ref().is_some_and(|cache| cache.seems_to_hold(key));
        let uncached = wanted.len() - keys.iter().filter(is_cached).count();
        let (threads, several) = crew_for(wanted.len(), uncached, self.idle().len());
        let work = || {
            let mut crew = Crew { store: self, cache: cache.as_ref(), arch, need, has_workers: several, worker: None };
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(source) = wanted.get(index) else { break };
                let code = match &compiler {
                    Ok(_) => crew.code_of(&keys[index], source),
                    Err(why) => Err(format!("NVRTC, which compiles the kernel, is missing: {why}").into()),
                };
                compiled.lock().unwrap_or_else(PoisonError::into_inner).push((index, code));
            }
        };
        share_work(threads, "compile", "compiles kernels", &work);
        let compiled = compiled.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut crew = Crew { store: self, cache: cache.as_ref(), arch, need, has_workers: false, worker: None };
        let load = |(index, code): (usize, Result<Machine, CudaError>)| {
            let kernel = code.and_then(|code| crew.load(code, &keys[index], wanted[index]));
            (index, kernel.map(Arc::new))
        };
        compiled.into_iter().map(load).collect()
    }
}

/// The key of a note in the cache; `None` if there is no compiler.
fn note_key(arch: Arch, what: &str) -> Option<String> {
    compiler_and_options(arch).ok().map(|compiler| format!("{compiler}{:016x}\nnote: {what}\n", source_hash()))
}

/// The key of a source's machine code in the cache.
fn key_of(compiler: &Result<String, CudaError>, source: &KernelSource) -> String {
    compiler.as_ref().map_or_else(|_| String::new(), |compiler| format!("{compiler}{}", source.key()))
}

/// Machine code, and whether it was read from the disk.
struct Machine {
    code: Vec<u8>,
    is_cached: bool,
}

/// Whether somebody waits for a kernel, or it is compiled in advance.
#[derive(Clone, Copy)]
enum Need {
    Now,
    Later,
}

/// The compiler of one thread.
struct Crew<'a> {
    store: &'a KernelStore,
    cache: Option<&'a KernelCache>,
    arch: Arch,
    need: Need,
    /// Whether each thread has a process that compiles.
    has_workers: bool,
    worker: Option<std::io::Result<Compiler>>,
}

impl Crew<'_> {
    /// The machine code of a source, from the disk or by the compiler.
    fn code_of(&mut self, key: &str, source: &KernelSource) -> Result<Machine, CudaError> {
        match self.cache.and_then(|cache| cache.get(key)) {
            Some(code) => Ok(Machine { code, is_cached: true }),
            None => self.compiled(key, source).map(|code| Machine { code, is_cached: false }),
        }
    }

    fn compiled(&mut self, key: &str, source: &KernelSource) -> Result<Vec<u8>, CudaError> {
        let started = std::time::Instant::now();
        if self.has_workers && self.worker.is_none() {
            let idle = self.store.idle().pop();
            self.worker = Some(idle.map_or_else(Compiler::start, Ok));
        }
        let code = compile(&mut self.worker, &source.text(), self.arch, self.need)?;
        if let Some(cache) = self.cache {
            cache.keep(key, &code);
        }
        log::debug!("{}: compiled in {:.0?}", source.entry_name(0), started.elapsed());
        Ok(code)
    }

    /// Loads machine code. If it comes from the disk and the driver refuses it, it is compiled again.
    fn load(&mut self, machine: Machine, key: &str, source: &KernelSource) -> Result<Kernel, CudaError> {
        match load(&machine.code, source) {
            Err(why) if machine.is_cached => {
                log::debug!("{}: from the disk, the driver refuses it: {why}", source.entry_name(0));
                if let Some(cache) = self.cache {
                    cache.remove(key);
                }
                load(&self.compiled(key, source)?, source)
            }
            loaded => loaded,
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        if let Some(Ok(worker)) = self.worker.take() {
            self.store.idle().push(worker);
        }
    }
}

/// Compiles a source in the separate process for this thread, or in this process if there is none.
fn compile(
    worker: &mut Option<std::io::Result<Compiler>>,
    source: &str,
    arch: Arch,
    need: Need,
) -> Result<Vec<u8>, CudaError> {
    if let Some(Ok(compiler)) = worker {
        match compiler.compile(source, arch) {
            Ok(Ok(code)) => return Ok(code),
            // An error in the source occurs here again; resources that the other process lacked may be available here.
            Ok(Err(why)) => log::debug!("a process could not compile: {why}"),
            Err(error) => *worker = Some(Err(error)),
        }
    }
    if let Some(Err(error)) = worker {
        Compiler::give_up(error);
    }
    match need {
        Need::Now => compile_source(source, arch),
        Need::Later => compile_on_thread(source, arch),
    }
}

/// Loads machine code into the current context and reads what it reports about itself.
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
        let meets = source.blocks_meet();
        phases.push(Phase { function: function_of(module, source, phase, smem)?, blocks, smem, meets });
    }
    let geometry = source.is_general().then(|| {
        // SAFETY: the module is loaded.
        unsafe { result::module::get_function(module, CString::from(c"geometry")) }
            .map_err(|e| failed("cuModuleGetFunction", e))
    });
    let (threads, work_bytes) = (meta[1] as u32, meta[2] as u64);
    let module = Arc::new(Module(module));
    Ok(Kernel { module, phases, threads, work_bytes, geometry: geometry.transpose()? })
}

/// The function of a phase, with permission to use the shared memory that it needs.
fn function_of(
    module: sys::CUmodule,
    source: &KernelSource,
    phase: usize,
    smem: u32,
) -> Result<sys::CUfunction, CudaError> {
    let name = CString::new(source.entry_name(phase)).map_err(|e| e.to_string())?;
    // SAFETY: the module is loaded.
    let function =
        unsafe { result::module::get_function(module, name) }.map_err(|e| failed("cuModuleGetFunction", e))?;
    // The 48 KiB that can be used without a request include the memory that a kernel declares statically.
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
