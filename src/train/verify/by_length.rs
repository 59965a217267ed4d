//! Tensors whose elements cannot be judged one by one: each is judged by its length, and what it may be off by is found
//! by computing in the type's own arithmetic, emulated.

use super::bound::Bound;
use super::divergence::is_large;
use super::exact::Exact;
use super::gradient_step::{EMULATED, trained, update_at};
use super::spread::{ROUNDING, extrapolated, norm, reference_norm};
use crate::compile::Options;
use crate::exec::cpu::{CoarseStep, host_target};
use crate::model::Model;
use crate::ops::Dir;
use crate::select::cuda::Real;
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// The share of its length by which a tensor may be off where its elements cannot be judged one by one.
pub(super) const fn tolerance(real: Real) -> f64 {
    match real {
        Real::F32 => 1e-3,
        Real::Tf32 | Real::F16 => 8e-2,
        Real::Bf16 => 3e-1,
    }
}

/// The nearest number with as many bits as products have of a type; for `f32` the next but one, as nothing is rounded
/// there.
fn coarse(value: f64, real: Real) -> f64 {
    let bits = (value as f32).to_bits();
    let drop = match real {
        Real::F32 => return f64::from(f32::from_bits(bits ^ 2)),
        Real::Tf32 | Real::F16 => 13,
        Real::Bf16 => 16,
    };
    f64::from(f32::from_bits(bits.wrapping_add(1 << (drop - 1)) & !((1 << drop) - 1)))
}

/// Gradients in f64 where the parameters alone are rounded: how far a network's gradients move for that, and how many
/// a relu turns the other way.
fn moved_gradients(model: &Model, real: Real, seed: u64) -> Result<Vec<Vec<f64>>, TrainError> {
    let (mut step, mut pool) = prepared(model, &Options::reference_f64(host_target(1)), seed)?;
    for p in trained(model) {
        let rounded: Vec<f64> = step.param::<f64>(p)?.iter().map(|v| coarse(*v, real)).collect();
        step.set_param(p, &rounded)?;
    }
    let update = update_at(&step);
    step.run_ops(0, update, &mut pool)?;
    trained(model).map(|p| Ok(step.grad::<f64>(p)?)).collect()
}

/// Gradients and loss of a step in emulated arithmetic.
struct Emulated {
    /// By trained parameter, in logical order, of the loss itself.
    grads: Vec<Vec<f64>>,
    loss: f64,
    /// Whether an operation had arguments without squares in `f32`, so that its sums may be infinite.
    has_large_arguments: bool,
}

impl Emulated {
    fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.grads.iter().flatten().all(|g| g.is_finite())
    }
}

/// The first batch of a seed in emulated arithmetic, several times; with the operations fused that a GPU fuses too.
fn emulated(model: &Model, real: Real, (seed, scale): (u64, f64)) -> Result<Vec<Emulated>, TrainError> {
    let (step, _) = prepared(model, &Options::train(host_target(1)), seed)?;
    let (update, loss) = (update_at(&step), step.find("loss")?);
    let params = &step.compiled().plan.program.params;
    let once = |noise: Option<u64>| {
        let mut coarse = CoarseStep::new(std::sync::Arc::clone(step.compiled()), real, scale as f32, noise);
        coarse.load_state(step.backend())?;
        coarse.run(0, update)?;
        let grad = |slot: &crate::lower::ParamSlot| {
            let stored = slot.grad.map_or(&[][..], |id| coarse.reals(id));
            slot.order.to_logical(stored).into_iter().map(|g| f64::from(g) / scale).collect()
        };
        let grads = trained(model).map(|p| grad(&params[p.0 as usize])).collect();
        let loss = coarse.reals(loss).first().map_or(f64::NAN, |v| f64::from(*v));
        let mut arguments = step.compiled().plan.program.ops[..update].iter().flat_map(|op| op.bound(Dir::In));
        let has_large_arguments = arguments.any(|(_, id)| coarse.reals(id).iter().any(|v| is_large(f64::from(*v))));
        Ok(Emulated { grads, loss, has_large_arguments })
    };
    (0..EMULATED).map(|run| once(run.checked_sub(1).map(|noise| seed.wrapping_add(noise << 32)))).collect()
}

/// Whether a step of plain loops in this type leaves its range on the first batch of a seed, so that its gradients need
/// not be numbers. It also leaves it if only a sum of squares does: the variance of a normalisation is infinite then,
/// and its results are finite and wrong, or are no numbers.
pub(super) fn leaves_range(model: &Model, real: Real, start: (u64, f64)) -> Result<bool, TrainError> {
    Ok(emulated(model, real, start)?.iter().any(|e| !e.is_finite() || e.has_large_arguments))
}

/// Why a step is not judged that leaves the range of its type.
pub(super) fn left_range(real: Real) -> String {
    format!("the step leaves the range of {}", if real == Real::Tf32 { "f32" } else { real.name() })
}

/// Tensors whose elements cannot be judged one by one, because their bounds are as large as the network's gradients or
/// rounding decides the place of a maximum: each is judged by its length.
pub(super) struct ByLength<'a> {
    pub(super) exact: &'a Exact,
    model: &'a Model,
    /// The length of the longest gradient.
    longest: f64,
    pub(super) real: Real,
    /// The seed of weights and batch, and what the loss is multiplied by.
    start: (u64, f64),
    moved: Vec<Vec<f64>>,
    emulated: Vec<Emulated>,
}

impl<'a> ByLength<'a> {
    pub(super) fn new(exact: &'a Exact, model: &'a Model, real: Real, start: (u64, f64)) -> Self {
        let lengths = exact.grads.iter().map(|g| norm(g.iter().map(|b| b.value)));
        let longest = lengths.fold(0.0, f64::max);
        Self { exact, model, longest, real, start, moved: Vec::new(), emulated: Vec::new() }
    }

    /// Whether elements of a tensor cannot be judged by their bounds: one has none, or the bounds together exceed what
    /// the norm allows.
    pub(super) fn is_needed(&self, index: usize) -> bool {
        is_needed(&self.exact.grads[index], self.longest, self.real)
    }

    /// Computes what rounding does, unless that is known.
    fn prepare(&mut self) -> Result<(), TrainError> {
        if self.moved.is_empty() {
            self.moved = moved_gradients(self.model, self.real, self.start.0)?;
        }
        if self.emulated.is_empty() {
            self.emulated = emulated(self.model, self.real, self.start)?;
        }
        Ok(())
    }

    /// Whether an emulated step leaves the range of its type.
    pub(super) fn leaves_range(&self) -> Result<bool, TrainError> {
        leaves_range(self.model, self.real, self.start)
    }

    /// How far a tensor is off, and may be, as shares of its length or of a hundredth of the longest.
    pub(super) fn judge(&mut self, index: usize, found: &[f64]) -> Result<(f64, f64), TrainError> {
        self.prepare()?;
        let exact = &self.exact.grads[index];
        let size = own_or_longest(exact, self.longest).max(f64::MIN_POSITIVE);
        let apart = |from: &[f64]| norm(exact.iter().zip(from).map(|(b, v)| b.value - v)) / size;
        let emulated = self.emulated.iter().filter(|e| e.is_finite()).map(|e| apart(&e.grads[index]));
        let rounding = extrapolated(emulated).max(ROUNDING * apart(&self.moved[index]));
        Ok((apart(found), tolerance(self.real).max(rounding)))
    }

    /// How far the loss may be off.
    pub(super) fn loss_allowed(&mut self) -> Result<f64, TrainError> {
        self.prepare()?;
        let exact = self.exact.loss.value;
        let emulated = self.emulated.iter().filter(|e| e.is_finite()).map(|e| (e.loss - exact).abs());
        Ok((tolerance(self.real) * exact.abs()).max(extrapolated(emulated)))
    }
}

fn is_needed(bounds: &[Bound], longest: f64, real: Real) -> bool {
    let errors = || bounds.iter().map(|b| b.error);
    let is_unlimited = errors().any(|error| !error.is_finite());
    // In `f32` a tensor is judged by its norm beside its elements, so that this only adds to what is compared.
    let size = if real == Real::F32 { own_or_longest(bounds, longest) } else { longest };
    is_unlimited || norm(errors()) > tolerance(real) * size
}

/// The norm of a gradient, or a hundredth of the longest one's.
fn own_or_longest(bounds: &[Bound], longest: f64) -> f64 {
    reference_norm(norm(bounds.iter().map(|b| b.value)), longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::verify::exact::exact_gradients;

    #[test]
    fn tensors_whose_bounds_exceed_what_the_norm_allows_are_judged_by_their_norm() {
        let bounds = |error: f64| [Bound { value: 1.0, error: 1e-4 }, Bound { value: 0.1, error }];
        let longest = norm(bounds(0.0).iter().map(|b| b.value));
        let is_needed = |error: f64, real: Real| is_needed(&bounds(error), longest, real);
        for (real, within, beyond) in [(Real::F32, 5e-4, 2e-3), (Real::F16, 5e-2, 0.1), (Real::Bf16, 0.2, 0.4)] {
            assert!(!is_needed(within, real) && is_needed(beyond, real), "{real:?}");
        }
        assert!([f64::INFINITY, f64::NAN].iter().all(|e| is_needed(*e, Real::F32) && is_needed(*e, Real::F16)));
    }

    fn model(text: &str) -> Model {
        crate::model::check(&crate::model::read_preset(text).unwrap()).model.unwrap()
    }

    fn preset(precision: &str, [shape, batch, layers]: [&str; 3]) -> String {
        format!(
            r#"{{"version": 1, "name": "t", "precision": "{precision}", "input": {{"shape": {shape}, "batch": {batch}}},
            "layers": [{layers}], "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        )
    }

    /// What each gradient of a network may be off by, over the type's tolerance; each error of ten times that must be
    /// too large.
    fn allowed(text: &str, real: Real, seed: u64) -> Vec<f64> {
        let small = model(text);
        let (wide, _) = prepared(&small, &Options::reference_f64(host_target(1)), seed).unwrap();
        let exact = exact_gradients(&small, &wide, real, 64.0).unwrap();
        let mut by_length = ByLength::new(&exact, &small, real, (seed, 64.0));
        assert!(!by_length.leaves_range().unwrap());
        let mut out = Vec::new();
        for (index, grad) in exact.grads.iter().enumerate() {
            let mut found: Vec<f64> = grad.iter().map(|b| b.value).collect();
            let (error, allowed) = by_length.judge(index, &found).unwrap();
            assert_eq!(error, 0.0);
            let size = norm(found.iter().copied()).max(1e-2 * by_length.longest);
            found[0] += 10.0 * allowed * size;
            let (error, allowed) = by_length.judge(index, &found).unwrap();
            assert!((9.99..10.01).contains(&(error / allowed)), "{error} {allowed}");
            out.push(allowed / tolerance(real));
        }
        out
    }

    #[test]
    fn what_is_nothing_but_rounding_may_be_farther_off_than_what_is_not() {
        let plain =
            ["[5]", "6", r#"{"type": "dense", "units": 7, "activation": "tanh"}, {"type": "dense", "units": 3}"#];
        // The gradient of a bias in front of a batch normalisation is zero.
        let norm =
            ["[5]", "6", r#"{"type": "dense", "units": 7}, {"type": "batch_norm"}, {"type": "dense", "units": 3}"#];
        for (real, precision) in [(Real::Tf32, "tf32"), (Real::Bf16, "bf16"), (Real::F16, "f16")] {
            for seed in 0..4 {
                let of_plain = allowed(&preset(precision, plain), real, seed);
                assert!(of_plain.iter().all(|a| *a == 1.0), "{precision} {of_plain:?}");
                let of_norm = allowed(&preset(precision, norm), real, seed);
                // Weights and the last layer are as well known as elsewhere.
                assert!(of_norm.iter().enumerate().all(|(i, a)| i == 1 || *a < 3.0), "{precision} {of_norm:?}");
            }
        }
    }

    /// Emulated gradients of every loss have its scale, and are as near to the exact ones as rounding lets them.
    #[test]
    fn gradients_of_every_loss_are_emulated_with_its_scale() {
        let layers =
            ["[5]", "6", r#"{"type": "dense", "units": 7, "activation": "tanh"}, {"type": "dense", "units": 3}"#];
        for loss in crate::model::LossSpec::NAMES {
            let text = preset("f16", layers).replace(r#"{"type": "mse"}"#, &format!(r#"{{"type": "{loss}"}}"#));
            assert_eq!(model(&text).loss.name(), loss);
            let found = allowed(&text, Real::F16, 3);
            assert!(found.iter().all(|a| *a == 1.0), "{loss}: {found:?}");
        }
    }

    #[test]
    fn a_step_beyond_the_numbers_of_half_width_is_known_to_leave_them() {
        // One feature of a layer normalisation is its own mean: a deviation of 0, which the next one divides by.
        let steep = r#"{"type": "layer_norm", "eps": 1e-12}, {"type": "batch_norm", "eps": 1e-12}"#;
        let leaves = |precision: &str, real: Real, layers: &str| {
            leaves_range(&model(&preset(precision, ["[1]", "3", layers])), real, (1, 64.0)).unwrap()
        };
        assert!(leaves("f16", Real::F16, steep) && !leaves("bf16", Real::Bf16, steep));
        assert!(!leaves("f16", Real::F16, r#"{"type": "dense", "units": 2}"#));
        // Zeros, whose length of almost nothing is divided by again and again.
        let zeros = |times: usize| {
            let norms = format!(r#"{{"type": "repeat", "times": {times}, "layers": [{{"type": "rms_norm"}}]}}"#);
            format!(r#"{{"type": "dropout", "rate": 0.999}}, {norms}"#)
        };
        assert!(leaves("f32", Real::F32, &zeros(20)) && !leaves("f32", Real::F32, &zeros(4)));
        // Powers whose squares are beyond the range, but not the powers themselves: their variance is infinite.
        let powers = |times: usize| {
            let square = r#"{"type": "parallel", "join": "multiply", "branches": [{"layers": []}, {"layers": []}]}"#;
            let norm = r#"{"type": "batch_norm"}"#;
            let layers = format!(
                r#"{{"type": "residual", "layers": [{norm}]}},
                {{"type": "repeat", "times": {times}, "layers": [{square}]}}, {norm}"#
            );
            leaves_range(&model(&preset("f32", ["[30]", "8", &layers])), Real::F32, (1, 1.0)).unwrap()
        };
        assert!(powers(5) && !powers(2));
        assert_eq!(
            (left_range(Real::F16).as_str(), left_range(Real::Tf32).as_str()),
            ("the step leaves the range of f16", "the step leaves the range of f32")
        );
    }
}
