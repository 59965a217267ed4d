//! IDX files, the format of the MNIST family: two zero bytes, an element type, the number of dimensions, the dimensions
//! as big-endian 32-bit numbers, then the values. The format is described at <http://yann.lecun.com/exdb/mnist/>.

use super::array::{Array, Kind, Pair, byte_len};
use super::dataset::Loaded;
use super::file::{gunzip, is_gzip, read_file, shown};
use super::{DataError, Place};
use std::borrow::Cow;
use std::path::Path;

/// Deflate never compresses more than this, so a header that announces more than its packed bytes can contain is wrong.
const HIGHEST_PACKING: u64 = 1032;

/// The array of an IDX file, plain or gzip.
///
/// # Errors
/// If the header is not an IDX header, or the file has more or fewer bytes than the header announces.
pub fn read_idx<'a>(bytes: &'a [u8], file: &str) -> Result<Array<'a>, DataError> {
    let packed = is_gzip(bytes);
    let head: Cow<'_, [u8]> =
        if packed { gunzip(bytes, 4 + 4 * 255, file)?.into() } else { bytes[..bytes.len().min(4 + 4 * 255)].into() };
    let (kind, shape) = read_header(&head, file)?;
    let start = 4 + 4 * shape.len();
    let too_large = |found: String| {
        let help = "the header or the file is damaged: fetch it again";
        DataError::content(file, Place::Byte(4), found, "dimensions that the file's length can hold", help)
    };
    let dims = crate::tensor::Shape(shape.clone());
    let expected = byte_len(&shape, kind.size()).and_then(|len| len.checked_add(start));
    let Some(expected) = expected else { return Err(too_large(format!("dimensions {dims}"))) };
    let whole: Cow<'a, [u8]> = if packed {
        if expected as u64 > (bytes.len() as u64).saturating_mul(HIGHEST_PACKING) {
            return Err(too_large(format!("dimensions {dims} in {} packed bytes", bytes.len())));
        }
        // One byte more than expected is enough to detect that there are too many.
        gunzip(bytes, expected as u64 + 1, file)?.into()
    } else {
        bytes.into()
    };
    if whole.len() != expected {
        let more = whole.len() > expected;
        return Err(DataError::content(
            file,
            Place::Byte(expected.min(whole.len()) as u64),
            if more { "more bytes".to_owned() } else { format!("the end after {} bytes", whole.len()) },
            format!("{expected} bytes for dimensions {dims}"),
            if more {
                "the header or the file is damaged: fetch it again"
            } else {
                "the file is truncated: fetch it again"
            },
        ));
    }
    let bytes = match whole {
        Cow::Borrowed(whole) => Cow::Borrowed(&whole[start..]),
        Cow::Owned(mut whole) => {
            whole.drain(..start);
            Cow::Owned(whole)
        }
    };
    Ok(Array { shape, kind, big_endian: true, fortran: false, bytes })
}

/// Element type and dimensions.
fn read_header(head: &[u8], file: &str) -> Result<(Kind, Vec<usize>), DataError> {
    let short = |found: usize, expected: usize| {
        let at = Place::Byte(found as u64);
        let found = format!("the end after {found} bytes");
        DataError::content(
            file,
            at,
            found,
            format!("an IDX header of {expected} bytes"),
            "the file is truncated: fetch it again",
        )
    };
    let &[zero, zero_too, code, rank, ref rest @ ..] = head else { return Err(short(head.len(), 4)) };
    if (zero, zero_too) != (0, 0) {
        let help = "give the files as published: *-images-idx3-ubyte and *-labels-idx1-ubyte, plain or .gz";
        let (found, expected) = (format!("{zero:#04x} {zero_too:#04x}"), "0x00 0x00, the start of an IDX file");
        return Err(DataError::content(file, Place::Byte(0), found, expected, help));
    }
    let kind = match code {
        0x08 => Kind::U8,
        0x09 => Kind::I8,
        0x0B => Kind::I16,
        0x0C => Kind::I32,
        0x0D => Kind::F32,
        0x0E => Kind::F64,
        _ => {
            return Err(DataError::content(
                file,
                Place::Byte(2),
                format!("element type {code:#04x}"),
                "0x08 (u8), 0x09 (i8), 0x0b (i16), 0x0c (i32), 0x0d (f32) or 0x0e (f64)",
                "the file is damaged or not an IDX file",
            ));
        }
    };
    let rank = usize::from(rank);
    if rest.len() < 4 * rank {
        return Err(short(head.len(), 4 + 4 * rank));
    }
    let dim = |b: &[u8]| b.iter().fold(0usize, |acc, &b| acc << 8 | usize::from(b));
    Ok((kind, rest[..4 * rank].chunks_exact(4).map(dim).collect()))
}

/// The data set of two IDX files; images of bytes are scaled to 0..1.
pub(super) fn load(images: &Path, labels: &Path) -> Result<Loaded, DataError> {
    let (image_bytes, label_bytes) = (read_file(images)?, read_file(labels)?);
    let (x_file, y_file) = (shown(images), shown(labels));
    let x = read_idx(&image_bytes, &x_file)?;
    let y = read_idx(&label_bytes, &y_file)?;
    let swapped = "the first file holds the images, the second the labels: were they swapped?";
    for (array, file, right, expected) in [
        (&x, &x_file, x.shape.len() >= 2, "images, such as [n, 28, 28]"),
        (&y, &y_file, y.shape.len() == 1, "labels, [n]"),
    ] {
        if !right {
            let found = format!("an array of shape {}", crate::tensor::Shape(array.shape.clone()));
            return Err(DataError::content(file, Place::Byte(3), found, expected, swapped));
        }
    }
    let divisor = if x.kind == Kind::U8 { 255.0 } else { 1.0 };
    let name = images.file_name().map_or_else(|| "idx".to_owned(), |name| name.to_string_lossy().into_owned());
    Pair { name, x, x_file, y, y_file, divisor, classes: true }.into_loaded()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Target, mutation};
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn idx(code: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, code, dims.len() as u8];
        dims.iter().for_each(|d| bytes.extend(d.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    fn fails(bytes: &[u8], wanted: &str) {
        let text = read_idx(bytes, "f").unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn all_element_types_are_read() {
        for (code, value, data) in [
            (0x08, 250.0, vec![250]),
            (0x09, -6.0, vec![250]),
            (0x0B, -2.0, (-2i16).to_be_bytes().to_vec()),
            (0x0C, 70_000.0, 70_000i32.to_be_bytes().to_vec()),
            (0x0D, 1.5, 1.5f32.to_be_bytes().to_vec()),
            (0x0E, -0.1, (-0.1f64).to_be_bytes().to_vec()),
        ] {
            let bytes = idx(code, &[1, 1], &data);
            for bytes in [gzip(&bytes), bytes] {
                let array = read_idx(&bytes, "f").unwrap();
                assert_eq!((array.values().collect::<Vec<_>>(), array.shape()), (vec![value], &[1, 1][..]));
            }
        }
    }

    #[test]
    fn errors_of_damaged_files_name_the_position() {
        fails(&[], "byte 0: found the end after 0 bytes");
        fails(&[0, 0, 8, 3, 0], "expected an IDX header of 16 bytes");
        fails(&[0, 1, 8, 1], "byte 0: found 0x00 0x01");
        fails(&idx(0x0A, &[1], &[1]), "byte 2: found element type 0x0a");
        fails(&idx(8, &[3], &[1, 2]), "byte 10: found the end after 10 bytes, expected 11 bytes for dimensions [3]");
        fails(&idx(8, &[3], &[1, 2, 3, 4]), "found more bytes");
        fails(&idx(8, &[u32::MAX; 3], &[]), "dimensions [4294967295");
        fails(&idx(8, &[u32::MAX], &[1, 2]), "truncated");
        fails(&gzip(&idx(8, &[u32::MAX], &[1, 2])), "packed bytes");
        fails(&gzip(&idx(8, &[3], &[1, 2])), "the end after 10 bytes");
        fails(&gzip(&idx(8, &[3], &[1, 2, 3, 4])), "found more bytes");
        let packed = gzip(&idx(8, &[30], &[7; 30]));
        fails(&packed[..packed.len() - 9], "damaged gzip data");
    }

    #[test]
    fn a_pair_of_files_is_a_data_set() {
        let dir = tempfile::tempdir().unwrap();
        let (x, y) = (dir.path().join("x-images-idx3-ubyte.gz"), dir.path().join("y"));
        std::fs::write(&x, gzip(&idx(8, &[2, 2, 2], &[0, 51, 102, 255, 1, 2, 3, 4]))).unwrap();
        std::fs::write(&y, idx(8, &[2], &[3, 1])).unwrap();
        let loaded = load(&x, &y).unwrap().dataset;
        assert_eq!((&loaded.x()[..4], loaded.sample().0.as_slice()), (&[0.0, 0.2, 0.4, 1.0][..], &[2, 2][..]));
        assert_eq!(loaded.target, Target::classes(vec![3, 1], vec![]));
        let text = load(&y, &x).err().unwrap().to_string();
        assert!(text.contains("were they swapped?"), "{text}");
        std::fs::write(&y, idx(8, &[3], &[3, 1, 0])).unwrap();
        let text = load(&x, &y).err().unwrap().to_string();
        assert!(text.contains("found 3 targets, expected 2"), "{text}");
        let text = load(&dir.path().join("missing"), &y).err().unwrap().to_string();
        assert!(text.contains("missing: cannot be read"), "{text}");
    }

    #[test]
    fn no_input_panics() {
        let plain = idx(8, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        let double = idx(0x0E, &[2], &[0; 16]);
        mutation::throw(&[&plain, &double, &gzip(&plain)], 4000, |bytes| {
            if let Ok(array) = read_idx(bytes, "f") {
                assert_eq!(array.values().count(), array.shape().iter().product::<usize>());
            }
        });
    }
}
