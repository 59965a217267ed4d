//! Samples with their targets, in memory.

use super::token_rows::{RowPart, TokenRows};
use super::{DataError, Place, Preprocessing};
use crate::model::{InputSpec, value_name};
use crate::tensor::{Fnv, Shape};
use std::sync::Arc;

/// Samples with their targets, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The name of the source, or of its file.
    pub name: String,
    /// The samples of each input, in the order of the network's inputs; at least one.
    pub inputs: Vec<InputSamples>,
    pub target: Target,
    /// A name for each feature; empty if features have no names, as in images.
    pub feature_names: Vec<String>,
    /// What the user should know about the loading: scaling, skipped files, origin and licence.
    pub notes: Vec<String>,
    /// How the samples were prepared; a network that is trained on them needs the same preparation.
    pub preprocessing: Preprocessing,
}

/// The samples of one input.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSamples {
    /// The name of the network's input.
    pub name: String,
    /// The shape of one sample: `[features]`, `[T, D]` or `[C, H, W]`; `[T]` for tokens.
    pub sample: Shape,
    pub values: Samples,
}

/// The elements of many samples, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Finite values; images in C, H, W order.
    Real(Vec<f32>),
    /// From 0 to below the size of the input's vocabulary.
    Tokens(Vec<i32>),
    /// Tokens that are rows of a longer sequence.
    Windows(Arc<TokenRows>),
}

/// Samples that are stored elsewhere.
#[derive(Clone, Copy, Debug)]
pub enum SamplesRef<'a> {
    Real(&'a [f32]),
    Tokens(&'a [i32]),
    Windows(&'a TokenRows),
}

/// The buffer that [`Dataset::gather`] writes the samples of one input to.
#[derive(Debug)]
pub enum SamplesMut<'a> {
    Real(&'a mut [f32]),
    Tokens(&'a mut [i32]),
}

impl Samples {
    #[must_use]
    pub fn view(&self) -> SamplesRef<'_> {
        match self {
            Self::Real(values) => SamplesRef::Real(values),
            Self::Tokens(tokens) => SamplesRef::Tokens(tokens),
            Self::Windows(rows) => SamplesRef::Windows(rows),
        }
    }
}

impl SamplesRef<'_> {
    /// The samples with these numbers, each of `width` elements; every number is below the number of samples.
    ///
    /// # Errors
    /// If they are in a file that can no longer be read.
    pub fn rows(self, width: usize, indices: &[u32]) -> Result<Samples, DataError> {
        fn of<T: Copy>(all: &[T], width: usize, indices: &[u32]) -> Vec<T> {
            indices.iter().flat_map(|&i| &all[i as usize * width..][..width]).copied().collect()
        }
        Ok(match self {
            Self::Real(values) => Samples::Real(of(values, width, indices)),
            Self::Tokens(tokens) => Samples::Tokens(of(tokens, width, indices)),
            Self::Windows(rows) => Samples::Tokens(rows.rows(indices, RowPart::Sample)?),
        })
    }
}

impl InputSamples {
    /// The samples of a network's only input, if they are numbers.
    #[must_use]
    pub fn only(sample: impl Into<Shape>, values: Vec<f32>) -> Vec<Self> {
        vec![Self { name: InputSpec::ONLY.into(), sample: sample.into(), values: Samples::Real(values) }]
    }
}

/// The targets of the samples: what the network learns to predict.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// `shape.len()` classes for each sample, starting at 0: one if the shape is `[]`, one for each position if it is
    /// `[T]`. Every label has a name.
    Classes { labels: Vec<i32>, names: Vec<String>, shape: Shape },
    /// `shape.len()` finite values for each sample, row-major.
    Values { values: Vec<f32>, shape: Shape },
    /// Classes that are tokens of the same rows as the samples; their names are the rows' symbols.
    Windows(Arc<TokenRows>),
}

impl Target {
    /// One class for each sample.
    #[must_use]
    pub const fn classes(labels: Vec<i32>, names: Vec<String>) -> Self {
        Self::Classes { labels, names, shape: Shape(Vec::new()) }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Classes { labels, shape, .. } => labels.len() / shape.len().max(1),
            Self::Values { values, shape } => values.len() / shape.len().max(1),
            Self::Windows(rows) => rows.len(),
        }
    }

    /// A name for each class; empty if targets are values.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Classes { names, .. } => names,
            Self::Values { .. } => &[],
            Self::Windows(rows) => rows.symbols(),
        }
    }

    /// The shape of one sample's target.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Classes { shape, .. } | Self::Values { shape, .. } => shape.clone(),
            Self::Windows(rows) => rows.target_shape(),
        }
    }

    /// The classes of these samples, as many for each sample as its target shape has elements; empty if targets are
    /// values.
    ///
    /// # Errors
    /// If they are in a file that can no longer be read.
    pub fn labels(&self, indices: &[u32]) -> Result<Vec<i32>, DataError> {
        match self {
            Self::Classes { labels, shape, .. } => {
                let mut out = vec![0; indices.len() * shape.len()];
                copy_rows(labels, shape.len(), indices, &mut out);
                Ok(out)
            }
            Self::Values { .. } => Ok(Vec::new()),
            Self::Windows(rows) => rows.rows(indices, RowPart::Target),
        }
    }

    /// True if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The buffer that [`Dataset::gather`] writes targets to.
#[derive(Debug)]
pub enum TargetMut<'a> {
    /// `shape.len()` labels for each index.
    Classes(&'a mut [i32]),
    /// `shape.len()` values for each index.
    Values(&'a mut [f32]),
}

/// A data set as its source returns it, before it is compared with the network.
pub(super) struct Loaded {
    pub(super) dataset: Dataset,
    /// The name of the samples' file in messages.
    pub(super) file: String,
    /// The file of the targets, often the same.
    pub(super) target_file: String,
    /// The line of every sample, if the source is text.
    pub(super) lines: Option<Vec<u64>>,
}

impl Loaded {
    /// A data set whose samples have no line numbers.
    pub(super) fn new(file: String, dataset: Dataset) -> Self {
        Self { dataset, target_file: file.clone(), file, lines: None }
    }

    /// The location of sample `i` in its source.
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

    /// True if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.target.is_empty()
    }

    /// The name of each input in a step and in files: `x`, or `x.NAME`.
    #[must_use]
    pub fn value_names(&self) -> Vec<String> {
        self.inputs.iter().map(|input| value_name(&input.name, self.inputs.len())).collect()
    }

    /// The samples of the only input, if there is one input of numbers.
    fn numbers(&self) -> Option<(&Shape, &[f32])> {
        match &self.inputs[..] {
            [InputSamples { sample, values: Samples::Real(x), .. }] => Some((sample, x)),
            _ => None,
        }
    }

    /// One sample of the only input, if it is one of numbers; otherwise `[0]`.
    #[must_use]
    pub fn sample(&self) -> Shape {
        self.numbers().map_or_else(|| Shape::from([0]), |(sample, _)| sample.clone())
    }

    /// The `len() * sample().len()` values of the only input, if it is one of numbers.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        self.numbers().map_or(&[], |(_, x)| x)
    }

    /// Like [`Self::x`], but mutable.
    pub fn x_mut(&mut self) -> &mut [f32] {
        match &mut self.inputs[..] {
            [InputSamples { values: Samples::Real(x), .. }] => x,
            _ => &mut [],
        }
    }

    /// The features of sample `i` of the only input, `sample().len()` values; `i` is below [`Dataset::len`].
    #[must_use]
    pub fn sample_slice(&self, i: usize) -> &[f32] {
        self.numbers().map_or(&[], |(sample, x)| &x[i * sample.len()..(i + 1) * sample.len()])
    }

    /// The values of sample `i` of one of the inputs; empty for tokens. `i` is below [`Dataset::len`].
    #[must_use]
    pub fn input_slice(&self, input: usize, i: usize) -> &[f32] {
        match self.inputs.get(input) {
            Some(InputSamples { sample, values: Samples::Real(x), .. }) => &x[i * sample.len()..(i + 1) * sample.len()],
            _ => &[],
        }
    }

    /// A name for each feature of one of the inputs; empty if there are none.
    #[must_use]
    pub fn names_of(&self, input: usize) -> &[String] {
        let own = self.inputs.get(input).and_then(|input| self.preprocessing.of_input(&input.name));
        own.map_or(&self.feature_names, |own| &own.features)
    }

    /// The number of classes, or `None` if targets are values.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        match &self.target {
            Target::Classes { names, .. } => Some(names.len()),
            Target::Values { .. } => None,
            Target::Windows(rows) => Some(rows.symbols().len()),
        }
    }

    /// The checksum of samples and targets, as they are after preparation, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Fnv::new();
        for input in &self.inputs {
            match &input.values {
                Samples::Real(x) => x.iter().for_each(|v| hash.add(&v.to_bits().to_le_bytes())),
                Samples::Tokens(x) => x.iter().for_each(|v| hash.add(&v.to_le_bytes())),
                Samples::Windows(rows) => hash.add(&rows.digest().to_le_bytes()),
            }
        }
        match &self.target {
            Target::Classes { labels, .. } => labels.iter().for_each(|l| hash.add(&l.to_le_bytes())),
            Target::Values { values, .. } => values.iter().for_each(|v| hash.add(&v.to_bits().to_le_bytes())),
            // These targets are the tokens of samples.
            Target::Windows(rows) => hash.add(&rows.len().to_le_bytes()),
        }
        format!("{:016x}", hash.sum())
    }

    /// Copies samples of every input into `x`, each `[indices.len(), sample..]`, and their targets into `y`, in the
    /// order of `indices`.
    ///
    /// # Panics
    /// If a buffer's length or kind does not match, an index is not that of a sample, or samples are in a file that
    /// can no longer be read.
    pub fn gather(&self, indices: &[u32], x: &mut [SamplesMut<'_>], y: TargetMut<'_>) {
        assert_eq!(x.len(), self.inputs.len(), "one buffer for each input");
        for (input, out) in self.inputs.iter().zip(x) {
            match (&input.values, out) {
                (Samples::Real(all), SamplesMut::Real(out)) => copy_rows(all, input.sample.len(), indices, out),
                (Samples::Tokens(all), SamplesMut::Tokens(out)) => copy_rows(all, input.sample.len(), indices, out),
                (Samples::Real(_), SamplesMut::Tokens(_)) => panic!("this input has values, the buffer is for tokens"),
                (Samples::Windows(rows), SamplesMut::Tokens(out)) => fill_rows(rows, RowPart::Sample, indices, out),
                (Samples::Tokens(_) | Samples::Windows(_), SamplesMut::Real(_)) => {
                    panic!("this input has tokens, the buffer is for values")
                }
            }
        }
        match (&self.target, y) {
            (Target::Classes { labels, shape, .. }, TargetMut::Classes(out)) => {
                copy_rows(labels, shape.len(), indices, out);
            }
            (Target::Values { values, shape }, TargetMut::Values(out)) => {
                copy_rows(values, shape.len(), indices, out);
            }
            (Target::Windows(rows), TargetMut::Classes(out)) => fill_rows(rows, RowPart::Target, indices, out),
            (Target::Classes { .. } | Target::Windows(_), TargetMut::Values(_)) => {
                panic!("this data has classes, the buffer is for values")
            }
            (Target::Values { .. }, TargetMut::Classes(_)) => panic!("this data has values, the buffer is for classes"),
        }
    }
}

/// Copies a part of each row, by index.
///
/// # Panics
/// If `out` does not hold exactly as many, or the rows' file can no longer be read.
fn fill_rows(rows: &TokenRows, part: RowPart, indices: &[u32], out: &mut [i32]) {
    assert!(rows.fill(indices, part, out).is_ok(), "the file of a text can be read");
}

/// Copies rows of `width` elements, by index.
///
/// # Panics
/// If `out` does not hold exactly as many rows as there are indices.
fn copy_rows<T: Copy>(all: &[T], width: usize, indices: &[u32], out: &mut [T]) {
    assert_eq!(out.len(), indices.len() * width, "the buffer holds exactly the batch");
    for (row, &i) in out.chunks_exact_mut(width.max(1)).zip(indices) {
        row.copy_from_slice(&all[i as usize * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Dataset {
        Dataset {
            name: "t".into(),
            inputs: InputSamples::only([2], (0..6).map(|v| v as f32).collect()),
            target: Target::classes(vec![0, 1, 0], vec!["a".into(), "b".into()]),
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        }
    }

    #[test]
    fn gather_copies_in_the_order_of_the_indices() {
        let mut data = set();
        let (mut x, mut y) = ([0.0; 6], [9; 3]);
        data.gather(&[2, 0, 2], &mut [SamplesMut::Real(&mut x)], TargetMut::Classes(&mut y));
        assert_eq!((x, y), ([4.0, 5.0, 0.0, 1.0, 4.0, 5.0], [0, 0, 0]));
        data.target = Target::Values { values: (0..6).map(|v| v as f32 * 10.0).collect(), shape: [2].into() };
        let mut y = [0.0; 2];
        data.gather(&[1], &mut [SamplesMut::Real(&mut x[..2])], TargetMut::Values(&mut y));
        assert_eq!((&x[..2], y, data.len(), data.classes()), (&[2.0, 3.0][..], [20.0, 30.0], 3, None));
    }

    #[test]
    fn several_inputs_and_positions_are_gathered_together() {
        let mut data = set();
        let words = Samples::Tokens(vec![5, 6, 7, 8, 9, 10]);
        data.inputs.push(InputSamples { name: "words".into(), sample: [2].into(), values: words });
        data.target = Target::Classes { labels: vec![0, 1, 1, 0, 1, 1], names: vec![], shape: [2].into() };
        let (mut x, mut tokens, mut y) = ([0.0; 4], [0; 4], [9; 4]);
        let buffers = &mut [SamplesMut::Real(&mut x), SamplesMut::Tokens(&mut tokens)];
        data.gather(&[2, 1], buffers, TargetMut::Classes(&mut y));
        assert_eq!((x, tokens, y), ([4.0, 5.0, 2.0, 3.0], [9, 10, 7, 8], [1, 1, 1, 0]));
        // Code that shows the samples of a single input has nothing to show here.
        assert_eq!((data.len(), data.sample().len(), data.x(), data.sample_slice(1)), (3, 0, &[][..], &[][..]));
        let Samples::Tokens(rows) = data.inputs[1].values.view().rows(2, &[1]).unwrap() else { panic!("tokens") };
        assert_eq!(rows, [7, 8]);
    }

    #[test]
    #[should_panic(expected = "this data has classes")]
    fn gathering_into_the_wrong_kind_panics() {
        set().gather(&[], &mut [SamplesMut::Real(&mut [])], TargetMut::Values(&mut []));
    }
}
