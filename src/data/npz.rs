//! NumPy's `.npz` archives: a zip file of `.npy` arrays.

use super::array::Pair;
use super::dataset::Loaded;
use super::file::{read_file, shown};
use super::npy::read_npy;
use super::{DataError, Place};
use std::io::{Cursor, Read};
use std::path::Path;
use zip::ZipArchive;

/// Deflate never compresses more than this, so an entry that announces more is wrong.
const HIGHEST_PACKING: u64 = 1032;

/// The suffix that NumPy adds to an array's name.
const SUFFIX: &str = ".npy";

/// The bytes of the array `name` in an archive, unpacked: an `.npy` file.
///
/// # Errors
/// If the archive is damaged, has no such array (the message lists those it has), or the entry announces more than it
/// can contain.
pub fn read_npz(bytes: &[u8], name: &str, file: &str) -> Result<Vec<u8>, DataError> {
    let damaged = |what: String| {
        let help = "save it again with np.savez or np.savez_compressed";
        DataError::content(file, Place::Whole, what, "an archive of arrays", help)
    };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| damaged(format!("no readable zip ({e})")))?;
    let mut names: Vec<String> =
        archive.file_names().flatten().filter_map(|n| n.strip_suffix(SUFFIX).map(str::to_owned)).collect();
    if !names.iter().any(|known| known == name) {
        names.sort();
        names.truncate(20);
        return Err(DataError::content(
            file,
            Place::Whole,
            format!("the arrays {}", if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }),
            format!("one named \"{name}\""),
            "name the arrays in data.x and data.y as they were named in np.savez",
        ));
    }
    let entry = archive.by_name(&format!("{name}{SUFFIX}"));
    let entry = entry.map_err(|e| damaged(format!("an unreadable entry for \"{name}\" ({e})")))?;
    let (packed, size) = (entry.compressed_size(), entry.size());
    if packed > bytes.len() as u64 || size > packed.saturating_mul(HIGHEST_PACKING) {
        return Err(damaged(format!("{size} bytes promised for \"{name}\" from {packed} packed ones")));
    }
    let mut unpacked = Vec::new();
    match entry.take(size).read_to_end(&mut unpacked) {
        Ok(_) => Ok(unpacked),
        Err(e) => Err(damaged(format!("damaged data of \"{name}\" after {} bytes ({e})", unpacked.len()))),
    }
}

/// The data set of two arrays of one archive.
pub(super) fn load(path: &Path, x: &str, y: &str, classes: bool) -> Result<Loaded, DataError> {
    let (bytes, file) = (read_file(path)?, shown(path));
    let (x_bytes, y_bytes) = (read_npz(&bytes, x, &file)?, read_npz(&bytes, y, &file)?);
    let (x_file, y_file) = (format!("{file} ({x})"), format!("{file} ({y})"));
    let name = path.file_stem().map_or_else(|| "npz".to_owned(), |name| name.to_string_lossy().into_owned());
    let (x, y) = (read_npy(&x_bytes, &x_file)?, read_npy(&y_bytes, &y_file)?);
    Pair { name, x, x_file, y, y_file, divisor: 1.0, classes }.into_loaded()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::npy::tests::written;
    use crate::data::{Target, mutation};
    use std::io::Write;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    fn archive(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = ZipWriter::new(&mut bytes);
        let packed = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, array) in arrays {
            writer.start_file(format!("{name}{SUFFIX}"), packed).unwrap();
            writer.write_all(array).unwrap();
        }
        writer.finish().unwrap();
        bytes.into_inner()
    }

    fn pair() -> Vec<u8> {
        let x = written(&[1.0f32, 3.0, 2.0, 4.0], &[2, 2], npyz::Order::Fortran);
        archive(&[("x", x), ("y", written(&[1u8, 0], &[2, 1], npyz::Order::C))])
    }

    #[test]
    fn two_arrays_are_a_data_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set.npz");
        std::fs::write(&path, pair()).unwrap();
        let data = load(&path, "x", "y", true).unwrap().dataset;
        assert_eq!((data.name.as_str(), data.x()), ("set", &[1., 2., 3., 4.][..]));
        assert_eq!(data.target, Target::classes(vec![1, 0], vec![]));
        let text = load(&path, "x", "labels", true).err().unwrap().to_string();
        assert!(text.contains("found the arrays x, y, expected one named \"labels\""), "{text}");
    }

    #[test]
    fn damaged_archives_are_errors() {
        let good = pair();
        for bytes in [&b""[..], b"PK", &good[..good.len() / 2]] {
            let text = read_npz(bytes, "x", "f").unwrap_err().to_string();
            assert!(text.contains("found no readable zip"), "{text}");
        }
        let empty = archive(&[]);
        assert!(read_npz(&empty, "x", "f").unwrap_err().to_string().contains("(none)"));
        let mut flipped = good.clone();
        flipped[45] ^= 0x55;
        assert!(read_npz(&flipped, "x", "f").is_err());
    }

    #[test]
    fn no_input_panics() {
        mutation::throw(&[&pair(), &archive(&[("x", vec![0; 3000])])], 6000, |bytes| {
            if let Ok(array) = read_npz(bytes, "x", "f") {
                let _ = read_npy(&array, "f");
            }
        });
    }
}
