//! Numeric arrays as NPY and IDX files store them, and data sets made of a pair of them.

use super::dataset::Loaded;
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Target};
use crate::tensor::{Shape, plural};
use std::borrow::Cow;

/// The type of a stored number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Kind {
    /// The size of a number, in bytes.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// A dense array over bytes whose number has been checked against its shape.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// Dimensions, outermost first.
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    /// Column-major: the first dimension varies fastest.
    pub(super) fortran: bool,
    /// `product(shape) * kind.size()` bytes.
    pub(super) bytes: Cow<'a, [u8]>,
}

impl Array<'_> {
    /// Dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.size()
    }

    /// True if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Every value in row-major order, regardless of the order of storage.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        (0..self.len()).map(|i| self.stored(if self.fortran { self.column_major(i) } else { i }))
    }

    /// The index, in column-major storage, of row-major element `i`.
    fn column_major(&self, mut i: usize) -> usize {
        let (mut offset, mut stride) = (0, self.len());
        for &d in self.shape.iter().rev() {
            stride /= d;
            offset += i % d * stride;
            i /= d;
        }
        offset
    }

    /// The value at an index of the storage.
    fn stored(&self, index: usize) -> f64 {
        let size = self.kind.size();
        let mut b = [0u8; 8];
        b[..size].copy_from_slice(&self.bytes[index * size..(index + 1) * size]);
        if self.big_endian {
            b[..size].reverse();
        }
        match self.kind {
            Kind::Bool => f64::from(u8::from(b[0] != 0)),
            Kind::U8 => f64::from(b[0]),
            Kind::I8 => f64::from(i8::from_le_bytes([b[0]])),
            Kind::U16 => f64::from(u16::from_le_bytes([b[0], b[1]])),
            Kind::I16 => f64::from(i16::from_le_bytes([b[0], b[1]])),
            Kind::U32 => f64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            Kind::I32 => f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            Kind::U64 => u64::from_le_bytes(b) as f64,
            Kind::I64 => i64::from_le_bytes(b) as f64,
            Kind::F32 => f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            Kind::F64 => f64::from_le_bytes(b),
        }
    }

    /// Values as `f32` divided by `divisor`, checked to be finite; each sample has `width` values.
    fn finite(&self, divisor: f32, width: usize, file: &str) -> Result<Vec<f32>, DataError> {
        let mut out = Vec::with_capacity(self.len());
        for (i, value) in self.values().enumerate() {
            let narrow = value as f32 / divisor;
            if !narrow.is_finite() {
                return Err(DataError::content(
                    file,
                    Place::Sample(i / width.max(1)),
                    format!("{value} at value {}", i % width.max(1)),
                    "a finite number that f32 can hold",
                    "remove or replace such samples: there is no default for missing values",
                ));
            }
            out.push(narrow);
        }
        Ok(out)
    }

    /// The array with one class for each sample.
    fn labels(&self, file: &str) -> Result<Vec<i32>, DataError> {
        if self.shape.iter().skip(1).any(|&d| d != 1) {
            return Err(DataError::content(
                file,
                Place::Whole,
                format!("an array of shape {}", Shape(self.shape.clone())),
                "one class for each sample, shape [n]",
                "store class numbers (argmax of one-hot rows), or use the loss mse for values",
            ));
        }
        let whole = |v: f64| (v.fract() == 0.0 && v.abs() <= f64::from(i32::MAX)).then_some(v as i32);
        let mut labels = Vec::with_capacity(self.len());
        for (i, value) in self.values().enumerate() {
            labels.push(whole(value).ok_or_else(|| {
                let help = "store class numbers from 0, or use the loss mse for values";
                DataError::content(file, Place::Sample(i), value.to_string(), "a class: a whole number", help)
            })?);
        }
        Ok(labels)
    }
}

/// A checked number of bytes: `product(shape) * size`, or `None` on overflow.
pub(super) fn byte_len(shape: &[usize], size: usize) -> Option<usize> {
    shape.iter().try_fold(size, |acc, &d| acc.checked_mul(d))
}

/// Samples from one array and targets from another, with the files' names for messages.
pub(super) struct Pair<'a> {
    pub name: String,
    pub x: Array<'a>,
    pub x_file: String,
    pub y: Array<'a>,
    pub y_file: String,
    /// The number that samples are divided by.
    pub divisor: f32,
    /// Whether targets are classes, or values.
    pub classes: bool,
}

impl Pair<'_> {
    /// The data set of both.
    ///
    /// # Errors
    /// If the numbers of samples differ, a value is not finite, or a class is not a whole number.
    pub(super) fn into_loaded(self) -> Result<Loaded, DataError> {
        let (Some(&n), Some(&targets)) = (self.x.shape.first(), self.y.shape.first()) else {
            let file = if self.x.shape.is_empty() { &self.x_file } else { &self.y_file };
            let help = "the first dimension counts samples";
            return Err(DataError::content(file, Place::Whole, "a single number", "an array of samples", help));
        };
        if n != targets {
            return Err(DataError::content(
                &self.y_file,
                Place::Whole,
                format!("{targets} {}", plural(targets as u64, "target")),
                format!("{n}, one for each sample of {}", self.x_file),
                "both files must come from the same set and part (training or test)",
            ));
        }
        let sample = Shape(self.x.shape[1..].to_vec());
        let x = self.x.finite(self.divisor, sample.len(), &self.x_file)?;
        let mut notes = Vec::new();
        if self.divisor != 1.0 {
            notes.push(format!("samples are divided by {}", self.divisor));
        } else if self.x.kind == Kind::U8 {
            notes.push("samples are bytes and are not scaled: divide them by 255 for values from 0 to 1".to_owned());
        }
        let target = if self.classes {
            Target::classes(self.y.labels(&self.y_file)?, Vec::new())
        } else {
            let shape = Shape(self.y.shape[1..].to_vec());
            let values = self.y.finite(1.0, shape.len(), &self.y_file)?;
            Target::Values { values, shape }
        };
        let dataset = Dataset {
            name: self.name,
            inputs: InputSamples::only(sample, x),
            target,
            feature_names: Vec::new(),
            notes,
            preprocessing: Preprocessing::default(),
        };
        Ok(Loaded { dataset, file: self.x_file, target_file: self.y_file, lines: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], kind: Kind, bytes: Vec<u8>) -> Array<'static> {
        Array { shape: shape.to_vec(), kind, big_endian: false, fortran: false, bytes: bytes.into() }
    }

    #[test]
    fn every_kind_decodes_in_both_byte_orders() {
        for (kind, value, bytes) in [
            (Kind::Bool, 1.0, vec![7]),
            (Kind::U8, 200.0, vec![200]),
            (Kind::I8, -2.0, (-2i8).to_le_bytes().to_vec()),
            (Kind::U16, 65_000.0, 65_000u16.to_le_bytes().to_vec()),
            (Kind::I16, -300.0, (-300i16).to_le_bytes().to_vec()),
            (Kind::U32, 4e9, 4_000_000_000u32.to_le_bytes().to_vec()),
            (Kind::I32, -70_000.0, (-70_000i32).to_le_bytes().to_vec()),
            (Kind::U64, 1e15, 1_000_000_000_000_000u64.to_le_bytes().to_vec()),
            (Kind::I64, -1e15, (-1_000_000_000_000_000i64).to_le_bytes().to_vec()),
            (Kind::F32, 0.25, 0.25f32.to_le_bytes().to_vec()),
            (Kind::F64, 0.1, 0.1f64.to_le_bytes().to_vec()),
        ] {
            assert_eq!(bytes.len(), kind.size());
            let mut a = array(&[1], kind, bytes.clone());
            assert_eq!(a.values().collect::<Vec<_>>(), [value], "{kind:?}");
            a.bytes = bytes.into_iter().rev().collect();
            a.big_endian = true;
            assert_eq!(a.values().collect::<Vec<_>>(), [value], "{kind:?}");
        }
    }

    #[test]
    fn column_major_storage_is_read_row_by_row() {
        // Element (i, j, k) of a [2, 3, 2] array has the value 100 i + 10 j + k.
        let stored: Vec<u8> =
            (0..2).flat_map(|k| (0..3).flat_map(move |j| (0..2).map(move |i| 100 * i + 10 * j + k))).collect();
        let mut a = array(&[2, 3, 2], Kind::U8, stored);
        a.fortran = true;
        assert_eq!(a.values().collect::<Vec<_>>(), [0., 1., 10., 11., 20., 21., 100., 101., 110., 111., 120., 121.]);
        assert_eq!(array(&[0, 4], Kind::U8, vec![]).values().count(), 0);
    }
}
