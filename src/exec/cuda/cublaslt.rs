//! Matrix products with cublasLt: everything is decided when a plan is made, so that running it neither allocates nor
//! waits.
//!
//! cudarc's `sys` layer is used, because its safe layer forces TF32 for floats and queries the heuristic at every call.
//! Which part of an epilogue is done here is decided in [`crate::select::cuda::lt`]; the rest is the caller's task.
//!
//! cublasLt is column-major. A row-major `[rows, cols]` is a column-major `[cols, rows]` of the same leading dimension,
//! so the row-major `c = a b` is computed as `cᵀ = bᵀ aᵀ`: `b` is its first factor, `a` its second, and a bias over the
//! columns of `c` is its bias over rows.

use super::error::CudaError;
use super::shared_library::CUBLASLT;
use crate::exec::cuda::probe::{agrees, cublaslt_version};
use crate::model::Activation;
use crate::ops::{Epilogue, Gemm, Trans};
use crate::select::cuda::Real;
use crate::select::cuda::lt::{done, lt_supports, stores_float};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// The largest number of algorithms that are requested from the heuristic.
const MOST_CANDIDATES: usize = 8;

/// The alignment of a workspace's address, in bytes.
const WORKSPACE_ALIGN_BYTES: u64 = 256;

/// Device addresses of a product's arguments; 0 if an argument is not bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointers {
    pub a: u64,
    pub b: u64,
    /// `[n]`, of the product's own type.
    pub bias: u64,
    /// `[m, n]`.
    pub c: u64,
    /// `[m, n]`: the previous value, which an accumulating product adds to; it may be `c`.
    pub c_prev: u64,
    /// Read by the rest of the epilogue, not by cublasLt.
    pub saved: u64,
    /// `[m, n]`: if the value before the activation is kept, the product is written here instead of to `c`.
    pub z: u64,
}

/// An object that cublasLt created and that is destroyed on drop.
struct Owned<T> {
    raw: *mut T,
    destroy: unsafe fn(*mut T) -> sys::cublasStatus_t,
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `raw` was made by the counterpart of `destroy` and is given back only here. Nothing can be done about
        // a failure.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

// SAFETY: handles and descriptors are plain host objects that belong to no thread.
unsafe impl<T> Send for Owned<T> {}

/// Creates an object with a function that writes its address.
fn make<T>(
    call: &str,
    create: impl FnOnce(*mut *mut T) -> sys::cublasStatus_t,
    destroy: unsafe fn(*mut T) -> sys::cublasStatus_t,
) -> Result<Owned<T>, CudaError> {
    let mut raw = std::ptr::null_mut();
    check(call, create(&raw mut raw))?;
    Ok(Owned { raw, destroy })
}

fn check(call: &str, status: sys::cublasStatus_t) -> Result<(), CudaError> {
    if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(CudaError::library(call, status as u32, format!("{status:?}")))
    }
}

/// cublasLt, opened for the device whose context is current.
pub struct Lt {
    handle: Owned<sys::cublasLtContext>,
}

impl Lt {
    /// Opens the library for the device whose context is current on this thread; the same context must be current
    /// whenever it is used. Dropping it waits for the device, so it must not be dropped during capture.
    ///
    /// # Errors
    /// If the library is not installed, or cannot be used.
    pub fn open() -> Result<Self, CudaError> {
        if !CUBLASLT.is_installed() {
            return Err("cublasLt is not installed".into());
        }
        agrees("cublaslt", &cublaslt_version()?);
        // SAFETY: the library is present, and `make` passes a place for a handle.
        let create = |place| unsafe { sys::cublasLtCreate(place) };
        Ok(Self { handle: make("cublasLtCreate", create, sys::cublasLtDestroy)? })
    }

    /// A plan with the heuristic's `candidate`-th algorithm, best first, that takes at most `workspace_limit` bytes.
    /// [`LtPlan::done`] says which part of the epilogue it does.
    ///
    /// # Errors
    /// If cublasLt does not support the operation, there are fewer algorithms, or a call fails.
    pub fn plan(&self, gemm: &Gemm, real: Real, workspace_limit: usize, candidate: usize) -> Result<LtPlan, CudaError> {
        let problem = Problem::new(gemm, real)?;
        let candidates = problem.candidates(self, workspace_limit)?;
        let Some(chosen) = candidates.get(candidate) else {
            return Err(format!(
                "cublasLt has {} algorithms for {gemm:?} in {}: there is no number {candidate}",
                candidates.len(),
                real.name()
            )
            .into());
        };
        Ok(LtPlan {
            algo: chosen.algo,
            workspace_bytes: chosen.workspaceSize,
            waves: chosen.wavesCount,
            bias_turn: Mutex::new(()),
            problem,
        })
    }
}

/// A product in cublasLt's terms: `first` is our `b`, `second` our `a`.
struct Problem {
    desc: Owned<sys::cublasLtMatmulDescOpaque_t>,
    first: Owned<sys::cublasLtMatrixLayoutOpaque_t>,
    second: Owned<sys::cublasLtMatrixLayoutOpaque_t>,
    output: Owned<sys::cublasLtMatrixLayoutOpaque_t>,
    /// The part of the epilogue that is done.
    done: Epilogue,
    /// The product is written to `z` instead of `c`.
    into_z: bool,
    accumulate: bool,
    factor_align_bytes: u32,
    output_align_bytes: u32,
    /// Bits of `cublasLtReductionScheme_t`.
    reductions: u32,
}

/// The type that products are computed in, and the type of their factors.
const fn types(real: Real) -> (sys::cublasComputeType_t, sys::cudaDataType_t) {
    match real {
        Real::F32 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType_t::CUDA_R_32F),
        Real::Tf32 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, sys::cudaDataType_t::CUDA_R_32F),
        Real::Bf16 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType_t::CUDA_R_16BF),
        Real::F16 => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType_t::CUDA_R_16F),
    }
}

/// cublasLt's name of its epilogue for a product.
fn epilogue_of(done: Epilogue) -> Result<sys::cublasLtEpilogue_t, CudaError> {
    use sys::cublasLtEpilogue_t as Ep;
    Ok(match (done.bias, done.act) {
        (false, None) => Ep::CUBLASLT_EPILOGUE_DEFAULT,
        (false, Some(Activation::Relu)) => Ep::CUBLASLT_EPILOGUE_RELU,
        (true, None) => Ep::CUBLASLT_EPILOGUE_BIAS,
        (true, Some(Activation::Relu)) => Ep::CUBLASLT_EPILOGUE_RELU_BIAS,
        (_, Some(func)) => return Err(format!("cublasLt has no {} after a product", func.name()).into()),
    })
}

impl Problem {
    fn new(gemm: &Gemm, real: Real) -> Result<Self, CudaError> {
        use sys::cublasLtMatmulDescAttributes_t as Attr;
        use sys::cublasLtReductionScheme_t as Scheme;
        lt_supports(gemm, real)?;
        let done = done(gemm, real);
        let (compute, factor) = types(real);
        let float = sys::cudaDataType_t::CUDA_R_32F;
        let output = if stores_float(gemm, real) { float } else { factor };

        // SAFETY: `make` passes a place for a descriptor.
        let create = |place| unsafe { sys::cublasLtMatmulDescCreate(place, compute, float) };
        let desc = make("cublasLtMatmulDescCreate", create, sys::cublasLtMatmulDescDestroy)?;
        // Row-major `b` is already `bᵀ`, and row-major `a` is `aᵀ`: only factors that are stored transposed must be
        // transposed. 0 and 1 are CUBLAS_OP_N and _T.
        let (first_transposed, second_transposed) = match gemm.trans {
            Trans::Nn => (0i32, 0i32),
            Trans::Nt => (1, 0),
            Trans::Tn => (0, 1),
        };
        set_desc(&desc, Attr::CUBLASLT_MATMUL_DESC_TRANSA, &first_transposed)?;
        set_desc(&desc, Attr::CUBLASLT_MATMUL_DESC_TRANSB, &second_transposed)?;
        set_desc(&desc, Attr::CUBLASLT_MATMUL_DESC_EPILOGUE, &(epilogue_of(done)? as u32))?;
        if done.bias {
            set_desc(&desc, Attr::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(output as i32))?;
            // The heuristic requires an address, and uses only its alignment; `run` sets the actual one.
            set_desc(&desc, Attr::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &u64::from(align_bytes(output)))?;
        }

        // Rows of the row-major matrices, which are stored without gaps: the row lengths are the leading dimensions.
        let (b, a) = match gemm.trans {
            Trans::Nn => ((gemm.k, gemm.n), (gemm.m, gemm.k)),
            Trans::Nt => ((gemm.n, gemm.k), (gemm.m, gemm.k)),
            Trans::Tn => ((gemm.k, gemm.n), (gemm.k, gemm.m)),
        };
        Ok(Self {
            desc,
            first: layout(factor, b)?,
            second: layout(factor, a)?,
            output: layout(output, (gemm.m, gemm.n))?,
            done,
            into_z: gemm.epilogue.save_z,
            accumulate: gemm.accumulate,
            factor_align_bytes: align_bytes(factor),
            output_align_bytes: align_bytes(output),
            // A product without a split needs no reduction; of the split ones, only those are allowed that sum the
            // parts in a separate pass. When parts are added in place, the order depends on counters, and parts stored
            // in 16 bits lose digits of the accumulators.
            reductions: if output == float {
                Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32
                    | Scheme::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32
            } else {
                Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32
            },
        })
    }

    /// The heuristic's algorithms, best first: deterministic, and within the workspace.
    fn candidates(
        &self,
        lt: &Lt,
        workspace_limit: usize,
    ) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, CudaError> {
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
        use sys::cublasLtMatmulPreferenceAttributes_t as Attr;
        // SAFETY: `make` passes a place for a preference.
        let create = |place| unsafe { sys::cublasLtMatmulPreferenceCreate(place) };
        let preference = make("cublasLtMatmulPreferenceCreate", create, sys::cublasLtMatmulPreferenceDestroy)?;
        set_preference(&preference, Attr::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_limit)?;
        set_preference(&preference, Attr::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &self.reductions)?;
        for (attribute, bytes) in [
            (Attr::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, self.factor_align_bytes),
            (Attr::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, self.factor_align_bytes),
            (Attr::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, self.output_align_bytes),
            (Attr::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, self.output_align_bytes),
        ] {
            set_preference(&preference, attribute, &bytes)?;
        }

        // SAFETY: plain numbers, of which zero is a value everywhere; the status 0 is success.
        let mut found: [sys::cublasLtMatmulHeuristicResult_t; MOST_CANDIDATES] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: all descriptors are alive, and `found` has room for as many results as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                lt.handle.raw,
                self.desc.raw,
                self.first.raw,
                self.second.raw,
                self.output.raw,
                self.output.raw,
                preference.raw,
                MOST_CANDIDATES as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        if status == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(Vec::new());
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let count = usize::try_from(count).unwrap_or(0).min(MOST_CANDIDATES);
        let fits = |result: &&sys::cublasLtMatmulHeuristicResult_t| {
            let scheme = algo_config(&result.algo, Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4);
            result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
                && result.workspaceSize <= workspace_limit
                && scheme.is_some_and(|scheme| scheme & !self.reductions == 0)
        };
        Ok(found[..count].iter().filter(fits).copied().collect())
    }
}

/// The alignment of addresses of a type, in bytes: buffers are aligned to 256 bytes, and parameters within the flat
/// vectors to 64 elements.
const fn align_bytes(of: sys::cudaDataType_t) -> u32 {
    if matches!(of, sys::cudaDataType_t::CUDA_R_32F) { 256 } else { 128 }
}

/// The layout of a dense row-major `[rows, cols]`.
fn layout(
    of: sys::cudaDataType_t,
    (rows, cols): (usize, usize),
) -> Result<Owned<sys::cublasLtMatrixLayoutOpaque_t>, CudaError> {
    let leading = i64::try_from(cols).map_err(|_| format!("rows of {cols} elements are too long for cublasLt"))?;
    // SAFETY: `make` passes a place for a layout.
    let create = |place| unsafe { sys::cublasLtMatrixLayoutCreate(place, of, cols as u64, rows as u64, leading) };
    make("cublasLtMatrixLayoutCreate", create, sys::cublasLtMatrixLayoutDestroy)
}

fn set_desc<T: Copy>(
    desc: &Owned<sys::cublasLtMatmulDescOpaque_t>,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), CudaError> {
    // SAFETY: the descriptor is alive, and the attribute's bytes are copied.
    let set = |bytes, len| unsafe { sys::cublasLtMatmulDescSetAttribute(desc.raw, attribute, bytes, len) };
    let status = with_bytes(value, set);
    // The name is formatted only if something failed, because addresses are set at every call.
    if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    check(&format!("cublasLtMatmulDescSetAttribute({attribute:?})"), status)
}

fn set_preference<T: Copy>(
    preference: &Owned<sys::cublasLtMatmulPreferenceOpaque_t>,
    attribute: sys::cublasLtMatmulPreferenceAttributes_t,
    value: &T,
) -> Result<(), CudaError> {
    // SAFETY: the preference is alive, and the attribute's bytes are copied.
    let set = |bytes, len| unsafe { sys::cublasLtMatmulPreferenceSetAttribute(preference.raw, attribute, bytes, len) };
    check(&format!("cublasLtMatmulPreferenceSetAttribute({attribute:?})"), with_bytes(value, set))
}

/// Calls a function with the address of a value and its size in bytes; the value lives until the function returns.
fn with_bytes<T: Copy, R>(value: &T, give: impl FnOnce(*const c_void, usize) -> R) -> R {
    give(std::ptr::from_ref(value).cast(), size_of::<T>())
}

/// An attribute of an algorithm that takes `size` bytes, at most 4; `None` if this version of the library does not
/// report it.
fn algo_config(
    algo: &sys::cublasLtMatmulAlgo_t,
    attribute: sys::cublasLtMatmulAlgoConfigAttributes_t,
    size: usize,
) -> Option<u32> {
    let mut value = [0u8; 4];
    let mut written = 0;
    // SAFETY: `algo` came from the heuristic, and no more than the 4 bytes of `value` are offered.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigGetAttribute(
            algo,
            attribute,
            value.as_mut_ptr().cast::<c_void>(),
            size.min(value.len()),
            &raw mut written,
        )
    };
    (status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).then(|| u32::from_ne_bytes(value))
}

/// A product of fixed shape with everything it needs: descriptors, layouts, the algorithm. It must be run with the
/// [`Lt`] that made it.
pub struct LtPlan {
    problem: Problem,
    algo: sys::cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
    waves: f32,
    /// Locked while the descriptor's bias is set and used, because several users may share the plan.
    bias_turn: Mutex<()>,
}

// SAFETY: once made, descriptor and layouts are only read, except for the address of the bias, which has its lock.
unsafe impl Sync for LtPlan {}

impl LtPlan {
    /// The part of the epilogue that the plan does. The rest must be applied to `z` if the value before the activation
    /// is kept, otherwise to `c`.
    #[must_use]
    pub const fn done(&self) -> Epilogue {
        self.problem.done
    }

    /// Enqueues the product on a stream. Neither allocates nor waits, so it may be captured; run it once before that,
    /// because the first run of an algorithm loads its kernel.
    ///
    /// # Errors
    /// If cublasLt refuses, for example an address with a smaller alignment than promised.
    ///
    /// # Safety
    /// `lt` made this plan and its device's context is current on this thread. `stream` belongs to it. `a`, `b`, `c`
    /// and, if they are used, `bias`, `c_prev` and `z` are device addresses of as many elements as the shape says,
    /// multiples of 256 bytes for floats and 128 for 16-bit values; results overlap nothing else. `workspace` is a
    /// multiple of 256 with [`Self::workspace_bytes`] bytes (or 0 if that is 0). All remain valid, and nothing else
    /// uses the workspace, until the stream, or every replay of a capture of it, has run.
    pub unsafe fn run(&self, lt: &Lt, stream: CUstream, pointers: &Pointers, workspace: u64) -> Result<(), CudaError> {
        debug_assert!(
            workspace.is_multiple_of(WORKSPACE_ALIGN_BYTES) && (workspace != 0 || self.workspace_bytes == 0),
            "the workspace is a multiple of {WORKSPACE_ALIGN_BYTES}"
        );
        let problem = &self.problem;
        // A poisoned lock does no harm, because every user sets the address first.
        let _turn = problem.done.bias.then(|| self.bias_turn.lock().unwrap_or_else(PoisonError::into_inner));
        if problem.done.bias {
            let bias = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            set_desc(&problem.desc, bias, &pointers.bias)?;
        }
        let alpha = 1.0f32;
        let beta = if problem.accumulate { 1.0f32 } else { 0.0 };
        let output = if problem.into_z { pointers.z } else { pointers.c };
        let previous = if problem.accumulate { pointers.c_prev } else { output };
        // SAFETY: descriptors and layouts are alive and describe what the caller promises behind the addresses; `alpha`
        // and `beta` are on the host, which is the descriptor's default, and are read before the call returns. With
        // `beta` 0 the previous value is not read.
        let status = unsafe {
            sys::cublasLtMatmul(
                lt.handle.raw,
                problem.desc.raw,
                (&raw const alpha).cast(),
                pointers.b as *const c_void,
                problem.first.raw,
                pointers.a as *const c_void,
                problem.second.raw,
                (&raw const beta).cast(),
                previous as *const c_void,
                problem.output.raw,
                output as *mut c_void,
                problem.output.raw,
                &raw const self.algo,
                workspace as *mut c_void,
                self.workspace_bytes,
                stream.cast(),
            )
        };
        check("cublasLtMatmul", status)
    }

    /// The algorithm as text, for listings: its number, tile, stages, splits of the reduction, workspace, waves of
    /// blocks.
    #[must_use]
    pub fn describe(&self) -> String {
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
        let config = |attribute, size| algo_config(&self.algo, attribute, size);
        let number = |value: Option<u32>| value.map_or_else(|| "?".to_owned(), |v| v.to_string());
        let scheme = match config(Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4) {
            Some(0) => "",
            Some(2) => " summed as float",
            Some(4) => " summed as output",
            _ => " summed otherwise",
        };
        format!(
            "cublasLt algorithm {}, tile {}, stages {}, split-k {}{scheme}, {} B workspace, {:.2} waves",
            number(config(Config::CUBLASLT_ALGO_CONFIG_ID, 4)),
            config(Config::CUBLASLT_ALGO_CONFIG_TILE_ID, 4).map_or_else(|| "?".to_owned(), tile_name),
            config(Config::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4).map_or_else(|| "?".to_owned(), stages_name),
            number(config(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4)),
            self.workspace_bytes,
            self.waves,
        )
    }
}

/// Rows by columns of a tile, such as `128x256`; its number if it is newer than this program.
fn tile_name(id: u32) -> String {
    if id >= sys::cublasLtMatmulTile_t::CUBLASLT_MATMUL_TILE_END as u32 {
        return format!("#{id}");
    }
    // SAFETY: the enum is `repr(u32)` and names every number up to its END.
    let tile = unsafe { std::mem::transmute::<u32, sys::cublasLtMatmulTile_t>(id) };
    format!("{tile:?}").trim_start_matches("CUBLASLT_MATMUL_TILE_").to_lowercase()
}

/// Depth by number of stages, such as `64x4`; its number if it is newer than this program.
fn stages_name(id: u32) -> String {
    // The numbers 29 and 30 are not used.
    if id >= sys::cublasLtMatmulStages_t::CUBLASLT_MATMUL_STAGES_END as u32 || matches!(id, 29 | 30) {
        return format!("#{id}");
    }
    // SAFETY: the enum is `repr(u32)` and names every number up to its END except those two.
    let stages = unsafe { std::mem::transmute::<u32, sys::cublasLtMatmulStages_t>(id) };
    format!("{stages:?}").trim_start_matches("CUBLASLT_MATMUL_STAGES_").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_names() {
        assert_eq!(tile_name(20), "128x128");
        assert_eq!(tile_name(u32::MAX), "#4294967295");
        assert_eq!(stages_name(16), "64x4");
        assert_eq!(stages_name(29), "#29");
    }
}
