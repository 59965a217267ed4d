//! Estimates the memory of a data set from the sizes of its files and the fields of its preset: only headers are read.

use super::Request;
use super::text::MOST_HELD;
use super::tokenized::MOST_IN_MEMORY;
use crate::model::{DataSource, Tokens, sample_len};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of one value in memory.
const VALUE: u64 = size_of::<f32>() as u64;

/// The memory of a data set, in bytes; 0 for files that cannot be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSize {
    /// Samples and targets, which are kept during the whole run.
    pub held: u64,
    /// Additional memory while the files are read.
    pub reading: u64,
}

impl DataSize {
    const fn new(held: u64, reading: u64) -> Self {
        Self { held, reading }
    }

    fn plus(self, other: Self) -> Self {
        // Files are read one after the other.
        Self { held: self.held.saturating_add(other.held), reading: self.reading.max(other.reading) }
    }
}

/// The memory of the data set of `source`; relative paths are relative to `base`.
#[must_use]
pub fn expected_size(source: &DataSource, request: &Request, base: &Path) -> DataSize {
    let targets = if request.loss.wants_classes() { 1 } else { request.output.len() };
    let of_samples = |samples: usize| {
        let values = (sample_len(&request.inputs).saturating_add(targets) as u64).saturating_mul(samples as u64);
        DataSize::new(values.saturating_mul(VALUE), 0)
    };
    match source {
        DataSource::Digits | DataSource::DigitSums => of_samples(1797),
        DataSource::Iris => of_samples(150),
        DataSource::Spirals { samples, .. }
        | DataSource::Moons { samples, .. }
        | DataSource::Circles { samples, .. }
        | DataSource::Xor { samples, .. }
        | DataSource::Regression { samples, .. } => of_samples(*samples),
        DataSource::Waves { samples, .. } => of_samples(*samples),
        DataSource::Sums { samples } => DataSize::new(*samples as u64 * 24, 0),
        DataSource::SourceCode => DataSize::new(1 << 19, 0),
        DataSource::Text { path, tokens } => running_text(&base.join(path), tokens),
        DataSource::Series { path, window, horizon, .. } => {
            // A line is part of as many samples as a window has lines.
            let table = text(&base.join(path));
            let times = window.saturating_add(*horizon) as u64;
            DataSize::new(table.held.saturating_mul(times), table.reading.saturating_add(table.held))
        }
        DataSource::Csv { path, .. } => text(&base.join(path)),
        DataSource::Npz { path, .. } => archive(&base.join(path)),
        DataSource::Npy { x, y } => array(&base.join(x)).plus(array(&base.join(y))),
        DataSource::Idx { images, labels } => bytes_of(&base.join(images)).plus(bytes_of(&base.join(labels))),
        DataSource::Cifar10 { paths } => {
            paths.iter().map(|p| bytes_of(&base.join(p))).fold(DataSize::default(), DataSize::plus)
        }
        DataSource::Images { path } => of_samples(pictures(&base.join(path))),
        DataSource::Joined { inputs, .. } => {
            let own = |name: &str| request.inputs.iter().find(|input| input.name == name);
            let size = |(name, source): &(String, DataSource)| {
                own(name).map_or_else(DataSize::default, |input| expected_size(source, &request.of_input(input), base))
            };
            inputs.iter().map(size).fold(DataSize::default(), DataSize::plus)
        }
    }
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

/// A text: its bytes, unless they stay in the file, and its characters while they are numbered.
fn running_text(path: &Path, tokens: &Tokens) -> DataSize {
    /// The largest memory of a tokenizer and of the pieces that its threads work on.
    const TOKENIZER: u64 = 128 << 20;
    let len = len(path);
    match tokens {
        Tokens::Bytes if len > MOST_HELD => DataSize::default(),
        Tokens::Bytes => DataSize::new(len, 0),
        Tokens::Chars => DataSize::new(len, len.saturating_mul(5)),
        Tokens::File(_) if len > MOST_IN_MEMORY => DataSize::new(0, TOKENIZER),
        // A token of four bytes represents at least one byte of text.
        Tokens::File(_) => DataSize::new(len.saturating_mul(4), TOKENIZER),
    }
}

/// A table: a number takes at least four characters, including the separator, in most cases.
fn text(path: &Path) -> DataSize {
    DataSize::new(len(path), len(path))
}

/// A file of bytes that each become a value, possibly packed by gzip.
fn bytes_of(path: &Path) -> DataSize {
    let packed = len(path);
    let count = unpacked_len(path).unwrap_or(packed);
    DataSize::new(count.saturating_mul(VALUE), count)
}

/// The unpacked length that a gzip file declares, modulo 4 GiB; `None` for other files.
fn unpacked_len(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let (mut magic, mut word) = ([0; 2], [0; 4]);
    file.read_exact(&mut magic).ok()?;
    if magic != [0x1f, 0x8b] {
        return None;
    }
    file.seek(SeekFrom::End(-4)).ok()?;
    file.read_exact(&mut word).ok()?;
    Some(u64::from(u32::from_le_bytes(word)))
}

/// A NumPy array.
fn array(path: &Path) -> DataSize {
    /// The usual length of a header.
    const HEAD: u64 = 128;
    let mut head = Vec::new();
    let read = File::open(path).and_then(|f| f.take(HEAD).read_to_end(&mut head));
    let width = read.ok().and_then(|_| item_width(&String::from_utf8_lossy(&head))).unwrap_or(VALUE);
    DataSize::new(len(path) / width * VALUE, len(path))
}

/// Bytes of one element, from the header of an array: `'descr': '<f8'`.
fn item_width(head: &str) -> Option<u64> {
    let (_, rest) = head.split_once("'descr':")?;
    let kind = rest.split('\'').nth(1)?;
    kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok().filter(|w| (1..=16).contains(w))
}

/// The arrays of an archive, whose elements may be bytes.
fn archive(path: &Path) -> DataSize {
    let open = File::open(path).ok().and_then(|f| zip::ZipArchive::new(f).ok());
    let Some(mut archive) = open else { return DataSize::default() };
    let sizes = (0..archive.len()).filter_map(|i| Some(archive.by_index_raw(i).ok()?.size()));
    let unpacked = sizes.fold(0, u64::saturating_add);
    DataSize::new(unpacked, unpacked)
}

/// The files in the subfolders of a folder.
fn pictures(path: &Path) -> usize {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    entries(path).filter(|p| p.is_dir()).map(|class| entries(&class).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LossSpec, NamedInput};
    use std::path::PathBuf;

    #[test]
    fn sizes_follow_from_fields_and_headers() {
        let folder = tempfile::tempdir().unwrap();
        let request =
            Request { inputs: vec![NamedInput::only([3].into())], output: [2].into(), loss: LossSpec::MSE, seed: 0 };
        let size = |source: DataSource| expected_size(&source, &request, folder.path());
        assert_eq!(size(DataSource::Regression { samples: 1000, noise: 0.0 }), DataSize::new(20_000, 0));
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.path().join(name), bytes).unwrap();
            PathBuf::from(name)
        };
        let head = |kind: &str| {
            format!("\x01NUMPY {{'descr': '{kind}', 'fortran_order': False}}{}", " ".repeat(200)).into_bytes()
        };
        let (x, y) = (write("x.npy", &head("<f8")), write("y.npy", &head("|u1")));
        let (wide, narrow) = (len(&folder.path().join("x.npy")), len(&folder.path().join("y.npy")));
        assert_eq!(size(DataSource::Npy { x, y }), DataSize::new(wide / 8 * 4 + narrow * 4, wide.max(narrow)));
        let paths = vec![write("a.bin", &[0; 3073]), write("b.bin", &[0; 3073]), PathBuf::from("none")];
        assert_eq!(size(DataSource::Cifar10 { paths }), DataSize::new(2 * 4 * 3073, 3073));
        let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0];
        packed.extend(1_000_000u32.to_le_bytes());
        let (images, labels) = (write("images.gz", &packed), write("labels", &[0; 10]));
        assert_eq!(size(DataSource::Idx { images, labels }), DataSize::new(4_000_040, 1_000_000));
        fs::create_dir_all(folder.path().join("set/cat")).unwrap();
        for name in ["set/cat/1.png", "set/cat/2.png", "set/readme"] {
            write(name, b"");
        }
        assert_eq!(size(DataSource::Images { path: "set".into() }).held, 2 * 5 * 4);
    }
}
