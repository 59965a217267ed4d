//! Errors of data sets. Each names the file, the place, what was found, what was expected and what to do.

use crate::model::{Diagnostic, Preset};
use std::borrow::Cow;
use std::{fmt, io};
use thiserror::Error;

/// The part of a network that the data does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Input,
    /// The number of different tokens that an input takes.
    Vocab,
    /// The last layer that determines the number of output values.
    Output,
    Loss,
}

/// A data set that cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// The file system returned an error.
    #[error("{file}: cannot be read: {cause}; {help}")]
    Read { file: String, cause: io::Error, help: &'static str },
    /// The file system returned errors for several files.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Self>),
    /// The file's content is not what its format or the preset requires.
    #[error("{file}{at}: found {found}, expected {expected}; {help}")]
    Content { file: Box<str>, at: Place, found: Box<str>, expected: Box<str>, help: &'static str },
    /// The data is valid but does not fit the network.
    #[error("{data}{at} does not fit the network: found {found}, expected {expected}; {help}")]
    Fit {
        side: Side,
        /// The network's input that the data is for; `None` if there is only one.
        input: Option<Box<str>>,
        data: Box<str>,
        at: Box<Place>,
        found: Box<str>,
        expected: Box<str>,
        help: Box<str>,
    },
    /// A field of the preset's `data` has an invalid value.
    #[error("data.{field}: found {found}, expected {expected}; {help}")]
    Field { field: Cow<'static, str>, found: String, expected: String, help: &'static str },
    /// Fewer training samples than one batch takes.
    #[error(
        "data: found {train} training samples, expected at least one batch of {batch}; use a smaller input.batch, hold \
         out fewer samples or bring more data"
    )]
    Batch { train: usize, batch: usize },
    /// The user cancelled the loading.
    #[error("data: loading was cancelled; change a field of data to load it again")]
    Cancelled,
    /// A saved position does not belong to this data.
    #[error(
        "data: found a saved position at sample {cursor} of an epoch, expected a multiple of the batch {batch} up to \
         {train}; resume with the data, split and batch the run was started with"
    )]
    Resume { cursor: usize, batch: usize, train: usize },
}

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A cell of a table: the line, counted from 1; the column's index, which messages count from 1; and its name.
    Cell { line: u64, column: usize, name: Box<str> },
    /// An offset in bytes from the start, after decompression.
    Byte(u64),
    /// A character of a text, counted from 0.
    Character(u64),
    /// A token of a text, counted from 0.
    Token(u64),
    /// A sample, counted from 0.
    Sample(usize),
}

/// The location as a continuation of the file's name: `, line 3`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(f, ", line {line}"),
            Self::Cell { line, column, name } if name.is_empty() => {
                write!(f, ", line {line}, column {}", column + 1)
            }
            Self::Cell { line, column, name } => write!(f, ", line {line}, column {} ({name})", column + 1),
            Self::Byte(byte) => write!(f, ", byte {byte}"),
            Self::Character(character) => write!(f, ", character {character}"),
            Self::Token(token) => write!(f, ", token {token}"),
            Self::Sample(sample) => write!(f, ", sample {sample}"),
        }
    }
}

impl DataError {
    /// A [`DataError::Content`].
    pub(super) fn content(
        file: &str,
        at: Place,
        found: impl Into<String>,
        expected: impl Into<String>,
        help: &'static str,
    ) -> Self {
        Self::Content { file: file.into(), at, found: found.into().into(), expected: expected.into().into(), help }
    }

    /// A [`DataError::Fit`].
    pub(super) fn fit(
        side: Side,
        data: &str,
        at: Place,
        found: impl Into<String>,
        expected: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let (found, expected, help) = (found.into().into(), expected.into().into(), help.into().into());
        Self::Fit { side, input: None, data: data.into(), at: Box::new(at), found, expected, help }
    }

    /// The error as a mistake in the preset, at the field to change.
    #[must_use]
    pub fn mistake(&self, preset: &Preset) -> Diagnostic {
        let (layer, path) = match self {
            Self::Fit { side: side @ (Side::Input | Side::Vocab), input, .. } => {
                let named = preset.input.inputs.iter().find(|own| input.as_deref() == Some(&*own.name));
                let place = named.or(preset.input.single()).map(|own| preset.input.place(own));
                let place = place.unwrap_or_else(|| "input".to_owned());
                (None, format!("{place}.{}", if *side == Side::Vocab { "vocab" } else { "shape" }))
            }
            Self::Fit { side: Side::Loss, .. } => (None, "loss".to_owned()),
            Self::Fit { side: Side::Output, .. } => match preset.output_field() {
                Some((layer, field)) => (Some(layer.clone()), format!("{layer}.{field}")),
                None => (None, "loss".to_owned()),
            },
            Self::Field { field, .. } => (None, format!("data.{field}")),
            Self::Batch { .. } => (None, "input.batch".to_owned()),
            Self::Read { .. } | Self::Several(_) | Self::Content { .. } | Self::Resume { .. } | Self::Cancelled => {
                (None, "data".to_owned())
            }
        };
        let text = self.to_string();
        let help = match self {
            Self::Read { help, .. } | Self::Content { help, .. } | Self::Field { help, .. } => help,
            Self::Fit { help, .. } => &**help,
            Self::Several(_) | Self::Batch { .. } | Self::Resume { .. } | Self::Cancelled => {
                text.rsplit("; ").next().unwrap_or_default()
            }
        };
        let message = text.strip_suffix(help).map_or(&*text, |t| t.trim_end_matches("; "));
        Diagnostic { layer, path, message: message.to_owned(), help: help.to_owned() }
    }

    /// A [`DataError::Field`].
    pub(super) fn field(
        field: impl Into<Cow<'static, str>>,
        found: impl ToString,
        expected: impl Into<String>,
        help: &'static str,
    ) -> Self {
        Self::Field { field: field.into(), found: found.to_string(), expected: expected.into(), help }
    }
}

impl DataError {
    /// The error of a source of one of several inputs.
    pub(super) fn of_input(self, name: &str) -> Self {
        match self {
            Self::Field { field, found, expected, help } => {
                Self::Field { field: format!("inputs.{name}.{field}").into(), found, expected, help }
            }
            Self::Fit { side, data, at, found, expected, help, .. } => {
                Self::Fit { side, input: Some(name.into()), data, at, found, expected, help }
            }
            Self::Several(all) => Self::Several(all.into_iter().map(|error| error.of_input(name)).collect()),
            other => other,
        }
    }
}

/// A piece of a file as it may appear in a message: quoted, control characters escaped, at most 40 characters.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("\"{}{more}\"", short.escape_debug())
}

/// Names in quotation marks, separated by commas; at most the first 40.
pub(super) fn listed(names: &[String]) -> String {
    /// The largest number of names in a message.
    const MOST: usize = 40;
    let more = if names.len() > MOST { ", ..." } else { "" };
    names.iter().take(MOST).map(|name| quoted(name)).collect::<Vec<_>>().join(", ") + more
}
