//! An evaluation against one that goes through the held-out samples op by op with sums of its own, and against plain
//! loops in f64 that carry a bound for the rounding of every value.

use super::Check;
use super::bound::{apart, error_text, ratio};
use super::by_length::tolerance;
use super::divergence::is_large;
use super::gradient_step::EMULATED;
use super::replay::ReplayHarness;
use super::spread::extrapolated;
use crate::compile::{Options, compile};
use crate::data::{Dataset, Target};
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::exec::cpu::{BoundedStep, CoarseStep, Storage, host_target};
use crate::exec::{Executor, Step};
use crate::ir::Mode;
use crate::model::losses::{PointFn, is_right};
use crate::model::{LossRule, LossSpec, Model, ParamId, Targets};
use crate::ops::Dir;
use crate::select::cuda::Real;
use crate::tensor::{DType, counted};
use crate::train::data_feed::{rows_of, write_samples};
use crate::train::prepared_step::prepared;
use crate::train::{DataFeed, Evaluation, Session, TrainError};
use half::{bf16, f16};
use std::sync::Arc;

pub(super) const NAME: &str = super::names::EVALUATION;

/// Steps before it, so that parameters and running statistics are not those of the beginning.
const STEPS: u64 = 10;
const FEW: u64 = 2;
/// Arithmetic that plain loops may do, with bounds for what they compute.
const FLOPS: f64 = 6e7;
/// Samples of one pass of the plain loops.
const AT_ONCE: usize = 32;
/// By how much two sums of the same numbers may differ, relative to what is summed.
const SUMMED: f64 = 1e-10;

/// Instead of an error, where a kernel may leave the range of `f32`.
const BEYOND: &str = "not judged, an operation's arguments have no squares in f32";

/// Outputs of a batch, and what each may be off by.
type Outputs = Vec<(f64, f64)>;

/// The outputs of a batch, and whether an operation has arguments that have no squares in `f32`.
type Bounds = (Outputs, bool);

/// Loss and answers by the plain loops over some samples.
#[derive(Default)]
struct Exact {
    samples: usize,
    loss: f64,
    /// What the loss may be off by.
    error: f64,
    /// The same loss in the emulated arithmetic of the type, where its bound says little: rounding moves the network by
    /// more than the tolerance.
    emulated: Vec<f64>,
    right: usize,
    /// Samples whose answer rounding decides.
    undecided: usize,
    /// Whether an operation has arguments that have no squares in `f32`: what a kernel computes in between may be
    /// infinite where the result is not.
    is_beyond: bool,
}

impl Exact {
    /// Receives the scores of one class.
    fn add_class(&mut self, row: &[(f64, f64)], label: usize) {
        let (best, (score, margin)) = largest(row);
        let sum: f64 = row.iter().map(|(v, _)| (v - score).exp()).sum();
        self.loss += score + sum.ln() - row[label].0;
        // The loss moves by no more than twice the largest error of a score.
        self.error += 2.0 * row.iter().fold(0.0, |most: f64, (_, e)| most.max(*e));
        self.right += usize::from(best == label && row.iter().all(|(v, _)| !v.is_nan()));
        let rivals = row.iter().enumerate().filter(|(i, (v, e))| *i != best && v + e >= score - margin);
        self.undecided += usize::from(rivals.count() > 0);
    }

    /// Receives the outputs of a sample whose targets are values.
    fn add_values(&mut self, loss: &LossSpec, row: &[(f64, f64)], target: &[f32]) {
        let share = row.len() as f64;
        for ((v, e), t) in row.iter().zip(target) {
            // The evaluation subtracts in `f32`, and rounds there.
            let e = e + ((v - f64::from(*t)).abs() + e) / f64::from(1u32 << 24);
            let [value, error] = value_of(loss, [*v, e], f64::from(*t));
            self.loss += value / share;
            self.error += error / share;
            if loss.targets() == Targets::Binary {
                self.right += usize::from(!v.is_nan() && (*v > 0.0) == (*t > 0.5));
                self.undecided += usize::from(v.abs() <= e);
            }
        }
    }

    /// Receives the outputs of a sample.
    fn add(&mut self, loss: &LossSpec, row: &[(f64, f64)], set: &Dataset, sample: u32) -> Result<(), TrainError> {
        self.samples += 1;
        match &set.target {
            Target::Classes { .. } | Target::Windows(_) => {
                let labels = set.target.labels(&[sample])?;
                for (row, label) in row.chunks_exact(row.len() / labels.len().max(1)).zip(labels) {
                    self.add_class(row, label as usize);
                }
            }
            Target::Values { values, .. } => {
                self.add_values(loss, row, &values[sample as usize * row.len()..][..row.len()]);
            }
        }
        Ok(())
    }
}

/// The loss of one output that is off by at most `e`, and what it may be off by, of a loss on values. The formulas are
/// written out here, so that those of the evaluation are compared with something.
fn value_of(loss: &LossSpec, [y, e]: [f64; 2], t: f64) -> [f64; 2] {
    let off = (y - t).abs();
    match loss.rule() {
        LossRule::SquaredError | LossRule::SoftmaxCrossEntropy { .. } => [off * off, 2.0 * off * e + e * e],
        LossRule::Pointwise { func: PointFn::L1, .. } => [off, e],
        LossRule::Pointwise { func: PointFn::Huber, delta } => {
            let value = if off < delta { off * off / 2.0 } else { delta * off - delta * delta / 2.0 };
            [value, (off + e).min(delta) * e]
        }
        LossRule::Pointwise { func: PointFn::BinaryCrossEntropy, .. } => {
            // -ln(sigmoid(y)) is ln(1 + exp(-y)).
            let soft = |v: f64| if v > 30.0 { v + (-v).exp() } else { v.exp().ln_1p() };
            [t * soft(-y) + (1.0 - t) * soft(y), e]
        }
    }
}

/// How many answers of a sample are right or wrong: its positions, or, of 0 or 1, its outputs.
fn answers_each(loss: &LossSpec, width: usize, target: &Target) -> f64 {
    if loss.targets() == Targets::Binary { width.max(1) as f64 } else { losses_each(target) }
}

/// How many losses of classes a sample has: one for each of its positions. The mean is over all of them.
fn losses_each(target: &Target) -> f64 {
    match target {
        Target::Classes { .. } | Target::Windows(_) => target.shape().len().max(1) as f64,
        Target::Values { .. } => 1.0,
    }
}

/// The first of the largest scores with its place.
fn largest(row: &[(f64, f64)]) -> (usize, (f64, f64)) {
    let first = (0, row.first().copied().unwrap_or_default());
    row.iter().copied().enumerate().fold(first, |best, at| if at.1.0 > best.1.0 { at } else { best })
}

/// How far the mean of `n` losses may be from that of plain loops, whose own error is known: where bounds say less than
/// the size of the loss, it is judged by that, and by how far emulated arithmetic is. What leaves the range of
/// its type, there or inside a kernel, may be anything.
fn allowed_for(exact: &Exact, n: f64, tolerance: f64) -> f64 {
    if exact.is_beyond {
        return f64::INFINITY;
    }
    let (loss, bound) = (exact.loss / n, exact.error / n + SUMMED * (exact.loss / n).abs().max(1.0));
    if bound <= tolerance * loss.abs() {
        return bound;
    }
    if exact.emulated.iter().any(|emulated| !emulated.is_finite()) {
        return f64::INFINITY;
    }
    let apart = exact.emulated.iter().map(|emulated| (emulated / n - loss).abs());
    extrapolated(apart).max(tolerance * loss.abs().max(1e-3))
}

impl ReplayHarness<'_> {
    /// What the session's evaluation finds after some steps, against both.
    pub(super) fn evaluation(&mut self) -> Result<Check, TrainError> {
        let DataFeed::Data { set, split, .. } = &self.session.feed else {
            return Ok(Check::skipped(NAME, "the network has no data of its own"));
        };
        let (set, split) = (Arc::clone(set), Arc::clone(split));
        if split.held_out.is_empty() {
            return Ok(Check::skipped(NAME, "no samples are held out"));
        }
        let count = if self.one_step()?.as_millis() > 50 { FEW } else { STEPS };
        self.steps(Executor::Replay, count)?;
        let Some(found) = self.session.evaluate()? else {
            return Ok(Check::skipped(NAME, "the session has no evaluation"));
        };
        let counts = !found.confusion.is_empty();
        let by_hand = one_by_one(&mut self.session, &set, &split.held_out, counts)?;
        let mut wrong: Vec<_> = difference(&found, &by_hand).map(|text| (text, None)).into_iter().collect();
        let session = &mut self.session;
        let (exact, of) = against_reference(session, &set, &split.held_out)?;
        let some = &split.held_out[..exact.samples];
        let found_of = match (&mut session.evaluator, &session.feed) {
            (Some(evaluator), DataFeed::Data { stored, .. }) if exact.samples < split.held_out.len() => {
                let stored: Vec<_> = stored.views().collect();
                evaluator.evaluate(&mut session.pool, &session.model, &set, &stored, some)?
            }
            _ => found.clone(),
        };
        self.rewind()?;
        let (samples, width) = (exact.samples.max(1) as f64, self.session.model.output.len());
        let n = samples * losses_each(&set.target);
        let answers = samples * answers_each(&self.session.model.loss, width, &set.target);
        let (loss, real) = (exact.loss / n, self.session.compiled().selection.real);
        let allowed = allowed_for(&exact, n, tolerance(real));
        let off = (found_of.loss - loss).abs();
        let both_wild = allowed.is_infinite() || !loss.is_finite() && !found_of.loss.is_finite();
        let is_near = off <= allowed || both_wild;
        let error = if both_wild { 0.0 } else { off };
        if !is_near {
            let [found, loss] = apart(found_of.loss, loss, 6);
            wrong.push((format!("the loss is {found} instead of {loss}, bound {allowed:.1e}"), None));
        }
        let right = found_of.accuracy.map(|share| (share * answers).round() as usize);
        let undecided = if real == Real::F32 { exact.undecided } else { exact.undecided.max(some.len().div_ceil(20)) };
        if let Some(right) = right.filter(|right| right.abs_diff(exact.right) > undecided && !both_wild) {
            let expected = exact.right;
            wrong.push((format!("right answers: {right} instead of {expected}; left to rounding: {undecided}"), None));
        }
        let evaluator = self.session.evaluator.as_mut();
        let batch = evaluator.map_or(1, |evaluator| evaluator.step_mut().compiled().model.batch);
        let figures = format!(
            "{} after {count} steps in batches of {}, the last of {}: op by op loss {:.6e}; \
             {} of them on plain loops{of}: {}",
            counted(found.samples as u64, "sample"),
            batch,
            (split.held_out.len() - 1) % batch + 1,
            by_hand.loss,
            exact.samples,
            if exact.is_beyond { BEYOND.to_owned() } else { error_text(error, allowed) },
        );
        Ok(Check::new(NAME, wrong.is_empty(), figures).ratio(ratio(error, allowed)).detail(wrong))
    }
}

/// What differs between an evaluation and the same outputs summed by hand.
fn difference(found: &Evaluation, expected: &Evaluation) -> Option<String> {
    let both_nan = found.loss.is_nan() && expected.loss.is_nan();
    if found.samples != expected.samples {
        return Some(format!("{} counted instead of {}", counted(found.samples as u64, "sample"), expected.samples));
    }
    let off = (found.loss - expected.loss).abs();
    let is_near = off <= SUMMED * expected.loss.abs().max(1.0) || both_nan || found.loss == expected.loss;
    if !is_near {
        let [found, expected] = apart(found.loss, expected.loss, 9);
        return Some(format!("the loss is {found}, op by op it is {expected}"));
    }
    if found.accuracy != expected.accuracy {
        let [found, expected] =
            [found, expected].map(|e| e.accuracy.map_or_else(|| "missing".to_owned(), |accuracy| accuracy.to_string()));
        return Some(format!("the accuracy is {found}, op by op it is {expected}"));
    }
    (found.confusion != expected.confusion)
        .then(|| "the confusion matrix is not that of the answers op by op".to_owned())
}

/// The evaluation's step op by op over all samples; rows beyond the last sample are filled with others and left out.
fn one_by_one(session: &mut Session, set: &Dataset, held_out: &[u32], counts: bool) -> Result<Evaluation, TrainError> {
    let Session { evaluator, pool, model, .. } = session;
    let (width, kinds, positions) = (model.output.len(), model.classes(), model.labels().len());
    let mut confusion = if counts { vec![vec![0u32; kinds]; kinds] } else { Vec::new() };
    let (mut loss, mut right, mut whole) = (0.0, 0, 0u32);
    let Some(step) = evaluator.as_mut().map(|e| e.step_mut()) else {
        return Err(crate::exec::ExecError::NoValue("evaluation".into()).into());
    };
    let (output, batch) = (step.compiled().plan.program.output, step.compiled().model.batch);
    for chunk in held_out.chunks(batch) {
        let filled: Vec<u32> = chunk.iter().cycle().copied().take(batch).collect();
        write_samples(step, &rows_of(set, &filled)?)?;
        step.run(Executor::Eager, pool)?;
        let values = step.stored::<f32>(output)?;
        for (sample, row) in chunk.iter().zip(values.chunks_exact(width)) {
            let labels = set.target.labels(&[*sample])?;
            match &set.target {
                Target::Classes { .. } | Target::Windows(_) => {
                    let before = right;
                    for (row, label) in row.chunks_exact(kinds).zip(labels) {
                        let label = label as usize;
                        let scores: Vec<(f64, f64)> = row.iter().map(|v| (f64::from(*v), 0.0)).collect();
                        let (best, (score, _)) = largest(&scores);
                        let sum: f64 = scores.iter().map(|(v, _)| (v - score).exp()).sum();
                        loss += sum.ln() + score - scores[label].0;
                        // Scores with NaN predict no class.
                        let is_known = scores.iter().all(|(v, _)| !v.is_nan());
                        right += usize::from(best == label && is_known);
                        if counts && is_known {
                            confusion[label][best] += 1;
                        }
                    }
                    whole += u32::from(right - before == positions);
                }
                Target::Values { values, .. } => {
                    let target = &values[*sample as usize * width..][..width];
                    let values = row.iter().zip(target).map(|(y, t)| {
                        // Squares are of a difference in `f32`.
                        let is_square = model.loss.rule() == LossRule::SquaredError;
                        let at = if is_square { [f64::from(y - t), 0.0] } else { [f64::from(*y), f64::from(*t)] };
                        value_of(&model.loss, [at[0], 0.0], at[1])[0]
                    });
                    loss += values.sum::<f64>() / width as f64;
                    if model.loss.targets() == Targets::Binary {
                        right += row.iter().zip(target).filter(|(y, t)| is_right(**y, **t)).count();
                    }
                }
            }
        }
    }
    let n = held_out.len() as f64 * losses_each(&set.target);
    let answers = held_out.len() as f64 * answers_each(&model.loss, width, &set.target);
    let accuracy = model.loss.has_accuracy().then(|| right as f64 / answers);
    let exact = set.classes().filter(|_| positions > 1).map(|_| f64::from(whole) / held_out.len() as f64);
    Ok(Evaluation { samples: held_out.len(), loss: loss / n, accuracy, exact, confusion })
}

/// The first samples, as many as plain loops can go through in a while, with the session's parameters in f64.
fn against_reference(session: &Session, set: &Dataset, held_out: &[u32]) -> Result<(Exact, &'static str), TrainError> {
    let reference = Options { mode: Mode::Eval, ..Options::reference_f64(host_target(1)) };
    let of_one = compile(&session.model.with_batch(2), &reference)?.selection.flops().max(2) as f64 / 2.0;
    let count = held_out.len().min(((FLOPS / of_one) as usize).max(2));
    let model = session.model.with_batch(count.clamp(2, AT_ONCE));
    let real = session.compiled().selection.real;
    let pass = |step: &mut Step, outputs: &dyn Fn(&Step) -> Result<Bounds, TrainError>| {
        let mut exact = Exact::default();
        for chunk in held_out[..count].chunks(model.batch) {
            let filled: Vec<u32> = chunk.iter().cycle().copied().take(model.batch).collect();
            write_samples(step, &rows_of(set, &filled)?)?;
            let (outputs, is_beyond) = outputs(step)?;
            exact.is_beyond |= is_beyond;
            let width = outputs.len() / model.batch;
            for (sample, row) in chunk.iter().zip(outputs.chunks_exact(width)) {
                exact.add(&model.loss, row, set, *sample)?;
            }
        }
        Ok::<Exact, TrainError>(exact)
    };
    let mut step = evaluating(session, &model, &reference)?;
    let mut exact = pass(&mut step, &|step| outputs(step, real))?;
    let is_known = exact.error <= tolerance(real) * exact.loss.abs();
    if exact.loss.is_finite() && !is_known && !exact.is_beyond {
        // The operations that a GPU's evaluation fuses are fused, and values are stored where it stores them.
        let fused = Options { mode: Mode::Eval, ..Options::train(host_target(1)) };
        let mut step = evaluating(session, &model, &fused)?;
        let mut once = |run: u64| Ok(pass(&mut step, &|step| emulated(step, real, run.checked_sub(1)))?.loss);
        exact.emulated = (0..EMULATED).map(&mut once).collect::<Result<_, TrainError>>()?;
    }
    Ok((exact, if count < held_out.len() { " (more would take too long)" } else { "" }))
}

/// An evaluation of a network with the session's parameters.
fn evaluating(session: &Session, model: &Model, options: &Options) -> Result<Step, TrainError> {
    let training = Options { mode: Mode::Train, ..options.clone() };
    let (mut owner, _) = prepared(model, &training, 0)?;
    for index in 0..model.params.len() {
        let id = ParamId(index as u32);
        let values = session.train.param::<f32>(id)?;
        if owner.compiled().plan.program.real == DType::F64 {
            owner.set_param(id, &values.into_iter().map(f64::from).collect::<Vec<_>>())?;
        } else {
            owner.set_param(id, &values)?;
        }
    }
    Ok(Step::sharing(Arc::new(compile(model, options)?), &owner)?)
}

/// The outputs of the batch in `step` by plain loops that round as `real` does, at random with a seed.
fn emulated(step: &Step, real: Real, seed: Option<u64>) -> Result<Bounds, TrainError> {
    let compiled = step.compiled();
    let mut coarse = CoarseStep::new(Arc::clone(compiled), real, 1.0, seed);
    coarse.load_state(step.backend())?;
    coarse.run(0, compiled.plan.program.ops.len())?;
    Ok((coarse.reals(compiled.plan.program.output).iter().map(|v| (f64::from(*v), 0.0)).collect(), false))
}

/// The outputs of the batch in `step`, each with a bound for kernels that compute as `real` does.
fn outputs(step: &Step, real: Real) -> Result<Bounds, TrainError> {
    let half = |relative: f64, absolute: f64, largest: f64| Storage { relative, absolute, largest };
    match real {
        Real::F32 => bounded::<24, 24>(step, Storage::default()),
        Real::Tf32 => bounded::<24, 11>(step, Storage::default()),
        Real::F16 => bounded::<24, 11>(step, half(2f64.powi(-11), 2f64.powi(-25), f16::MAX.to_f64())),
        Real::Bf16 => bounded::<24, 8>(step, half(2f64.powi(-8), 0.0, bf16::MAX.to_f64())),
    }
}

fn bounded<const SUM: i32, const PRODUCT: i32>(step: &Step, storage: Storage) -> Result<Bounds, TrainError> {
    let compiled = step.compiled();
    let mut bounded = BoundedStep::<SUM, PRODUCT>::new(Arc::clone(compiled), storage);
    bounded.load_state(step.backend())?;
    bounded.run(0, compiled.plan.program.ops.len())?;
    let program = &compiled.plan.program;
    let of = |real: &Bounded<SUM, PRODUCT>| (real.value, real.error);
    let mut arguments = program.ops.iter().flat_map(|op| op.bound(Dir::In));
    let is_beyond = arguments.any(|(_, id)| bounded.reals(id).unwrap_or(&[]).iter().any(|v| is_large(v.value)));
    Ok((bounded.reals(program.output).unwrap_or(&[]).iter().map(of).collect(), is_beyond))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    /// The evaluation of a network whose outputs are this number, exactly: a row of one value becomes the shift.
    fn shifted(to: f64) -> Step {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [1], "batch": 2},
            "layers": [{"type": "layer_norm"}], "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let reference = || Options::reference_f64(host_target(1));
        let (mut owner, _) = prepared(&model, &reference(), 0).unwrap();
        owner.set_param(ParamId(1), &[to]).unwrap();
        let compiled = compile(&model, &Options { mode: Mode::Eval, ..reference() }).unwrap();
        Step::sharing(Arc::new(compiled), &owner).unwrap()
    }

    #[test]
    fn outputs_may_be_off_by_what_storing_them_rounds() {
        let step = shifted(0.3);
        for (real, relative) in [(Real::Bf16, 2f64.powi(-8)), (Real::F16, 2f64.powi(-11)), (Real::F32, 0.0)] {
            let (found, is_beyond) = outputs(&step, real).unwrap();
            let is_right = |(v, e): &(f64, f64)| *v == 0.3 && (e - 0.3 * relative).abs() < 1e-7;
            assert!(!is_beyond && found.len() == 2 && found.iter().all(is_right), "{real:?}: {found:?}");
        }
    }

    #[test]
    fn outputs_beyond_the_range_of_half_width_are_known_to_leave_it() {
        let step = shifted(7e4);
        for (real, is_beyond) in [(Real::F16, true), (Real::Bf16, false), (Real::Tf32, false), (Real::F32, false)] {
            let (found, _) = outputs(&step, real).unwrap();
            assert!(found.iter().all(|(v, e)| *v == 7e4 && e.is_infinite() == is_beyond), "{real:?}: {found:?}");
            let (emulated, _) = emulated(&step, real, None).unwrap();
            assert!(emulated.iter().all(|(v, _)| v.is_infinite() == is_beyond), "{real:?}: {emulated:?}");
        }
        let loss =
            |emulated: f64| Exact { loss: 0.5, error: f64::INFINITY, emulated: vec![emulated], ..Exact::default() };
        let beyond = Exact { is_beyond: true, error: 0.0, ..loss(0.5) };
        assert!(allowed_for(&beyond, 1.0, tolerance(Real::F32)).is_infinite());
        assert!(outputs(&shifted(1e19), Real::F32).unwrap().1);
        // A loss that is not a number is excused where the emulated one is not finite either, and only there.
        assert!(allowed_for(&loss(f64::NAN), 1.0, tolerance(Real::F16)).is_infinite());
        assert!(allowed_for(&loss(0.6), 1.0, tolerance(Real::F16)) < 0.5);
    }
}
