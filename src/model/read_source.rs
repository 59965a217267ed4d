//! Reading where samples come from: the fields of `data` that belong to its source.

use super::preset::{ColumnRange, DataSource, Header, TargetColumn, Tokens};
use super::spec::describe;
use super::{Diagnostic, Fields};
use serde_json::Value;
use std::path::PathBuf;

/// The names of all sources, in the order in which they are offered.
const SOURCES: [&str; 20] = [
    "digits",
    "iris",
    "spirals",
    "moons",
    "circles",
    "xor",
    "regression",
    "csv",
    "npz",
    "npy",
    "idx",
    "cifar10",
    "images",
    "text",
    "source",
    "sums",
    "waves",
    "series",
    "digit_sums",
    "joined",
];

/// The source that an object describes; `None` where it names none that there is.
pub(super) fn read_source(f: &mut Fields<'_>) -> Option<DataSource> {
    let kind = f.choice("type", &SOURCES.map(|name| (name, name)), true)?;
    Some(read_fields(kind, f))
}

/// The number of samples of a set that is drawn.
fn many(f: &mut Fields<'_>, default: usize) -> usize {
    /// Synthetic sets are small; more samples than this would only fill memory.
    const MAX_SAMPLES: usize = 10_000_000;
    let n = f.count("samples", Some(default));
    if !(4..=MAX_SAMPLES).contains(&n) {
        f.fail("samples", format!("found {n}"), "expected a whole number from 4 to 10000000");
    }
    n
}

fn noise(f: &mut Fields<'_>, default: f64) -> f64 {
    let n = f.number("noise", Some(default));
    if !(0.0..=10.0).contains(&n) {
        f.fail("noise", format!("found {n}"), "expected a number from 0 to 10");
    }
    n
}

fn path(f: &mut Fields<'_>, name: &'static str) -> PathBuf {
    let text = f.text(name, None);
    if text.is_empty() && f.raw(name).is_some_and(Value::is_string) {
        f.fail(name, "found an empty path", "give the file's path, from the preset's folder");
    }
    text.into()
}

fn read_fields(kind: &str, f: &mut Fields<'_>) -> DataSource {
    let samples = |f: &mut Fields<'_>| many(f, 2000);
    match kind {
        "digits" => DataSource::Digits,
        "digit_sums" => DataSource::DigitSums,
        "iris" => DataSource::Iris,
        "spirals" => {
            let classes = f.count("classes", Some(3));
            if !(2..=100).contains(&classes) {
                f.fail("classes", format!("found {classes}"), "expected a whole number from 2 to 100");
            }
            DataSource::Spirals { samples: samples(f), classes, noise: noise(f, 0.1) }
        }
        "moons" => DataSource::Moons { samples: samples(f), noise: noise(f, 0.1) },
        "circles" => {
            let factor = f.number("factor", Some(0.5));
            if !(0.0..1.0).contains(&factor) {
                f.fail("factor", format!("found {factor}"), "expected a number from 0 up to, but not including, 1");
            }
            DataSource::Circles { samples: samples(f), noise: noise(f, 0.05), factor }
        }
        "xor" => DataSource::Xor { samples: samples(f), noise: noise(f, 0.2) },
        "regression" => DataSource::Regression { samples: samples(f), noise: noise(f, 0.05) },
        "csv" => DataSource::Csv {
            path: path(f, "path"),
            header: read_header(f),
            target: read_target(f),
            columns: read_ranges(f),
            standardize: f.flag("standardize", true),
            delimiter: read_delimiter(f),
        },
        "npz" => DataSource::Npz { path: path(f, "path"), x: f.text("x", Some("x")), y: f.text("y", Some("y")) },
        "npy" => DataSource::Npy { x: path(f, "x"), y: path(f, "y") },
        "idx" => DataSource::Idx { images: path(f, "images"), labels: path(f, "labels") },
        "cifar10" => DataSource::Cifar10 { paths: read_paths(f) },
        "text" => DataSource::Text { path: path(f, "path"), tokens: read_tokens(f) },
        "source" => DataSource::SourceCode,
        "sums" => DataSource::Sums { samples: many(f, 20_000) },
        "waves" => DataSource::Waves { samples: samples(f), noise: noise(f, 0.1) },
        "series" => DataSource::Series {
            path: path(f, "path"),
            columns: read_columns(f),
            window: f.count("window", None),
            horizon: f.count("horizon", Some(1)),
        },
        "joined" => read_joined(f),
        _ => DataSource::Images { path: path(f, "path") },
    }
}

fn read_tokens(f: &mut Fields<'_>) -> Tokens {
    let text = f.text("tokens", Some(Tokens::Bytes.name()));
    Tokens::ALL.into_iter().find(|tokens| tokens.name() == text).unwrap_or_else(|| {
        let help = "expected \"bytes\" or \"chars\"; files of tokenizers are not read yet";
        f.fail("tokens", format!("found {text:?}"), help);
        Tokens::Bytes
    })
}

/// A source for each input by its name.
fn read_joined(f: &mut Fields<'_>) -> DataSource {
    let example = "{\"image\": {\"type\": \"digits\"}, \"facts\": {\"type\": \"digit_sums\"}}";
    let map = f.object("inputs", Some(example)).into_iter().flatten();
    let mut inputs = Vec::new();
    for (name, item) in map {
        let at = f.at(&format!("inputs.{name}"));
        let Value::Object(map) = item else {
            let (message, help) =
                (format!("found {}", describe(item)), "expected a source such as {\"type\": \"digits\"}");
            f.sink().push(Diagnostic { layer: None, path: at, message, help: help.into() });
            continue;
        };
        let mut g = Fields::new(map, at, None, f.sink());
        match read_source(&mut g) {
            Some(DataSource::Joined { .. }) => {
                g.fail("type", "found \"joined\"", "expected a source of one input: sources are joined only once");
            }
            source => {
                g.finish();
                inputs.extend(source.map(|source| (name.clone(), source)));
            }
        }
    }
    DataSource::Joined { inputs, target: f.text("target", None) }
}

/// A column of a table: its name, or its number from 0.
fn column(value: &Value) -> Option<TargetColumn> {
    match value {
        Value::String(name) => Some(TargetColumn::Name(name.clone())),
        other => other.as_u64().map(|i| TargetColumn::Index(i as usize)),
    }
}

/// The columns of a table that are features: each a column, or a list of the first and the last of several.
fn read_ranges(f: &mut Fields<'_>) -> Vec<ColumnRange> {
    let range = |v: &Value| match v {
        Value::Array(ends) => match &ends[..] {
            [first, last] => Some(ColumnRange { first: column(first)?, last: column(last)? }),
            _ => None,
        },
        one => column(one).map(|first| ColumnRange { last: first.clone(), first }),
    };
    let Some(value) = f.raw("columns") else { return Vec::new() };
    let read: Option<Vec<ColumnRange>> = value.as_array().and_then(|list| list.iter().map(range).collect());
    read.filter(|ranges| !ranges.is_empty()).unwrap_or_else(|| {
        let help = "expected a list of columns by name or by number from 0, such as [\"age\", 3, [5, 68]]; a list of \
                    two is the first and the last of columns that follow one another";
        f.fail("columns", format!("found {}", describe(value)), help);
        Vec::new()
    })
}

/// The columns of a series, by name or by number from 0.
fn read_columns(f: &mut Fields<'_>) -> Vec<TargetColumn> {
    let list = f.raw("columns").and_then(Value::as_array);
    let read: Option<Vec<TargetColumn>> = list.and_then(|list| list.iter().map(column).collect());
    read.filter(|columns| !columns.is_empty()).unwrap_or_else(|| {
        let help = "add \"columns\": [\"temperature\", ...], by name or by number from 0";
        f.fail("columns", "is missing or not a list of columns", help);
        Vec::new()
    })
}

fn read_header(f: &mut Fields<'_>) -> Header {
    match f.raw("header") {
        None => Header::Auto,
        Some(Value::Bool(true)) => Header::Yes,
        Some(Value::Bool(false)) => Header::No,
        Some(Value::String(s)) if s == "auto" => Header::Auto,
        Some(v) => {
            f.fail("header", format!("found {v}"), "expected true, false or \"auto\"");
            Header::Auto
        }
    }
}

fn read_target(f: &mut Fields<'_>) -> TargetColumn {
    match f.raw("target") {
        None => TargetColumn::Last,
        Some(Value::String(s)) => TargetColumn::Name(s.clone()),
        Some(v) if v.as_i64() == Some(-1) => TargetColumn::Last,
        Some(v) => match v.as_u64() {
            Some(i) => TargetColumn::Index(i as usize),
            None => {
                f.fail(
                    "target",
                    format!("found {v}"),
                    "expected a column's name, its number from 0, or -1 for the last",
                );
                TargetColumn::Last
            }
        },
    }
}

fn read_delimiter(f: &mut Fields<'_>) -> char {
    let text = f.text("delimiter", Some(","));
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii() => c,
        _ => {
            f.fail("delimiter", format!("found {text:?}"), "expected one character, such as \",\" or \";\" or \"\\t\"");
            ','
        }
    }
}

fn read_paths(f: &mut Fields<'_>) -> Vec<PathBuf> {
    if f.has("path") {
        return vec![f.text("path", None).into()];
    }
    let list = f.raw("paths").and_then(Value::as_array);
    let read: Option<Vec<PathBuf>> = list.and_then(|a| a.iter().map(|v| v.as_str().map(Into::into)).collect());
    read.filter(|p| !p.is_empty()).unwrap_or_else(|| {
        f.fail("paths", "is missing or not a list of texts", "add \"paths\": [\"data_batch_1.bin\", ...]");
        Vec::new()
    })
}
