//! The libraries of one GPU, cuBLASLt and cuDNN, with the plans that they have made.

use super::cublaslt::{Lt, LtPlan};
use super::cudnn::{ConvKind, Dnn, DnnPlan, PlanRequest};
use super::error::CudaError;
use crate::exec::cuda::probe::Probe;
use crate::ops::Gemm;
use crate::select::cuda::{Real, dnn_offers};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What cuDNN answered.
pub(super) type Plans = Result<Arc<Vec<DnnPlan>>, CudaError>;

/// A product that cuBLASLt is asked to plan, with its number among the algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LtRequest {
    pub(super) gemm: Gemm,
    pub(super) real: Real,
    pub(super) workspace_limit_bytes: usize,
    pub(super) number: usize,
}

/// Plans of a library that are kept, at most; then all are forgotten, but for those that steps hold.
const MOST_PLANS: usize = 4_096;

/// The libraries that were found.
pub(super) struct Libraries {
    lt: Mutex<Option<Lt>>,
    lt_plans: Mutex<HashMap<LtRequest, Result<Arc<LtPlan>, CudaError>>>,
    /// Held by whoever runs something of cuDNN's.
    dnn: Mutex<()>,
    /// Handles that no thread is planning with.
    spares: Mutex<Vec<Dnn>>,
    plans: Mutex<HashMap<PlanRequest, Arc<OnceLock<Plans>>>>,
    prepares_all: AtomicBool,
    pub(super) has_lt: bool,
    pub(super) has_dnn: bool,
}

impl Libraries {
    /// Opens them for the device whose context is current.
    pub(super) fn open(found: &Probe) -> Self {
        let lt =
            if found.has("cublaslt") { Lt::open().inspect_err(|e| log::warn!("cuBLASLt: {e}")).ok() } else { None };
        let dnn = if found.has("cudnn") { Dnn::open().inspect_err(|e| log::warn!("cuDNN: {e}")).ok() } else { None };
        Self {
            has_lt: lt.is_some(),
            has_dnn: dnn.is_some(),
            lt: Mutex::new(lt),
            lt_plans: Mutex::default(),
            dnn: Mutex::default(),
            spares: Mutex::new(dnn.into_iter().collect()),
            plans: Mutex::default(),
            prepares_all: AtomicBool::new(false),
        }
    }

    pub(super) fn lt(&self) -> MutexGuard<'_, Option<Lt>> {
        self.lt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of cuBLASLt for a product, made once for the whole process.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn lt_plan(&self, wanted: &LtRequest) -> Result<Arc<LtPlan>, CudaError> {
        let known = || self.lt_plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known().get(wanted) {
            return plan.clone();
        }
        let LtRequest { gemm, real, workspace_limit_bytes, number } = wanted;
        let plan = {
            let lt = self.lt();
            let lt = lt.as_ref().ok_or("there is no cuBLASLt")?;
            lt.plan(gemm, *real, *workspace_limit_bytes, *number).map(Arc::new)
        };
        let mut known = known();
        if known.len() >= MOST_PLANS {
            known.clear();
        }
        known.entry(*wanted).or_insert(plan).clone()
    }

    pub(super) fn dnn(&self) -> MutexGuard<'_, ()> {
        self.dnn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether libraries prepare all their algorithms, to be timed, or only the one that was chosen.
    pub(super) fn prepare_all(&self, all: bool) {
        self.prepares_all.store(all, Ordering::Relaxed);
    }

    /// The plans that cuDNN offers for a convolution, at least as many as are wanted where there are so many, prepared
    /// once for the whole process.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn plans(&self, wanted: &PlanRequest) -> Plans {
        let known = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // Where everything is timed, all plans are wanted; where one was chosen, preparing those behind it would only
        // take time.
        let most = usize::from(dnn_offers(wanted.kind == ConvKind::BwdW, wanted.fused.relu_grad));
        let all = PlanRequest { max: most, ..*wanted };
        let everything = self.prepares_all.load(Ordering::Relaxed);
        let wanted = if everything || known().contains_key(&all) { all } else { *wanted };
        let cell = {
            let mut known = known();
            if known.len() >= MOST_PLANS {
                known.clear();
            }
            Arc::clone(known.entry(wanted).or_default())
        };
        // A thread that needs what another thread is preparing waits for it.
        cell.get_or_init(|| self.ask_for_plans(&wanted)).clone()
    }

    /// Asks cuDNN. Several threads do at once, each with a handle of its own: some plans are compiled for the purpose.
    fn ask_for_plans(&self, wanted: &PlanRequest) -> Plans {
        let started = std::time::Instant::now();
        let dnn = self.spare_dnn()?;
        // Stored in half width and widened by a pass of our own, weight gradients are several times as fast as what
        // stores floats itself.
        let narrow = if wanted.kind == ConvKind::BwdW && wanted.real.half().is_some() {
            dnn.plans_with_narrow_dw(wanted).ok()
        } else {
            None
        };
        let plans = narrow.map_or_else(|| dnn.plans(wanted), Ok).map(Arc::new);
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(dnn);
        let PlanRequest { kind, fused, max, .. } = wanted;
        let count = plans.as_ref().map_or(0, |p| p.len());
        log::debug!("cuDNN, {kind:?} {fused:?}: {count} of {max} plans in {:.0?}", started.elapsed());
        plans
    }

    /// A handle of cuDNN that no thread is planning with.
    fn spare_dnn(&self) -> Result<Dnn, CudaError> {
        if !self.has_dnn {
            return Err("there is no cuDNN".into());
        }
        if let Some(dnn) = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(dnn);
        }
        Dnn::open()
    }
}
