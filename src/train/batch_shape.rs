//! How much of its samples and positions a batch uses, if the steps of a run differ in that.

use super::TrainError;
use crate::data::{Batches, Position, Samples};
use crate::model::{DataSource, DataSpec, Diagnostic, Model, Rng};
use crate::tensor::plural;

/// The generator's first stream for lengths; epoch `n` uses the `n`-th stream after it.
const STREAM: u64 = 0x6461_7461_0200_0000;

/// The samples and positions that a batch uses: the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    pub rows: usize,
    /// Positions of its sequences; `None` if all steps of the run have the network's own.
    pub length: Option<usize>,
}

impl BatchShape {
    /// All samples of a batch, with all their positions.
    #[must_use]
    pub const fn whole(model: &Model) -> Self {
        Self { rows: model.batch, length: None }
    }

    /// In words.
    pub(super) fn text(self) -> String {
        let rows = format!("{} {}", self.rows, plural(self.rows as u64, "sample"));
        match self.length {
            Some(length) => format!("{rows} of {length} {}", plural(length as u64, "position")),
            None => rows,
        }
    }

    /// The network of such a batch. Where it is the whole one, nothing.
    ///
    /// # Errors
    /// If a layer cannot process so few positions.
    pub(super) fn of(self, model: &Model) -> Result<Model, TrainError> {
        let rows = model.with_batch(self.rows);
        let Some(length) = self.length else { return Ok(rows) };
        rows.with_length(length).map_err(|error| {
            let help = "leave this length out, or change the layer".to_owned();
            let (layer, path) = (None, "data.buckets".to_owned());
            TrainError::Preset(vec![Diagnostic { layer, path, message: error.to_string(), help }])
        })
    }
}

/// The lengths of the batches of a data set.
pub struct Lengths {
    /// Ascending; the last one is the network's own.
    buckets: Vec<usize>,
    /// Tokens of each sample, if samples have different lengths.
    of_samples: Option<Vec<u32>>,
    seed: u64,
}

impl Lengths {
    /// The lengths of a data set's batches; `None` if all are the network's own.
    ///
    /// # Errors
    /// If the source has no texts, or the network does not support one of the lengths.
    pub(super) fn new(spec: &DataSpec, model: &Model, x: &Samples, seed: u64) -> Result<Option<Self>, TrainError> {
        if spec.buckets.is_empty() {
            return Ok(None);
        }
        let refused = |message: String, help: &str| {
            let (layer, path, help) = (None, "data.buckets".to_owned(), help.to_owned());
            Err(TrainError::Preset(vec![Diagnostic { layer, path, message, help }]))
        };
        let of_samples = match (&spec.source, x) {
            (DataSource::Text { .. } | DataSource::SourceCode, Samples::Windows(_)) if model.labels().rank() == 1 => {
                None
            }
            (DataSource::Csv { .. }, Samples::Tokens(tokens)) => {
                let width = model.length().unwrap_or(1).max(1);
                Some(tokens.chunks_exact(width).map(own_length).collect())
            }
            (source, _) => {
                let message = format!("the source {} has no texts of different lengths", source.name());
                let help = "use it with text or source and a class for each position, or with a csv column of texts";
                return refused(message, help);
            }
        };
        let Some(whole) = model.length() else {
            return refused("the network has no sequences of one length".into(), "leave the field out");
        };
        if let Some(wrong) = spec.buckets.iter().find(|length| !(1..=whole).contains(*length)) {
            return refused(format!("found {wrong}"), &format!("expected lengths from 1 to {whole}, the input's"));
        }
        let mut buckets = spec.buckets.clone();
        // A text that is longer than the others must fit too.
        if of_samples.is_some() && buckets.last() != Some(&whole) {
            buckets.push(whole);
        }
        let lengths = Self { buckets, of_samples, seed };
        for &length in &lengths.buckets {
            BatchShape { rows: model.batch, length: Some(length) }.of(model)?;
        }
        Ok(Some(lengths))
    }

    /// All possible lengths.
    pub(super) fn all(&self) -> &[usize] {
        &self.buckets
    }

    /// The length of the next batch: the smallest that fits its longest sample, or a random one.
    pub(super) fn of_next(&self, batches: &mut Batches) -> usize {
        let (_, at) = batches.upcoming();
        let place = match &self.of_samples {
            Some(lengths) => {
                let longest = batches.peek().iter().map(|sample| lengths[*sample as usize]).max().unwrap_or(1);
                self.buckets.partition_point(|bucket| *bucket < longest as usize)
            }
            None => drawn_bucket(self.seed, at, self.buckets.len()),
        };
        self.buckets[place.min(self.buckets.len() - 1)]
    }
}

/// Which of `count` buckets the batch at this place of the data has, where it is drawn: the same in every run with this
/// seed.
pub(super) fn drawn_bucket(seed: u64, at: Position, count: usize) -> usize {
    let seed = seed ^ (at.cursor as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Rng::new(seed, STREAM.wrapping_add(at.epoch)).below(count)
}

/// The number of tokens of a text that was padded with zeros; at least 1.
fn own_length(tokens: &[i32]) -> u32 {
    tokens.iter().rposition(|token| *token != 0).map_or(1, |last| last as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_uses_the_smallest_bucket_that_fits_its_longest_sample() {
        let of_samples = Some(vec![1, 3, 4, 9, 2, 5]);
        let lengths = Lengths { buckets: vec![2, 4, 10], of_samples, seed: 0 };
        let mut batches = Batches::new((0..6).collect(), 2, 5).unwrap();
        for _ in 0..9 {
            let found = lengths.of_next(&mut batches);
            let longest = batches.next().iter().map(|i| [1, 3, 4, 9, 2, 5][*i as usize]).max().unwrap();
            let expected = [2, 4, 10].into_iter().find(|bucket| *bucket >= longest).unwrap();
            assert_eq!(found, expected, "{longest}");
        }
        assert_eq!([own_length(&[0, 0]), own_length(&[5, 0, 7, 0]), own_length(&[1])], [1, 3, 1]);
    }

    #[test]
    fn random_lengths_depend_only_on_seed_and_position() {
        let lengths = Lengths { buckets: vec![2, 4, 10], of_samples: None, seed: 7 };
        let mut batches = Batches::new((0..100).collect(), 4, 5).unwrap();
        let mut found = Vec::new();
        for _ in 0..60 {
            let length = lengths.of_next(&mut batches);
            assert_eq!(lengths.of_next(&mut batches), length);
            found.push(length);
            batches.next();
        }
        let count = |length| found.iter().filter(|l| **l == length).count();
        assert!([2, 4, 10].map(count).iter().all(|n| (8..=35).contains(n)), "{found:?}");
        let mut again = Batches::new((0..100).collect(), 4, 5).unwrap();
        again.resume(Position { epoch: 1, cursor: 8 }).unwrap();
        assert_eq!(lengths.of_next(&mut again), found[27]);
    }
}
