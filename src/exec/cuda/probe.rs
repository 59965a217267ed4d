//! What exists for CUDA on this machine; a missing driver or library is not an error.

use super::error::{CudaError, failed};
use super::known_libraries::KnownLibraries;
use super::shared_library::{CUBLASLT, CUDNN, DRIVER, NVRTC};
use crate::select::{CudaFacts, Target};
use cudarc::driver::{result, sys};
use serde::Serialize;
use std::sync::OnceLock;

/// A library, found or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    pub name: &'static str,
    /// Its version, or what is wrong with it.
    pub state: Result<String, String>,
    /// What it is for, and how to get it if it is missing.
    pub help: &'static str,
}

/// A GPU that the driver offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    pub ordinal: u32,
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    pub libraries: Vec<Library>,
    pub devices: Vec<DeviceInfo>,
    /// Why there is no device; empty if there is one.
    pub why_none: String,
}

impl Probe {
    /// Whether the library with this name was found.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.libraries.iter().any(|l| l.name == name && l.state.is_ok())
    }
}

/// The oldest GPUs that the kernels are written for.
const OLDEST: (u32, u32) = (8, 0);

/// The oldest supported version of cuDNN, in which statuses and attributes changed.
const OLDEST_CUDNN: usize = 90_000;

/// What [`probe`] found.
static FOUND: OnceLock<Probe> = OnceLock::new();

/// Looks for libraries and devices. `STEPGRAPH_NO_CUDA` (any value) hides all of them, and a comma-separated
/// `STEPGRAPH_HIDE` (`driver`, `nvrtc`, `cublaslt`, `cudnn`, `nccl`) some of them, to show what works without them.
/// Libraries that an earlier start has loaded are loaded when they are first used.
#[must_use]
pub fn probe() -> Probe {
    let look_and_note = || {
        let mut known = KnownLibraries::of_user();
        let before = known.clone();
        let found = look(&mut known);
        if known != before {
            known.keep();
        }
        found
    };
    FOUND.get_or_init(look_and_note).clone()
}

/// As [`probe`], with all libraries loaded now, whatever earlier starts found. Nothing is noted.
#[must_use]
pub fn probe_again() -> Probe {
    look(&mut KnownLibraries::none())
}

/// The variable that names libraries to be treated as missing.
const HIDE: &str = "STEPGRAPH_HIDE";

/// Why a hidden library cannot be used.
fn why_hidden(name: &str) -> CudaError {
    format!("{HIDE} hides {name}").into()
}

fn hidden(name: &str) -> bool {
    std::env::var(HIDE).is_ok_and(|list| list.split(',').any(|n| n.trim() == name))
}

/// Succeeds if `STEPGRAPH_HIDE` names only libraries.
///
/// # Errors
/// The first name that is none.
pub fn hide_variable() -> Result<(), String> {
    let list = std::env::var(HIDE).unwrap_or_default();
    let known: Vec<&str> = std::iter::once("driver").chain(WANTED.iter().map(|wanted| wanted.name)).collect();
    match list.split(',').map(str::trim).find(|name| !name.is_empty() && !known.contains(name)) {
        Some(other) => Err(format!("{HIDE} names {other:?}, which is no library; write some of {}", known.join(", "))),
        None => Ok(()),
    }
}

/// An NVIDIA H200 with the libraries that are not hidden, for which plans are made if there is no GPU.
#[must_use]
pub fn absent_gpu() -> Target {
    let whole = Target::h200();
    let has_library = |name| !hidden(name);
    match whole.as_cuda() {
        Some(facts) => {
            let (has_cublaslt, has_cudnn) = (has_library("cublaslt"), has_library("cudnn"));
            Target::cuda(&whole.name, CudaFacts { has_cublaslt, has_cudnn, ..facts })
        }
        None => whole,
    }
}

/// A library that is loaded to learn its version, unless it is known.
struct Wanted {
    name: &'static str,
    /// How the name of its file starts.
    file_name: &'static str,
    version: fn() -> Result<String, CudaError>,
    help: &'static str,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        name: "nvrtc",
        file_name: "libnvrtc.so",
        version: loaded_nvrtc_version,
        help: "compiles the kernels for this GPU; comes with the CUDA toolkit, or `pip install \
               nvidia-cuda-nvrtc` (put its lib folder on LD_LIBRARY_PATH)",
    },
    Wanted {
        name: "cublaslt",
        file_name: "libcublasLt.so",
        version: cublaslt_version,
        help: "fast products of large matrices; comes with the CUDA toolkit, or `pip install \
               nvidia-cublas`; without it custom kernels do all products",
    },
    Wanted {
        name: "cudnn",
        file_name: "libcudnn.so",
        version: cudnn_version,
        help: "fast convolutions and attention; https://developer.nvidia.com/cudnn, or `pip install \
               nvidia-cudnn-cu13`; without it custom kernels do all of them",
    },
    Wanted {
        name: "nccl",
        file_name: "libnccl.so",
        version: nccl_version,
        help: "connects several GPUs; no command uses it yet; comes with the package libnccl2, or `pip \
               install nvidia-nccl-cu13`",
    },
];

impl Wanted {
    /// Its version, which is noted if it must be loaded for that.
    fn look(&self, known: &mut KnownLibraries) -> Result<String, CudaError> {
        if hidden(self.name) {
            return Err(why_hidden(self.name));
        }
        if let Some(version) = known.version_of(self.name) {
            return Ok(version.to_owned());
        }
        let version = (self.version)()?;
        known.note(self.name, self.file_name, &version);
        Ok(version)
    }
}

fn look(known: &mut KnownLibraries) -> Probe {
    let none = |why: &str| Probe { libraries: Vec::new(), devices: Vec::new(), why_none: why.into() };
    if let Err(why) = allowed() {
        return none(&why.to_string());
    }
    let driver_state = in_words(driver_version());
    let started = driver_state.is_ok();
    let mut libraries = vec![Library {
        name: "driver",
        state: driver_state.clone(),
        help: "communicates with the GPU; comes with the NVIDIA driver (https://www.nvidia.com/drivers), version 580 \
               or newer for CUDA 13",
    }];
    let of = |w: &Wanted| Library { name: w.name, state: in_words(w.look(known)), help: w.help };
    libraries.extend(WANTED.iter().map(of));
    for library in libraries.iter_mut().filter(|library| hidden(library.name)) {
        library.help = "remove its name from STEPGRAPH_HIDE to use it";
    }
    let (devices, why_none) = if started {
        match devices() {
            Ok(list) if list.is_empty() => (list, "the driver offers no GPU".to_owned()),
            Ok(list) => (list, String::new()),
            Err(why) => (Vec::new(), why.to_string()),
        }
    } else {
        (Vec::new(), driver_state.err().unwrap_or_default())
    };
    let why_none = match devices.iter().find(|d| d.capability >= OLDEST) {
        Some(_) => why_none,
        None if devices.is_empty() => why_none,
        None => format!("{} is older than compute capability {}.{}", devices[0].name, OLDEST.0, OLDEST.1),
    };
    Probe { libraries, devices, why_none }
}

/// A library's version, or what is wrong with it, as in reports.
fn in_words(version: Result<String, CudaError>) -> Result<String, String> {
    version.map_err(|why| why.to_string())
}

/// An error if the user has switched CUDA off.
fn allowed() -> Result<(), CudaError> {
    if std::env::var_os("STEPGRAPH_NO_CUDA").is_some() { Err("STEPGRAPH_NO_CUDA is set".into()) } else { Ok(()) }
}

/// The primary context of the device with this number, which is kept for the life of the process. That takes about as
/// long as loading all libraries, so that the first start does both at the same time.
///
/// # Errors
/// If there is no such device, or it cannot be used.
pub(super) fn primary_context(ordinal: u32) -> Result<sys::CUcontext, CudaError> {
    allowed()?;
    driver_version()?;
    let device = result::device::get(ordinal as i32).map_err(|e| failed("cuDeviceGet", e))?;
    // SAFETY: the device comes from the driver; the context is never released.
    unsafe { result::primary_ctx::retain(device) }.map_err(|e| failed("cuDevicePrimaryCtxRetain", e))
}

fn driver_version() -> Result<String, CudaError> {
    if hidden("driver") {
        return Err(why_hidden("the driver"));
    }
    if !DRIVER.is_installed() {
        return Err("libcuda.so.1 was not found".into());
    }
    result::init().map_err(|e| failed("cuInit", e))?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(|e| failed("cuDriverGetVersion", e))?;
    Ok(format!("CUDA {}.{}", version / 1000, version % 1000 / 10))
}

/// The run-time compiler's version, which can be queried without a driver. It is not loaded if an earlier start has
/// loaded it.
///
/// # Errors
/// If it is missing or hidden.
pub(super) fn nvrtc_version() -> Result<String, CudaError> {
    let Probe { libraries, why_none, .. } = probe();
    match libraries.into_iter().find(|library| library.name == "nvrtc") {
        Some(found) => found.state.map_err(CudaError::from),
        None => Err(why_none.into()),
    }
}

/// The variable in which a process that compiles for another one finds the version of NVRTC that is meant.
pub(super) const EXPECTED_NVRTC: &str = "STEPGRAPH_EXPECTED_NVRTC";

/// Loads the run-time compiler, without looking for anything else.
///
/// # Errors
/// If it is missing or hidden, or is another version than the one that this process stores kernels for.
pub(super) fn load_nvrtc() -> Result<(), CudaError> {
    static LOADED: OnceLock<Result<(), CudaError>> = OnceLock::new();
    let load = || {
        allowed()?;
        if hidden("nvrtc") {
            return Err(why_hidden("nvrtc"));
        }
        let version = loaded_nvrtc_version()?;
        let meant = std::env::var(EXPECTED_NVRTC).ok();
        let agrees = meant.map_or_else(|| agrees("nvrtc", &version), |meant| meant == version);
        if agrees {
            return Ok(());
        }
        if !KnownLibraries::forget() {
            return Err(format!("NVRTC is now version {version}; remove libraries.json from the cache folder").into());
        }
        Err(format!("NVRTC is now version {version}; start the program again").into())
    };
    LOADED.get_or_init(load).clone()
}

/// Whether a library that was just loaded has the version that [`probe`] reported. If not, what earlier starts noted is
/// removed.
pub(super) fn agrees(name: &str, version: &str) -> bool {
    let reported = FOUND.get().and_then(|found| found.libraries.iter().find(|library| library.name == name));
    let agrees = reported.is_none_or(|library| library.state.as_ref().is_ok_and(|reported| reported == version));
    if !agrees {
        log::warn!("{name} is version {version}, and was another one before");
        KnownLibraries::forget();
    }
    agrees
}

fn loaded_nvrtc_version() -> Result<String, CudaError> {
    use cudarc::nvrtc::sys;
    if !NVRTC.is_installed() {
        return Err("libnvrtc.so was not found".into());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for the call.
    match unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) } {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(format!("{major}.{minor}")),
        other => Err(CudaError::library("nvrtcVersion", other as u32, format!("{other:?}"))),
    }
}

pub(super) fn cublaslt_version() -> Result<String, CudaError> {
    if !CUBLASLT.is_installed() {
        return Err("libcublasLt.so was not found".into());
    }
    // SAFETY: the function takes nothing and touches no device.
    let version = unsafe { cudarc::cublaslt::sys::cublasLtGetVersion() };
    Ok(format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100))
}

pub(super) fn cudnn_version() -> Result<String, CudaError> {
    if !CUDNN.is_installed() {
        return Err("libcudnn.so.9 was not found".into());
    }
    // SAFETY: the function takes nothing and touches no device.
    let version = unsafe { cudarc::cudnn::sys::cudnnGetVersion() };
    if version < OLDEST_CUDNN {
        return Err(format!("libcudnn reports version {version}; at least {OLDEST_CUDNN} is needed").into());
    }
    Ok(format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100))
}

fn nccl_version() -> Result<String, CudaError> {
    let mut version = 0i32;
    // SAFETY: loading the library runs its initialisers; the function has had this signature since version 2.3 and
    // touches no device.
    let status = unsafe {
        let library = libloading::Library::new("libnccl.so.2").or_else(|_| libloading::Library::new("libnccl.so"));
        let library = library.map_err(|_| CudaError::from("libnccl.so.2 was not found"))?;
        let get = library.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"ncclGetVersion\0");
        let status = get.map_err(|e| e.to_string())?(&raw mut version);
        // It stays loaded until its file was noted, and unloading it would bring nothing.
        std::mem::forget(library);
        status
    };
    match status {
        0 => Ok(format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)),
        other => Err(CudaError::library("ncclGetVersion", other.cast_unsigned(), other.to_string())),
    }
}

fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    let count = result::device::get_count().map_err(|e| failed("cuDeviceGetCount", e))?;
    let mut out = Vec::new();
    for ordinal in 0..count {
        let device = result::device::get(ordinal).map_err(|e| failed("cuDeviceGet", e))?;
        let attribute = |which| {
            // SAFETY: the device comes from the driver.
            let value = unsafe { result::device::get_attribute(device, which) };
            value.map(|v| v as u32).map_err(|e| failed("cuDeviceGetAttribute", e))
        };
        use sys::CUdevice_attribute as A;
        out.push(DeviceInfo {
            ordinal: ordinal as u32,
            name: result::device::get_name(device).map_err(|e| failed("cuDeviceGetName", e))?,
            capability: (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            // SAFETY: as above.
            memory_bytes: unsafe { result::device::total_mem(device) }.map_err(|e| failed("cuDeviceTotalMem", e))?
                as u64,
        });
    }
    Ok(out)
}
