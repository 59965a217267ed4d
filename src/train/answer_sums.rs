//! The metrics of a network's outputs for samples whose targets are known. Evaluations, `predict` and the Predictions
//! tab all take them from here, so that the same outputs have the same metrics everywhere.

use crate::data::{DataError, Dataset, Target};
use crate::model::losses::{is_right, predicted_class};
use crate::model::{Model, Targets};
use serde::Serialize;

/// With more classes than this, nobody can read the confusion matrix.
pub const MAX_CONFUSION: usize = 256;

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    pub samples: usize,
    /// Mean loss, without label smoothing.
    pub loss: f64,
    /// Share of samples, or positions, classified correctly; absent for values.
    pub accuracy: Option<f64>,
    /// Share of samples whose positions are all classified correctly; absent if a sample has one class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<f64>,
    /// Samples, or positions, by true class (rows) and predicted class (columns). Those whose outputs contain NaN
    /// predict no class, and are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u32>>,
}

/// How well a class is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassRates {
    /// Samples, or positions, of the class.
    pub samples: u32,
    /// Precision: among those predicted to be of it, the share that is; `None` if there are none.
    pub precision: Option<f64>,
    /// Recall: among those of it, the share that was predicted correctly; `None` if there are none.
    pub recall: Option<f64>,
}

impl ClassRates {
    /// The rates of each class of a confusion matrix.
    #[must_use]
    pub fn of(confusion: &[Vec<u32>]) -> Vec<Self> {
        let of = |(class, row): (usize, &Vec<u32>)| {
            let (samples, taken) = (row.iter().sum(), confusion.iter().map(|row| row[class]).sum());
            let share = |all: u32| (all > 0).then(|| f64::from(row[class]) / f64::from(all));
            Self { samples, precision: share(taken), recall: share(samples) }
        };
        confusion.iter().enumerate().map(of).collect()
    }
}

/// The metrics of a network's outputs as sums over samples.
pub struct AnswerSums<'a> {
    model: &'a Model,
    set: &'a Dataset,
    samples: usize,
    loss: f64,
    /// Correct predictions: of samples, positions or yes-or-no outputs.
    right: usize,
    /// Samples that are correct at every position.
    whole: usize,
    confusion: Vec<Vec<u32>>,
}

impl<'a> AnswerSums<'a> {
    /// Sums over no samples. There is a confusion matrix if the network has at most `most_classes` classes.
    pub(super) fn new(model: &'a Model, set: &'a Dataset, most_classes: usize) -> Self {
        let kinds = if model.loss.wants_classes() { model.classes() } else { 0 };
        let confusion = if kinds <= most_classes { vec![vec![0; kinds]; kinds] } else { Vec::new() };
        Self { model, set, samples: 0, loss: 0.0, right: 0, whole: 0, confusion }
    }

    /// Sums over samples by index, with their outputs: `[samples, output]`.
    ///
    /// # Errors
    /// If the targets are in a file that can no longer be read.
    pub fn of(
        model: &'a Model,
        set: &'a Dataset,
        samples: &[u32],
        outputs: &[f32],
        most_classes: usize,
    ) -> Result<Self, DataError> {
        let mut sums = Self::new(model, set, most_classes);
        sums.add(samples, outputs)?;
        Ok(sums)
    }

    /// Adds samples by index, with their outputs: `[samples, output]`.
    pub(super) fn add(&mut self, samples: &[u32], outputs: &[f32]) -> Result<(), DataError> {
        let (width, positions) = (self.model.output.len().max(1), self.model.labels().len());
        let (set, labels) = (self.set, self.set.target.labels(samples)?);
        for (at, (&sample, row)) in samples.iter().zip(outputs.chunks_exact(width)).enumerate() {
            self.samples += 1;
            match &set.target {
                Target::Classes { .. } | Target::Windows(_) => {
                    self.add_classes(row, &labels[at * positions..][..positions]);
                }
                Target::Values { values, .. } => self.add_values(row, &values[sample as usize * width..][..width]),
            }
        }
        Ok(())
    }

    /// Adds a sample with a class, or with one for each position.
    fn add_classes(&mut self, row: &[f32], labels: &[i32]) {
        let before = self.right;
        for (scores, label) in row.chunks_exact(self.model.classes().max(1)).zip(labels) {
            let (label, guess) = (*label as usize, predicted_class(scores));
            self.loss += cross_entropy(scores, label);
            self.right += usize::from(guess == Some(label));
            let cells = self.confusion.get_mut(label);
            if let Some(cell) = guess.and_then(|guess| cells?.get_mut(guess)) {
                *cell += 1;
            }
        }
        self.whole += usize::from(self.right - before == labels.len());
    }

    /// Adds a sample with values, or with yes-or-no outputs.
    fn add_values(&mut self, row: &[f32], target: &[f32]) {
        self.loss += self.model.loss.of_values(row, target).unwrap_or(f64::NAN);
        if self.model.loss.has_accuracy() {
            self.right += row.iter().zip(target).filter(|(y, t)| is_right(**y, **t)).count();
        }
    }

    /// The number of samples that are correct at every position, and of samples; `None` if a sample has one class.
    #[must_use]
    pub fn exact(&self) -> Option<(usize, usize)> {
        (self.model.loss.wants_classes() && self.model.labels().len() > 1).then_some((self.whole, self.samples))
    }

    /// The means over the samples.
    #[must_use]
    pub fn evaluation(self) -> Evaluation {
        let samples = self.samples;
        self.divided_by(samples)
    }

    /// The sums divided by this number of samples.
    pub(super) fn divided_by(self, samples: usize) -> Evaluation {
        let samples = samples.max(1) as f64;
        let loss = &self.model.loss;
        // If there is a class for each position, the mean is over all positions.
        let n = samples * if loss.wants_classes() { self.model.labels().len() as f64 } else { 1.0 };
        // For classes a sample is one prediction, for yes-or-no outputs each output is one.
        let answers = if loss.targets() == Targets::Binary { self.model.output.len().max(1) } else { 1 } as f64;
        Evaluation {
            samples: self.samples,
            loss: self.loss / n,
            accuracy: loss.has_accuracy().then(|| self.right as f64 / (n * answers)),
            exact: self.exact().map(|(whole, _)| whole as f64 / samples),
            confusion: self.confusion,
        }
    }
}

/// The negative log probability of a label by a row of logits.
pub(super) fn cross_entropy(row: &[f32], label: usize) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
    let sum: f64 = row.iter().map(|&v| (f64::from(v) - max).exp()).sum();
    max + sum.ln() - f64::from(row[label])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Request, load};
    use crate::model::{BUNDLED, check, read_preset};
    use std::path::Path;

    #[test]
    fn precision_and_recall_are_absent_without_samples() {
        let rates = ClassRates::of(&[vec![3, 1, 0], vec![2, 2, 0], vec![0, 0, 0]]);
        let rates: Vec<_> = rates.iter().map(|rates| (rates.samples, rates.precision, rates.recall)).collect();
        let expected = [(4, Some(0.6), Some(0.75)), (4, Some(2.0 / 3.0), Some(0.5)), (0, None, None)];
        assert_eq!(rates, expected);
    }

    #[test]
    fn a_row_with_nan_is_wrong_and_in_no_cell() {
        let preset = read_preset(BUNDLED.iter().find(|b| b.name == "circles").unwrap().text).unwrap();
        let model = check(&preset).model.unwrap();
        let set = load(preset.data.as_ref().unwrap(), &Request::of(&model, 1), Path::new(".")).unwrap();
        let label = set.target.labels(&[0]).unwrap()[0] as usize;
        let of = |row: [f32; 2], most| AnswerSums::of(&model, &set, &[0], &row, most).unwrap().evaluation();
        let mut row = [0.0; 2];
        row[label] = 2.0;
        let found = of(row, MAX_CONFUSION);
        assert_eq!((found.samples, found.accuracy, found.confusion[label][label]), (1, Some(1.0), 1));
        assert!((found.loss - (-2.0f64).exp().ln_1p()).abs() < 1e-12 && found.exact.is_none());
        assert!(of(row, 1).confusion.is_empty());
        row[1 - label] = f32::NAN;
        let found = of(row, MAX_CONFUSION);
        assert_eq!((found.accuracy, found.confusion), (Some(0.0), vec![vec![0; 2]; 2]));
        assert!(found.loss.is_nan());
        // The first of equal scores is the prediction.
        assert_eq!(of([1.0; 2], MAX_CONFUSION).accuracy, Some(if label == 0 { 1.0 } else { 0.0 }));
    }
}
