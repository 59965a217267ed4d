//! Gradients against central differences.

use super::bound::{apart, error_text, ratio};
use super::divergence::leaves_numbers;
use super::exact::double;
use super::gradient_step::{BATCH, EMULATED, culprit, first_of, trained, update_at};
use super::spread::{SAMPLES, Spread, is_useful, norm, reference_norm};
use super::{Check, VerifyOptions};
use crate::compile::{Options, compile};
use crate::exec::Step;
use crate::exec::cpu::{Pool, host_target};
use crate::ir::Phase;
use crate::model::{Model, ParamId, Precision, Rng};
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// Loss at the present parameters; everything else that the step changes is put back.
fn loss_at(step: &mut Step, pool: &mut Pool, before: usize, saved: &[u8]) -> Result<f64, TrainError> {
    step.run_ops(0, before, pool)?;
    let loss = step.stored::<f64>(step.find("loss")?)?[0];
    step.restore(saved)?;
    Ok(loss)
}

/// Parameters that are compared with central differences at most, or about as many; directions of each.
const COMPARED: usize = 40;
const DIRECTIONS: usize = 4;

/// Seconds that the plain loops of the gradient checks take, roughly, and bytes that they hold at once.
pub(super) fn cost(model: &Model) -> Result<(f64, u64), TrainError> {
    /// What plain loops in f64 do in a second on one core, and what is copied.
    const FLOPS: f64 = 3e8;
    const BYTES: f64 = 1e9;
    /// A number with a bound for its error takes so many times as long as one without.
    const BOUNDED: f64 = 6.0;
    let small = model.with_batch(model.batch.min(BATCH));
    let compiled = compile(&small, &Options::reference_f64(host_target(1)))?;
    let plan = &compiled.plan;
    let forward = |phase: Phase| matches!(phase, Phase::Forward | Phase::Loss);
    let choices = || plan.program.ops.iter().zip(&compiled.selection.choices);
    let flops = choices().filter(|(op, _)| forward(op.phase)).map(|(_, c)| c.flops).sum::<u64>() as f64;
    let count = trained(&small).count();
    let passes = (count.div_ceil(count.div_ceil(COMPARED).max(1)) * DIRECTIONS * 2) as f64;
    let persistent = (small.trained_len() * 8 * 3) as f64;
    // Steps in f64 and f32, those with bounds for their errors, of which one is of twice the samples, and samples of
    // what rounding does: emulated ones, and ones with changed last digits for the gradient and the two batches.
    let emulated = if model.precision == Precision::F32 { 0 } else { EMULATED };
    let steps = 3.0 + 6.0 * BOUNDED + emulated as f64 + 4.0 * (SAMPLES + 1) as f64;
    let seconds = passes * (flops / FLOPS + persistent / BYTES) + steps * compiled.selection.flops() as f64 / FLOPS;
    // A step in f64 and one in f32, what is put back after each pass, gradients three times, and every value with its
    // bound.
    let held = plan.arena_bytes + plan.arena_bytes / 2 + 2 * persistent as u64 + 2 * plan.unshared_bytes;
    Ok((seconds, held + Spread::bytes(&small)))
}

/// The loss along a line through the parameters.
struct Line<'a> {
    step: &'a mut Step,
    pool: &'a mut Pool,
    /// The first operation behind the loss.
    until: usize,
    saved: &'a [u8],
    param: ParamId,
    start: &'a [f64],
    /// Of length 1.
    direction: &'a [f64],
}

impl Line<'_> {
    fn loss(&mut self, at: f64) -> Result<f64, TrainError> {
        let moved: Vec<f64> = self.start.iter().zip(self.direction).map(|(v, d)| v + at * d).collect();
        self.step.set_param(self.param, &moved)?;
        loss_at(self.step, self.pool, self.until, self.saved)
    }
}

/// The loss at a distance from the start of a line.
type LossAt<'a> = &'a mut dyn FnMut(f64) -> Result<f64, TrainError>;

/// The central difference of this half width.
fn slope(loss: LossAt<'_>, width: f64) -> Result<f64, TrainError> {
    Ok((loss(width)? - loss(-width)?) / (2.0 * width))
}

/// What rounding may do to an analytic slope and to a loss.
#[derive(Clone, Copy, Debug)]
struct Errors {
    slope: f64,
    loss: f64,
}

/// What rounding may do, from the running bounds, or measured if these are too large to be of use.
struct Rounding<'a> {
    model: &'a Model,
    seed: u64,
    /// The running bound of the loss.
    loss: f64,
    /// Of the gradients, and the largest of them.
    norms: Vec<f64>,
    longest: f64,
    /// Measured when first needed.
    spread: Option<Spread>,
    /// The number of comparisons in which the measured errors were used.
    used: usize,
}

impl Rounding<'_> {
    /// For the slope along a direction of a parameter, which has this running bound. The step must not have run.
    fn of(
        &mut self,
        (step, pool): (&mut Step, &mut Pool),
        index: usize,
        direction: &[f64],
        bound: f64,
    ) -> Result<Errors, TrainError> {
        let size = reference_norm(self.norms[index], self.longest);
        if is_useful(bound + self.loss / WIDTHS[0], size) {
            return Ok(Errors { slope: bound, loss: self.loss });
        }
        let spread = Spread::measured_once(&mut self.spread, self.model, (step, pool), self.seed)?;
        self.used += 1;
        let slope = spread.of_slope(index, direction, size).min(bound);
        Ok(Errors { slope, loss: spread.of_loss().min(self.loss) })
    }
}

/// A central difference beside the slope that backward gave, with what the difference itself may be off by.
#[derive(Clone, Copy, Debug)]
struct Difference {
    analytic: f64,
    numeric: f64,
    /// Rounding of the losses over the width, the curve's third derivative, and rounding of the analytic slope.
    bound: f64,
    /// Half the width.
    width: f64,
}

impl Difference {
    fn error(self) -> f64 {
        (self.analytic - self.numeric).abs()
    }

    fn ratio(self) -> f64 {
        ratio(self.error(), self.bound)
    }

    /// The line that says how far it is off.
    fn text(self, name: &str) -> String {
        let ([analytic, numeric], width) = (apart(self.analytic, self.numeric, 6), self.width);
        format!(
            "{name}: {} (analytic {analytic}, central difference {numeric} at half width {width:.0e})",
            error_text(self.error(), self.bound)
        )
    }
}

/// Half widths of central differences; rounding of the loss is divided by them.
const WIDTHS: [f64; 7] = [1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11];

/// Half widths below this one are for networks that bend within it, such as batch normalisations of nearly equal values
/// one behind the other. Rounding of the losses must be a small share of the slope there.
const NARROW: f64 = 1e-8;
const SHARE_IN_NARROW: f64 = 1e-4;

/// Compares at narrower and narrower widths until a difference is within its bound, so that a kink (a relu or a
/// maximum that switches) inside the interval is left behind. A wrong slope stays wrong at every width.
fn compare_slope(loss: LossAt<'_>, analytic: f64, errors: Errors) -> Result<Difference, TrainError> {
    let Errors { slope: slope_error, loss: loss_error } = errors;
    let mut best: Option<Difference> = None;
    for width in WIDTHS {
        if width < NARROW && loss_error / width > SHARE_IN_NARROW * analytic.abs() {
            break;
        }
        let numeric = slope(loss, width)?;
        let noise = loss_error / width + slope_error;
        let plain = Difference { analytic, numeric, bound: noise, width };
        let found = if plain.ratio() <= 1.0 {
            plain
        } else {
            // What half the width changes is the curve's third derivative, or a kink.
            let narrow = slope(loss, width / 2.0)?;
            Difference { numeric: narrow, bound: noise + (numeric - narrow).abs() + loss_error / width, ..plain }
        };
        if best.is_none_or(|b| found.ratio() < b.ratio()) {
            best = Some(found);
        }
        // Where both widths disagree by more than a thousandth, a kink is likelier than a third derivative.
        let is_smooth = found.bound <= 2.0 * noise + 1e-3 * numeric.abs();
        if found.ratio() <= 1.0 && is_smooth {
            break;
        }
    }
    if best.is_some_and(|b| b.ratio() > 1.0) {
        best = at_kink(loss, analytic, errors)?.or(best);
    }
    Ok(best.unwrap_or(Difference { analytic, numeric: f64::NAN, bound: 0.0, width: WIDTHS[0] }))
}

/// How many times the rounding of its slopes a kink must be.
const CLEAR: f64 = 10.0;

/// Compares where the start itself is a kink: a relu of exactly zero, whose arguments are all zero, has one slope on
/// each side, at every width. Backward takes one of them for each such operation, so that its slope is between both.
/// `None` if it is not, or the slopes on both sides do not differ clearly or change with the width.
fn at_kink(
    loss: LossAt<'_>,
    analytic: f64,
    Errors { slope: slope_error, loss: loss_error }: Errors,
) -> Result<Option<Difference>, TrainError> {
    let width = NARROW;
    let here = loss(0.0)?;
    let mut sides = |width: f64| Ok::<_, TrainError>([(here - loss(-width)?) / width, (loss(width)? - here) / width]);
    let (wide, narrow) = (sides(width)?, sides(width / 2.0)?);
    let noise = 4.0 * loss_error / width + slope_error;
    let change = wide.iter().zip(&narrow).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let [low, high] = [narrow[0].min(narrow[1]), narrow[0].max(narrow[1])];
    let is_kink = high - low > CLEAR * (noise + change);
    let found = Difference { analytic, numeric: analytic.clamp(low, high), bound: noise + change, width };
    Ok((is_kink && found.ratio() <= 1.0).then_some(found))
}

/// A random direction of length 1: over all elements where `single` is not set, else along one of them.
fn direction(rng: &mut Rng, len: usize, single: bool) -> Vec<f64> {
    if single {
        let chosen = rng.below(len);
        return (0..len).map(|i| f64::from(u8::from(i == chosen))).collect();
    }
    let size = 1.0 / (len as f64).sqrt();
    (0..len).map(|_| if rng.uniform() < 0.5 { -size } else { size }).collect()
}

/// f64 analytic gradients against central differences along random directions and single elements of each parameter.
pub(super) fn against_differences(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = super::names::GRADIENT;
    let small = model.with_batch(model.batch.min(BATCH));
    let (mut step, mut pool) = prepared(&small, &Options::reference_f64(host_target(1)), options.seed)?;
    let (until, update) = (first_of(&step, Phase::Backward), update_at(&step));
    let saved = step.snapshot()?;
    let exact = double(&small, &step)?;
    if leaves_numbers(&mut step, &mut pool, update)? {
        return Ok(Check::skipped(NAME, "the step leaves the range of f32"));
    }
    let grads: Vec<(ParamId, Vec<f64>)> =
        trained(&small).map(|p| Ok((p, step.grad::<f64>(p)?))).collect::<Result<_, TrainError>>()?;
    step.restore(&saved)?;
    let mut rng = Rng::new(options.seed, 0x6AAD);
    let (mut worst, mut failures) = (None::<(Difference, String)>, Vec::new());
    let mut compared = 0usize;
    let norms: Vec<f64> = grads.iter().map(|(_, grad)| norm(grad.iter().copied())).collect();
    let (seed, longest) = (options.seed, norms.iter().copied().fold(0.0, f64::max));
    let mut rounding = Rounding { model: &small, seed, loss: exact.loss.error, norms, longest, spread: None, used: 0 };
    // A network of many parameters is sampled: each costs several forward passes on plain loops.
    // A path may run none of them.
    let stride = grads.len().div_ceil(COMPARED).max(1);
    let errors = grads.iter().zip(&exact.grads).enumerate();
    for (index, ((p, grad), bounds)) in errors.skip(rng.below(stride)).step_by(stride) {
        let start = step.param::<f64>(*p)?;
        let name = &small.param(*p).name;
        for trial in 0..DIRECTIONS {
            let direction = direction(&mut rng, start.len(), trial > 0);
            let analytic = grad.iter().zip(&direction).map(|(g, d)| g * d).sum();
            // An element without a bound has no part in a direction that does not move it.
            let moved = bounds.iter().zip(&direction).filter(|(_, d)| **d != 0.0);
            let slope_error: f64 = moved.map(|(b, d)| b.error * d.abs()).sum();
            let errors = rounding.of((&mut step, &mut pool), index, &direction, slope_error)?;
            let (step, pool, saved, param) = (&mut step, &mut pool, &saved[..], *p);
            let mut line = Line { step, pool, until, saved, param, start: &start, direction: &direction };
            let found = compare_slope(&mut |at| line.loss(at), analytic, errors)?;
            compared += 1;
            if found.ratio() > 1.0 {
                failures.push((found.text(name), Some(culprit(&small, *p))));
            }
            if worst.as_ref().is_none_or(|(w, _)| found.ratio() > w.ratio()) {
                worst = Some((found, name.clone()));
            }
        }
    }
    let ratio = worst.as_ref().map_or(0.0, |(w, _)| w.ratio());
    let most = worst.map_or_else(
        || "no parameter is trained".to_owned(),
        |(w, name)| format!("largest error at {name}: {}", error_text(w.error(), w.bound)),
    );
    let (passed, mut figures) = (failures.is_empty(), format!("{compared} comparisons, {most}"));
    if rounding.used > 0 {
        figures += &format!("; rounding was measured for {} of them, whose bounds are too large", rounding.used);
    }
    failures.truncate(8);
    Ok(Check::new(NAME, passed, figures).ratio(ratio).detail(failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: Errors = Errors { slope: 1e-14, loss: 1e-16 };

    fn ratio_of(analytic: f64, loss: impl Fn(f64) -> f64) -> f64 {
        compare_slope(&mut |at| Ok(loss(at)), analytic, ERRORS).unwrap().ratio()
    }

    #[test]
    fn the_slope_of_a_curve_is_told_from_wrong_ones() {
        let curve = |at: f64| (3.0 * at).sin();
        assert!(ratio_of(3.0, curve) <= 1.0);
        assert!(ratio_of(3.001, curve) > 10.0 && ratio_of(-3.0, curve) > 10.0 && ratio_of(0.0, curve) > 10.0);
        // It bends within the usual widths.
        let bend = |at: f64| 1e-9 * (at / 1e-9).tanh();
        assert!(ratio_of(1.0, bend) <= 1.0 && ratio_of(2.0, bend) > 5.0 && ratio_of(0.5, bend) > 1.0);
    }

    #[test]
    fn a_kink_at_the_start_has_the_slope_of_either_side() {
        let kink = |at: f64| 0.5 * at + at.max(0.0);
        for (analytic, is_right) in [(0.5, true), (1.5, true), (0.49, false), (1.51, false), (-1.0, false)] {
            assert_eq!(ratio_of(analytic, kink) <= 1.0, is_right, "{analytic}");
        }
        // A kink beside the start is left behind.
        let beside = |at: f64| 0.5 * at + (at - 3e-7).max(0.0);
        assert!(ratio_of(0.5, beside) <= 1.0 && ratio_of(1.5, beside) > 1.0 && ratio_of(1.0, beside) > 1.0);
        // A curve has no kink.
        assert!(ratio_of(0.5, |at| at * at) > 1.0);
    }
}
