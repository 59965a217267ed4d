//! Data sets and loaders: from the preset's `data` to samples a step can copy in.
//!
//! [`load`] reads or draws a whole [`Dataset`] into memory and checks it against the network before the first step, so that a wrong
//! file is a message with a file, a line and a remedy, and never a wrong loss. [`load_as`] prepares it as given weights
//! were trained, by their [`Preprocessing`]. [`split`] divides it, [`Batches`] gives the order of its training part,
//! and [`Dataset::gather`] copies one batch.
//!
//! Every reader works on bytes, trusts no length a header claims before comparing it with the bytes that are there, and returns a
//! [`DataError`] for whatever it is given: readers are public because they are fuzzed. Nothing here depends on the machine: the same
//! file and seed give the same bits everywhere.

mod array;
mod batch_place;
mod batches;
mod bundled;
mod cifar;
mod error;
mod file;
mod fit;
mod idx;
mod images;
#[cfg(test)]
mod mutation;
mod notes;
mod npy;
mod npz;
mod preprocessing;
mod scaling;
mod shuffle;
mod size;
mod split;
mod synthetic;
mod table;

pub use array::Array;
pub use batch_place::{BatchPlace, BatchTargets};
pub(crate) use batches::STREAM as SHUFFLE_STREAM;
pub use batches::{Batches, Position};
pub use cifar::{CifarRecords, read_cifar};
pub use error::{DataError, Place};
pub use idx::read_idx;
pub use images::read_image;
pub use notes::training_notes;
pub use npy::read_npy;
pub use npz::read_npz;
pub use preprocessing::Preprocessing;
pub use scaling::Scaling;
pub use shuffle::Shuffle;
pub use size::{DataSize, expected_size};
pub use split::{Split, split};
pub use table::{CsvOptions, Table, read_csv};

use crate::model::{DataSource, DataSpec, LossSpec, Model};
use crate::tensor::{Fnv, Shape};
use error::Side;
use std::path::Path;

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

/// Where [`Dataset::gather`] writes targets.
#[derive(Debug)]
pub enum TargetMut<'a> {
    /// One label an index.
    Classes(&'a mut [i32]),
    /// `shape.len()` values an index.
    Values(&'a mut [f32]),
}

/// What the network asks of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The preset's `input.shape`: `[features]` or `[C, H, W]`.
    pub input: Shape,
    /// The network's output for one sample.
    pub output: Shape,
    /// Whether the loss takes classes (softmax cross-entropy) or values (mean squared error).
    pub wants_classes: bool,
    /// The run's seed, from which synthetic data and the split follow.
    pub seed: u64,
}

impl Request {
    /// What a network asks of its data in a run with this seed.
    #[must_use]
    pub fn of(model: &Model, seed: u64) -> Self {
        let wants_classes = matches!(model.loss, LossSpec::SoftmaxCrossEntropy { .. });
        Self { input: model.input.clone(), output: model.output.clone(), wants_classes, seed }
    }
}

/// A data set as its source gives it, before it is compared with the network.
struct Loaded {
    dataset: Dataset,
    /// The file of the samples as messages name it.
    file: String,
    /// The file of the targets, often the same.
    target_file: String,
    /// The line of every sample, where the source is text.
    lines: Option<Vec<u64>>,
}

impl Loaded {
    /// A data set whose samples have no lines.
    fn new(file: String, dataset: Dataset) -> Self {
        Self { dataset, target_file: file.clone(), file, lines: None }
    }

    /// Where sample `i` stands.
    fn place(&self, i: usize) -> Place {
        self.lines.as_ref().and_then(|lines| lines.get(i)).map_or(Place::Sample(i), |&line| Place::Line(line))
    }
}

/// The data set of `spec`, checked against the network of `request`; `base` is the folder that relative paths start from.
///
/// # Errors
/// Where a file cannot be read or is malformed, a field of the preset cannot work, or the data does not fit the network.
pub fn load(spec: &DataSpec, request: &Request, base: &Path) -> Result<Dataset, DataError> {
    fit::fit(learnt(spec, request, base)?, request)
}

/// As [`load`], prepared as the weights that `known` belongs to were trained, and not by the samples themselves.
///
/// # Errors
/// As [`load`], and where a column that the weights need is missing, or a class is one that they do not know.
pub fn load_as(spec: &DataSpec, request: &Request, base: &Path, known: &Preprocessing) -> Result<Dataset, DataError> {
    fit::fit(known.prepare(read(spec, request, base, Some(known))?)?, request)
}

/// As [`load`], for those who only look: data that does not fit the network comes as its source gives it, with why it does not fit.
///
/// # Errors
/// Where a file cannot be read or is malformed, or a field of the preset cannot work.
pub fn load_to_show(
    spec: &DataSpec,
    request: &Request,
    base: &Path,
) -> Result<(Dataset, Option<DataError>), DataError> {
    match load(spec, request, base) {
        Ok(set) => Ok((set, None)),
        Err(why @ DataError::Fit { .. }) => Ok((learnt(spec, request, base)?.dataset, Some(why))),
        Err(other) => Err(other),
    }
}

/// What is wrong with the data of `spec` whatever the network's output is: every file that cannot be opened, otherwise
/// the first mistake in their contents. Contents are looked at where there is a `request` to read them for, whose
/// output does not matter, and where they are not large.
#[must_use]
pub fn problems(spec: &DataSpec, request: Option<&Request>, base: &Path) -> Vec<DataError> {
    /// Larger data are not read only to say what else is wrong.
    const MOST_READ: u64 = 256 << 20;
    let closed = file::closed(&spec.source.paths(), base);
    let size = |request: &&Request| expected_size(&spec.source, request, base);
    let request = request.filter(|_| closed.is_empty());
    let found = request.filter(|r| size(r).held.saturating_add(size(r).reading) <= MOST_READ);
    match found.map(|request| load(spec, request, base)) {
        Some(Err(DataError::Fit { side: Side::Output, .. })) | Some(Ok(_)) | None => closed,
        Some(Err(error)) => vec![error],
    }
}

/// The data set of `spec`, its features standardised over the part that trains, where the source asks for that.
fn learnt(spec: &DataSpec, request: &Request, base: &Path) -> Result<Loaded, DataError> {
    let mut loaded = read(spec, request, base, None)?;
    if spec.source.is_standardized() {
        let train = split(loaded.dataset.len(), spec, request.seed)?.train;
        scaling::standardize(&mut loaded.dataset, &train);
    }
    Ok(loaded)
}

/// The data set of `spec` as its source gives it, with the columns that `known` names, where it names any.
fn read(spec: &DataSpec, request: &Request, base: &Path, known: Option<&Preprocessing>) -> Result<Loaded, DataError> {
    let closed = file::closed(&spec.source.paths(), base);
    if closed.len() > 1 {
        return Err(DataError::Several(closed));
    }
    let classes = request.wants_classes;
    let loaded = match &spec.source {
        DataSource::Digits => bundled::digits()?,
        DataSource::Iris => bundled::iris()?,
        DataSource::Csv { path, header, target, delimiter, .. } => {
            let options = CsvOptions { header: *header, target: target.clone(), delimiter: *delimiter, classes };
            table::load(&base.join(path), &options, known)?
        }
        DataSource::Npz { path, x, y } => npz::load(&base.join(path), x, y, classes)?,
        DataSource::Npy { x, y } => npy::load(&base.join(x), &base.join(y), classes)?,
        DataSource::Idx { images, labels } => idx::load(&base.join(images), &base.join(labels))?,
        DataSource::Cifar10 { paths } => cifar::load(&paths.iter().map(|path| base.join(path)).collect::<Vec<_>>())?,
        DataSource::Images { path } => images::load(&base.join(path), &request.input)?,
        DataSource::Spirals { .. }
        | DataSource::Moons { .. }
        | DataSource::Circles { .. }
        | DataSource::Xor { .. }
        | DataSource::Regression { .. } => {
            synthetic::draw(&spec.source, &request.input, &request.output, request.seed)?
        }
    };
    Ok(loaded)
}

impl Dataset {
    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.target {
            Target::Classes { labels, .. } => labels.len(),
            Target::Values { values, shape } => values.len() / shape.len().max(1),
        }
    }

    /// True where there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    #[test]
    fn load_reads_beside_the_preset_and_checks_against_the_network() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        std::fs::write(dir.path().join("sets/t.csv"), "a,b,y\n1,5,0\n2,5,1\n3,5,2\n4,5,1\n").unwrap();
        let source = |path: &str| DataSource::Csv {
            path: path.into(),
            header: crate::model::Header::Auto,
            target: crate::model::TargetColumn::Name("y".into()),
            standardize: true,
            delimiter: ',',
        };
        let spec = |path: &str| DataSpec { source: source(path), held_out: 2.0, split: crate::model::SplitKind::Last };
        let request = |outputs: usize, wants_classes| Request {
            input: [2].into(),
            output: [outputs].into(),
            wants_classes,
            seed: 0,
        };
        let data = load(&spec("sets/t.csv"), &request(3, true), dir.path()).unwrap();
        assert_eq!((data.name.as_str(), data.x.as_slice()), ("t", &[-1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 5.0, 0.0][..]));
        let values = load(&spec("sets/t.csv"), &request(1, false), dir.path()).unwrap();
        assert_eq!(values.target, Target::Values { values: vec![0.0, 1.0, 2.0, 1.0], shape: [1].into() });
        let fails = |path: &str, outputs, wanted: &str| {
            let text = load(&spec(path), &request(outputs, true), dir.path()).unwrap_err().to_string();
            assert!(text.contains(wanted), "{text}");
        };
        fails("sets/t.csv", 2, "t.csv, line 4 does not fit the network: found class 2, expected 0 to 1");
        fails("sets/none.csv", 3, "none.csv: cannot be read");
        fails("sets", 3, "sets: found a folder, expected a file");
    }

    #[test]
    fn synthetic_sources_reach_the_network() {
        let request = Request { input: [3].into(), output: [1].into(), wants_classes: false, seed: 1 };
        let spec = DataSpec::of(DataSource::Regression { samples: 20, noise: 0.1 });
        assert_eq!(load(&spec, &request, Path::new("")).unwrap().x.len(), 60);
        let text = load(&DataSpec::of(DataSource::Moons { samples: 20, noise: 0.1 }), &request, Path::new(""));
        assert!(text.unwrap_err().to_string().contains("found samples of shape [2], expected [3]"));
    }
}
