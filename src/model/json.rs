//! JSON as a preset needs it: a name that an object has twice is a mistake, where other readers silently keep the last.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The value of a JSON text, and the path of every name that its object has more than once, such as `layers[1].rate`.
///
/// # Errors
/// Where the text is not JSON.
pub(super) fn parse(text: &str) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut places = Places::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Node(&mut places).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, places.repeated))
}

/// Where the reader stands, and what it met twice.
#[derive(Default)]
struct Places {
    path: String,
    repeated: Vec<String>,
}

/// One value of the document.
struct Node<'a>(&'a mut Places);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let length = self.0.path.len();
        let mut list = Vec::new();
        loop {
            self.0.path.push_str(&format!("[{}]", list.len()));
            let item = items.next_element_seed(Node(&mut *self.0))?;
            self.0.path.truncate(length);
            match item {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let length = self.0.path.len();
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&name);
            if map.contains_key(&name) && !self.0.repeated.contains(&self.0.path) {
                let path = self.0.path.clone();
                self.0.repeated.push(path);
            }
            let value = fields.next_value_seed(Node(&mut *self.0))?;
            self.0.path.truncate(length);
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_usual_reader() {
        let text =
            r#" {"a": [1, -2, 2.5, 1e300, 18446744073709551615, true, null, "x\n\u00e9"], "b": {"c": {}, "d": []}} "#;
        let (value, repeated) = parse(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        assert!(repeated.is_empty());
    }

    #[test]
    fn repeated_names_have_their_path() {
        let text = r#"{"a": 1, "b": [0, {"c": 1, "d": {"e": 1, "e": 2}, "c": 2, "c": 3}], "a": 2, "c": 0}"#;
        assert_eq!(parse(text).unwrap().1, ["b[1].d.e", "b[1].c", "a"]);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "{} x", "[1,]", "NaN", "1e999", "{\"a\": 1 \"b\": 2}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
