//! Reading the fields of one JSON object, collecting every mistake instead of stopping at the first.

use super::diagnostic::Diagnostic;
use super::field_value::NumberOrName;
use super::nearest::did_you_mean;
use super::path::LayerPath;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The fields of one object in a preset, with the object's path.
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    layer: Option<LayerPath>,
    known: Vec<&'static str>,
    /// Fields with a mistake: the placeholder of a wrong value causes no further mistake.
    failed: HashSet<String>,
    out: &'a mut Vec<Diagnostic>,
}

/// The name of a kind of value in a message.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Object(_) => "an object".into(),
        Value::Array(a) if a.len() > 4 => format!("a list of {}", a.len()),
        other => {
            let text = other.to_string();
            if text.chars().count() > 40 { format!("{}…", text.chars().take(40).collect::<String>()) } else { text }
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of `map`, which is at `path` in the document and belongs to `layer`, if it belongs to one.
    pub fn new(
        map: &'a Map<String, Value>,
        path: impl Into<String>,
        layer: Option<LayerPath>,
        out: &'a mut Vec<Diagnostic>,
    ) -> Self {
        Self { map, path: path.into(), layer, known: Vec::new(), failed: HashSet::new(), out }
    }

    /// The path of field `name`.
    #[must_use]
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Records a mistake in field `name`, unless one was recorded already.
    pub fn fail(&mut self, name: &str, message: impl Into<String>, help: impl Into<String>) {
        if !self.failed.insert(name.to_owned()) {
            return;
        }
        let path = if name.is_empty() { self.path.clone() } else { self.at(name) };
        self.out.push(Diagnostic { layer: self.layer.clone(), path, message: message.into(), help: help.into() });
    }

    /// The raw value of a field, which counts as known from now on.
    pub fn raw(&mut self, name: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.map.get(name)
    }

    /// Records a value of a kind that the field does not accept.
    pub(super) fn wrong(&mut self, name: &str, found: &Value, expected: &str) {
        let message = format!("found {}", describe(found));
        self.fail(name, message, format!("expected {expected}"));
    }

    fn absent(&mut self, name: &str, expected: &str) {
        self.fail(name, "is missing", format!("add \"{name}\": {expected}"));
    }

    /// Whether the field exists.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// A whole number; required if `default` is `None`. A wrong one reads as 1. The code that checks the field reports
    /// a 0 that is too small.
    pub fn count(&mut self, name: &'static str, default: Option<usize>) -> usize {
        match (self.raw(name), default) {
            (None, Some(d)) => d,
            (None, None) => {
                self.absent(name, "a whole number");
                1
            }
            (Some(v), _) => whole(v).unwrap_or_else(|| {
                let is_large = v.as_f64().is_some_and(|n| n > 9e15);
                self.wrong(
                    name,
                    v,
                    if is_large { "a whole number from 1 to 2^53" } else { "a whole number, at least 1" },
                );
                1
            }),
        }
    }

    /// A 64-bit seed.
    pub fn seed(&mut self, name: &'static str, default: u64) -> u64 {
        match self.raw(name) {
            None => default,
            Some(v) => v.as_u64().or_else(|| whole(v).map(|n| n as u64)).unwrap_or_else(|| {
                let is_large = v.as_f64().is_some_and(|n| n > 9e15);
                self.wrong(
                    name,
                    v,
                    if is_large { "a whole number from 0 to 2^64 - 1" } else { "a whole number, at least 0" },
                );
                0
            }),
        }
    }

    /// A finite number; required if `default` is `None`. A wrong one reads as 0.
    pub fn number(&mut self, name: &'static str, default: Option<f64>) -> f64 {
        match (self.raw(name), default) {
            (None, Some(d)) => d,
            (None, None) => {
                self.absent(name, "a number");
                0.0
            }
            (Some(v), _) => v.as_f64().filter(|n| n.is_finite()).unwrap_or_else(|| {
                self.wrong(name, v, "a number");
                0.0
            }),
        }
    }

    /// True or false.
    pub fn flag(&mut self, name: &'static str, default: bool) -> bool {
        match self.raw(name) {
            None => default,
            Some(v) => v.as_bool().unwrap_or_else(|| {
                self.wrong(name, v, "true or false");
                default
            }),
        }
    }

    /// A text; required if `default` is `None`.
    pub fn text(&mut self, name: &'static str, default: Option<&str>) -> String {
        match (self.raw(name), default) {
            (None, Some(d)) => d.to_owned(),
            (None, None) => {
                self.absent(name, "\"...\"");
                String::new()
            }
            (Some(v), _) => match v.as_str() {
                Some(s) => s.to_owned(),
                None => {
                    self.wrong(name, v, "a text in quotes");
                    String::new()
                }
            },
        }
    }

    /// One name from a list; a wrong one reads as `None` and is recorded. A missing one is `None` too, and recorded if
    /// `required`.
    pub fn choice<T: Copy>(&mut self, name: &'static str, options: &[(&str, T)], required: bool) -> Option<T> {
        let names = options.iter().map(|(n, _)| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
        let Some(v) = self.raw(name) else {
            if required {
                self.absent(name, &format!("one of {names}"));
            }
            return None;
        };
        let found = v.as_str().and_then(|s| options.iter().find(|(n, _)| *n == s));
        if found.is_none() {
            self.wrong(name, v, &format!("one of {names}"));
        }
        found.map(|(_, t)| *t)
    }

    /// One whole number for both directions, or `[h, w]`.
    pub fn pair(&mut self, name: &'static str, default: Option<[usize; 2]>) -> [usize; 2] {
        match (self.raw(name), default) {
            (None, Some(d)) => d,
            (None, None) => {
                self.absent(name, "a whole number or [h, w]");
                [1, 1]
            }
            (Some(v), _) => pair_of(v).unwrap_or_else(|| {
                self.wrong(name, v, "a whole number or [h, w]");
                [1, 1]
            }),
        }
    }

    /// A whole number or one of these names; required if `default` is `None`. A wrong one reads as 1.
    pub fn named(
        &mut self,
        name: &'static str,
        names: &'static [&'static str],
        default: Option<NumberOrName>,
    ) -> NumberOrName {
        let quoted = names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
        let expected = format!("a whole number, or one of {quoted}");
        match (self.raw(name), default) {
            (None, Some(default)) => default,
            (None, None) => {
                self.absent(name, &expected);
                NumberOrName::Number(1)
            }
            (Some(v), _) => {
                let known = v.as_str().and_then(|text| names.iter().find(|n| **n == text).copied());
                known.map(NumberOrName::Name).or_else(|| whole(v).map(NumberOrName::Number)).unwrap_or_else(|| {
                    self.wrong(name, v, &expected);
                    NumberOrName::Number(1)
                })
            }
        }
    }

    /// Two numbers.
    pub fn numbers2(&mut self, name: &'static str, default: [f64; 2]) -> [f64; 2] {
        let Some(v) = self.raw(name) else { return default };
        let read = v.as_array().filter(|a| a.len() == 2).and_then(|a| Some([a[0].as_f64()?, a[1].as_f64()?]));
        read.unwrap_or_else(|| {
            self.wrong(name, v, "a list of two numbers");
            default
        })
    }

    /// A list of whole numbers; required.
    pub fn counts(&mut self, name: &'static str) -> Vec<usize> {
        let Some(v) = self.raw(name) else {
            self.absent(name, "a list such as [64] or [1, 28, 28]");
            return Vec::new();
        };
        let read: Option<Vec<usize>> = v.as_array().and_then(|a| a.iter().map(whole).collect());
        read.unwrap_or_else(|| {
            self.wrong(name, v, "a list of whole numbers, such as [64] or [1, 28, 28]");
            Vec::new()
        })
    }

    /// A nested object, or `None`; recorded if it is of another type, or missing and required, which is the case if
    /// there is an `example` of it.
    pub fn object(&mut self, name: &'static str, example: Option<&str>) -> Option<&'a Map<String, Value>> {
        match self.raw(name) {
            None => {
                if let Some(example) = example {
                    self.absent(name, example);
                }
                None
            }
            Some(Value::Object(map)) => Some(map),
            Some(v) => {
                let expected = example.map(|e| format!("an object such as {e}"));
                self.wrong(name, v, expected.as_deref().unwrap_or("an object { ... }, or leave it out"));
                None
            }
        }
    }

    /// The list that receives mistakes, for nested readers.
    pub fn sink(&mut self) -> &mut Vec<Diagnostic> {
        self.out
    }

    /// The layer that these fields belong to.
    #[must_use]
    pub fn layer(&self) -> Option<&LayerPath> {
        self.layer.as_ref()
    }

    /// Records every field that was not requested.
    pub fn finish(mut self) {
        self.finish_ref();
    }

    /// Like [`Self::finish`], for readers that hold the fields by reference.
    pub fn finish_ref(&mut self) {
        let unknown: Vec<String> = self.map.keys().filter(|k| !self.known.contains(&k.as_str())).cloned().collect();
        let known = self.known.join(", ");
        for name in unknown {
            let near = did_you_mean(&name, self.known.iter().copied());
            self.fail(&name, "unknown field", format!("{near}known here: {known}"));
        }
    }
}

fn whole(v: &Value) -> Option<usize> {
    let as_float = || v.as_f64().filter(|f| f.fract() == 0.0 && (0.0..=9e15).contains(f)).map(|f| f as u64);
    v.as_u64().or_else(as_float).and_then(|n| usize::try_from(n).ok())
}

/// One whole number for both directions, or a list of two.
pub(super) fn pair_of(v: &Value) -> Option<[usize; 2]> {
    if let Some(n) = whole(v) {
        return Some([n, n]);
    }
    let list = v.as_array().filter(|a| a.len() == 2)?;
    Some([whole(&list[0])?, whole(&list[1])?])
}
