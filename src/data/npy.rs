//! NumPy's `.npy` arrays, versions 1 to 3: a header written as a Python dictionary, then the values.
//! The format is described at <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! The header is parsed here and not by a library that evaluates Python literals: such libraries recurse as deeply as a
//! hostile file demands, and multiply dimensions without overflow checks.

use super::array::{Array, Kind, Pair, byte_len};
use super::dataset::Loaded;
use super::error::quoted;
use super::file::{read_file, shown};
use super::{DataError, Place};
use crate::tensor::Shape;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that NumPy accepts in untrusted files.
const LONGEST_HEADER: usize = 10_000;
/// The largest number of dimensions of a NumPy array.
const MOST_DIMENSIONS: usize = 64;

/// The array of an `.npy` file.
///
/// # Errors
/// If the header is malformed, the elements are not plain numbers, or the bytes are more or fewer than the header
/// announces.
pub fn read_npy<'a>(bytes: &'a [u8], file: &str) -> Result<Array<'a>, DataError> {
    let fetch = "the file is truncated or damaged: save it again";
    let ended = |expected: String| {
        let at = Place::Byte(bytes.len() as u64);
        DataError::content(file, at, format!("the end after {} bytes", bytes.len()), expected, fetch)
    };
    if !bytes.starts_with(MAGIC) {
        let found = if bytes.starts_with(b"PK") { "a zip archive" } else { "other bytes" };
        let help = "use an array saved with np.save; archives of np.savez have the data type npz";
        return Err(DataError::content(file, Place::Byte(0), found, "the start of an .npy file", help));
    }
    let (start, length) = match bytes.get(MAGIC.len()..12) {
        Some(&[1, 0, a, b, ..]) => (10, u16::from_le_bytes([a, b]).into()),
        Some(&[2 | 3, 0, a, b, c, d]) => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        Some(&[major, minor, ..]) => {
            let found = format!("version {major}.{minor}");
            return Err(DataError::content(file, Place::Byte(6), found, "version 1.0, 2.0 or 3.0", fetch));
        }
        _ => return Err(ended("an .npy header".to_owned())),
    };
    if length > LONGEST_HEADER {
        let found = format!("a header of {length} bytes");
        let expected = format!("at most {LONGEST_HEADER}");
        return Err(DataError::content(file, Place::Byte(8), found, expected, fetch));
    }
    let Some(text) = bytes.get(start..start + length) else {
        return Err(ended(format!("a header up to byte {}", start + length)));
    };
    let header = Header::read(text).map_err(|(byte, expected)| {
        let found = quoted(&String::from_utf8_lossy(&text[byte.min(text.len())..]));
        DataError::content(file, Place::Byte((start + byte) as u64), found, expected, fetch)
    })?;
    let (kind, big_endian) = element(&header.descr).ok_or_else(|| {
        DataError::content(
            file,
            Place::Byte(start as u64),
            format!("elements of type {}", quoted(&header.descr)),
            "bool, or integers or floats of 32 or 64 bits",
            "save plain numbers: np.save(name, array.astype(np.float32))",
        )
    })?;
    let data = &bytes[start + length..];
    match byte_len(&header.shape, kind.size()) {
        Some(expected) if expected == data.len() => {
            Ok(Array { shape: header.shape, kind, big_endian, fortran: header.fortran, bytes: data.into() })
        }
        expected => Err(DataError::content(
            file,
            Place::Byte((start + length) as u64),
            format!("{} bytes of values", data.len()),
            match expected {
                Some(expected) => format!("{expected} for shape {}", Shape(header.shape)),
                None => format!("a shape that memory holds instead of {}", Shape(header.shape)),
            },
            fetch,
        )),
    }
}

/// The element type of NumPy's type string, and whether it is big-endian.
fn element(descr: &str) -> Option<(Kind, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let kind = match kind {
        "b1" => Kind::Bool,
        "u1" => Kind::U8,
        "i1" => Kind::I8,
        "u2" => Kind::U16,
        "i2" => Kind::I16,
        "u4" => Kind::U32,
        "i4" => Kind::I32,
        "u8" => Kind::U64,
        "i8" => Kind::I64,
        "f4" => Kind::F32,
        "f8" => Kind::F64,
        _ => return None,
    };
    match order {
        "<" => Some((kind, false)),
        ">" => Some((kind, true)),
        "|" if kind.size() == 1 => Some((kind, false)),
        _ => None,
    }
}

/// The three entries of the header's dictionary.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

/// An error at a position in the header's text, with what was expected there.
type Unexpected = (usize, &'static str);

impl Header {
    fn read(text: &[u8]) -> Result<Self, Unexpected> {
        let mut scan = Scan { text, at: 0 };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        scan.expect(b'{', "the dictionary of an .npy header")?;
        while !scan.take(b'}') {
            let start = scan.at;
            let key = scan.string()?;
            scan.expect(b':', "a colon")?;
            match key.as_str() {
                "descr" => descr = Some(scan.string()?),
                "fortran_order" => fortran = Some(scan.boolean()?),
                "shape" => shape = Some(scan.dims()?),
                _ => return Err((start, "one of the keys descr, fortran_order and shape")),
            }
            if !scan.take(b',') {
                scan.expect(b'}', "a comma or the end of the dictionary")?;
                break;
            }
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Self { descr, fortran, shape }),
            _ => Err((0, "the keys descr, fortran_order and shape")),
        }
    }
}

/// Reads the few Python literals that a header consists of.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn skip_blanks(&mut self) {
        self.at += self.text[self.at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    }

    /// If the next character is `byte`, consumes it and returns true.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Unexpected> {
        if self.take(byte) { Ok(()) } else { Err((self.at, what)) }
    }

    /// Consumes the bytes that satisfy `test`, and returns their number.
    fn run(&mut self, test: impl Fn(u8) -> bool) -> &[u8] {
        let start = self.at;
        self.at += self.text[start..].iter().take_while(|&&b| test(b)).count();
        &self.text[start..self.at]
    }

    /// A quoted text without escapes.
    fn string(&mut self) -> Result<String, Unexpected> {
        let what = "a quoted name or type; structured arrays are not read";
        let quote = if self.take(b'\'') { b'\'' } else { b'"' };
        if quote == b'"' {
            self.expect(quote, what)?;
        }
        let text = String::from_utf8_lossy(self.run(|b| b != quote && b != b'\\')).into_owned();
        if self.text.get(self.at) != Some(&quote) {
            return Err((self.at, "the end of the quoted text"));
        }
        self.at += 1;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, Unexpected> {
        self.skip_blanks();
        let start = self.at;
        match self.run(|b| b.is_ascii_alphabetic()) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => Err((start, "True or False")),
        }
    }

    /// A tuple of dimensions: `()`, `(3,)`, `(3, 4)`; the `L` that Python 2 wrote is skipped.
    fn dims(&mut self) -> Result<Vec<usize>, Unexpected> {
        self.expect(b'(', "a tuple of dimensions")?;
        let mut dims = Vec::new();
        while !self.take(b')') {
            let start = self.at;
            let digits = self.run(|b| b.is_ascii_digit());
            let dim = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            dims.push(dim.ok_or((start, "a dimension, a whole number from 0"))?);
            if dims.len() > MOST_DIMENSIONS {
                return Err((start, "at most 64 dimensions"));
            }
            self.take(b'L');
            if !self.take(b',') {
                self.expect(b')', "a comma or the end of the tuple")?;
                break;
            }
        }
        Ok(dims)
    }
}

/// The data set of two `.npy` files.
pub(super) fn load(x: &Path, y: &Path, classes: bool) -> Result<Loaded, DataError> {
    let (x_bytes, y_bytes) = (read_file(x)?, read_file(y)?);
    let (x_file, y_file) = (shown(x), shown(y));
    let name = x.file_stem().map_or_else(|| "npy".to_owned(), |name| name.to_string_lossy().into_owned());
    let (x, y) = (read_npy(&x_bytes, &x_file)?, read_npy(&y_bytes, &y_file)?);
    Pair { name, x, x_file, y, y_file, divisor: 1.0, classes }.into_loaded()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::data::{Target, mutation};
    use npyz::WriterBuilder;

    /// An array as NumPy writes it.
    pub fn written<T: npyz::AutoSerialize + Copy>(values: &[T], shape: &[u64], order: npyz::Order) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer =
            npyz::WriteOptions::new().default_dtype().shape(shape).order(order).writer(&mut bytes).begin_nd().unwrap();
        writer.extend(values.iter().copied()).unwrap();
        writer.finish().unwrap();
        bytes
    }

    /// An array with a hand-written header.
    fn by_hand(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn fails(bytes: &[u8], wanted: &str) {
        let text = read_npy(bytes, "f").unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn arrays_of_every_plain_type_are_read() {
        fn check<T: npyz::AutoSerialize + Copy>(values: &[T], expected: &[f64]) {
            let bytes = written(values, &[values.len() as u64], npyz::Order::C);
            assert_eq!(read_npy(&bytes, "f").unwrap().values().collect::<Vec<_>>(), expected);
        }
        check(&[0.5f32, -1.0], &[0.5, -1.0]);
        check(&[0.1f64], &[0.1]);
        check(&[true, false], &[1.0, 0.0]);
        check(&[-1i8, 5], &[-1.0, 5.0]);
        check(&[255u8], &[255.0]);
        check(&[-300i16], &[-300.0]);
        check(&[60_000u16], &[60_000.0]);
        check(&[-70_000i32], &[-70_000.0]);
        check(&[4_000_000_000u32], &[4e9]);
        check(&[-5i64], &[-5.0]);
        check(&[7u64], &[7.0]);
        let fortran = written(&[1u8, 4, 2, 5, 3, 6], &[2, 3], npyz::Order::Fortran);
        assert_eq!(read_npy(&fortran, "f").unwrap().values().collect::<Vec<_>>(), [1., 2., 3., 4., 5., 6.]);
        let big = by_hand("{'descr': '>i2', 'fortran_order': False, 'shape': (1L,), }  \n", &[1, 0]);
        assert_eq!(read_npy(&big, "f").unwrap().values().collect::<Vec<_>>(), [256.0]);
        let scalar = by_hand("{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": ()}", &[0; 4]);
        assert_eq!(read_npy(&scalar, "f").unwrap().shape(), [0usize; 0]);
    }

    #[test]
    fn errors_of_damaged_files_name_the_position() {
        fails(b"", "byte 0: found other bytes");
        fails(b"PK\x03\x04", "found a zip archive");
        fails(b"\x93NUMPY\x01", "expected an .npy header");
        fails(b"\x93NUMPY\x04\x00\x01\x00    ", "byte 6: found version 4.0");
        fails(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes");
        fails(b"\x93NUMPY\x01\x00\xff\x00{}", "expected a header up to byte 265");
        fails(&by_hand("[1]", &[]), "expected the dictionary");
        fails(&by_hand(&"(".repeat(9000), &[]), "expected the dictionary");
        fails(&by_hand("{}", &[]), "expected the keys descr, fortran_order and shape");
        fails(&by_hand("{'order': 1}", &[]), "expected one of the keys");
        fails(&by_hand("{'descr': [('a', '<f4')], ", &[]), "structured arrays are not read");
        fails(&by_hand("{'descr': '<f4', 'fortran_order': 0}", &[]), "expected True or False");
        fails(&by_hand("{'shape': (-1,)}", &[]), "expected a dimension");
        fails(&by_hand("{'shape': (99999999999999999999999,)}", &[]), "expected a dimension");
        let typed =
            |descr: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}");
        for descr in ["|O", "<c8", "<U3", "<f2", "", "f", "|f4", "é4"] {
            fails(&by_hand(&typed(descr, "(1,)"), &[0; 8]), "elements of type");
        }
        fails(&by_hand(&typed("<f4", "(3,)"), &[0; 8]), "found 8 bytes of values, expected 12 for shape [3]");
        fails(&by_hand(&typed("<f4", "(1,)"), &[0; 8]), "found 8 bytes of values, expected 4");
        fails(&by_hand(&typed("<f8", "(9999999999, 9999999999, 9999999999)"), &[0; 8]), "that memory holds");
    }

    #[test]
    fn a_pair_of_files_is_a_data_set() {
        let dir = tempfile::tempdir().unwrap();
        let (x, y) = (dir.path().join("x.npy"), dir.path().join("y.npy"));
        let put = |path: &Path, bytes: Vec<u8>| std::fs::write(path, bytes).unwrap();
        put(&x, written(&[1.0f64, 2.0, 3.0, 4.0], &[2, 2], npyz::Order::C));
        put(&y, written(&[1i64, 0], &[2], npyz::Order::C));
        let data = load(&x, &y, true).unwrap().dataset;
        assert_eq!((data.x().to_vec(), data.target), (vec![1., 2., 3., 4.], Target::classes(vec![1, 0], vec![])));
        let values = load(&x, &x, false).unwrap().dataset;
        assert!(matches!(values.target, Target::Values { shape, .. } if shape.0 == [2]));
        let text = load(&x, &x, true).err().unwrap().to_string();
        assert!(text.contains("expected one class for each sample"), "{text}");
        put(&y, written(&[1.5f32, 0.0], &[2], npyz::Order::C));
        assert!(load(&x, &y, true).err().unwrap().to_string().contains("sample 0: found 1.5, expected a class"));
        put(&x, written(&[1.0f64, 2.0, f64::NAN, 4.0], &[2, 2], npyz::Order::C));
        assert!(load(&x, &y, false).err().unwrap().to_string().contains("sample 1: found NaN at value 0"));
        put(&x, written(&[1.0f64, 1e300], &[2, 1], npyz::Order::C));
        assert!(load(&x, &y, false).err().unwrap().to_string().contains("that f32 can hold"));
        put(&y, by_hand("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", &[0; 4]));
        assert!(load(&x, &y, false).err().unwrap().to_string().contains("found a single number"));
    }

    #[test]
    fn no_input_panics() {
        let c = written(&[1.0f32; 6], &[2, 3], npyz::Order::C);
        let fortran = written(&[1i64; 6], &[3, 2], npyz::Order::Fortran);
        mutation::throw(&[&c, &fortran], 6000, |bytes| {
            if let Ok(array) = read_npy(bytes, "f") {
                assert_eq!(array.values().count(), array.shape().iter().product::<usize>());
            }
        });
    }
}
