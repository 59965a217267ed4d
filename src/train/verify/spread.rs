//! How far rounding moves the loss and the gradients of a step in `f64`, measured.
//!
//! A running error bound grows with the depth of a network. Behind several attentions or the steps of a recurrence, it
//! can exceed the gradients, and a wrong gradient would be within it. Samples take its place there: the step runs
//! again with the last digits of its parameters and of every result changed at random, and the differences show what
//! rounding does.

use super::gradient_step::{trained, update_at};
use crate::exec::Step;
use crate::exec::cpu::Pool;
use crate::model::{Model, ParamId, Rng};
use crate::tensor::DType;
use crate::train::TrainError;
use std::sync::Arc;

/// Steps with changed last digits.
pub(super) const SAMPLES: usize = 8;

/// The share of a norm, or of a hundredth of the largest gradient norm, that a bound must be below. A larger bound does
/// not tell a wrong gradient from a right one.
const USEFUL: f64 = 1e-3;

/// The share of the same that a measured bound is at least.
const LEAST: f64 = 1e-6;

/// Units in the last place that the measured bound of a loss is at least.
const LEAST_OF_LOSS: f64 = 8.0;

/// How much farther away a kernel may be than the farthest of the emulated steps. These are samples of what rounding
/// does; a single number, the worst case, is four times as far as the farthest of nine samples once in some thousands.
pub(super) const ROUNDING: f64 = 4.0;

/// How far a kernel may be, from how far the samples are. What rounding is multiplied by may itself be rounding, as in
/// batch normalisations of what is constant, one behind the other: then the samples differ by orders of magnitude, and
/// the kernel is one more of these. It may be as many times farther than the farthest sample as that is farther than
/// the middle one; of logarithms that are normally distributed, that is three deviations. Samples that are not off at
/// all say nothing of this.
pub(super) fn extrapolated(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.filter(|apart| *apart > 0.0).collect();
    samples.sort_by(f64::total_cmp);
    let Some(farthest) = samples.last() else { return 0.0 };
    farthest * ROUNDING.max(farthest / samples[(samples.len() - 1) / 2])
}

/// The norm of a vector.
pub(super) fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// The norm that errors of a gradient are compared with: its own, or a hundredth of the largest one if that is more.
pub(super) fn reference_norm(own: f64, longest: f64) -> f64 {
    own.max(1e-2 * longest)
}

/// Whether a bound is small enough to tell wrong from right for a gradient of this norm.
pub(super) fn is_useful(bound: f64, norm: f64) -> bool {
    bound <= USEFUL * norm
}

/// The values with their last digits changed at random.
fn changed(values: &[f64], rng: &mut Rng) -> Vec<f64> {
    values.iter().map(|v| v * (1.0 + rng.range(-1.0, 1.0) * f64::EPSILON)).collect()
}

/// Runs the first `until` operations of a step, and changes the last digits of what each of them writes. What survives
/// the step is not changed: it may be an exact number, such as a learning rate.
fn run_changed(step: &mut Step, until: usize, pool: &mut Pool, rng: &mut Rng) -> Result<(), TrainError> {
    let compiled = Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    for (index, op) in program.ops.iter().enumerate().take(until) {
        step.run_ops(index, index + 1, pool)?;
        for id in op.writes() {
            let is_kept = program.value(program.root(id).0).persistent;
            if program.value(id).dtype == DType::F64 && !is_kept {
                let values = changed(&step.stored::<f64>(id)?, rng);
                step.write(id, &values)?;
            }
        }
    }
    Ok(())
}

/// Differences between a step and the same step with changed last digits.
pub(super) struct Spread {
    loss: f64,
    /// By sample.
    losses: Vec<f64>,
    /// By sample and trained parameter, in logical order. Differences do not need the digits of `f64`.
    grads: Vec<Vec<Vec<f32>>>,
}

impl Spread {
    /// Bytes that the samples of a model take.
    pub(super) fn bytes(model: &Model) -> u64 {
        (SAMPLES * model.trained_len() * size_of::<f32>()) as u64
    }

    /// The samples in `kept`, which are measured if there are none.
    pub(super) fn measured_once<'a>(
        kept: &'a mut Option<Self>,
        model: &Model,
        (step, pool): (&mut Step, &mut Pool),
        seed: u64,
    ) -> Result<&'a Self, TrainError> {
        let spread = match kept.take() {
            Some(spread) => spread,
            None => Self::measure(model, step, pool, seed)?,
        };
        Ok(kept.insert(spread))
    }

    /// Runs the samples; `step` is a step in `f64` that has not run, and is left so.
    fn measure(model: &Model, step: &mut Step, pool: &mut Pool, seed: u64) -> Result<Self, TrainError> {
        let (saved, until, loss) = (step.snapshot()?, update_at(step), step.find("loss")?);
        let ids: Vec<ParamId> = trained(model).collect();
        let start: Vec<Vec<f64>> = ids.iter().map(|p| step.param::<f64>(*p)).collect::<Result<_, _>>()?;
        let take_results = |step: &mut Step| {
            let grads: Vec<Vec<f64>> = ids.iter().map(|p| step.grad::<f64>(*p)).collect::<Result<_, _>>()?;
            let loss = step.stored::<f64>(loss)?[0];
            step.restore(&saved)?;
            Ok::<_, TrainError>((loss, grads))
        };
        step.run_ops(0, until, pool)?;
        let (loss, grads) = take_results(step)?;
        let mut rng = Rng::new(seed, 0x5B3D);
        let mut spread = Self { loss, losses: Vec::new(), grads: Vec::new() };
        for _ in 0..SAMPLES {
            for (p, start) in ids.iter().zip(&start) {
                step.set_param(*p, &changed(start, &mut rng))?;
            }
            run_changed(step, until, pool, &mut rng)?;
            let (moved_loss, moved) = take_results(step)?;
            let apart = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| (a - b) as f32).collect();
            spread.losses.push(moved_loss - loss);
            spread.grads.push(moved.iter().zip(&grads).map(apart).collect());
        }
        Ok(spread)
    }

    /// What rounding may do to the loss.
    pub(super) fn of_loss(&self) -> f64 {
        let least = LEAST_OF_LOSS * f64::EPSILON * self.loss.abs();
        extrapolated(self.losses.iter().map(|l| l.abs())).max(least)
    }

    /// What rounding may do to the slope of the loss along a direction of one parameter, whose gradient has this norm.
    pub(super) fn of_slope(&self, index: usize, direction: &[f64], norm: f64) -> f64 {
        let slope = |grads: &Vec<Vec<f32>>| grads[index].iter().zip(direction).map(|(g, d)| f64::from(*g) * d).sum();
        extrapolated(self.grads.iter().map(|grads| f64::abs(slope(grads)))).max(LEAST * norm)
    }

    /// What rounding may do to the gradient of one parameter as a whole, which has this norm.
    pub(super) fn of_gradient(&self, index: usize, size: f64) -> f64 {
        let apart = |grads: &Vec<Vec<f32>>| norm(grads[index].iter().map(|g| f64::from(*g)));
        extrapolated(self.grads.iter().map(apart)).max(LEAST * size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_sizes_allow_more_than_those_of_one_size() {
        let of = |samples: &[f64]| extrapolated(samples.iter().copied());
        assert_eq!((of(&[]), of(&[0.0, 0.0]), of(&[0.0, 3.0, 0.0])), (0.0, 0.0, 12.0));
        assert_eq!(of(&[1.0, 0.5, 1.5, 2.0, 1.0]), 8.0);
        // The farthest is a thousand times as far as the middle one.
        assert_eq!(of(&[1e3, 1.0, 1e-3, 0.0]), 1e6);
    }
}
