//! Compiles kernels from source: the run-time compiler turns a source into machine code for one architecture.

use super::error::CudaError;
use crate::exec::cuda::probe::{load_nvrtc, nvrtc_version};
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::OnceLock;

/// A GPU architecture, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch(pub u32, pub u32);

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The instructions of Hopper's matrix units exist only on exactly this architecture.
        let own = if *self == Self(9, 0) { "a" } else { "" };
        write!(f, "sm_{}{}{own}", self.0, self.1)
    }
}

/// A program of the run-time compiler, destroyed on drop.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

fn check(call: &str, status: sys::nvrtcResult) -> Result<(), CudaError> {
    match status {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(CudaError::library(call, other as u32, format!("{other:?}"))),
    }
}

/// The compiler options of every source. Products are fused with sums only where a kernel says so: what the compiler
/// would fuse depends on which sizes it knows, and members of a family must round in the same places.
const OPTIONS: [&str; 5] =
    ["--std=c++17", "--fmad=false", "-default-device", "-diag-suppress=177", "--extra-device-vectorization"];

/// Everything that machine code depends on in addition to its source: the compiler with its version, the architecture,
/// the options.
///
/// # Errors
/// If there is no compiler.
pub(super) fn compiler_and_options(arch: Arch) -> Result<String, CudaError> {
    static VERSION: OnceLock<Result<String, CudaError>> = OnceLock::new();
    let version = VERSION.get_or_init(nvrtc_version).clone()?;
    Ok(format!("NVRTC {version} {arch} {}\n", OPTIONS.join(" ")))
}

/// Compiles a source to machine code for `arch`. Needs the run-time compiler's library, but no GPU.
///
/// # Errors
/// If there is no compiler, or the compiler's own log.
pub fn compile_source(source: &str, arch: Arch) -> Result<Vec<u8>, CudaError> {
    load_nvrtc()?;
    let source = CString::new(source).map_err(|_| "the source holds a zero byte")?;
    let architecture = format!("--gpu-architecture={arch}");
    let options = std::iter::once(architecture.as_str()).chain(OPTIONS);
    let options: Vec<CString> = options.filter_map(|o| CString::new(o).ok()).collect();
    let pointers: Vec<*const std::ffi::c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = Program(std::ptr::null_mut());
    let (name, none): (&CStr, _) = (c"unit.cu", std::ptr::null());
    // SAFETY: every pointer lives through the call; there are no headers.
    let created =
        unsafe { sys::nvrtcCreateProgram(&raw mut program.0, source.as_ptr(), name.as_ptr(), 0, none, none.cast()) };
    check("nvrtcCreateProgram", created)?;
    // SAFETY: the program is alive, and there are as many options as are named.
    let status = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    if status != sys::nvrtcResult::NVRTC_SUCCESS {
        let log = log_of(&program)?;
        return Err(CudaError::library("nvrtcCompileProgram", status as u32, format!("{status:?}\n{log}")));
    }
    let mut size = 0;
    // SAFETY: the program is alive; its size is asked for before the buffer is filled.
    check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) })?;
    let mut code = vec![0u8; size];
    // SAFETY: the buffer has this size.
    check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) })?;
    Ok(code)
}

/// The compiler's log for a program.
fn log_of(program: &Program) -> Result<String, CudaError> {
    let mut size = 0;
    // SAFETY: the program is alive; its size is asked for before the buffer is filled.
    check("nvrtcGetProgramLogSize", unsafe { sys::nvrtcGetProgramLogSize(program.0, &raw mut size) })?;
    let mut log = vec![0u8; size.max(1)];
    // SAFETY: the buffer has this size.
    check("nvrtcGetProgramLog", unsafe { sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()) })?;
    Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
}
