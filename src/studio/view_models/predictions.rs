//! A network's predictions for samples whose targets are known: classes with probabilities, confusion matrix, decision
//! boundary, errors, filters.

use crate::data::{DataError, Dataset, Split, Target};
use crate::model::losses::{answer, predicted_class, probability, softmax};
use crate::model::{DataSource, Model, ParamId, ParamKind, Targets};
use crate::studio::commands::AnswersPage;
use crate::studio::view_models::data::{Picture, class_name, picture, target_text};
use crate::studio::view_models::format::{exact, visible};
use crate::tensor::figure;
use crate::train::{AnswerSums, ClassRates, Evaluation, Forecast, Look, Looked, MAX_CONFUSION};
use std::fmt;
use std::sync::Arc;

pub mod filters;

use filters::{Filters, filters};

/// The largest number of samples with predictions, and of their values.
const ANSWERED: usize = 5000;
const VALUES: usize = 8 << 20;
/// Points on each side of the grid on which the plane is evaluated.
pub const GRID: usize = 96;

/// A network, its data, and its answer: everything that a view depends on.
pub struct AnsweredQuery {
    /// The run that was queried.
    pub run: u64,
    pub model: Arc<Model>,
    pub source: DataSource,
    pub data: (Arc<Dataset>, Arc<Split>),
    /// Whether the held-out samples may have been trained on before.
    pub maybe_trained: bool,
    pub answer: Box<Looked>,
}

/// One sample with its prediction; if a sample has several yes-or-no outputs, or a class for each position, one of
/// them.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    pub index: u32,
    /// The index of the yes-or-no output, or the position of the class; 0 otherwise.
    pub output: usize,
    /// The true class; 0 for values. For yes and no, yes is 1.
    pub truth: usize,
    /// The predicted class, or a number beyond the classes if an output is NaN; 0 for values.
    pub guess: usize,
    /// The probability of `guess`; for values, the root mean squared error of the sample.
    pub confidence: f32,
}

/// Precision and recall of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassScore {
    pub name: String,
    /// Without samples if there are too many classes for a confusion matrix.
    pub rates: ClassRates,
}

/// The plane of samples with two values, row by row from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    /// Smallest and largest first value, smallest and largest second value.
    pub bounds: [f64; 4],
    /// The class of each point; empty for values.
    pub classes: Vec<u8>,
    /// The probability of that class, from 0 to 1; for values the first output, scaled from its smallest to its largest
    /// value.
    pub shades: Vec<f32>,
    /// Smallest and largest value, for values.
    pub range: [f32; 2],
}

/// The accuracy of predicted values.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// `[true, predicted]` for every sample and output.
    pub pairs: Vec<[f64; 2]>,
    /// Root mean squared error, mean absolute error, share of the variance explained.
    pub rmse: f64,
    pub mae: f64,
    pub r2: f64,
}

/// The individual predictions with their values.
#[derive(Clone, Debug, Default)]
pub struct AnswerRows {
    /// The number of predictions for a sample: the length of the sequence if each position has its own, otherwise 1.
    pub positions: usize,
    /// For classes, wrong ones first, in falling order of confidence, then correct ones, in rising order of confidence.
    /// For values, in falling order of the error.
    pub answered: Vec<Answered>,
    /// The number of values of a prediction: the outputs of a sample; for yes and no the two probabilities.
    pub outputs: usize,
    /// Probabilities for classes, values otherwise: `[answered, outputs]` in the order of `answered`.
    pub values: Vec<f32>,
}

/// The metrics of all predictions, equal to those of an evaluation of the same samples.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    /// Mean loss without label smoothing.
    pub loss: f64,
    /// The share that is classified correctly.
    pub accuracy: Option<f64>,
    /// The number of samples that are correct at every position, and of samples; `None` if a sample is one prediction.
    pub exact: Option<(usize, usize)>,
    /// By true class (rows) and predicted class (columns); empty for values.
    pub confusion: Vec<Vec<u32>>,
    pub scores: Vec<ClassScore>,
}

/// Views that exist only for some networks and data, on a page each.
#[derive(Clone, Debug, Default)]
pub struct SpecialPages {
    pub plane: Option<Plane>,
    pub fit: Option<Fit>,
    pub filters: Option<Filters>,
    /// Forecasts of a series, in the units of the data.
    pub forecast: Option<Forecast>,
}

/// The predictions, ready to be drawn.
#[derive(Clone, Debug)]
pub struct PredictionsView {
    /// The run that was queried.
    pub run: u64,
    pub set: Arc<Dataset>,
    pub picture: Option<Picture>,
    /// The number of steps made at the time of the query.
    pub step: u64,
    /// The evaluated samples: "360 held-out samples".
    pub what: String,
    pub rows: AnswerRows,
    pub quality: Quality,
    pub pages: SpecialPages,
    pub took_us: f64,
}

/// The samples to evaluate: the held-out part, or the training part if nothing is held out; and its name.
#[must_use]
pub fn asked_part(split: &Split) -> (&[u32], &'static str) {
    if split.held_out.is_empty() { (&split.train, "training") } else { (&split.held_out, "held-out") }
}

/// The query for a view of this network with this data.
#[must_use]
pub fn query(model: &Model, set: &Dataset, split: &Split, source: &DataSource) -> Look {
    let points = bounds(set).map_or_else(Vec::new, |[x0, x1, y0, y1]| {
        let at = |low: f64, high: f64, i: usize| (low + (high - low) * (i as f64 + 0.5) / GRID as f64) as f32;
        let rows = (0..GRID).rev().map(|r| at(y0, y1, r));
        rows.flat_map(|y| (0..GRID).flat_map(move |c| [at(x0, x1, c), y])).collect()
    });
    let weight = first_weight(model, picture(set, source).is_some());
    // If predictions have many values, fewer samples are evaluated; if very many, none.
    let most = ANSWERED.min(VALUES / model.output.len().max(1));
    let samples = asked_part(split).0.iter().copied().take(most).collect();
    Look { samples, points, weight, inside: None }
}

/// The pages with predictions of this network for this data.
#[must_use]
pub fn answer_pages(model: &Model, set: &Dataset, source: &DataSource) -> Vec<AnswersPage> {
    let targets = model.loss.targets();
    let has_matrix = targets == Targets::Binary || (targets == Targets::Classes && model.classes() <= MAX_CONFUSION);
    let has_filters = first_weight(model, picture(set, source).is_some()).is_some();
    let pages = [
        (AnswersPage::Plane, bounds(set).is_some()),
        (AnswersPage::Fit, targets == Targets::Values),
        (AnswersPage::Confusion, has_matrix),
        (AnswersPage::Samples, true),
        (AnswersPage::Filters, has_filters),
    ];
    pages.into_iter().filter(|(_, is_there)| *is_there).map(|(page, _)| page).collect()
}

/// The range of samples with two values, including a margin: smallest and largest first value, smallest and largest
/// second one.
fn bounds(set: &Dataset) -> Option<[f64; 4]> {
    if set.sample().0 != [2] {
        return None;
    }
    let mut found = [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY];
    for p in set.x().chunks_exact(2) {
        for (side, v) in [f64::from(p[0]), f64::from(p[1])].into_iter().enumerate() {
            found[2 * side] = found[2 * side].min(v);
            found[2 * side + 1] = found[2 * side + 1].max(v);
        }
    }
    for side in [0, 2] {
        let margin = ((found[side + 1] - found[side]) * 0.1).max(0.1);
        found[side] -= margin;
        found[side + 1] += margin;
    }
    found.iter().all(|v| v.is_finite()).then_some(found)
}

/// The first weight, if it can be drawn as pictures: filters, or weights for the values of a picture.
fn first_weight(model: &Model, on_picture: bool) -> Option<ParamId> {
    let first = model.params.iter().position(|p| p.kind == ParamKind::Weight)?;
    let shape = &model.params[first].shape;
    let sound = shape.rank() == 4 || (shape.rank() == 2 && on_picture && shape.0[0] == model.sample_len());
    sound.then_some(ParamId(first as u32))
}

/// Makes the view of an answer.
#[must_use]
pub fn view(question: &AnsweredQuery) -> PredictionsView {
    let AnsweredQuery { run, model, source, data: (set, split), maybe_trained, answer } = question;
    let outputs = model.output.len().max(1);
    let (all, part) = asked_part(split);
    let count = answer.outputs.len() / outputs;
    let noun = if count == 1 { "sample" } else { "samples" };
    // A metric of samples that may have been trained on is not called held-out.
    let (part, doubt) = match *maybe_trained && !split.held_out.is_empty() {
        true => (String::new(), " that may have been trained on"),
        false => (format!("{part} "), ""),
    };
    let what = if count < all.len() {
        format!("the first {} of {} {part}{noun}{doubt}", exact(count as u64), exact(all.len() as u64))
    } else {
        format!("{} {part}{noun}{doubt}", exact(count as u64))
    };
    let shape = picture(set, source);
    let mut out = PredictionsView {
        run: *run,
        set: Arc::clone(set),
        picture: shape,
        step: answer.step,
        what,
        rows: AnswerRows {
            positions: 1,
            answered: Vec::with_capacity(count),
            outputs,
            values: Vec::with_capacity(answer.outputs.len()),
        },
        quality: Quality::default(),
        pages: SpecialPages {
            filters: answer.weight.as_ref().and_then(|w| filters(model, w, answer.question.weight, shape)),
            ..SpecialPages::default()
        },
        took_us: answer.took_us,
    };
    let indices = &answer.question.samples[..count.min(answer.question.samples.len())];
    if let Err(error) = out.take(indices, &answer.outputs, model) {
        out.quality.loss = f64::NAN;
        out.what = format!("{}, whose targets cannot be read: {error}", out.what);
    }
    out.pages.forecast = Forecast::of(source, set, indices, &answer.outputs);
    let targets = model.loss.targets();
    out.pages.plane =
        bounds(set).filter(|_| !answer.at_points.is_empty()).map(|b| plane(b, &answer.at_points, outputs, targets));
    out
}

impl PredictionsView {
    /// Takes the outputs for samples by index.
    fn take(&mut self, indices: &[u32], outputs: &[f32], model: &Model) -> Result<(), DataError> {
        let sums = AnswerSums::of(model, &self.set, indices, outputs, MAX_CONFUSION)?;
        let exact = sums.exact();
        let Evaluation { loss, accuracy, confusion, .. } = sums.evaluation();
        self.quality = Quality { loss, accuracy, exact, confusion, scores: Vec::new() };
        match model.loss.targets() {
            Targets::Classes => self.take_classes(indices, outputs, model)?,
            Targets::Binary => self.take_binary(indices, outputs),
            Targets::Values => self.take_values(indices, outputs),
        }
        Ok(())
    }

    fn take_classes(&mut self, indices: &[u32], logits: &[f32], model: &Model) -> Result<(), DataError> {
        // Each position of a sample is a separate prediction.
        let (width, positions) = (model.classes().max(1), model.labels().len().max(1));
        let labels = self.set.target.labels(indices)?;
        (self.rows.outputs, self.rows.positions) = (width, positions);
        if positions > 1 {
            self.what = format!("{} positions of {}", exact((logits.len() / width) as u64), self.what);
        }
        let mut probabilities = logits.to_vec();
        probabilities.chunks_exact_mut(width).for_each(softmax);
        let mut rows: Vec<(Answered, usize)> = Vec::with_capacity(indices.len());
        let each = logits.chunks_exact(width).zip(probabilities.chunks_exact(width)).zip(&labels);
        for (at, ((logits, row), label)) in each.enumerate() {
            let Some(&index) = indices.get(at / positions) else { continue };
            let (truth, guess) = (*label as usize, predicted_class(logits).unwrap_or(width));
            let confidence = row.get(guess).copied().unwrap_or(f32::NAN);
            rows.push((Answered { index, output: at % positions, truth, guess, confidence }, at));
        }
        // Tokens that cannot be seen, such as a blank, have visible names.
        let is_text = matches!(self.set.target, Target::Windows(_));
        let shown = |name: String| if is_text { visible(&name) } else { name };
        let names = (0..width).map(|c| shown(class_name(&self.set, c))).collect();
        self.take_answers(rows, &probabilities, names);
        Ok(())
    }

    /// Yes-or-no predictions, each output separately: two classes.
    fn take_binary(&mut self, indices: &[u32], logits: &[f32]) {
        let width = self.rows.outputs;
        self.rows.outputs = 2;
        let Target::Values { values, .. } = &self.set.target else { return };
        let mut rows: Vec<(Answered, usize)> = Vec::with_capacity(logits.len());
        let mut probabilities = Vec::with_capacity(2 * logits.len());
        self.quality.confusion = vec![vec![0; 2]; 2];
        for (&index, row) in indices.iter().zip(logits.chunks_exact(width)) {
            let Some(target) = values.get(index as usize * width..(index as usize + 1) * width) else { continue };
            for (output, (logit, target)) in row.iter().zip(target).enumerate() {
                let yes = probability(*logit);
                let (truth, guess) = (usize::from(*target > 0.5), answer(*logit).map_or(2, usize::from));
                if let Some(cell) = self.quality.confusion[truth].get_mut(guess) {
                    *cell += 1;
                }
                let confidence = [1.0 - yes, yes].get(guess).copied().unwrap_or(f32::NAN);
                rows.push((Answered { index, output, truth, guess, confidence }, probabilities.len() / 2));
                probabilities.extend([1.0 - yes, yes]);
            }
        }
        let known = &self.set.preprocessing.classes;
        let names = if width == 1 && known.len() == 2 { known.clone() } else { vec!["no".into(), "yes".into()] };
        self.take_answers(rows, &probabilities, names);
    }

    /// Sets predictions of classes, each with its row of probabilities, wrong ones first; the confusion matrix is set
    /// already.
    fn take_answers(&mut self, mut rows: Vec<(Answered, usize)>, probabilities: &[f32], names: Vec<String>) {
        let width = names.len();
        let rank = |a: &Answered| if a.truth == a.guess { (1, a.confidence) } else { (0, -a.confidence) };
        rows.sort_by(|(a, _), (b, _)| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        for (answered, at) in rows {
            self.rows.values.extend_from_slice(&probabilities[at * width..(at + 1) * width]);
            self.rows.answered.push(answered);
        }
        let rates = ClassRates::of(&self.quality.confusion);
        let score = |(class, name)| ClassScore { name, rates: rates.get(class).copied().unwrap_or_default() };
        self.quality.scores = names.into_iter().enumerate().map(score).collect();
    }

    fn take_values(&mut self, indices: &[u32], found: &[f32]) {
        let width = self.rows.outputs;
        let Target::Values { values, .. } = &self.set.target else { return };
        let mut pairs = Vec::with_capacity(found.len());
        let mut rows: Vec<(f64, Answered, usize)> = Vec::with_capacity(indices.len());
        for (at, (&index, row)) in indices.iter().zip(found.chunks_exact(width)).enumerate() {
            let Some(target) = values.get(index as usize * width..(index as usize + 1) * width) else { continue };
            let mut error = 0.0;
            for (t, p) in target.iter().zip(row) {
                pairs.push([f64::from(*t), f64::from(*p)]);
                error += f64::from(t - p).powi(2);
            }
            let confidence = (error / width as f64).sqrt() as f32;
            rows.push((error, Answered { index, output: 0, truth: 0, guess: 0, confidence }, at));
        }
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, answered, at) in rows {
            self.rows.values.extend_from_slice(&found[at * width..(at + 1) * width]);
            self.rows.answered.push(answered);
        }
        let n = pairs.len().max(1) as f64;
        let mean = pairs.iter().map(|p| p[0]).sum::<f64>() / n;
        let squares: f64 = pairs.iter().map(|p| (p[0] - p[1]).powi(2)).sum();
        let spread: f64 = pairs.iter().map(|p| (p[0] - mean).powi(2)).sum();
        let mae = pairs.iter().map(|p| (p[0] - p[1]).abs()).sum::<f64>() / n;
        self.pages.fit = Some(Fit { rmse: (squares / n).sqrt(), mae, r2: 1.0 - squares / spread.max(1e-30), pairs });
    }

    /// The prediction at a position of `answered`: probabilities, or values.
    #[must_use]
    pub fn row(&self, at: usize) -> &[f32] {
        self.rows.values.get(at * self.rows.outputs..(at + 1) * self.rows.outputs).unwrap_or_default()
    }

    /// The `k` classes with the largest probabilities at a position of `answered`, the largest first.
    #[must_use]
    pub fn top(&self, at: usize, k: usize) -> Vec<(usize, f32)> {
        let mut all: Vec<(usize, f32)> = self.row(at).iter().copied().enumerate().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(k);
        all
    }

    /// The positions in `answered` of a cell of the confusion matrix; all if `None`.
    #[must_use]
    pub fn of_cell(&self, cell: Option<(usize, usize)>) -> Vec<u32> {
        let wanted = |a: &Answered| cell.is_none_or(|c| (a.truth, a.guess) == c);
        (0u32..).zip(&self.rows.answered).filter(|(_, a)| wanted(a)).map(|(i, _)| i).collect()
    }

    /// The name of a class.
    #[must_use]
    pub fn name(&self, class: usize) -> &str {
        self.quality.scores.get(class).map_or("?", |s| s.name.as_str())
    }

    /// The target of the sample at a position of `answered`, as text.
    #[must_use]
    pub fn truth_text(&self, at: usize) -> String {
        let Some(answered) = self.rows.answered.get(at) else { return String::new() };
        if matches!(self.set.target, Target::Values { .. }) && !self.quality.confusion.is_empty() {
            let name = self.name(answered.truth);
            let known = &self.set.preprocessing;
            let width = self.set.target.shape().len();
            let names = [&known.classes, &known.targets].into_iter().find(|names| names.len() == width);
            return match names.and_then(|names| names.get(answered.output)) {
                _ if width == 1 => name.to_owned(),
                Some(output) => format!("{output}: {name}"),
                None => format!("output {}: {name}", answered.output),
            };
        }
        if self.rows.positions > 1 {
            return format!("{} at position {}", self.name(answered.truth), answered.output + 1);
        }
        target_text(&self.set, answered.index)
    }
}

fn plane(bounds: [f64; 4], answers: &[f32], outputs: usize, targets: Targets) -> Plane {
    let mut out = Plane { bounds, classes: Vec::new(), shades: Vec::new(), range: [0.0, 1.0] };
    if targets == Targets::Binary {
        // If there are several outputs, the first is drawn.
        for yes in answers.chunks_exact(outputs).map(|row| probability(row[0])) {
            out.classes.push(u8::from(yes > 0.5));
            out.shades.push(yes.max(1.0 - yes));
        }
    } else if targets == Targets::Classes {
        let mut row = Vec::with_capacity(outputs);
        for logits in answers.chunks_exact(outputs) {
            row.clear();
            row.extend_from_slice(logits);
            softmax(&mut row);
            let best = predicted_class(logits).unwrap_or(0);
            out.classes.push(best.min(255) as u8);
            out.shades.push(row[best]);
        }
    } else {
        let first = || answers.chunks_exact(outputs).map(|r| r[0]);
        let (low, high) = first().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        out.range = [low, high];
        out.shades.extend(first().map(|v| (v - low) / (high - low).max(1e-12)));
    }
    out
}

/// The metrics, the confusion matrix, and the first samples.
impl fmt::Display for PredictionsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {}: loss {}", self.step, self.what, figure(self.quality.loss, 4))?;
        if let Some(accuracy) = self.quality.accuracy {
            write!(f, ", accuracy {accuracy:.4}")?;
        }
        writeln!(f)?;
        for (score, row) in self.quality.scores.iter().zip(&self.quality.confusion) {
            let share = |s: Option<f64>| s.map_or_else(|| "-".into(), |s| format!("{s:.2}"));
            let ClassRates { precision, recall, .. } = score.rates;
            writeln!(f, "{} {row:?} precision {} recall {}", score.name, share(precision), share(recall))?;
        }
        for (at, a) in self.rows.answered.iter().enumerate().take(3) {
            writeln!(f, "sample {}: is {}, {:?}", a.index, self.truth_text(at), self.row(at))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
