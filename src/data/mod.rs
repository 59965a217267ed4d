//! Data sets: reads or draws the samples that a preset's `data` describes, splits them, and gathers batches.
//!
//! [`load`] reads or draws a whole [`Dataset`] into memory and checks it against the network before the first step, so
//! that a wrong file is a message with a file, a line and a remedy, and never a wrong loss. [`load_as`] prepares it as
//! given weights were trained, by their [`Preprocessing`]. [`split`] divides it, [`Batches`] gives the order of its
//! training part, and [`Dataset::gather`] copies one batch.
//!
//! Every reader works on bytes, compares lengths in a header with the bytes that exist before it uses them, and returns
//! a [`DataError`] for any invalid input: readers are public so that they can be fuzzed. Nothing here depends on the
//! machine: the same file and seed give the same bits everywhere.

mod array;
mod batch_place;
mod batches;
mod bundled;
mod cifar;
mod dataset;
mod error;
mod file;
mod fit;
mod fit_tokens;
mod idx;
mod images;
mod joined;
#[cfg(test)]
mod mutation;
mod notes;
mod npy;
mod npz;
mod prepare;
mod preprocessing;
mod request;
mod scaling;
mod series;
mod shuffle;
mod size;
mod source;
mod split;
mod synthetic;
mod table;
mod text;
mod text_pieces;
mod token_file;
mod token_rows;
mod token_store;
mod tokenized;
mod tokenizer;
mod tokenizer_json;
mod vocabulary;

pub use array::Array;
pub use batch_place::{BatchPlace, BatchTargets};
pub(crate) use batches::STREAM as SHUFFLE_STREAM;
pub use batches::{Batches, Position};
pub use cifar::{CifarRecords, read_cifar};
pub use dataset::{Dataset, InputSamples, Samples, SamplesMut, SamplesRef, Target, TargetMut};
pub use error::{DataError, Place};
pub use idx::read_idx;
pub use images::read_image;
pub use notes::training_notes;
pub use npy::read_npy;
pub use npz::read_npz;
pub use preprocessing::Preprocessing;
pub use request::Request;
pub use scaling::Scaling;
pub use shuffle::Shuffle;
pub use size::{DataSize, expected_size};
pub use split::{Split, split};
pub use table::{CsvOptions, FeatureColumns, Table, read_csv};
pub use token_rows::{RowPart, TokenRows};
pub use tokenized::tokenized_share;
pub use vocabulary::{Decoder, Vocabulary};

use crate::model::{DataSource, DataSpec};
use error::Side;
use source::{Part, known_as, learnt};
use std::path::Path;

/// The data set of `spec`, checked against the network of `request`; relative paths are relative to `base`.
///
/// # Errors
/// If a file cannot be read or is malformed, a field of the preset cannot work, or the data does not fit the network.
pub fn load(spec: &DataSpec, request: &Request, base: &Path) -> Result<Dataset, DataError> {
    match &spec.source {
        DataSource::Joined { .. } => joined::load(spec, request, base, None),
        source => fit::fit(learnt(source, spec, request, base, Part::Whole)?, request),
    }
}

/// As [`load`], with the data prepared as for the weights that `known` belongs to, and not by the samples themselves.
///
/// # Errors
/// As [`load`], and if a column that the weights need is missing, or a class is one that they do not know.
pub fn load_as(spec: &DataSpec, request: &Request, base: &Path, known: &Preprocessing) -> Result<Dataset, DataError> {
    match &spec.source {
        DataSource::Joined { .. } => joined::load(spec, request, base, Some(known)),
        source => fit::fit(known_as(source, request, base, known, Part::Whole)?, request),
    }
}

/// As [`load`], for views of the data: data that does not fit the network is returned as its source has it, with the
/// reason why it does not fit.
///
/// # Errors
/// If a file cannot be read or is malformed, or a field of the preset cannot work.
pub fn load_to_show(
    spec: &DataSpec,
    request: &Request,
    base: &Path,
) -> Result<(Dataset, Option<DataError>), DataError> {
    match load(spec, request, base) {
        Ok(set) => Ok((set, None)),
        Err(why @ DataError::Fit { .. }) => match &spec.source {
            DataSource::Joined { .. } => Ok((joined::load_unfitted(spec, request, base)?, Some(why))),
            source => Ok((learnt(source, spec, request, base, Part::Whole)?.dataset, Some(why))),
        },
        Err(other) => Err(other),
    }
}

/// The mistakes in the data of `spec` that do not depend on the network's output: every file that cannot be opened,
/// otherwise the first mistake in the contents. Contents are checked only if there is a `request` to read them for,
/// whose output is ignored, and if they are not large.
#[must_use]
pub fn problems(spec: &DataSpec, request: Option<&Request>, base: &Path) -> Vec<DataError> {
    /// Larger data are not read only to find further mistakes.
    const MOST_READ: u64 = 256 << 20;
    let closed = file::closed(&spec.source.paths(), base);
    let size = |request: &&Request| expected_size(&spec.source, request, base);
    let request = request.filter(|_| closed.is_empty());
    let takes_long = spec.source.parts().any(|part| tokenized::takes_long(part, base));
    let found = request.filter(|r| !takes_long && size(r).held.saturating_add(size(r).reading) <= MOST_READ);
    match found.map(|request| load(spec, request, base)) {
        Some(Err(DataError::Fit { side: Side::Output, .. })) | Some(Ok(_)) | None => closed,
        Some(Err(error)) => vec![error],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LossSpec, NamedInput};

    #[test]
    fn load_reads_beside_the_preset_and_checks_against_the_network() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        std::fs::write(dir.path().join("sets/t.csv"), "a,b,y\n1,5,0\n2,5,1\n3,5,2\n4,5,1\n").unwrap();
        let source = |path: &str| DataSource::Csv {
            path: path.into(),
            header: crate::model::Header::Auto,
            target: crate::model::TargetColumn::Name("y".into()),
            columns: Vec::new(),
            standardize: true,
            delimiter: ',',
        };
        let last = crate::model::SplitKind::Last;
        let spec = |path: &str| DataSpec { held_out: 2.0, split: last, ..DataSpec::of(source(path)) };
        let request = |outputs: usize, loss: LossSpec| Request {
            inputs: vec![NamedInput::only([2].into())],
            output: [outputs].into(),
            loss,
            seed: 0,
        };
        let data = load(&spec("sets/t.csv"), &request(3, LossSpec::SOFTMAX_CROSS_ENTROPY), dir.path()).unwrap();
        assert_eq!((data.name.as_str(), data.x()), ("t", &[-1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 5.0, 0.0][..]));
        let values = load(&spec("sets/t.csv"), &request(1, LossSpec::MSE), dir.path()).unwrap();
        assert_eq!(values.target, Target::Values { values: vec![0.0, 1.0, 2.0, 1.0], shape: [1].into() });
        let fails = |path: &str, outputs, wanted: &str| {
            let text = load(&spec(path), &request(outputs, LossSpec::SOFTMAX_CROSS_ENTROPY), dir.path())
                .unwrap_err()
                .to_string();
            assert!(text.contains(wanted), "{text}");
        };
        fails("sets/t.csv", 2, "t.csv, line 4 does not fit the network: found class 2, expected 0 to 1");
        fails("sets/none.csv", 3, "none.csv: cannot be read");
        fails("sets", 3, "sets: found a folder, expected a file");
    }

    #[test]
    fn synthetic_sources_reach_the_network() {
        let request =
            Request { inputs: vec![NamedInput::only([3].into())], output: [1].into(), loss: LossSpec::MSE, seed: 1 };
        let spec = DataSpec::of(DataSource::Regression { samples: 20, noise: 0.1 });
        assert_eq!(load(&spec, &request, Path::new("")).unwrap().x().len(), 60);
        let text = load(&DataSpec::of(DataSource::Moons { samples: 20, noise: 0.1 }), &request, Path::new(""));
        assert!(text.unwrap_err().to_string().contains("found samples of shape [2], expected [3]"));
    }
}
