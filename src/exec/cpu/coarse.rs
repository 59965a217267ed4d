//! Runs a step in the emulated arithmetic of a coarse type: products read rounded operands, activations and their
//! gradients are stored in half width, and everything else is `f32`. Its error shows the effect of rounding in that
//! type on a network.

use super::values::Values;
use crate::compile::Compiled;
use crate::exec::backend::StepBackend;
use crate::exec::error::ExecError;
use crate::lower::{LValueId, Program};
use crate::model::Rng;
use crate::ops::{OpKind, Trans};
use crate::rewrite::stored_in_half;
use crate::select::cuda::Real;
use half::{bf16, f16};
use std::sync::Arc;

/// The values of a compiled step in `f32`, rounded as in a GPU's step of a coarse type. The program must be one that
/// the reference kernels can run.
pub struct CoarseStep {
    values: Values<f32>,
    rounding: Rounding,
    loss_scale: f32,
    /// By value, whether a step in this type stores it in half width.
    narrow: Vec<bool>,
}

impl CoarseStep {
    /// With a seed, every value is moved randomly by up to one unit in its last place before it is rounded, because
    /// kernels add in other orders and round other values than plain loops do.
    #[must_use]
    pub fn new(compiled: Arc<Compiled>, real: Real, loss_scale: f32, seed: Option<u64>) -> Self {
        let program = &compiled.plan.program;
        let narrow = if real.half().is_some() { stored_in_half(program) } else { vec![false; program.values.len()] };
        let rounding = Rounding { real, noise: seed.map(|seed| Rng::new(seed, 0xC0A2)) };
        Self { values: Values::new(compiled), rounding, loss_scale, narrow }
    }

    /// Copies the memory of `step` before it runs, and stores the batch as a step of this type does.
    ///
    /// # Errors
    /// If `step` was made from another program.
    pub fn load_state(&mut self, step: &dyn StepBackend) -> Result<(), ExecError> {
        self.values.load_state(step, |value| value as f32)?;
        let program = &self.values.compiled().plan.program;
        let batch: Vec<LValueId> = program.inputs.ids().filter(|id| self.narrow[id.0 as usize]).collect();
        batch.into_iter().for_each(|id| {
            let rounding = &mut self.rounding;
            self.values.reals_mut(id).iter_mut().for_each(|v| *v = rounding.coarse(*v));
        });
        Ok(())
    }

    /// Runs operations `from..to`.
    ///
    /// # Errors
    /// If an operation has no reference kernel.
    pub fn run(&mut self, from: usize, to: usize) -> Result<(), ExecError> {
        let compiled = Arc::clone(self.values.compiled());
        for (index, op) in compiled.plan.program.ops.iter().enumerate().take(to).skip(from) {
            let mut operands: Vec<(&str, Vec<f32>)> = Vec::new();
            for slot in rounded_slots(&op.kind, self.rounding.real) {
                if let Some(values) = op.arg(slot).and_then(|id| self.values.reals(id)) {
                    let rounding = &mut self.rounding;
                    operands.push((slot, values.iter().map(|v| rounding.coarse(*v)).collect()));
                }
            }
            self.values.run(index, &mut operands)?;
            for gradient in gradients_of_loss(&op.kind).iter().filter_map(|slot| op.arg(slot)) {
                self.values.reals_mut(gradient).iter_mut().for_each(|v| *v *= self.loss_scale);
            }
            op.writes().for_each(|id| self.store(&compiled.plan.program, id));
        }
        Ok(())
    }

    /// Rounds a value to the type in which it is stored.
    fn store(&mut self, program: &Program, id: LValueId) {
        let is_kept = program.value(program.root(id).0).persistent;
        let (rounding, narrow) = (&mut self.rounding, self.narrow[id.0 as usize]);
        for value in self.values.reals_mut(id) {
            if narrow {
                *value = rounding.coarse(*value);
            } else if !is_kept {
                *value = rounding.single(*value);
            }
        }
    }

    /// A real value's elements in memory order; empty if it contains no reals or was never computed. Gradients are
    /// those of the scaled loss.
    #[must_use]
    pub fn reals(&self, id: LValueId) -> &[f32] {
        self.values.reals(id).unwrap_or(&[])
    }
}

/// The slots that an operation reads with as many bits as products have.
const fn rounded_slots(kind: &OpKind, real: Real) -> &'static [&'static str] {
    match kind {
        // Libraries add biases of the product's type.
        OpKind::Gemm(gemm) if !matches!(gemm.trans, Trans::Tn) && real.half().is_some() => &["a", "b", "bias"],
        OpKind::Recurrence(_) | OpKind::RecurrenceBwd(_) => &["weight"],
        OpKind::Gemm(_) | OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } | OpKind::Conv2dBwdW { .. } => &["a", "b"],
        _ => &[],
    }
}

/// The slots in which an operation stores gradients of the loss and must scale them: the outputs of the operation that
/// computes the loss.
const fn gradients_of_loss(kind: &OpKind) -> &'static [&'static str] {
    match kind {
        OpKind::SoftmaxCeGrad { .. } | OpKind::SoftmaxCeFused { .. } => &["dlogits"],
        OpKind::MseGrad { .. } | OpKind::MseFused { .. } => &["dy"],
        OpKind::PointLossGrad { .. } | OpKind::PointLossFused { .. } => &["dy"],
        OpKind::ClassifierCe { .. } => &["dx", "dweight", "db"],
        _ => &[],
    }
}

/// How values are rounded.
struct Rounding {
    real: Real,
    noise: Option<Rng>,
}

impl Rounding {
    /// The nearest number of the coarse type; with noise, randomly one of the two neighbours, the nearer one more
    /// often.
    fn coarse(&mut self, value: f32) -> f32 {
        let (digits, least) = match self.real {
            Real::F32 => return self.single(value),
            Real::Tf32 => (11, -126),
            Real::F16 => (11, -14),
            Real::Bf16 => (8, -126),
        };
        let noise = self.noise.as_mut().map_or(0.0, |rng| rng.range(-0.5, 0.5));
        let moved = (f64::from(value) + noise * last_place(value, digits, least)) as f32;
        match self.real {
            Real::F16 => f16::from_f32(moved).to_f32(),
            Real::Bf16 => bf16::from_f32(moved).to_f32(),
            Real::F32 | Real::Tf32 => nearest_tf32(moved),
        }
    }

    /// An `f32`, with noise up to one unit in its last place away.
    fn single(&mut self, value: f32) -> f32 {
        let Some(rng) = &mut self.noise else { return value };
        (f64::from(value) + rng.range(-1.0, 1.0) * last_place(value, 24, -126)) as f32
    }
}

/// The distance between neighbouring numbers with this many digits near `value`, whose normal numbers begin at
/// 2^`least`; 0 for zero and for values that are not finite.
fn last_place(value: f32, digits: i32, least: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let exponent = libm::frexp(f64::from(value)).1 - 1;
    libm::ldexp(1.0, exponent.max(least) - (digits - 1))
}

/// The nearest number with a ten-bit fraction.
fn nearest_tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    f32::from_bits(value.to_bits().wrapping_add(1 << 12) & !((1 << 13) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_the_numbers_of_their_type() {
        let of = |real: Real, value: f32| Rounding { real, noise: None }.coarse(value);
        assert_eq!(of(Real::F32, 1.000_000_1), 1.000_000_1);
        assert_eq!(of(Real::Tf32, 1.0 + 0.7 / 1024.0), 1.0 + 1.0 / 1024.0);
        assert_eq!(of(Real::Bf16, 1.0 + 0.3 / 128.0), 1.0);
        assert_eq!(of(Real::F16, 1.0 + 0.7 / 1024.0), 1.0 + 1.0 / 1024.0);
        // The largest half-precision number is 65504, and values below 2^-25 become zero.
        assert!(of(Real::F16, 65_520.0).is_infinite() && of(Real::F16, 65_519.0) == 65_504.0);
        assert_eq!((of(Real::F16, 1e-8), of(Real::Bf16, 1e30).is_finite()), (0.0, true));
        assert!(of(Real::Tf32, f32::NAN).is_nan() && of(Real::Tf32, f32::INFINITY).is_infinite());
    }

    #[test]
    fn noise_selects_one_of_both_neighbours_and_keeps_exact_values() {
        for real in [Real::Tf32, Real::Bf16, Real::F16] {
            let mut noisy = Rounding { real, noise: Some(Rng::new(1, 2)) };
            let digits = if real == Real::Bf16 { 8 } else { 11 };
            let (below, unit) = (3.0f32, last_place(3.0, digits, -14) as f32);
            let found: Vec<f32> = (0..64).map(|_| noisy.coarse(below + 0.5 * unit)).collect();
            assert!(found.iter().all(|v| *v == below || *v == below + unit), "{real:?} {found:?}");
            assert!(found.contains(&below) && found.contains(&(below + unit)), "{real:?}");
            assert!((0..64).all(|_| noisy.coarse(below) == below && noisy.coarse(0.0) == 0.0));
        }
    }
}
