//! Gradients in exact arithmetic, with a bound for the rounding of every value.

use super::bound::Bound;
use super::gradient_step::{trained, update_at};
use crate::exec::Step;
use crate::exec::cpu::{BoundedStep, Storage};
use crate::lower::LValueId;
use crate::model::{Model, ParamId};
use crate::select::cuda::Real;
use crate::train::TrainError;

/// The number of batches that are drawn to find one in which rounding decides the position of no maximum.
pub(super) const DRAWS: u64 = 6;

/// Exact gradients and the exact loss, with bounds.
pub(super) struct Exact {
    /// By trained parameter, in logical order.
    pub(super) grads: Vec<Vec<Bound>>,
    pub(super) loss: Bound,
    /// Maxima whose position rounding decides.
    pub(super) undecided: u64,
}

/// Gradients of the batch in `step`, with bounds for kernels that compute in `f64`.
pub(super) fn double(model: &Model, step: &Step) -> Result<Exact, TrainError> {
    run_bounded::<53, 53>(model, step, Storage::default())
}

/// Gradients of the first batch in exact arithmetic, with bounds for kernels that compute as `real` does.
pub(super) fn exact_gradients(model: &Model, step: &Step, real: Real, loss_scale: f64) -> Result<Exact, TrainError> {
    // A step stores scaled gradients; these are not scaled. Whether a step exceeds the range of its type is found by
    // emulation.
    let half =
        |relative: f64, absolute: f64| Storage { relative, absolute: absolute / loss_scale, ..Storage::default() };
    match real {
        Real::F32 => run_bounded::<24, 24>(model, step, Storage::default()),
        Real::Tf32 => run_bounded::<24, 11>(model, step, Storage::default()),
        Real::F16 => run_bounded::<24, 11>(model, step, half(2f64.powi(-11), 2f64.powi(-25))),
        Real::Bf16 => run_bounded::<24, 8>(model, step, half(2f64.powi(-8), 0.0)),
    }
}

fn run_bounded<const SUM: i32, const PRODUCT: i32>(
    model: &Model,
    step: &Step,
    storage: Storage,
) -> Result<Exact, TrainError> {
    let mut bounded = BoundedStep::<SUM, PRODUCT>::new(std::sync::Arc::clone(step.compiled()), storage);
    bounded.load_state(step.backend())?;
    let undecided = bounded.run(0, update_at(step))?;
    let program = &step.compiled().plan.program;
    let reals = |id: LValueId| bounded.reals(id).unwrap_or(&[]);
    let grad = |p: ParamId| {
        let slot = &program.params[p.0 as usize];
        let stored = slot.grad.map_or(&[][..], reals);
        slot.order.to_logical(stored).into_iter().map(Bound::from).collect()
    };
    let loss = reals(step.find("loss")?).first().copied().unwrap_or_default().into();
    Ok(Exact { grads: trained(model).map(grad).collect(), loss, undecided })
}
