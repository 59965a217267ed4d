//! Numbers in JSON, which has neither infinities nor NaN: these are written as the texts `inf`, `-inf` and `NaN`.
//!
//! For fields with `#[serde(with = "number_text")]` whose values must be the same after a round trip.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl From<f64> for Written {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Text(value.to_string()) }
    }
}

impl Written {
    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Number(value) => Ok(value),
            Self::Text(text) => text.parse().map_err(E::custom),
        }
    }
}

/// A number, or several.
pub trait Numbers: Sized {
    /// Writes them.
    ///
    /// # Errors
    /// If the writer fails.
    fn write<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error>;

    /// Reads what [`Self::write`] wrote.
    ///
    /// # Errors
    /// If there is something else.
    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error>;
}

impl Numbers for f64 {
    fn write<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        Written::from(*self).serialize(writer)
    }

    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Written::deserialize(reader)?.value()
    }
}

impl Numbers for f32 {
    fn write<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        f64::from(*self).write(writer)
    }

    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Ok(f64::read(reader)? as Self)
    }
}

impl Numbers for Option<f64> {
    fn write<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        self.map(Written::from).serialize(writer)
    }

    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Option::<Written>::deserialize(reader)?.map(Written::value).transpose()
    }
}

impl Numbers for Vec<f32> {
    fn write<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_seq(self.iter().map(|v| Written::from(f64::from(*v))))
    }

    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Vec::<Written>::deserialize(reader)?.into_iter().map(|v| Ok(v.value::<D::Error>()? as f32)).collect()
    }
}

/// Writes numbers.
///
/// # Errors
/// If the writer fails.
pub fn serialize<T: Numbers, S: Serializer>(value: &T, writer: S) -> Result<S::Ok, S::Error> {
    value.write(writer)
}

/// Reads numbers.
///
/// # Errors
/// If there is something else.
pub fn deserialize<'de, T: Numbers, D: Deserializer<'de>>(reader: D) -> Result<T, D::Error> {
    T::read(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Measured {
        #[serde(with = "super")]
        one: f64,
        #[serde(with = "super")]
        perhaps: Option<f64>,
        #[serde(with = "super")]
        many: Vec<f32>,
    }

    #[test]
    fn every_number_is_the_same_after_json() {
        for one in [0.1, -0.0, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let many = vec![0.1, f32::MIN_POSITIVE / 4.0, one as f32];
            for perhaps in [None, Some(one)] {
                let given = Measured { one, perhaps, many: many.clone() };
                let text = serde_json::to_string(&given).unwrap();
                let back: Measured = serde_json::from_str(&text).unwrap();
                assert_eq!(format!("{back:?}"), format!("{given:?}"), "{text}");
            }
        }
        assert!(serde_json::from_str::<Measured>(r#"{"one": "much", "perhaps": null, "many": []}"#).is_err());
    }
}
