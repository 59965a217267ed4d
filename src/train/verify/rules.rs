//! The rules that gradients and updates follow: the loss is the mean over a batch, and an update goes against the
//! gradient.

use super::bound::{Bound, Worst, error_text, ratio};
use super::by_length::{leaves_range, left_range};
use super::exact::{DRAWS, Exact, double};
use super::gradient_step::{BATCH, culprit, run_to_gradients, scale_of, trained, update_at};
use super::{Check, VerifyOptions};
use crate::compile::Options;
use crate::exec::cpu::host_target;
use crate::model::{Model, OptimizerSpec};
use crate::tensor::DType;
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// Exact losses and gradients of a batch, and of one that holds every sample twice.
fn once_and_twice(model: &Model, seed: u64) -> Result<[Exact; 2], TrainError> {
    let (once, twice) = (model.with_batch(BATCH), model.with_batch(2 * BATCH));
    let compiling = Options::reference_f64(host_target(1));
    let ((a, _), (mut b, _)) = (prepared(&once, &compiling, seed)?, prepared(&twice, &compiling, seed)?);
    let program = &a.compiled().plan.program;
    let larger = std::sync::Arc::clone(b.compiled());
    let larger = &larger.plan.program;
    let inputs = program.all_samples().zip(larger.all_samples());
    for (from, to) in inputs.chain(program.targets().zip(larger.targets())) {
        if program.value(from).dtype == DType::F64 {
            let values = a.stored::<f64>(from)?.to_vec();
            b.write(to, &values.repeat(2))?;
        } else {
            let numbers = a.stored::<i32>(from)?.to_vec();
            b.write(to, &numbers.repeat(2))?;
        }
    }
    Ok([double(&once, &a)?, double(&twice, &b)?])
}

/// Whether the loss is the batch's mean or its sum: a batch that holds every sample twice must not change loss and
/// gradients by more than
/// rounding in `f64` does.
pub(super) fn loss_scale(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "loss scale";
    let drops = model.layers.iter().any(|l| l.spec.is_random());
    if drops {
        return Ok(Check::skipped(NAME, "dropout masks differ between the two batches"));
    }
    let mut both = once_and_twice(model, options.seed)?;
    for draw in 1..DRAWS {
        if both.iter().all(|exact| exact.undecided == 0) {
            break;
        }
        both = once_and_twice(model, options.seed.wrapping_add(draw))?;
    }
    let [once, twice] = &both;
    // Where rounding decides the place of a maximum, the gradients of the two batches need not be the same.
    let is_decided = both.iter().all(|exact| exact.undecided == 0);
    let (mut worst, mut failures, mut largest) = (Worst::default(), Vec::new(), [0.0f64; 2]);
    let between = |a: Bound, b: Bound| Bound { value: a.value, error: a.error + b.error };
    if !worst.meets(|| "loss".into(), 0, twice.loss.value, between(once.loss, twice.loss)) {
        failures.push((worst.text.clone(), None));
    }
    for (p, (a, b)) in trained(model).zip(once.grads.iter().zip(&twice.grads)).filter(|_| is_decided) {
        let name = || model.param(p).name.clone();
        let mut own = Worst::default();
        for (index, (a, b)) in a.iter().zip(b).enumerate() {
            own.meets(name, index, b.value, between(*a, *b));
            largest = [largest[0].max(a.value.abs()), largest[1].max(b.value.abs())];
        }
        if own.ratio > 1.0 {
            failures.push((own.text.clone(), Some(culprit(model, p))));
        }
        worst.join(own);
    }
    // Of two zeros, one is as large as the other.
    let scaled = |a: f64, b: f64| if a == b { 1.0 } else { b / a };
    let (loss, grad) = (scaled(once.loss.value, twice.loss.value), scaled(largest[0], largest[1]));
    let is_mean = failures.is_empty();
    let word = if is_mean { "mean over the batch" } else { "not the batch mean" };
    let of_gradients = if is_decided {
        format!("the gradients by {grad:.6}")
    } else {
        "the gradients, in which rounding decides the place of a maximum, were not compared".into()
    };
    let figures =
        format!("{word}: doubling the batch scales the loss by {loss:.6} and {of_gradients}; {}", worst.figures());
    failures.truncate(8);
    Ok(Check::new(NAME, is_mean, figures).ratio(worst.ratio).detail(failures))
}

/// The first update must go against the gradient, of which weight decay is a part.
pub(super) fn update_direction(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "update direction";
    let (mut step, mut pool) = prepared(model, &options.compiling(), options.seed)?;
    let before: Vec<Vec<f32>> = trained(model).map(|p| step.param::<f32>(p)).collect::<Result<_, _>>()?;
    let scale = f64::from(scale_of(&step)?);
    let grads = run_to_gradients(&mut step, &mut pool, model)?;
    let real = step.compiled().selection.real;
    let is_finite = grads.iter().all(|(_, grad)| grad.iter().all(|g| g.is_finite()));
    if !is_finite && leaves_range(model, real, (options.seed, scale))? {
        return Ok(Check::skipped(NAME, &left_range(real)));
    }
    let (update, ops) = (update_at(&step), step.compiled().plan.program.ops.len());
    step.run_ops(update, ops, &mut pool)?;
    let rule = Rule::of(&model.optimizer);
    // What the step itself made of the rate, and what it multiplied gradients by.
    let rates = step.find("rates").ok().map(|id| step.stored::<f32>(id).map(|r| r.to_vec())).transpose()?;
    let lr = rates.as_ref().map_or(model.optimizer.lr(), |r| f64::from(r[0]));
    let clip = rates.as_ref().and_then(|r| r.get(2)).map_or(1.0, |clip| f64::from(*clip));
    let mut sum = Sum::default();
    for ((p, grad), before) in grads.iter().zip(&before) {
        let after = step.param::<f32>(*p)?;
        let decays = model.update.decay.includes(model.param(*p));
        let rule = if decays { rule.at_rate(&model.optimizer, lr) } else { Rule::NO_DECAY };
        for ((after, before), grad) in after.iter().zip(before).zip(grad) {
            sum.add(&rule, f64::from(*before), f64::from(*after), f64::from(*grad) * clip / scale);
        }
    }
    let name = model.optimizer.title();
    let Sum { product, bound, undecided } = sum;
    let mut figures = format!("{name}: sum of update times gradient {product:.3e}");
    if rule.decay > 0.0 {
        figures += " (weight decay included)";
    }
    figures += &format!("; of an update against it, {}", error_text(product.max(0.0), bound));
    if undecided > 0 {
        figures += &format!("; rounding decides the direction of {undecided} elements");
    }
    let check = Check::new(NAME, product <= bound, figures);
    Ok(check.ratio(ratio(product.max(0.0), bound)))
}

/// How an optimizer treats weight decay.
struct Rule {
    decay: f64,
    /// What decay alone does to a parameter, where it is no part of the gradient.
    keep: f64,
    is_part_of_gradient: bool,
}

impl Rule {
    /// That of parameters that do not decay.
    const NO_DECAY: Self = Self { decay: 0.0, keep: 1.0, is_part_of_gradient: false };

    /// The same at the rate of a step.
    fn at_rate(&self, optimizer: &OptimizerSpec, lr: f64) -> Self {
        Self::of(&optimizer.at_rates(lr, self.decay))
    }

    fn of(optimizer: &OptimizerSpec) -> Self {
        let (lr, decay) = (optimizer.lr(), optimizer.weight_decay());
        let is_apart = optimizer.is_decoupled();
        Self { decay, keep: if is_apart { 1.0 - lr * decay } else { 1.0 }, is_part_of_gradient: !is_apart }
    }
}

/// The sum of update times gradient, with what rounding in `f32` may add to it.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    product: f64,
    bound: f64,
    /// Elements whose gradient is smaller than its own rounding.
    undecided: u64,
}

impl Sum {
    /// Half a unit in the last place of `f32`.
    const U: f64 = 1.0 / (1u64 << 24) as f64;

    fn add(&mut self, rule: &Rule, before: f64, after: f64, grad: f64) {
        let decay = if rule.is_part_of_gradient { rule.decay * before } else { 0.0 };
        let whole = grad + decay;
        // The decay's product and the sum are rounded, and decay and gradient may cancel.
        if whole.abs() <= 2.0 * Self::U * (grad.abs() + decay.abs()) {
            self.undecided += u64::from(decay != 0.0);
            return;
        }
        self.product += (after - rule.keep * before) * whole;
        // The parameter is rounded after its decay and after its update; rate and decay are rounded to `f32`.
        self.bound += 4.0 * Self::U * (before.abs() + after.abs()) * whole.abs();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::optimizers::AdamW;

    fn sum(optimizer: &OptimizerSpec, elements: &[(f64, f64, f64)]) -> Sum {
        let mut sum = Sum::default();
        elements.iter().for_each(|(before, after, grad)| sum.add(&Rule::of(optimizer), *before, *after, *grad));
        sum
    }

    #[test]
    fn an_update_with_the_gradient_is_no_rounding() {
        let plain = OptimizerSpec::sgd(0.1);
        let right = sum(&plain, &[(1.0, 0.99, 0.1), (2.0, 2.01, -0.1)]);
        assert!(right.product < 0.0, "{right:?}");
        let wrong = sum(&plain, &[(1.0, 1.01, 0.1), (2.0, 1.99, -0.1)]);
        assert!(wrong.product > 10.0 * wrong.bound, "{wrong:?}");
        // An update that is too small to change the parameter.
        let none = sum(&plain, &[(1.0, 1.0, 1e-9)]);
        assert!(none.product <= none.bound, "{none:?}");
    }

    #[test]
    fn decay_against_the_gradient_is_part_of_it() {
        let coupled = OptimizerSpec::sgd(0.1).at_rates(0.1, 1.0);
        // The gradient says more, the decay says less, and the decay is larger.
        let right = sum(&coupled, &[(1.0, 0.91, -0.1)]);
        assert!(right.product < 0.0, "{right:?}");
        let wrong = sum(&coupled, &[(1.0, 1.09, -0.1)]);
        assert!(wrong.product > wrong.bound, "{wrong:?}");
        let betas = [0.9, 0.999];
        let apart = OptimizerSpec::AdamW(AdamW { lr: 0.1, betas, eps: 1e-8, weight_decay: 1.0 });
        let right = sum(&apart, &[(2.0, 1.9, -0.1)]);
        assert!(right.product < 0.0, "{right:?}");
        let wrong = sum(&apart, &[(2.0, 1.7, -0.1)]);
        assert!(wrong.product > wrong.bound, "{wrong:?}");
        // Rounding alone decides which way a sum of almost nothing points.
        assert_eq!(sum(&coupled, &[(1.0, 0.9, -1.0)]).undecided, 1);
    }
}
