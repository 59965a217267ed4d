//! Samples with their targets, in memory.

use super::{Place, Preprocessing};
use crate::tensor::{Fnv, Shape};

/// Samples with their targets, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The source's name, or its file's.
    pub name: String,
    /// One sample: `[features]` or `[C, H, W]`.
    pub sample: Shape,
    /// `len() * sample.len()` finite values, row-major; images in C, H, W order.
    pub x: Vec<f32>,
    pub target: Target,
    /// A name for each feature; empty where there are none, as for images.
    pub feature_names: Vec<String>,
    /// What the loader did that a person should know: scaling, skipped files, origin and licence.
    pub notes: Vec<String>,
    /// How the samples were prepared: what a network that is trained on them belongs to.
    pub preprocessing: Preprocessing,
}

/// What the network is to learn.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// One class a sample, from 0; every label has a name.
    Classes { labels: Vec<i32>, names: Vec<String> },
    /// `shape.len()` finite values a sample, row-major.
    Values { values: Vec<f32>, shape: Shape },
}

impl Target {
    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Classes { labels, .. } => labels.len(),
            Self::Values { values, shape } => values.len() / shape.len().max(1),
        }
    }

    /// True where there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where [`Dataset::gather`] writes targets.
#[derive(Debug)]
pub enum TargetMut<'a> {
    /// One label an index.
    Classes(&'a mut [i32]),
    /// `shape.len()` values an index.
    Values(&'a mut [f32]),
}

/// A data set as its source gives it, before it is compared with the network.
pub(super) struct Loaded {
    pub(super) dataset: Dataset,
    /// The file of the samples as messages name it.
    pub(super) file: String,
    /// The file of the targets, often the same.
    pub(super) target_file: String,
    /// The line of every sample, where the source is text.
    pub(super) lines: Option<Vec<u64>>,
}

impl Loaded {
    /// A data set whose samples have no lines.
    pub(super) fn new(file: String, dataset: Dataset) -> Self {
        Self { dataset, target_file: file.clone(), file, lines: None }
    }

    /// Where sample `i` is in its source.
    pub(super) fn place(&self, i: usize) -> Place {
        self.lines.as_ref().and_then(|lines| lines.get(i)).map_or(Place::Sample(i), |&line| Place::Line(line))
    }
}

impl Dataset {
    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.target.len()
    }

    /// True where there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.target.is_empty()
    }

    /// The features of sample `i`, `sample.len()` values; `i` is below [`Dataset::len`].
    #[must_use]
    pub fn sample_slice(&self, i: usize) -> &[f32] {
        let width = self.sample.len();
        &self.x[i * width..(i + 1) * width]
    }

    /// Number of classes, or `None` where targets are values.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        match &self.target {
            Target::Classes { names, .. } => Some(names.len()),
            Target::Values { .. } => None,
        }
    }

    /// The checksum of samples and targets, as they are after preparation, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Fnv::new();
        self.x.iter().for_each(|v| hash.add(&v.to_bits().to_le_bytes()));
        match &self.target {
            Target::Classes { labels, .. } => labels.iter().for_each(|l| hash.add(&l.to_le_bytes())),
            Target::Values { values, .. } => values.iter().for_each(|v| hash.add(&v.to_bits().to_le_bytes())),
        }
        format!("{:016x}", hash.sum())
    }

    /// Copies samples into `x`, `[indices.len(), sample..]`, and their targets into `y`, in the order of `indices`.
    ///
    /// # Panics
    /// Where a buffer's length or the kind of `y` does not match, or an index is no sample: mistakes of the caller.
    pub fn gather(&self, indices: &[u32], x: &mut [f32], y: TargetMut<'_>) {
        assert_eq!(x.len(), indices.len() * self.sample.len(), "the buffer for samples holds exactly the batch");
        for (row, &i) in x.chunks_exact_mut(self.sample.len()).zip(indices) {
            row.copy_from_slice(self.sample_slice(i as usize));
        }
        match (&self.target, y) {
            (Target::Classes { labels, .. }, TargetMut::Classes(out)) => {
                assert_eq!(out.len(), indices.len(), "the buffer for classes holds exactly the batch");
                for (label, &i) in out.iter_mut().zip(indices) {
                    *label = labels[i as usize];
                }
            }
            (Target::Values { values, shape }, TargetMut::Values(out)) => {
                let width = shape.len();
                assert_eq!(out.len(), indices.len() * width, "the buffer for values holds exactly the batch");
                for (row, &i) in out.chunks_exact_mut(width).zip(indices) {
                    row.copy_from_slice(&values[i as usize * width..(i as usize + 1) * width]);
                }
            }
            (Target::Classes { .. }, TargetMut::Values(_)) => panic!("this data has classes, the buffer is for values"),
            (Target::Values { .. }, TargetMut::Classes(_)) => panic!("this data has values, the buffer is for classes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Dataset {
        Dataset {
            name: "t".into(),
            sample: [2].into(),
            x: (0..6).map(|v| v as f32).collect(),
            target: Target::Classes { labels: vec![0, 1, 0], names: vec!["a".into(), "b".into()] },
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        }
    }

    #[test]
    fn gather_copies_in_the_order_of_the_indices() {
        let mut data = set();
        let (mut x, mut y) = ([0.0; 6], [9; 3]);
        data.gather(&[2, 0, 2], &mut x, TargetMut::Classes(&mut y));
        assert_eq!((x, y), ([4.0, 5.0, 0.0, 1.0, 4.0, 5.0], [0, 0, 0]));
        data.target = Target::Values { values: (0..6).map(|v| v as f32 * 10.0).collect(), shape: [2].into() };
        let mut y = [0.0; 2];
        data.gather(&[1], &mut x[..2], TargetMut::Values(&mut y));
        assert_eq!((&x[..2], y, data.len(), data.classes()), (&[2.0, 3.0][..], [20.0, 30.0], 3, None));
    }

    #[test]
    #[should_panic(expected = "this data has classes")]
    fn gather_into_the_wrong_kind_is_a_bug() {
        set().gather(&[], &mut [], TargetMut::Values(&mut []));
    }
}
