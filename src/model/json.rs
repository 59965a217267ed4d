//! Parses JSON for presets: a name that occurs twice in an object is a mistake, whereas other parsers silently use the
//! last one.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// What is wrong with a text that is not JSON, and what to do.
pub(super) fn explained(error: &serde_json::Error) -> String {
    let found = error.to_string();
    let found = found.split(" at line ").next().unwrap_or_default();
    let help = match found {
        _ if error.is_eof() => "it ends before its last bracket or quote is closed; add what is missing",
        "trailing comma" => "remove the comma before the closing bracket",
        "trailing characters" => "keep one object { ... } and nothing after it",
        "key must be a string" => "put names of fields in double quotes, and comments are not allowed",
        "expected value" => {
            "expected a number such as 0.5, a text in double quotes, true, false, a list [ ... ] or an object { ... }; \
             comments are not allowed"
        }
        "invalid number" | "number out of range" => "write the number as 120, 0.001 or 1e-3",
        "recursion limit exceeded" => "brackets are nested more than 127 deep; remove some",
        "invalid escape" | "unexpected end of hex escape" | "lone leading surrogate in hex escape" => {
            "write a backslash in a text as \\\\"
        }
        _ if found.starts_with("control character") => {
            "close the text's quotes on its line, or write a line break as \\n"
        }
        _ if found.starts_with("expected `") => "add what is missing",
        _ => "correct the text there",
    };
    // Letters that serde_json omits from its list of expected ones need not be reported, and some of its terms are
    // replaced.
    let what = match found {
        _ if error.is_eof() || !found.starts_with("expected `") => String::new(),
        expected => format!("{expected}, "),
    };
    format!("line {}, column {}: {what}{help}", error.line(), error.column())
}

/// The text in a file's bytes: UTF-8, or UTF-16 with a byte order mark, as written by `>` in PowerShell.
///
/// # Errors
/// If it is neither: the position of the first wrong byte.
pub(super) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, usize> {
    let order: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|e| e.valid_up_to()),
    };
    let (pairs, rest) = bytes.as_chunks::<2>();
    let text = String::from_utf16(&pairs.iter().map(|p| order(*p)).collect::<Vec<_>>());
    text.ok().filter(|t| rest.is_empty() && !t.contains('\0')).map(Cow::Owned).ok_or(0)
}

/// The value of a JSON text, and the path of every name that occurs more than once in its object, such as
/// `layers[1].rate`.
///
/// # Errors
/// If the text is not JSON.
pub(super) fn parse(text: &str) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut places = Places::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Node(&mut places).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, places.repeated))
}

/// The reader's position, and the repeated names that it found.
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
    fn values_equal_those_of_serde_json() {
        let text =
            r#" {"a": [1, -2, 2.5, 1e300, 18446744073709551615, true, null, "x\n\u00e9"], "b": {"c": {}, "d": []}} "#;
        let (value, repeated) = parse(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        assert!(repeated.is_empty());
    }

    #[test]
    fn repeated_names_are_reported_with_their_path() {
        let text = r#"{"a": 1, "b": [0, {"c": 1, "d": {"e": 1, "e": 2}, "c": 2, "c": 3}], "a": 2, "c": 0}"#;
        assert_eq!(parse(text).unwrap().1, ["b[1].d.e", "b[1].c", "a"]);
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in ["", "{", "{} x", "[1,]", "NaN", "1e999", "{\"a\": 1 \"b\": 2}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn errors_of_invalid_json_say_what_to_do() {
        let deep = "[".repeat(200);
        let cases = [
            ("{\"a\": 1,\n \"b", "line 2, column 3: it ends before"),
            ("{\"a\": 1,}", "line 1, column 9: remove the comma"),
            ("{} {}", "nothing after it"),
            ("{a: 1}", "in double quotes"),
            ("{'a': 1}", "in double quotes"),
            ("{\"a\": NaN}", "expected a number such as 0.5"),
            ("{\"a\": .5}", "expected a number such as 0.5"),
            ("{\"a\": None}", "expected a number such as 0.5"),
            ("{\"a\": 01}", "1e-3"),
            ("{\"a\": 1e999}", "1e-3"),
            ("{\"a\": \"b\nc\"}", "on its line"),
            ("{\"a\": \"C:\\data\"}", "a backslash in a text as \\\\"),
            ("{\"a\": \"\\ud800\"}", "a backslash in a text as \\\\"),
            ("{\"a\": 1 \"b\": 2}", "expected `,` or `}`, add what is missing"),
            (&deep, "nested more than"),
        ];
        for (text, wanted) in cases {
            let message = explained(&parse(text).unwrap_err());
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }

    #[test]
    fn utf16_with_its_mark_is_text() {
        let bytes =
            |order: fn(u16) -> [u8; 2]| -> Vec<u8> { "\u{feff}{\"ä\": 1}".encode_utf16().flat_map(order).collect() };
        for bytes in [bytes(u16::to_le_bytes), bytes(u16::to_be_bytes)] {
            assert_eq!(decode(&bytes).unwrap(), "\u{feff}{\"ä\": 1}");
            assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(decode(b"ab\xff"), Err(2));
    }
}
