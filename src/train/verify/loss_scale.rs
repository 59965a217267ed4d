//! The loss is the mean over a batch.

use super::bound::{Bound, Worst, error_text, ratio};
use super::exact::{DRAWS, Exact, double};
use super::gradient_step::{BATCH, culprit, trained};
use super::spread::{Spread, is_useful, norm, reference_norm};
use super::{Check, VerifyOptions};
use crate::compile::Options;
use crate::exec::Step;
use crate::exec::cpu::{Pool, host_target};
use crate::model::Model;
use crate::tensor::DType;
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// A batch with its exact loss and gradients.
struct Batch {
    model: Model,
    step: Step,
    pool: Pool,
    exact: Exact,
    /// Measured when first needed.
    spread: Option<Spread>,
}

impl Batch {
    fn new(model: Model, (step, pool): (Step, Pool)) -> Result<Self, TrainError> {
        let exact = double(&model, &step)?;
        Ok(Self { model, step, pool, exact, spread: None })
    }

    /// What rounding does to it, measured.
    fn spread(&mut self, seed: u64) -> Result<&Spread, TrainError> {
        Spread::measured_once(&mut self.spread, &self.model, (&mut self.step, &mut self.pool), seed)
    }
}

/// A batch, and one that holds every sample twice.
struct Both {
    seed: u64,
    once: Batch,
    twice: Batch,
}

impl Both {
    fn new(model: &Model, seed: u64) -> Result<Self, TrainError> {
        let (once, twice) = (model.with_batch(BATCH), model.with_batch(2 * BATCH));
        let compiling = Options::reference_f64(host_target(1));
        let (a, mut b) = (prepared(&once, &compiling, seed)?, prepared(&twice, &compiling, seed)?);
        let program = &a.0.compiled().plan.program;
        let larger = std::sync::Arc::clone(b.0.compiled());
        let larger = &larger.plan.program;
        let inputs = program.all_samples().zip(larger.all_samples());
        for (from, to) in inputs.chain(program.targets().zip(larger.targets())) {
            if program.value(from).dtype == DType::F64 {
                let values = a.0.stored::<f64>(from)?.to_vec();
                b.0.write(to, &values.repeat(2))?;
            } else {
                let numbers = a.0.stored::<i32>(from)?.to_vec();
                b.0.write(to, &numbers.repeat(2))?;
            }
        }
        Ok(Self { seed, once: Batch::new(once, a)?, twice: Batch::new(twice, b)? })
    }

    /// Whether rounding decides no maximum; otherwise the gradients of the two batches may differ.
    fn is_decided(&self) -> bool {
        self.once.exact.undecided == 0 && self.twice.exact.undecided == 0
    }

    /// What two measured errors add up to.
    fn measured(&mut self, of: impl Fn(&Spread) -> f64) -> Result<f64, TrainError> {
        Ok(of(self.once.spread(self.seed)?) + of(self.twice.spread(self.seed)?))
    }

    /// Compares the losses.
    fn loss(&mut self) -> Result<Worst, TrainError> {
        let [once, twice] = [self.once.exact.loss, self.twice.exact.loss];
        let mut error = once.error + twice.error;
        if !is_useful(error, once.value.abs()) {
            error = error.min(self.measured(Spread::of_loss)?);
        }
        let mut worst = Worst::default();
        worst.meets(|| "loss".into(), 0, twice.value, Bound { error, ..once });
        Ok(worst)
    }

    /// Compares the gradients of a parameter: element by element, and also by their norm if the bounds of the elements
    /// are too large to be of use.
    fn gradient(&mut self, index: usize, name: &str, longest: f64) -> Result<Worst, TrainError> {
        let (once, twice) = (&self.once.exact.grads[index], &self.twice.exact.grads[index]);
        let mut worst = Worst::default();
        for (at, (a, b)) in once.iter().zip(twice).enumerate() {
            worst.meets(|| name.to_owned(), at, b.value, Bound { error: a.error + b.error, ..*a });
        }
        let errors = norm(once.iter().zip(twice).map(|(a, b)| a.error + b.error));
        let size = reference_norm(norm(once.iter().map(|a| a.value)), longest);
        if !is_useful(errors, size) {
            let apart = norm(once.iter().zip(twice).map(|(a, b)| a.value - b.value));
            let allowed = self.measured(|spread| spread.of_gradient(index, size))?;
            let text = format!("{name}: norm of the difference: {}", error_text(apart, allowed));
            worst.join(Worst { ratio: ratio(apart, allowed), text });
        }
        Ok(worst)
    }
}

/// Whether the loss is the batch's mean or its sum: a batch that holds every sample twice must not change loss and
/// gradients by more than rounding in `f64` does.
pub(super) fn loss_scale(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = super::names::LOSS_SCALE;
    if model.layers.iter().any(|l| l.spec.is_random()) {
        return Ok(Check::skipped(NAME, "dropout masks differ between the two batches"));
    }
    let mut both = Both::new(model, options.seed)?;
    for draw in 1..DRAWS {
        if both.is_decided() {
            break;
        }
        both = Both::new(model, options.seed.wrapping_add(draw))?;
    }
    let is_decided = both.is_decided();
    let (mut worst, mut failures) = (both.loss()?, Vec::new());
    if worst.ratio > 1.0 {
        failures.push((worst.text.clone(), None));
    }
    let norms = both.once.exact.grads.iter().map(|grad| norm(grad.iter().map(|g| g.value)));
    let longest = norms.fold(0.0, f64::max);
    for (index, p) in trained(model).enumerate().filter(|_| is_decided) {
        let own = both.gradient(index, &model.param(p).name, longest)?;
        if own.ratio > 1.0 {
            failures.push((own.text.clone(), Some(culprit(model, p))));
        }
        worst.join(own);
    }
    // Of two zeros, one is as large as the other.
    let scaled = |a: f64, b: f64| if a == b { 1.0 } else { b / a };
    let largest = |exact: &Exact| exact.grads.iter().flatten().fold(0.0, |most: f64, g| most.max(g.value.abs()));
    let [once, twice] = [&both.once.exact, &both.twice.exact];
    let (loss, grad) = (scaled(once.loss.value, twice.loss.value), scaled(largest(once), largest(twice)));
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
