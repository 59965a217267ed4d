//! The libraries of one GPU, cuBLASLt and cuDNN, with the plans that they have made.

use super::cublaslt::{Lt, LtPlan};
use super::cudnn::{ConvKind, ConvTask, Dnn, DnnPlan, Fused, PlanRequest, Task};
use super::error::CudaError;
use crate::exec::cuda::probe::Probe;
use crate::ops::{ConvGeometry, Gemm, Trans};
use crate::select::cuda::Real;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The answer of cuDNN.
pub(super) type Plans = Result<Arc<Vec<DnnPlan>>, CudaError>;

/// A product that cuBLASLt plans, with the index of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LtRequest {
    pub(super) gemm: Gemm,
    pub(super) real: Real,
    pub(super) workspace_limit_bytes: usize,
    pub(super) number: usize,
}

/// The largest number of plans of a library that are kept; beyond it all are dropped, except for those that steps hold.
const MOST_PLANS: usize = 4_096;

/// The libraries that were found.
pub(super) struct Libraries {
    /// cuBLASLt, opened when the first plan is requested: many small networks need none.
    lt: Mutex<Option<Result<Lt, CudaError>>>,
    lt_plans: Mutex<HashMap<LtRequest, Result<Arc<LtPlan>, CudaError>>>,
    /// Locked while a plan of cuDNN runs.
    dnn: Mutex<()>,
    /// Handles that no thread uses for planning.
    spares: Mutex<Vec<Dnn>>,
    plans: Mutex<HashMap<PlanRequest, Arc<OnceLock<Plans>>>>,
    prepares_all: AtomicBool,
    pub(super) has_lt: bool,
    pub(super) has_dnn: bool,
}

impl Libraries {
    /// The libraries that were found.
    pub(super) fn new(found: &Probe) -> Self {
        Self {
            has_lt: found.has("cublaslt"),
            has_dnn: found.has("cudnn"),
            lt: Mutex::default(),
            lt_plans: Mutex::default(),
            dnn: Mutex::default(),
            spares: Mutex::default(),
            plans: Mutex::default(),
            prepares_all: AtomicBool::new(false),
        }
    }

    /// Uses cuBLASLt, which the first call opens for the device whose context is current.
    ///
    /// # Errors
    /// If it is missing or cannot be opened, and the errors of `run`.
    pub(super) fn with_lt<T>(&self, run: impl FnOnce(&Lt) -> Result<T, CudaError>) -> Result<T, CudaError> {
        if !self.has_lt {
            return Err("cuBLASLt is missing".into());
        }
        let mut lt = self.lt.lock().unwrap_or_else(PoisonError::into_inner);
        match lt.get_or_insert_with(|| Lt::open().inspect_err(|e| log::warn!("cuBLASLt: {e}"))) {
            Ok(lt) => run(lt),
            Err(why) => Err(why.clone()),
        }
    }

    /// The plan of cuBLASLt for a product, made once in the process.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn lt_plan(&self, wanted: &LtRequest) -> Result<Arc<LtPlan>, CudaError> {
        let known = || self.lt_plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known().get(wanted) {
            return plan.clone();
        }
        let LtRequest { gemm, real, workspace_limit_bytes, number } = wanted;
        let plan = self.with_lt(|lt| lt.plan(gemm, *real, *workspace_limit_bytes, *number).map(Arc::new));
        let mut known = known();
        if known.len() >= MOST_PLANS {
            known.clear();
        }
        known.entry(*wanted).or_insert(plan).clone()
    }

    pub(super) fn dnn(&self) -> MutexGuard<'_, ()> {
        self.dnn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether libraries prepare all their algorithms, to be timed, or only the chosen one.
    pub(super) fn prepare_all(&self, all: bool) {
        self.prepares_all.store(all, Ordering::Relaxed);
    }

    /// The plans of cuDNN for a task, at least as many as are requested if it has that many, prepared once in
    /// the process.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn plans(&self, wanted: &PlanRequest) -> Plans {
        let known = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // For timing, all plans are needed; if one was chosen, preparing later ones would only take time.
        let all = PlanRequest { max: usize::from(wanted.task.offers()), ..*wanted };
        let everything = self.prepares_all.load(Ordering::Relaxed);
        let wanted = if everything || known().contains_key(&all) { all } else { *wanted };
        let cell = {
            let mut known = known();
            if known.len() >= MOST_PLANS {
                known.clear();
            }
            Arc::clone(known.entry(wanted).or_default())
        };
        // A thread that needs plans that another thread is preparing waits for them.
        cell.get_or_init(|| self.ask_for_plans(&wanted)).clone()
    }

    /// Asks each library for the plan of something small. The first answer takes a library a tenth of a second or more,
    /// further ones a few milliseconds.
    pub(super) fn ask_once(&self, real: Real) {
        const SIDE: usize = 64;
        let gemm = Gemm::plain(SIDE, SIDE, SIDE, Trans::Nn);
        let product = LtRequest { gemm, real, workspace_limit_bytes: 0, number: 0 };
        if self.has_lt
            && let Err(why) = self.lt_plan(&product)
        {
            log::debug!("cuBLASLt has no plan for a small product: {why}");
        }
        let geometry = ConvGeometry {
            n: SIDE,
            h: 8,
            w: 8,
            c: SIDE,
            f: SIDE,
            kernel: [3, 3],
            padding: [1, 1],
            ho: 8,
            wo: 8,
            ..ConvGeometry::UNIT
        };
        for kind in [ConvKind::Forward, ConvKind::BwdX, ConvKind::BwdW] {
            let task = Task::Conv(ConvTask { kind, geometry, fused: Fused::default() });
            let wanted = PlanRequest { task, real, workspace_limit_bytes: 1 << 25, max: 1 };
            if self.has_dnn
                && let Err(why) = self.plans(&wanted)
            {
                log::debug!("cuDNN has no plan for a small convolution: {why}");
            }
        }
    }

    /// Queries cuDNN. Several threads do so at once, each with its own handle, because some plans must be compiled.
    fn ask_for_plans(&self, wanted: &PlanRequest) -> Plans {
        let started = std::time::Instant::now();
        let dnn = self.spare_dnn()?;
        // Weight gradients that are stored in half width and converted by a separate pass are several times as fast as
        // those that are stored as floats directly.
        let narrow = if wanted.task.is_weight_gradient() && wanted.real.half().is_some() {
            dnn.plans_with_narrow_dw(wanted).ok()
        } else {
            None
        };
        let plans = narrow.map_or_else(|| dnn.plans(wanted), Ok).map(Arc::new);
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(dnn);
        let PlanRequest { task, max, .. } = wanted;
        let count = plans.as_ref().map_or(0, |p| p.len());
        log::debug!("cuDNN, {task:?}: {count} of {max} plans in {:.0?}", started.elapsed());
        plans
    }

    /// A handle of cuDNN that no thread uses for planning.
    fn spare_dnn(&self) -> Result<Dnn, CudaError> {
        if !self.has_dnn {
            return Err("cuDNN is missing".into());
        }
        if let Some(dnn) = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(dnn);
        }
        Dnn::open().inspect_err(|e| log::warn!("cuDNN: {e}"))
    }
}
