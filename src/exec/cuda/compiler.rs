//! Kernels from source: the run-time compiler turns a C++ type into machine code for this very device, and the result is kept on disk.
//!
//! An entry of the cache holds the whole source that it was made from, so that neither a collision of hashes nor a changed kernel can bring back the wrong
//! code; a checksum rejects damaged ones.

use super::plant;
use crate::tensor::Fnv;
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};

/// What every unit begins with: the slots of the operations, then what the kernels share.
const SLOTS: &str = include_str!("../../../kernels/slots.cuh");
const PRELUDE: &str = include_str!("../../../kernels/prelude.cuh");

/// The kernels' source files, by name.
#[must_use]
pub const fn sources() -> [(&'static str, &'static str); 9] {
    [
        ("gemm.cu", include_str!("../../../kernels/gemm.cu")),
        ("conv.cu", include_str!("../../../kernels/conv.cu")),
        ("norm.cu", include_str!("../../../kernels/norm.cu")),
        ("pool.cu", include_str!("../../../kernels/pool.cu")),
        ("elementwise.cu", include_str!("../../../kernels/elementwise.cu")),
        ("loss.cu", include_str!("../../../kernels/loss.cu")),
        ("optimizer.cu", include_str!("../../../kernels/optimizer.cu")),
        ("feed.cu", include_str!("../../../kernels/feed.cu")),
        ("clear.cu", include_str!("../../../kernels/clear.cu")),
    ]
}

/// A GPU architecture, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch(pub u32, pub u32);

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The instructions of Hopper's own matrix units exist for this very architecture alone.
        let own = if *self == Self(9, 0) { "a" } else { "" };
        write!(f, "sm_{}{}{own}", self.0, self.1)
    }
}

/// The phases that an operation has at most.
pub(super) const MAX_PHASES: usize = 3;

/// What a unit tells about itself: phases, threads, scratch bytes, then blocks and shared memory of each phase.
pub(super) const META_LEN: usize = 3 + 2 * MAX_PHASES;

/// The name of a phase's kernel, as profilers and graphs show it: the templates of the types, and the phase.
pub(super) fn entry_name(types: &[&str], phase: usize) -> String {
    let template = |ty: &str| {
        let ty = ty.rsplit("//---\n").next().unwrap_or_default();
        ty.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
    };
    format!("{}_{phase}", types.iter().map(|t| template(t)).collect::<Vec<_>>().join("_and_"))
}

/// How a kernel starts that does not do so itself: by looking at the flags of its launch where these may be set, which the others are spared.
fn beginning(file: &str, ty: &str, args: &str) -> String {
    let template = entry_name(&[ty], 0);
    let flagged = [
        "BiasGrad_0",
        "BiasStep_0",
        "StepInc_0",
        "BiasCorr_0",
        "LossMean_0",
        "StepMetrics_0",
        "ClosingMetrics_0",
        "Dropout_0",
        "DropoutBwd_0",
        "ActBwd_0",
    ];
    if flagged.contains(&template.as_str()) || matches!(file, "gemm.cu" | "loss.cu") {
        format!("begin({args})")
    } else {
        "wait_for_launch()".to_owned()
    }
}

/// The source of one compilation: the kernels of one operation, phase by phase, or those of several that share a launch. Each is given by its file and its type.
#[must_use]
pub fn unit(ops: &[(&str, &str)]) -> String {
    let mut text = SLOTS.to_owned();
    text.push_str(&plant::text("prelude.cuh", PRELUDE));
    for (name, source) in sources() {
        if ops.iter().any(|(file, _)| *file == name) {
            text.push_str(&plant::text(name, source));
        }
    }
    for (index, (_, ty)) in ops.iter().enumerate() {
        let (before, ty) = ty.split_once("\n//---\n").unwrap_or(("", ty));
        // Declarations of several members must not meet, nor the types that refer to them.
        text.push_str(&format!("namespace member{index} {{\n{before}\nusing Op = {ty};\n}}\n"));
    }
    // A kernel of its own may say how many blocks must fit a multiprocessor; of groups two must, which leaves their members registers enough, but for members
    // that want a multiprocessor to themselves.
    let bounds = match ops {
        [_] => "member0::Op::THREADS, MinBlocks<member0::Op>::VALUE",
        _ => "THREADS, BLOCKS",
    };
    let entry = |name: &str, argument: &str, body: &str| {
        format!(
            "extern \"C\" __global__ void __launch_bounds__({bounds}) {name}(const __grid_constant__ {argument}) {{\n\
             extern __shared__ __align__(128) char smem[];\n{body}}}\n"
        )
    };
    if let [(file, ty)] = ops {
        let start = beginning(file, ty, "a");
        for phase in 0..MAX_PHASES {
            let body = format!(
                "if constexpr (member0::Op::PHASES > {phase}) {{\n\
                 if constexpr (!Begins<member0::Op>::VALUE) {start};\n\
                 member0::Op::run<{phase}>(a, blockIdx.x, smem);\n}}\n"
            );
            text.push_str(&entry(&entry_name(&ops.iter().map(|o| o.1).collect::<Vec<_>>(), phase), "Args a", &body));
        }
        text.push_str(
            "extern \"C\" __constant__ long long meta[9] = {member0::Op::PHASES, member0::Op::THREADS, member0::Op::WORK, \
             member0::Op::blocks(0), member0::Op::smem(0), member0::Op::blocks(1), member0::Op::smem(1), member0::Op::blocks(2), member0::Op::smem(2)};\n",
        );
        return text;
    }
    let count = ops.len();
    text.push_str(&format!("struct Members {{ Args a[{count}]; }};\n"));
    let (mut body, mut blocks, mut smem) =
        (String::from("int block = blockIdx.x;\n"), String::from("0"), String::from("0"));
    let (mut threads, mut fit) = (String::from("0"), String::from("2"));
    for (index, (file, ty)) in ops.iter().enumerate() {
        let start = beginning(file, ty, &format!("m.a[{index}]"));
        text.push_str(&format!("static_assert(member{index}::Op::PHASES == 1, \"members have one phase\");\n"));
        body.push_str(&format!(
            "if (block < member{index}::Op::blocks(0)) {{\n\
             if constexpr (member{index}::Op::THREADS < THREADS) {{ if (threadIdx.x >= member{index}::Op::THREADS) return; }}\n\
             if constexpr (!Begins<member{index}::Op>::VALUE) {start};\n\
             member{index}::Op::run<0>(m.a[{index}], block, smem);\nreturn;\n}}\n\
             block -= member{index}::Op::blocks(0);\n"
        ));
        blocks.push_str(&format!(" + member{index}::Op::blocks(0)"));
        smem = format!("max_i({smem}, member{index}::Op::smem(0))");
        threads = format!("max_i({threads}, member{index}::Op::THREADS)");
        fit = format!("(MinBlocks<member{index}::Op>::VALUE == 1 ? 1 : {fit})");
    }
    text.push_str(&format!("constexpr int THREADS = {threads}, BLOCKS = {fit};\n"));
    text.push_str(&entry(&entry_name(&ops.iter().map(|o| o.1).collect::<Vec<_>>(), 0), "Members m", &body));
    text.push_str(&format!(
        "extern \"C\" __constant__ long long meta[9] = {{1, THREADS, 0, {blocks}, {smem}, 0, 0, 0, 0}};\n"
    ));
    text
}

/// Compiles a unit to machine code for `arch`. Needs the run-time compiler's library, and no GPU.
///
/// # Errors
/// The compiler's own log.
pub fn compile_unit(source: &str, arch: Arch) -> Result<Vec<u8>, String> {
    /// Destroys the program whatever happens.
    struct Program(sys::nvrtcProgram);
    impl Drop for Program {
        fn drop(&mut self) {
            // SAFETY: the handle is ours and is destroyed once.
            let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
        }
    }
    let check = |call: &str, status: sys::nvrtcResult| match status {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(format!("{call}: {other:?}")),
    };
    let source = CString::new(source).map_err(|_| "the source holds a zero byte".to_owned())?;
    let options = [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".into(),
        "-default-device".into(),
        "-diag-suppress=177".into(),
        "--extra-device-vectorization".into(),
    ];
    let options: Vec<CString> = options.into_iter().filter_map(|o| CString::new(o).ok()).collect();
    let pointers: Vec<*const std::ffi::c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: every pointer lives through the calls; sizes are asked for before buffers are filled.
    unsafe {
        let name: &CStr = c"unit.cu";
        check(
            "nvrtcCreateProgram",
            sys::nvrtcCreateProgram(
                &raw mut program.0,
                source.as_ptr(),
                name.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            ),
        )?;
        let status = sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr());
        if status != sys::nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            check("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize(program.0, &raw mut size))?;
            let mut log = vec![0u8; size.max(1)];
            check("nvrtcGetProgramLog", sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()))?;
            return Err(format!(
                "nvrtcCompileProgram: {status:?}\n{}",
                String::from_utf8_lossy(&log).trim_end_matches('\0')
            ));
        }
        let mut size = 0;
        check("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(program.0, &raw mut size))?;
        let mut code = vec![0u8; size];
        check("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()))?;
        Ok(code)
    }
}

/// Where compiled kernels are kept: `STEPGRAPH_CACHE`, else the user's cache folder; nowhere where there is none.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os("STEPGRAPH_CACHE") {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => Some(PathBuf::from(folder).join("kernels")),
        None => directories::ProjectDirs::from("", "", "stepgraph").map(|d| d.cache_dir().join("kernels")),
    }
}

/// A number that changes whenever a kernel's source does.
#[must_use]
pub fn source_hash() -> u64 {
    sources().iter().fold(Fnv::of(PRELUDE.as_bytes()), |h, (_, text)| h.rotate_left(7) ^ Fnv::of(text.as_bytes()))
}

fn entry_path(folder: &Path, source: &str, arch: Arch) -> PathBuf {
    folder.join(format!("{:016x}-{arch}.kernel", Fnv::of(source.as_bytes())))
}

/// Whether the cache seems to have a unit's machine code.
pub(super) fn is_kept(folder: &Path, source: &str, arch: Arch) -> bool {
    entry_path(folder, source, arch).exists()
}

/// Machine code for a unit from the cache, where it is there and whole.
pub(super) fn cached(folder: &Path, source: &str, arch: Arch) -> Option<Vec<u8>> {
    let bytes = std::fs::read(entry_path(folder, source, arch)).ok()?;
    let (head, rest) = bytes.split_at_checked(16)?;
    let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (length, sum) = (usize::try_from(number(0)?).ok()?, number(8)?);
    let (kept, code) = rest.split_at_checked(length)?;
    (kept == source.as_bytes() && !code.is_empty() && Fnv::of(code) == sum).then(|| code.to_vec())
}

/// Keeps machine code in the cache. What cannot be kept is compiled again next time.
pub(super) fn keep(folder: &Path, source: &str, arch: Arch, code: &[u8]) {
    let mut bytes = Vec::with_capacity(16 + source.len() + code.len());
    bytes.extend_from_slice(&(source.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&Fnv::of(code).to_le_bytes());
    bytes.extend_from_slice(source.as_bytes());
    bytes.extend_from_slice(code);
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| crate::tensor::write_atomic(&entry_path(folder, source, arch), &bytes));
    if let Err(error) = written {
        log::warn!("compiled kernels are not kept in {}: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_back_what_it_kept_and_nothing_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (source, arch, code) = ("int x;", Arch(9, 0), b"machine code".to_vec());
        assert_eq!(cached(folder.path(), source, arch), None);
        keep(folder.path(), source, arch, &code);
        assert_eq!(cached(folder.path(), source, arch), Some(code));
        assert_eq!(cached(folder.path(), source, Arch(8, 0)), None);
        let path = entry_path(folder.path(), source, arch);
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 7, 16, 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(cached(folder.path(), source, arch), None, "cut at {cut}");
        }
        let mut changed = whole;
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert_eq!(cached(folder.path(), source, arch), None);
    }
}
