//! CIFAR-10's binary batches: records of one label and 32x32 pixels, the red plane first, then green and blue.
//! The format is described at <https://www.cs.toronto.edu/~kriz/cifar.html>.

use super::dataset::Loaded;
use super::file::{read_file, shown};
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Target};
use std::path::PathBuf;

/// Bytes of one image: 3 planes of 32x32.
const PIXELS: usize = 3 * 32 * 32;
/// Bytes of one record: the label, then the image.
const RECORD: usize = 1 + PIXELS;
/// The classes in the order of their labels.
const NAMES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The records of one binary batch.
#[derive(Clone, Debug, PartialEq)]
pub struct CifarRecords {
    /// `[n]`, each 0 to 9.
    pub labels: Vec<i32>,
    /// `[n, 3, 32, 32]`, scaled to 0..1.
    pub pixels: Vec<f32>,
}

/// The records of a CIFAR-10 binary batch.
///
/// # Errors
/// If the file is empty, does not end with a whole record, or has a label above 9.
pub fn read_cifar(bytes: &[u8], file: &str) -> Result<CifarRecords, DataError> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) {
        return Err(DataError::content(
            file,
            Place::Byte((bytes.len() - bytes.len() % RECORD) as u64),
            format!("{} bytes of a record", bytes.len() % RECORD),
            format!("whole records of {RECORD} bytes"),
            "the file is truncated, or not of the binary version (data_batch_1.bin and so on)",
        ));
    }
    let count = bytes.len() / RECORD;
    let mut records = CifarRecords { labels: Vec::with_capacity(count), pixels: Vec::with_capacity(count * PIXELS) };
    for (i, record) in bytes.chunks_exact(RECORD).enumerate() {
        if usize::from(record[0]) >= NAMES.len() {
            return Err(DataError::content(
                file,
                Place::Byte((i * RECORD) as u64),
                format!("label {} of record {i}", record[0]),
                "a label from 0 to 9",
                "use the binary version of CIFAR-10: CIFAR-100 has two labels a record",
            ));
        }
        records.labels.push(i32::from(record[0]));
        records.pixels.extend(record[1..].iter().map(|&pixel| f32::from(pixel) / 255.0));
    }
    Ok(records)
}

/// The data set of one or more batches, in the order given.
pub(super) fn load(paths: &[PathBuf]) -> Result<Loaded, DataError> {
    let (mut labels, mut x) = (Vec::new(), Vec::new());
    for path in paths {
        let records = read_cifar(&read_file(path)?, &shown(path))?;
        labels.extend(records.labels);
        x.extend(records.pixels);
    }
    if labels.is_empty() {
        return Err(DataError::field("paths", "no file", "at least one", "name data_batch_1.bin and so on"));
    }
    let target = Target::classes(labels, NAMES.map(str::to_owned).into());
    let notes = vec!["samples are divided by 255".to_owned()];
    let dataset = Dataset {
        name: "cifar10".to_owned(),
        inputs: InputSamples::only([3, 32, 32], x),
        target,
        feature_names: Vec::new(),
        notes,
        preprocessing: Preprocessing::default(),
    };
    Ok(Loaded::new("cifar10".to_owned(), dataset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::mutation;

    fn batch(labels: &[u8]) -> Vec<u8> {
        labels.iter().flat_map(|&label| [&[label][..], &[51 * (label % 6); PIXELS]].concat()).collect()
    }

    #[test]
    fn batches_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a.bin"), dir.path().join("b.bin")];
        std::fs::write(&paths[0], batch(&[2, 9])).unwrap();
        std::fs::write(&paths[1], batch(&[0])).unwrap();
        let data = load(&paths).unwrap().dataset;
        assert!(
            matches!(&data.target, Target::Classes { labels, names, .. } if labels == &[2, 9, 0] && names.len() == 10)
        );
        assert_eq!((data.x().len(), data.x()[0], data.x()[2 * PIXELS]), (3 * PIXELS, 0.4, 0.0));
        assert!(load(&[]).err().unwrap().to_string().starts_with("data.paths: found no file"));
    }

    #[test]
    fn errors_of_damaged_batches_name_the_position() {
        let fails = |bytes: &[u8], wanted: &str| {
            let text = read_cifar(bytes, "f").unwrap_err().to_string();
            assert!(text.contains(wanted), "{text}");
        };
        fails(&[], "byte 0: found 0 bytes of a record");
        fails(&batch(&[1, 2])[..RECORD + 5], "byte 3073: found 5 bytes of a record");
        fails(&batch(&[1, 10]), "byte 3073: found label 10 of record 1, expected a label from 0 to 9");
    }

    #[test]
    fn no_input_panics() {
        mutation::throw(&[&batch(&[3]), &batch(&[1, 2])], 2000, |bytes| {
            let _ = read_cifar(bytes, "f");
        });
    }
}
