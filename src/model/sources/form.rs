//! Values of sources with their own format in documents: paths, columns of tables, and names.

use crate::model::field_value::FieldValue;
use crate::model::preset::{ColumnRange, Header, TargetColumn, Tokens};
use crate::model::spec::{Fields, describe};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// How a value is written in a preset, and how an editor shows it.
pub(super) struct Form<V> {
    /// Reads the field with this name.
    pub(super) read: fn(&mut Fields<'_>, &'static str) -> V,
    /// The value in a preset; `None` if the field is to be left out.
    pub(super) json: fn(&V) -> Option<Value>,
    pub(super) show: fn(&V) -> FieldValue,
    /// The value from an editor; `None` if it is of another kind.
    pub(super) edited: fn(&FieldValue) -> Option<V>,
    /// The names of a choice.
    pub(super) options: &'static [&'static str],
}

/// A format that is edited as a line of text.
const fn line<V>(
    read: fn(&mut Fields<'_>, &'static str) -> V,
    json: fn(&V) -> Option<Value>,
    show: fn(&V) -> FieldValue,
    edited: fn(&FieldValue) -> Option<V>,
) -> Form<V> {
    Form { read, json, show, edited, options: &[] }
}

/// The text from an editor.
fn text(value: &FieldValue) -> Option<&str> {
    if let FieldValue::Text(text) = value { Some(text) } else { None }
}

/// The option from an editor; the last one for an invalid index.
fn chosen<T: Copy, const N: usize>(all: [T; N], value: &FieldValue) -> Option<T> {
    if let FieldValue::Choice(index) = value { Some(all[(*index).min(N - 1)]) } else { None }
}

/// JSON contains only Unicode; a path that is not Unicode is written as it is shown.
fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A file or folder; required.
pub(super) const PATH: Form<PathBuf> = line(
    |f, name| {
        let text = f.text(name, None);
        if text.is_empty() && f.raw(name).is_some_and(Value::is_string) {
            f.fail(name, "found an empty path", "give the file's path, from the preset's folder");
        }
        text.into()
    },
    |path| Some(path_text(path).into()),
    |path| FieldValue::Text(path.display().to_string()),
    |value| text(value).map(Into::into),
);

/// One file as `path`, or several as a list.
pub(super) const PATHS: Form<Vec<PathBuf>> = line(
    |f, name| {
        if f.has("path") {
            return vec![f.text("path", None).into()];
        }
        let list = f.raw(name).and_then(Value::as_array);
        let read: Option<Vec<PathBuf>> = list.and_then(|a| a.iter().map(|v| v.as_str().map(Into::into)).collect());
        read.filter(|p| !p.is_empty()).unwrap_or_else(|| {
            f.fail(name, "is missing or not a list of texts", "add \"paths\": [\"data_batch_1.bin\", ...]");
            Vec::new()
        })
    },
    |paths| Some(paths.iter().map(|path| path_text(path)).collect()),
    |paths| FieldValue::Text(paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join("; ")),
    |value| text(value).map(|text| text.split(';').map(|path| path.trim().into()).collect()),
);

/// Whether a table starts with a line of names.
pub(super) const HEADER: Form<Header> = Form {
    read: |f, name| match f.raw(name) {
        None => Header::Auto,
        Some(Value::Bool(true)) => Header::Yes,
        Some(Value::Bool(false)) => Header::No,
        Some(Value::String(s)) if s == "auto" => Header::Auto,
        Some(v) => {
            f.fail(name, format!("found {v}"), "expected true, false or \"auto\"");
            Header::Auto
        }
    },
    json: |header| {
        Some(match header {
            Header::Auto => json!("auto"),
            Header::Yes => json!(true),
            Header::No => json!(false),
        })
    },
    show: |header| FieldValue::Choice(*header as usize),
    edited: |value| chosen([Header::Auto, Header::Yes, Header::No], value),
    options: &["auto", "yes", "no"],
};

/// What the tokens of a text are.
pub(super) const TOKENS: Form<Tokens> = line(
    |f, name| {
        let text = f.text(name, Some("bytes"));
        Tokens::named(&text).unwrap_or_else(|| {
            let help = "expected \"bytes\", \"chars\", or the path of a tokenizer.json";
            f.fail(name, format!("found {text:?}"), help);
            Tokens::Bytes
        })
    },
    |tokens| Some(tokens.name().into()),
    |tokens| FieldValue::Text(tokens.name().into_owned()),
    |value| text(value).and_then(Tokens::named),
);

/// The character between the columns of a table.
pub(super) const DELIMITER: Form<char> = line(
    |f, name| {
        let text = f.text(name, Some(","));
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) if c.is_ascii() => c,
            _ => {
                let help = "expected one character, such as \",\" or \";\" or \"\\t\"";
                f.fail(name, format!("found {text:?}"), help);
                ','
            }
        }
    },
    |delimiter| Some(json!(delimiter)),
    |delimiter| FieldValue::Text(delimiter.to_string()),
    |value| text(value).map(|text| text.chars().next().unwrap_or(',')),
);

/// The target column of a table.
pub(super) const TARGET: Form<TargetColumn> = line(
    |f, name| match f.raw(name) {
        None => TargetColumn::Last,
        Some(v) if v.as_i64() == Some(-1) => TargetColumn::Last,
        Some(v) => column(v).unwrap_or_else(|| {
            let help = "expected a column's name, its number from 0, or -1 for the last";
            f.fail(name, format!("found {v}"), help);
            TargetColumn::Last
        }),
    },
    |target| Some(column_json(target)),
    |target| FieldValue::Text(column_text(target)),
    |value| text(value).map(column_of),
);

/// The columns of a series, by name or by number from 0.
pub(super) const COLUMNS: Form<Vec<TargetColumn>> = line(
    |f, name| {
        let list = f.raw(name).and_then(Value::as_array);
        let read: Option<Vec<TargetColumn>> = list.and_then(|list| list.iter().map(column).collect());
        read.filter(|columns| !columns.is_empty()).unwrap_or_else(|| {
            let help = "add \"columns\": [\"temperature\", ...], by name or by number from 0";
            f.fail(name, "is missing or not a list of columns", help);
            Vec::new()
        })
    },
    |columns| Some(columns.iter().map(column_json).collect()),
    |columns| FieldValue::Text(columns.iter().map(column_text).collect::<Vec<_>>().join(", ")),
    |value| text(value).map(|text| text.split(',').map(|column| column_of(column.trim())).collect()),
);

/// The feature columns of a table: each entry is a column, or a list of the first and the last of several. Empty if the
/// field is missing.
pub(super) const RANGES: Form<Vec<ColumnRange>> = line(
    |f, name| {
        let Some(value) = f.raw(name) else { return Vec::new() };
        let read: Option<Vec<ColumnRange>> = value.as_array().and_then(|list| list.iter().map(range).collect());
        read.filter(|ranges| !ranges.is_empty()).unwrap_or_else(|| {
            let help = "expected a list of columns by name or by number from 0, such as [\"age\", 3, [5, 68]]; a list \
                        of two is the first and the last of columns that follow one another";
            f.fail(name, format!("found {}", describe(value)), help);
            Vec::new()
        })
    },
    |ranges| (!ranges.is_empty()).then(|| ranges.iter().map(range_json).collect()),
    |ranges| FieldValue::Text(ranges.iter().map(range_text).collect::<Vec<_>>().join(", ")),
    |value| text(value).map(ranges_of),
);

/// A column of a table: its name, or its number from 0.
fn column(value: &Value) -> Option<TargetColumn> {
    match value {
        Value::String(name) => Some(TargetColumn::Name(name.clone())),
        other => other.as_u64().map(|i| TargetColumn::Index(i as usize)),
    }
}

/// A column of a table in a preset: its name, its number from 0, or -1 for the last.
fn column_json(column: &TargetColumn) -> Value {
    match column {
        TargetColumn::Last => json!(-1),
        TargetColumn::Index(i) => json!(i),
        TargetColumn::Name(n) => json!(n),
    }
}

/// The same as text.
fn column_text(column: &TargetColumn) -> String {
    match column {
        TargetColumn::Last => "-1".into(),
        TargetColumn::Index(i) => i.to_string(),
        TargetColumn::Name(n) => n.clone(),
    }
}

/// The column that a text names; the last one if it is empty.
fn column_of(text: &str) -> TargetColumn {
    match text.parse::<usize>() {
        _ if text.is_empty() || text == "-1" => TargetColumn::Last,
        Ok(index) => TargetColumn::Index(index),
        Err(_) => TargetColumn::Name(text.to_owned()),
    }
}

/// Consecutive columns: a single one, or the first and the last.
fn range(value: &Value) -> Option<ColumnRange> {
    match value {
        Value::Array(ends) => match &ends[..] {
            [first, last] => Some(ColumnRange { first: column(first)?, last: column(last)? }),
            _ => None,
        },
        one => column(one).map(|first| ColumnRange { last: first.clone(), first }),
    }
}

fn range_json(range: &ColumnRange) -> Value {
    let [first, last] = [&range.first, &range.last].map(column_json);
    if first == last { first } else { json!([first, last]) }
}

/// The same as text, with two dots between the first and the last.
fn range_text(range: &ColumnRange) -> String {
    let [first, last] = [&range.first, &range.last].map(column_text);
    if first == last { first } else { format!("{first}..{last}") }
}

/// The columns that a text names, separated by commas.
fn ranges_of(text: &str) -> Vec<ColumnRange> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let range = |part: &str| {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        ColumnRange { first: column_of(first.trim()), last: column_of(last.trim()) }
    };
    parts.map(range).collect()
}
