//! The first update goes against the gradient.

use super::bound::{error_text, ratio};
use super::by_length::{leaves_range, left_range};
use super::gradient_step::{run_to_gradients, scale_of, trained, update_at};
use super::{Check, VerifyOptions};
use crate::model::{Model, OptimizerSpec};
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// The first update must go against the gradient, of which weight decay is a part.
pub(super) fn update_direction(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = super::names::UPDATE;
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
