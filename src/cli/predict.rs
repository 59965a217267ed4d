//! `stepgraph predict`: evaluates given weights on samples that they were not trained on.

use super::args::PredictArgs;
use super::error::{unwritable, wrong};
use super::metrics::Metrics;
use super::output::{self, count};
use super::predict_data::{Chosen, Weights, choose};
use super::predict_series::{self, Series};
use super::presets::{self, DataLook, Loaded};
use super::result_places::{Kind, Places};
use crate::data::{Dataset, Target};
use crate::model::losses::{answer, predicted_class, probability, softmax};
use crate::model::{Model, Targets};
use crate::tensor::{figure, plural, write_advice, write_atomic};
use crate::train::{
    AnswerSums, ClassRates, DataChoice, Evaluation, Forecast, Purpose, Session, SessionSpec, Start, TrainError,
};
use serde::Serialize;
use std::path::Path;

/// Precision and recall of one class.
#[derive(Serialize)]
struct Class {
    name: String,
    samples: u32,
    /// Absent if no sample was predicted to be of the class.
    precision: Option<f64>,
    /// Absent if no sample is of the class.
    recall: Option<f64>,
}

/// How well one yes-or-no output predicts.
#[derive(Serialize)]
struct Output {
    name: String,
    /// Samples whose target is yes.
    yes: u32,
    /// Samples predicted as yes.
    answered_yes: u32,
    /// Share of samples predicted correctly.
    accuracy: f64,
    /// Absent if no sample is predicted as yes.
    precision: Option<f64>,
    /// Absent if the target of no sample is yes.
    recall: Option<f64>,
}

/// The yes-or-no predictions for one sample.
#[derive(Serialize)]
struct SampleAnswers {
    sample: u32,
    /// The probability of yes, for each output.
    probability: Vec<f32>,
    /// Whether the probability is above one half; absent if an output is NaN.
    answer: Vec<Option<bool>>,
    target: Vec<bool>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    preset: String,
    device: String,
    init: String,
    /// `held_out`, `train` if nothing is held out, `all` if the weights were trained on other data, or `maybe_trained`
    /// if an earlier part of their run may have trained on the samples.
    part: &'static str,
    samples: usize,
    #[serde(flatten)]
    metrics: Metrics,
    /// The loss in bits, for networks that predict tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_token: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<Class>,
    /// Samples by true class (rows) and predicted class (columns).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    confusion: Vec<Vec<u32>>,
    /// For series: forecasts and the actual values.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<Series>,
    /// For yes-or-no outputs: how well each one predicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Output>,
    /// For yes-or-no outputs: the predictions for each sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<SampleAnswers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<String>,
    /// Notes about the samples and their preparation.
    notes: Vec<String>,
}

/// Predicts the held-out part, or other data.
///
/// # Errors
/// If an argument or file is wrong, or the predictions cannot be written.
pub fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let is_printed = args.out.as_deref() == Some(Path::new("-"));
    if is_printed && args.json {
        let help = "--out - and --json both write to standard output; give --out a file, or omit one of them";
        return Err(wrong(help));
    }
    let found = presets::load(&args.preset, DataLook::Report)?;
    if found.preset.data.is_none() {
        return Err(wrong("the preset names no data to evaluate; add a \"data\" field to it"));
    }
    let mut places = Places::of(&found);
    let weights = Weights::of(args.init.as_deref(), args.run.as_deref())?;
    places.reads("the parameters", Some(&weights.path));
    let out = places.writes("the answers", Kind::Answers, args.out.as_deref().filter(|_| !is_printed))?;
    let (mut session, device) = prepare(&found, &weights, args)?;
    let Chosen { set, samples, part, notes } = choose(&found, session.model(), &weights, args)?;
    let notes: Vec<String> = session.notes().iter().cloned().chain(notes).collect();
    notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    let outputs = session.answers(&set, &samples)?;
    let source = found.preset.data.as_ref().map(|data| &data.source);
    let forecast = source.and_then(|source| Forecast::of(source, &set, &samples, &outputs));
    let answers = Answers::of(session.model(), &set, &samples, outputs)?;
    let csv = || match &forecast {
        Some(found) => predict_series::csv(found, quoted),
        None => answers.csv(&set, &samples),
    };
    if let Some(path) = &out {
        write(path, &csv())?;
    }
    let table = is_printed.then(csv);
    let metrics = Metrics::of(session.model(), &answers.found);
    let classes = answers.classes(&set);
    let (outputs, by_sample) = (answers.outputs(&set, &samples), answers.by_sample(&set, &samples));
    let summary = Summary {
        preset: found.preset.name,
        device,
        init: weights.path.display().to_string(),
        part: part.name(),
        samples: samples.len(),
        bits_per_token: metrics.perplexity.map(|_| metrics.loss / std::f64::consts::LN_2),
        metrics,
        classes,
        confusion: answers.found.confusion,
        forecast: forecast.as_ref().map(Series::of),
        outputs,
        answers: by_sample,
        out: out.map(|path| path.display().to_string()),
        notes,
    };
    if args.json {
        return output::print_json(&summary);
    }
    print(&(text(&summary) + &forecast.as_ref().map(predict_series::text).unwrap_or_default()), table)
}

/// Prints the metrics, or, if requested, the table to standard output and the metrics to standard error.
fn print(figures: &str, table: Option<String>) -> anyhow::Result<()> {
    let Some(table) = table else { return output::print(figures) };
    output::note(figures.trim_end());
    output::print_table(&table)
}

/// The network with these weights, and the name of the device that it runs on.
fn prepare(found: &Loaded, weights: &Weights, args: &PredictArgs) -> anyhow::Result<(Session, String)> {
    let threads = super::device::threads(args.cpu.threads, &found.model).count;
    let (target, device) = super::device::choose(args.device, threads, [&found.model])?;
    let spec = SessionSpec {
        threads,
        machine: Some(target.clone()),
        start: Start::from_weights(weights.path.clone()),
        // Nothing is trained: the samples are set later, and may be fewer than a batch.
        data: DataChoice::Resident,
        tuning: super::device::tuning(&target),
        purpose: Purpose::Predict,
        ..SessionSpec::new(found.preset.clone(), found.base.clone())
    };
    let session = Session::prepare(&spec)?;
    presets::warn_of_precision(&found.preset, &target);
    Ok((session, device))
}

/// Writes the predictions to a file.
fn write(path: &Path, csv: &str) -> anyhow::Result<()> {
    write_atomic(path, csv.as_bytes()).map_err(|cause| {
        let message = format!("{} cannot be written: {cause}; {}", path.display(), write_advice(&cause));
        unwritable(cause, message)
    })?;
    output::note(&format!("wrote {}", path.display()));
    Ok(())
}

/// The network's outputs, row by row.
struct Answers {
    /// The number of classes, or of values.
    width: usize,
    /// The number of predictions for a sample.
    positions: usize,
    targets: Targets,
    /// `[samples, positions]`; empty for values.
    labels: Vec<i32>,
    /// Probabilities for classes and for yes-or-no outputs, values otherwise: `[samples, positions, width]`.
    values: Vec<f32>,
    /// For classes: the predictions, `[samples, positions]`.
    guesses: Vec<Option<usize>>,
    /// For yes-or-no outputs: the predictions, `[samples, width]`.
    said: Vec<Option<bool>>,
    found: Evaluation,
}

impl Answers {
    fn of(model: &Model, set: &Dataset, samples: &[u32], mut values: Vec<f32>) -> anyhow::Result<Self> {
        let is_classes = model.loss.wants_classes();
        let (width, positions) =
            if is_classes { (model.classes(), model.labels().len()) } else { (model.output.len(), 1) };
        let (width, positions) = (width.max(1), positions.max(1));
        // The confusion matrix of a large vocabulary would fill the memory and be unreadable.
        let most = if positions == 1 { usize::MAX } else { MAX_COUNTED };
        let found = AnswerSums::of(model, set, samples, &values, most).map_err(TrainError::from)?.evaluation();
        let targets = model.loss.targets();
        let (mut guesses, mut said) = (Vec::new(), Vec::new());
        match targets {
            Targets::Classes => {
                for row in values.chunks_exact_mut(width) {
                    guesses.push(predicted_class(row));
                    softmax(row);
                }
            }
            Targets::Binary => {
                said.extend(values.iter().map(|logit| answer(*logit)));
                values.iter_mut().for_each(|y| *y = probability(*y));
            }
            Targets::Values => {}
        }
        let labels = set.target.labels(samples).map_err(TrainError::from)?;
        Ok(Self { width, positions, targets, labels, values, guesses, said, found })
    }

    /// How well each class is predicted; empty without a confusion matrix.
    fn classes(&self, set: &Dataset) -> Vec<Class> {
        let of = |(class, rates): (usize, ClassRates)| {
            let ClassRates { samples, precision, recall } = rates;
            Class { name: name(set, class), samples, precision, recall }
        };
        ClassRates::of(&self.found.confusion).into_iter().enumerate().map(of).collect()
    }

    /// Whether the target of an output is yes.
    fn is_yes(&self, set: &Dataset, sample: u32, output: usize) -> bool {
        match &set.target {
            Target::Values { values, .. } => values[sample as usize * self.width + output] > 0.5,
            Target::Classes { .. } | Target::Windows(_) => false,
        }
    }

    /// How well each yes-or-no output predicts; empty for other outputs.
    fn outputs(&self, set: &Dataset, samples: &[u32]) -> Vec<Output> {
        if self.targets != Targets::Binary {
            return Vec::new();
        }
        let of = |output: usize| {
            let said = || self.said.iter().skip(output).step_by(self.width);
            let pairs = || samples.iter().zip(said()).map(|(i, said)| (self.is_yes(set, *i, output), *said));
            let count = |wanted: &dyn Fn(bool, Option<bool>) -> bool| pairs().filter(|(t, s)| wanted(*t, *s)).count();
            let hit = count(&|is, said| is && said == Some(true));
            let (yes, answered_yes) = (count(&|is, _| is), count(&|_, said| said == Some(true)));
            let right = count(&|is, said| said == Some(is));
            let share = |of: usize| (of > 0).then(|| hit as f64 / of as f64);
            Output {
                name: output_name(set, output, self.width),
                yes: yes as u32,
                answered_yes: answered_yes as u32,
                accuracy: right as f64 / samples.len().max(1) as f64,
                precision: share(answered_yes),
                recall: share(yes),
            }
        };
        (0..self.width).map(of).collect()
    }

    /// Probability and prediction of each yes-or-no output for each sample; empty for other outputs.
    fn by_sample(&self, set: &Dataset, samples: &[u32]) -> Vec<SampleAnswers> {
        let rows = self.values.chunks_exact(self.width).zip(self.said.chunks_exact(self.width));
        let of = |(sample, (row, said)): (&u32, (&[f32], &[Option<bool>]))| SampleAnswers {
            sample: *sample,
            probability: row.to_vec(),
            answer: said.to_vec(),
            target: (0..self.width).map(|output| self.is_yes(set, *sample, output)).collect(),
        };
        samples.iter().zip(rows).map(of).collect()
    }

    /// One line for each sample, or for each of its positions: its number, the target, the prediction, and every
    /// probability or value.
    fn csv(&self, set: &Dataset, samples: &[u32]) -> String {
        let mut text = String::from(if self.positions > 1 { "sample,position" } else { "sample" });
        if self.targets == Targets::Classes {
            text.push_str(",target,predicted");
            (0..self.width).for_each(|c| text.push_str(&format!(",{}", quoted(&format!("p_{}", name(set, c))))));
        } else {
            (0..self.width).for_each(|i| text.push_str(&format!(",target_{i}")));
            (0..self.width).for_each(|i| text.push_str(&format!(",predicted_{i}")));
        }
        if self.targets == Targets::Binary {
            (0..self.width).for_each(|i| text.push_str(&format!(",p_{i}")));
        }
        text.push('\n');
        for (at, row) in self.values.chunks_exact(self.width).enumerate() {
            let sample = samples[at / self.positions];
            text.push_str(&format!("{sample}"));
            if self.positions > 1 {
                text.push_str(&format!(",{}", at % self.positions));
            }
            match &set.target {
                Target::Classes { .. } | Target::Windows(_) => {
                    // Scores with NaN predict no class.
                    let guess = self.guesses[at].map_or_else(String::new, |guess| quoted(&name(set, guess)));
                    text.push_str(&format!(",{},{guess}", quoted(&name(set, self.labels[at] as usize))));
                }
                Target::Values { values, .. } => {
                    let target = &values[sample as usize * self.width..][..self.width];
                    target.iter().for_each(|v| text.push_str(&format!(",{v}")));
                }
            }
            // An output that is NaN predicts neither yes nor no.
            let said = self.said.get(at * self.width..(at + 1) * self.width).unwrap_or_default();
            let said = said.iter().map(|said| said.map_or("", |yes| if yes { "1" } else { "0" }));
            said.for_each(|said| text.push_str(&format!(",{said}")));
            row.iter().for_each(|v| text.push_str(&format!(",{v}")));
            text.push('\n');
        }
        text
    }
}

fn name(set: &Dataset, class: usize) -> String {
    set.target.names().get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// The name of a yes-or-no output: the class or the column of its target.
fn output_name(set: &Dataset, output: usize, count: usize) -> String {
    let known = &set.preprocessing;
    let names = [&known.classes, &known.targets].into_iter().find(|names| names.len() == count);
    let yes = || known.classes.get(1).filter(|_| count == 1 && known.classes.len() == 2);
    yes().or_else(|| names?.get(output)).cloned().unwrap_or_else(|| format!("output {output}"))
}

/// A cell of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// If each position has a class, predictions are not counted by class.
const MAX_COUNTED: usize = 1024;

/// The largest number of samples whose yes-or-no predictions are printed.
const FIRST: usize = 5;

/// With more classes than this, the matrix does not fit a terminal.
const MAX_PRINTED: usize = 24;

fn text(s: &Summary) -> String {
    let part = match s.part {
        "train" => "training ",
        "held_out" => "held-out ",
        _ => "",
    };
    let doubt = if s.part == "maybe_trained" { " that may have been trained on" } else { "" };
    let samples = format!("{} {part}{}{doubt}", count(s.samples as u64), plural(s.samples as u64, "sample"));
    let mut text = format!("{}: {samples}, loss {}", s.preset, figure(s.metrics.loss, 4));
    if let Some(accuracy) = s.metrics.accuracy {
        text.push_str(&format!(", {:.2}% right", accuracy * 100.0));
    }
    if let Some(exact) = s.metrics.some_exact() {
        text.push_str(&format!(", {:.2}% of samples exact", exact * 100.0));
    }
    if let (Some(perplexity), Some(bits)) = (s.metrics.perplexity, s.bits_per_token) {
        text.push_str(&format!(", perplexity {}, {} bits a token", figure(perplexity, 2), figure(bits, 3)));
    }
    text.push('\n');
    if !s.outputs.is_empty() {
        answers_text(s, &mut text);
    }
    if s.confusion.is_empty() {
        return text;
    }
    let letters = s.classes.iter().map(|c| c.name.chars().count()).max().unwrap_or(1).clamp(5, 16);
    let cut = |name: &str, most: usize| name.chars().take(most).collect::<String>();
    let printed = s.classes.len() <= MAX_PRINTED;
    if printed {
        text.push_str(&format!("\n  {:>letters$}  predicted\n  {:>letters$}", "", "true"));
        s.classes.iter().for_each(|c| text.push_str(&format!(" {:>5}", cut(&c.name, 5))));
    } else {
        text.push_str(&format!("\n  {:>letters$}", "class"));
    }
    text.push_str("   precision    recall   samples\n");
    for (class, row) in s.classes.iter().zip(&s.confusion) {
        text.push_str(&format!("  {:>letters$}", cut(&class.name, letters)));
        if printed {
            row.iter().for_each(|n| text.push_str(&format!(" {n:>5}")));
        }
        let (p, r) = (percent(class.precision), percent(class.recall));
        text.push_str(&format!("   {p:>9} {r:>9} {:>9}\n", class.samples));
    }
    text
}

/// A share as a percentage; a dash if there is none.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |p| format!("{:.1}%", p * 100.0))
}

/// How well each yes-or-no output predicts, and the predictions for the first samples.
fn answers_text(s: &Summary, text: &mut String) {
    let letters = s.outputs.iter().map(|o| o.name.chars().count()).max().unwrap_or(1).clamp(6, 24);
    let cut = |name: &str| name.chars().take(letters).collect::<String>();
    text.push_str(&format!("\n  {:>letters$}       yes  answered yes     right   precision    recall\n", "output"));
    for output in s.outputs.iter().take(MAX_PRINTED) {
        text.push_str(&format!(
            "  {:>letters$} {:>9} {:>13} {:>9} {:>11} {:>9}\n",
            cut(&output.name),
            output.yes,
            output.answered_yes,
            percent(Some(output.accuracy)),
            percent(output.precision),
            percent(output.recall)
        ));
    }
    if s.outputs.len() > MAX_PRINTED {
        text.push_str(&format!("  and {} more; --json has all of them\n", s.outputs.len() - MAX_PRINTED));
    }
    text.push_str("\n  probability of yes and answer, for the first samples:\n");
    for sample in s.answers.iter().take(FIRST) {
        text.push_str(&format!("  sample {}:", sample.sample));
        let answers = sample.probability.iter().zip(&sample.answer).zip(&sample.target);
        for ((probability, answer), target) in answers.take(MAX_PRINTED) {
            let word = answer.map_or("not a number", |yes| if yes { "yes" } else { "no" });
            let mark = if *answer == Some(*target) { "right" } else { "wrong" };
            text.push_str(&format!("  {probability:.4} {word} ({mark})"));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!([quoted("a"), quoted("a,b"), quoted("a\"b")], ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
