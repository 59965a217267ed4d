//! Fast kernels against plain loops in f64, each difference held against what rounding may cause.

use super::bound::{Bound, Worst, error_text, ratio};
use super::by_length::{ByLength, left_range};
use super::exact::{DRAWS, Exact, exact_gradients};
use super::gradient_step::{BATCH, adding_error, counts, culprit, run_to_gradients, scale_of};
use super::spread::is_useful;
use super::{Check, VerifyOptions};
use crate::compile::Options;
use crate::exec::Step;
use crate::exec::cpu::host_target;
use crate::ir::Share;
use crate::model::{Model, ParamId};
use crate::select::cuda::Real;
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// The gradients of a step by trained parameter, scaled as the step scales them.
type Gradients = Vec<(ParamId, Vec<f32>)>;

/// The largest error of a sum of two equal gradients, as a share of its norm. A batch that overwrites is off by half.
const DOUBLED: f64 = 0.05;

/// Other batches that are tried if only the norm of a gradient in `f32` is too far off.
const FURTHER: u64 = 4;

/// Loss and gradients of the fast kernels against f64, from the same parameters and batch.
///
/// Samples of rounding do not show what a ReLU does whose argument is zero but for rounding, or a maximum of equal
/// values. If no element in `f32` exceeds its own bound and only norms are too large, further batches decide: a wrong
/// kernel is wrong for all of them.
///
/// If a step has several batches, the gradients of each kind of batch are compared, with the scale of the last one.
/// Those that add to earlier gradients run a second time, which must double the gradients.
pub(super) fn fast_against_reference(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let (whole, before) = (of_share(model, options, Share::Last)?, Share::before_last(model.accumulate));
    let mut ratio = whole.ratio;
    for &share in before.iter().filter(|_| whole.passed == Some(true)) {
        let check = of_share(model, options, share)?;
        if check.passed != Some(true) {
            let figures = format!("{} batch of a step: {}", share.name(), check.figures);
            return Ok(Check { figures, ..check });
        }
        ratio = check.ratio.into_iter().chain(ratio).reduce(f64::max);
    }
    let figures = if before.is_empty() || whole.passed != Some(true) {
        whole.figures
    } else {
        format!("{}; and in earlier batches of a step", whole.figures)
    };
    Ok(Check { figures, ratio, ..whole })
}

/// The check for one kind of batch.
fn of_share(model: &Model, options: &VerifyOptions, share: Share) -> Result<Check, TrainError> {
    if model.accumulate > 1 && share != Share::First {
        let error = doubling_error(model, options, share)?;
        if error > DOUBLED {
            let figures = format!("gradients are added to earlier ones with an error of {error:.1e} of their norm");
            return Ok(Check::new(super::names::FAST, false, figures));
        }
    }
    let (first, is_by_norms) = judged(model, options, share, |_, _| {})?;
    if !is_by_norms {
        return Ok(first);
    }
    for draw in 1..=FURTHER {
        let options = VerifyOptions { seed: options.seed.wrapping_add(draw << 32), ..options.clone() };
        let (check, _) = judged(model, &options, share, |_, _| {})?;
        if check.passed == Some(true) {
            let figures = format!("{}; rounding decides the gradients of {draw} other batches", check.figures);
            return Ok(Check { figures, ..check });
        }
    }
    Ok(first)
}

/// The error of the gradients of a batch that adds to those of the same batch, as a share of their norm.
fn doubling_error(model: &Model, options: &VerifyOptions, share: Share) -> Result<f64, TrainError> {
    let small = model.with_batch(model.batch.min(2 * BATCH));
    let (mut step, mut pool) = prepared(&small, &Options { share, ..options.compiling() }, options.seed)?;
    let counts = counts(&step)?;
    let once = run_to_gradients(&mut step, &mut pool, &small)?;
    adding_error(&mut step, &mut pool, &small, &once, &counts)
}

/// The check for one batch, and whether it failed only because of norms of gradients in `f32`; `spoil` changes the fast
/// step's gradients before they are judged, so that a test can see the check fail.
fn judged(
    model: &Model,
    options: &VerifyOptions,
    share: Share,
    spoil: impl FnOnce(&mut Gradients, &Exact),
) -> Result<(Check, bool), TrainError> {
    const NAME: &str = super::names::FAST;
    let small = model.with_batch(model.batch.min(2 * BATCH));
    let compiling = Options { share, ..options.compiling() };
    let (mut fast, mut pool) = prepared(&small, &compiling, options.seed)?;
    let (real, scale) = (fast.compiled().selection.real, scale_of_update(&small, options, &fast)?);
    let (seed, exact) = decided(&small, real, scale, options.seed)?;
    if seed != options.seed {
        (fast, pool) = prepared(&small, &compiling, seed)?;
    }
    let mut found = run_to_gradients(&mut fast, &mut pool, &small)?;
    spoil(&mut found, &exact);
    let (mut worst, mut failures, mut lengths) = (Worst::default(), Vec::new(), 0);
    let loss = f64::from(fast.stored::<f32>(fast.find("loss")?)?[0]);
    let mut by_length = ByLength::new(&exact, &small, real, (seed, scale));
    let is_finite = loss.is_finite() && found.iter().all(|(_, grad)| grad.iter().all(|g| g.is_finite()));
    if !is_finite && by_length.leaves_range()? {
        return Ok((Check::skipped(NAME, &left_range(real)), false));
    }
    let mut by_elements = false;
    for (index, (p, grad)) in found.iter().enumerate() {
        let unscaled: Vec<f64> = grad.iter().map(|g| f64::from(*g) / scale).collect();
        let Compared { elements, whole } = tensor(&mut by_length, &small.param(*p).name, index, &unscaled)?;
        lengths += usize::from(whole.is_some());
        by_elements |= elements.as_ref().is_some_and(|own| own.ratio > 1.0);
        for own in elements.into_iter().chain(whole) {
            if own.ratio > 1.0 {
                failures.push((own.text.clone(), Some(culprit(&small, *p))));
            }
            worst.join(own);
        }
    }
    let size = exact.loss.value.abs();
    let is_bounded = if real == Real::F32 { is_useful(exact.loss.error, size) } else { exact.loss.error <= size };
    // A bound in `f32` that is of no use remains an upper limit.
    let limit = if real == Real::F32 { exact.loss.error } else { f64::INFINITY };
    let of_loss = if is_bounded { exact.loss.error } else { by_length.loss_allowed()?.min(limit) };
    let mut own = Worst::default();
    if !own.meets(|| "loss".into(), 0, loss, Bound { error: of_loss, ..exact.loss }) {
        by_elements = true;
        failures.push((own.text.clone(), None));
    }
    worst.join(own);
    let passed = failures.is_empty();
    let whole = match lengths {
        0 => String::new(),
        n => format!("; {n} of {} tensors compared by their norm", found.len()),
    };
    failures.truncate(8);
    let check = Check::new(NAME, passed, format!("{}{whole}", worst.figures())).ratio(worst.ratio).detail(failures);
    Ok((check, !passed && !by_elements && real == Real::F32))
}

/// The scale by which the update of a step divides the gradients of all its batches.
fn scale_of_update(model: &Model, options: &VerifyOptions, step: &Step) -> Result<f64, TrainError> {
    let is_last = step.compiled().graph.share.is_none_or(|share| share == Share::Last);
    let scale =
        if is_last { scale_of(step) } else { scale_of(&prepared(model, &options.compiling(), options.seed)?.0) };
    scale.map(f64::from)
}

/// A gradient compared with the bounds of its elements, by its norm, or both.
struct Compared {
    elements: Option<Worst>,
    whole: Option<Worst>,
}

/// Compares a gradient.
fn tensor(by_length: &mut ByLength<'_>, name: &str, index: usize, unscaled: &[f64]) -> Result<Compared, TrainError> {
    let exact = by_length.exact;
    let mut own = Worst::default();
    for (i, (g, bound)) in unscaled.iter().zip(&exact.grads[index]).enumerate() {
        own.meets(|| name.to_owned(), i, *g, *bound);
    }
    let is_needed = by_length.is_needed(index);
    if !is_needed && (own.ratio <= 1.0 || exact.undecided == 0) {
        return Ok(Compared { elements: Some(own), whole: None });
    }
    let (error, allowed) = by_length.judge(index, unscaled)?;
    let text = format!("{name}: norm of the difference, relative: {}", error_text(error, allowed));
    let whole = Worst { ratio: ratio(error, allowed), text };
    // In `f32`, elements that have a bound must keep to it beside others that have none.
    let keeps_bounds = by_length.real == Real::F32 && is_needed && exact.undecided == 0;
    Ok(Compared { elements: keeps_bounds.then_some(own), whole: Some(whole) })
}

/// The seed of a batch in which rounding decides no maximum, where one is found in a few draws, and its exact
/// gradients.
fn decided(model: &Model, real: Real, scale: f64, first: u64) -> Result<(u64, Exact), TrainError> {
    let mut draw = 0;
    loop {
        let seed = first.wrapping_add(draw);
        let (wide, _) = prepared(model, &Options::reference_f64(host_target(1)), seed)?;
        let exact = exact_gradients(model, &wide, real, scale)?;
        // In coarse types there are always some.
        if exact.undecided == 0 || real != Real::F32 || draw >= DRAWS {
            return Ok((seed, exact));
        }
        draw += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::random::{Size, random_preset};
    use crate::model::{Precision, check, read_preset};
    use crate::train::verify::gradient_step::trained;

    /// The model of a random network in `f32`, and what to verify it with.
    fn network(seed: u64) -> (Model, VerifyOptions) {
        let preset = crate::model::Preset { precision: Precision::F32, ..random_preset(seed, Size::SMALL) };
        (check(&preset).model.unwrap().in_evaluation(), VerifyOptions { threads: 1, seed, ..VerifyOptions::default() })
    }

    #[test]
    fn an_error_of_ten_times_the_bound_fails_in_every_tensor() {
        let (mut planted, mut tensors) = (0, 0);
        for seed in 0..12 {
            let (model, options) = network(seed);
            for index in 0..trained(&model).count() {
                let mut place = None;
                let check = judged(&model, &options, Share::Last, |found, exact| {
                    // The element whose bound is largest: the one in which an error is least likely to be seen.
                    let bounds = exact.grads[index].iter().map(|b| b.error).enumerate();
                    // An error below the normal numbers of `f32` would be lost in them, and one beyond them be
                    // infinite, as a value may be whose bound is.
                    let is_seen = |b: f64| b > f64::from(f32::MIN_POSITIVE) && 100.0 * b < f64::from(f32::MAX);
                    let finite = bounds.filter(|(_, b)| is_seen(*b) && exact.undecided == 0);
                    place = finite.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
                    if let Some(at) = place {
                        let Bound { value, error } = exact.grads[index][at];
                        found[index].1[at] = (value + 10.0 * error) as f32;
                    }
                });
                let (check, _) = check.unwrap();
                tensors += 1;
                let Some(at) = place else { continue };
                planted += 1;
                let name = &model.param(trained(&model).nth(index).unwrap()).name;
                let lines = check.detail.join("\n");
                assert!(check.passed == Some(false) && lines.contains(&format!("{name}[{at}]: error")), "{check:?}");
                // Rounding the planted value to `f32` takes a little of it.
                assert!(check.ratio > Some(9.0), "{check:?}");
            }
        }
        assert!(planted * 2 > tensors, "errors in {planted} of {tensors} tensors");
    }
    #[test]
    fn the_gradients_of_each_batch_of_a_step_are_compared() {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [5], "batch": 4}, "layers": [{"type": "dense",
            "units": 6, "activation": "tanh"}, {"type": "dense", "units": 2}], "loss": {"type": "mse"},
            "optimizer": {"type": "adamw", "lr": 0.1}, "train": {"accumulate": 3}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        assert_eq!(fast_against_reference(&model, &options).unwrap().passed, Some(true));
        for share in [Share::First, Share::Middle, Share::Last] {
            let halve = |found: &mut Gradients, _: &Exact| {
                found.iter_mut().flat_map(|(_, grad)| grad).for_each(|g| *g *= 0.5);
            };
            let (check, _) = judged(&model, &options, share, halve).unwrap();
            assert_eq!(check.passed, Some(false), "{share:?}: {check:?}");
            let error = doubling_error(&model, &options, share).unwrap();
            // The first batch of a step overwrites the gradients of the step before.
            assert!(
                if share == Share::First { (error - 0.5).abs() < 1e-6 } else { error < 1e-6 },
                "{share:?}: {error}"
            );
        }
    }
}
