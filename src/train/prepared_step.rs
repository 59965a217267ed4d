//! A single step with initial parameters and one batch, as most checks need it.

use crate::compile::{Options, compile};
use crate::exec::Step;
use crate::exec::cpu::Pool;
use crate::ir::Share;
use crate::model::{Init, Model, ParamId, Rng, init_values};
use crate::plan::StateKind;
use crate::tensor::DType;
use crate::train::data_feed::write_real;
use crate::train::preparation::start_loss_scale;
use crate::train::{DataFeed, TrainError};
use std::sync::Arc;

/// A step with initial parameters and one batch, in the precision of `compiling`.
pub(super) fn prepared(model: &Model, compiling: &Options, seed: u64) -> Result<(Step, Pool), TrainError> {
    let threads = compiling.target.as_cpu().map_or(1, |c| c.threads);
    let mut step = Step::new(Arc::new(compile(model, compiling)?), threads)?;
    set_initial(&mut step, model, seed)?;
    DataFeed::resident(&mut step, model, seed)?;
    Ok((step, Pool::new(threads)?))
}

/// The number of steps of the run for which a schedule is made.
pub(super) const STEPS: i64 = 100;

/// Initial parameters, learning rate and counters, in the step's precision. Biases and similar parameters do not start
/// at zero, so that their gradients matter.
fn set_initial(step: &mut Step, model: &Model, seed: u64) -> Result<(), TrainError> {
    let compiled = Arc::clone(step.compiled());
    let real = compiled.plan.program.real;
    // A batch before the last one of a step updates nothing, and need not count.
    let is_before_last = compiled.graph.share.is_some_and(|share| share != Share::Last);
    for (index, param) in model.params.iter().enumerate() {
        let id = ParamId(index as u32);
        let mut values: Vec<f64> = init_values(param, index, seed).into_iter().map(f64::from).collect();
        if matches!(param.init, Init::Constant { .. }) && param.kind.is_trained() {
            let mut rng = Rng::new(seed, 0x7000 + index as u64);
            values.iter_mut().for_each(|v| *v = f64::from((*v + rng.range(-0.1, 0.1)) as f32));
        }
        if real == DType::F64 {
            step.set_param(id, &values)?;
        } else {
            let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            step.set_param(id, &narrow)?;
        }
    }
    if !is_before_last {
        let hyper = step.state(StateKind::Hyper)?;
        let rates: Vec<f64> = model.optimizer.live_fields().iter().map(|(_, value)| *value).collect();
        write_real(step, hyper, real, &rates)?;
    }
    if let Ok(steps) = step.find("steps") {
        step.write(steps, &[STEPS])?;
    }
    for name in ["counter", "batches"] {
        match step.find(name) {
            Ok(count) => step.write(count, &[seed as i64, 0])?,
            Err(_) if name == "batches" || is_before_last => {}
            Err(why) => return Err(why.into()),
        }
    }
    // Small, so that no gradient of the checks overflows; that the step recovers from an overflow is tested elsewhere.
    start_loss_scale(step, 64.0)
}
