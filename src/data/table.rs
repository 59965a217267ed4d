//! Text tables: one sample in each line, and one column as the target.

mod select;

use super::dataset::Loaded;
use super::error::{listed, quoted};
use super::file::{gunzip, is_gzip, read_file, shown};
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Samples, Target};
use crate::model::{ColumnRange, Header, TargetColumn};
use crate::tensor::{Bytes, Shape, plural};
use csv::{ReaderBuilder, StringRecord};
pub use select::FeatureColumns;
use select::{Asked, Selected, select};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// The largest unpacked size of a packed table, in bytes.
const MOST_UNPACKED: u64 = 4 << 30;
/// The texts that common exports use for missing values, in lower case.
const MISSING: [&str; 8] = ["", "?", "na", "n/a", "nan", "null", "none", "-"];
const NUMBERS_HELP: &str = "write numbers with a decimal point and no unit; only the target column may hold names";
const MISSING_HELP: &str = "fill in or remove incomplete lines: there is no default for missing values";
const TARGET_HELP: &str = "the loss mse needs numbers as targets; for names use the loss softmax_cross_entropy";
const RAGGED_HELP: &str = "give every line the same columns, and quote cells that contain the delimiter";

/// How to read a text table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    pub header: Header,
    pub target: TargetColumn,
    /// One ASCII character.
    pub delimiter: char,
    /// Whether the target column contains names of classes, or values.
    pub classes: bool,
    pub features: FeatureColumns,
}

/// A text table as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// `[lines.len(), feature_names.len()]`, finite; empty if the feature is a text.
    pub x: Vec<f32>,
    /// The bytes of the feature if it is a text, `[lines.len(), text]`, padded with zeros.
    pub tokens: Option<Vec<i32>>,
    /// One class for each line (unnamed if the cells are whole numbers), or one value for each line.
    pub target: Target,
    /// The header's names, or `column 1` and so on; repeated names are numbered: `a`, `a.1`.
    pub feature_names: Vec<String>,
    /// The header's name of the target; `None` if there is no header.
    pub target_name: Option<String>,
    /// Whether names come from a header.
    pub is_named: bool,
    /// The line of each sample, from 1.
    pub lines: Vec<u64>,
    /// Decisions about ambiguous content.
    pub notes: Vec<String>,
}

/// The table in a text file, plain or gzip.
///
/// # Errors
/// If the file is not UTF-8 text, has no sample, has a line whose number of columns differs from the first line's, a
/// cell is missing or not a finite number, or the target column does not exist. Messages contain the line and column.
pub fn read_csv(bytes: &[u8], file: &str, options: &CsvOptions) -> Result<Table, DataError> {
    read_known(bytes, file, options, None)
}

/// As [`read_csv`], with the columns that `known` names, if both it and the table have a header.
fn read_known(
    bytes: &[u8],
    file: &str,
    options: &CsvOptions,
    known: Option<&Preprocessing>,
) -> Result<Table, DataError> {
    let text = text_of(bytes, file)?;
    let mut rows = Rows::new(&text, file, options)?;
    let Some(first) = rows.next()? else {
        let help = "write one sample for each line, its columns separated by the delimiter";
        return Err(DataError::content(file, Place::Whole, "an empty file", "lines of numbers", help));
    };
    let second = rows.next()?;
    let header = match options.header {
        Header::Yes => true,
        Header::No => false,
        Header::Auto => starts_with_names(&first.cells, second.as_ref().map(|row| &row.cells), options),
    };
    let mut columns = Columns::new(&first, header, file, options, known)?;
    let samples = (!header).then_some(first).into_iter().chain(second);
    samples.into_iter().try_for_each(|row| columns.push(&row))?;
    while let Some(row) = rows.next()? {
        columns.push(&row)?;
    }
    columns.finish()
}

/// The bytes as UTF-8 text, unpacked, without a byte order mark.
pub(super) fn text_of<'a>(bytes: &'a [u8], file: &str) -> Result<Cow<'a, str>, DataError> {
    let refused = |at: Place, found: &str| {
        Err(DataError::content(file, at, found, "UTF-8 text", "export the table as CSV in UTF-8"))
    };
    let bytes: Cow<'a, [u8]> = if is_gzip(bytes) {
        let unpacked = gunzip(bytes, MOST_UNPACKED + 1, file)?;
        if unpacked.len() as u64 > MOST_UNPACKED {
            let (found, expected) = ("more when unpacked", format!("at most {}", Bytes(MOST_UNPACKED)));
            return Err(DataError::content(file, Place::Whole, found, expected, "unpack the file, or split it"));
        }
        unpacked.into()
    } else {
        bytes.into()
    };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return refused(Place::Byte(0), "UTF-16 text");
    }
    let line = |end: usize| Place::Line(1 + bytes[..end].iter().filter(|&&b| b == b'\n').count() as u64);
    if let Some(zero) = bytes.iter().position(|&b| b == 0) {
        return refused(line(zero), "a zero byte, as in a binary file");
    }
    if let Err(e) = std::str::from_utf8(&bytes) {
        return refused(line(e.valid_up_to()), &format!("the byte {:#04x}", bytes[e.valid_up_to()]));
    }
    let mut text = match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    };
    if let Some(rest) = text.strip_prefix('\u{feff}') {
        text = rest.to_owned().into();
    }
    Ok(text)
}

/// One line's cells, trimmed.
struct Row {
    line: u64,
    cells: StringRecord,
}

/// The lines of a table, each with as many cells as the first.
struct Rows<'a> {
    text: &'a str,
    file: &'a str,
    delimiter: char,
    /// The number of columns that are required.
    least: usize,
    reader: csv::Reader<&'a [u8]>,
    /// The number of cells of the first line; 0 before it is read.
    width: usize,
}

impl<'a> Rows<'a> {
    fn new(text: &'a str, file: &'a str, options: &CsvOptions) -> Result<Self, DataError> {
        let delimiter = match u8::try_from(options.delimiter) {
            Ok(byte) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r' | 0) => byte,
            _ => {
                let found = format!("{:?}", options.delimiter);
                let help = "use \",\", \";\", \"\\t\" or another such character";
                return Err(DataError::field("delimiter", found, "one ASCII character other than a quote", help));
            }
        };
        let mut builder = ReaderBuilder::new();
        let reader = builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
        let least = if options.features.without_target { 1 } else { 2 };
        Ok(Self { text, file, delimiter: options.delimiter, least, reader, width: 0 })
    }

    /// The next line that is not blank.
    fn next(&mut self) -> Result<Option<Row>, DataError> {
        loop {
            let mut cells = StringRecord::new();
            let position = self.reader.position().clone();
            let damaged = |e: csv::Error| {
                let at = Place::Line(position.line());
                DataError::content(self.file, at, format!("text that is not a table ({e})"), "cells", RAGGED_HELP)
            };
            if !self.reader.read_record(&mut cells).map_err(damaged)? {
                return Ok(None);
            }
            // The reader's position is before the blank lines that it will skip.
            let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
            let blank = self.text.as_bytes().iter().skip(start).take_while(|b| matches!(b, b'\r' | b'\n'));
            let line = position.line() + blank.filter(|&&b| b == b'\n').count() as u64;
            cells.trim();
            if cells.len() <= 1 && cells.iter().all(str::is_empty) {
                continue;
            }
            if self.width == 0 {
                self.width = self.checked_width(&cells, line)?;
            }
            if cells.len() != self.width {
                let expected = format!("{}, as in the first line", self.width);
                let found = format!("{} {}", cells.len(), plural(cells.len() as u64, "column"));
                return Err(DataError::content(self.file, Place::Line(line), found, expected, RAGGED_HELP));
            }
            return Ok(Some(Row { line, cells }));
        }
    }

    /// The number of cells of the first line: one for the target, and at least one feature.
    fn checked_width(&self, cells: &StringRecord, line: u64) -> Result<usize, DataError> {
        if cells.len() >= self.least {
            return Ok(cells.len());
        }
        let holds = |c: char| c != self.delimiter && cells.iter().any(|cell| cell.contains(c));
        let others = [',', ';', '\t', '|', ' '].into_iter().filter(|&c| holds(c));
        let others: Vec<String> = others.map(|c| format!("{c:?}")).collect();
        let found = match others.as_slice() {
            [] => "one column".to_owned(),
            _ => format!("one column, but {} in it", others.join(" and ")),
        };
        let expected = format!("at least two columns separated by {:?}", self.delimiter);
        let help = "set data.delimiter to the character between the columns";
        Err(DataError::content(self.file, Place::Line(line), found, expected, help))
    }
}

fn is_missing(cell: &str) -> bool {
    cell.len() <= 4 && MISSING.contains(&cell.to_ascii_lowercase().as_str())
}

fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok()
}

/// Whether the first line is a header: one of its cells is a word in a column whose other cells are not.
fn starts_with_names(first: &StringRecord, second: Option<&StringRecord>, options: &CsvOptions) -> bool {
    let is_name = |column: &TargetColumn| matches!(column, TargetColumn::Name(_));
    let asks_by_name = |range: &ColumnRange| is_name(&range.first) || is_name(&range.last);
    if is_name(&options.target) && !options.features.without_target || options.features.ranges.iter().any(asks_by_name)
    {
        return true;
    }
    let of_names = |column: usize| match second {
        Some(second) => second.get(column).is_some_and(|cell| !is_number(cell) && !is_missing(cell)),
        None => options.target == TargetColumn::Index(column) || column + 1 == first.len(),
    };
    first.iter().enumerate().any(|(column, cell)| !is_number(cell) && !is_missing(cell) && !of_names(column))
}

/// Collects the lines' cells as features and targets.
struct Columns<'a> {
    file: &'a str,
    /// A name for every column, including the target; empty names if there is no header.
    names: Vec<String>,
    header: bool,
    selected: Selected,
    /// Whether numbers in the target column are class names too.
    are_names: bool,
    x: Vec<f32>,
    text: Option<Text>,
    lines: Vec<u64>,
    targets: Targets,
}

/// The text column so far.
struct Text {
    /// Tokens of a sample.
    width: usize,
    /// `[lines, width]`.
    tokens: Vec<i32>,
    /// The number of texts that were truncated.
    cut: usize,
}

impl Text {
    fn push(&mut self, cell: &str) {
        let end = self.tokens.len() + self.width;
        self.cut += usize::from(cell.len() > self.width);
        self.tokens.extend(cell.bytes().take(self.width).map(i32::from));
        self.tokens.resize(end, 0);
    }
}

/// The target column so far.
enum Targets {
    /// Numbers of the cells' texts, in order of appearance.
    Classes {
        texts: BTreeMap<String, usize>,
        cells: Vec<usize>,
    },
    Values(Vec<f32>),
}

impl<'a> Columns<'a> {
    fn new(
        first: &Row,
        header: bool,
        file: &'a str,
        options: &CsvOptions,
        known: Option<&Preprocessing>,
    ) -> Result<Self, DataError> {
        let width = first.cells.len();
        let names: Vec<String> =
            if header { first.cells.iter().map(str::to_owned).collect() } else { vec![String::new(); width] };
        let targets = if options.classes && !options.features.without_target {
            Targets::Classes { texts: BTreeMap::new(), cells: Vec::new() }
        } else {
            Targets::Values(Vec::new())
        };
        let asked = Asked { target: &options.target, features: &options.features };
        let selected = select(file, first.line, &names, asked, header, known)?;
        let are_names = known.is_some_and(Preprocessing::has_class_names);
        let text = options.features.text.map(|width| Text { width, tokens: Vec::new(), cut: 0 });
        if text.is_some() && selected.features.len() != 1 {
            let names: Vec<String> = selected.features.iter().map(|column| selected.names[*column].clone()).collect();
            let found = format!("{} columns ({})", names.len(), listed(&names));
            let help = "name the column of texts in data.columns, as tokens are the bytes of one text";
            return Err(DataError::content(file, Place::Line(first.line), found, "one column of texts", help));
        }
        Ok(Self { file, names, header, selected, are_names, x: Vec::new(), text, lines: Vec::new(), targets })
    }

    fn push(&mut self, row: &Row) -> Result<(), DataError> {
        for at in 0..self.selected.features.len() {
            let column = self.selected.features[at];
            if let Some(text) = &mut self.text {
                text.push(&row.cells[column]);
                continue;
            }
            let value = self.number(row.line, column, &row.cells[column])?;
            self.x.push(value);
        }
        self.lines.push(row.line);
        let Some(target) = self.selected.target else {
            if let Targets::Values(values) = &mut self.targets {
                values.push(0.0);
            }
            return Ok(());
        };
        let cell = &row.cells[target];
        if let Targets::Values(_) = self.targets {
            let value = self.number(row.line, target, cell)?;
            if let Targets::Values(values) = &mut self.targets {
                values.push(value);
            }
        } else if is_missing(cell) {
            let expected = "a class: a whole number or a name";
            return Err(self.wrong(row.line, target, cell, expected.to_owned(), MISSING_HELP));
        } else if let Targets::Classes { texts, cells } = &mut self.targets {
            let known = texts.len();
            cells.push(match texts.get(cell) {
                Some(&number) => number,
                None => *texts.entry(cell.to_owned()).or_insert(known),
            });
        }
        Ok(())
    }

    /// A cell as a finite number.
    fn number(&self, line: u64, column: usize, cell: &str) -> Result<f32, DataError> {
        match cell.parse::<f64>() {
            Ok(value) if (value as f32).is_finite() => Ok(value as f32),
            Ok(value) if value.is_finite() => {
                Err(self.wrong(line, column, cell, "a number that f32 can hold".to_owned(), NUMBERS_HELP))
            }
            _ => {
                // The target's cell is read as a number only if the loss takes values.
                let help = if is_missing(cell) {
                    MISSING_HELP
                } else if Some(column) == self.selected.target {
                    TARGET_HELP
                } else {
                    NUMBERS_HELP
                };
                Err(self.wrong(line, column, cell, "a finite number".to_owned(), help))
            }
        }
    }

    fn wrong(&self, line: u64, column: usize, cell: &str, expected: String, help: &'static str) -> DataError {
        let name = self.names[column].chars().take(60).collect::<String>().into();
        let found = if cell.is_empty() { "an empty cell".to_owned() } else { quoted(cell) };
        DataError::content(self.file, Place::Cell { line, column, name }, found, expected, help)
    }

    fn finish(mut self) -> Result<Table, DataError> {
        if self.lines.is_empty() {
            let help = "add lines of numbers; where the first line is a sample, set data.header to false";
            return Err(DataError::content(self.file, Place::Whole, "only a header", "at least one sample", help));
        }
        let mut notes = std::mem::take(&mut self.selected.notes);
        let target = match std::mem::replace(&mut self.targets, Targets::Values(Vec::new())) {
            Targets::Values(values) => Target::Values { values, shape: Shape::default() },
            Targets::Classes { texts, cells } => self.classes(&texts, &cells, &mut notes)?,
        };
        let name = |column: usize| self.selected.names[column].clone();
        let feature_names = self.selected.features.iter().map(|&column| name(column)).collect();
        let target_name = self.selected.target.filter(|_| self.header).map(name);
        if let Some(Text { width, cut: cut @ 1.., .. }) = &self.text {
            let noun = plural(*cut as u64, "text");
            notes.push(format!("{cut} {noun} of more than {width} bytes are cut; the network takes {width} tokens"));
        }
        let tokens = self.text.map(|text| text.tokens);
        Ok(Table {
            x: self.x,
            tokens,
            target,
            feature_names,
            target_name,
            is_named: self.header,
            lines: self.lines,
            notes,
        })
    }

    /// Labels: the cells themselves if all are whole numbers, otherwise the index of each name in alphabetical order.
    fn classes(
        &self,
        texts: &BTreeMap<String, usize>,
        cells: &[usize],
        notes: &mut Vec<String>,
    ) -> Result<Target, DataError> {
        let numbers = texts.keys().filter(|text| is_number(text)).count();
        if numbers < texts.len() || self.are_names {
            if numbers > 0 && numbers < texts.len() {
                notes.push(format!("the target column mixes {numbers} numbers with words: all are read as names"));
            }
            let mut rank = vec![0; texts.len()];
            for (place, &number) in texts.values().enumerate() {
                rank[number] = place as i32;
            }
            let labels = cells.iter().map(|&cell| rank[cell]).collect();
            return Ok(Target::classes(labels, texts.keys().cloned().collect()));
        }
        let mut of = vec![None; texts.len()];
        for (text, &number) in texts {
            let value = text.parse::<f64>().ok().filter(|v| v.fract() == 0.0 && v.abs() <= f64::from(i32::MAX));
            of[number] = value.map(|v| v as i32);
        }
        let mut labels = Vec::with_capacity(cells.len());
        for (&cell, &line) in cells.iter().zip(&self.lines) {
            labels.push(of[cell].ok_or_else(|| {
                let text = texts.iter().find(|(_, number)| **number == cell).map_or("", |(text, _)| text);
                let help = "for a numeric target use the loss mse; otherwise check data.target";
                self.wrong(
                    line,
                    self.selected.target.unwrap_or(0),
                    text,
                    "a class: a whole number or a name".to_owned(),
                    help,
                )
            })?);
        }
        Ok(Target::classes(labels, Vec::new()))
    }
}

/// The data set of a text table.
pub(super) fn load(path: &Path, options: &CsvOptions, known: Option<&Preprocessing>) -> Result<Loaded, DataError> {
    let file = shown(path);
    let name = path.file_stem().map_or_else(|| "csv".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(read_known(&read_file(path)?, &file, options, known)?.into_loaded(name, file))
}

impl Table {
    /// The table as a data set, with the line of each sample.
    pub(super) fn into_loaded(self, name: String, file: String) -> Loaded {
        let Self { x, tokens, target, feature_names, target_name, lines, notes, is_named } = self;
        let mut inputs = InputSamples::only([feature_names.len()], x);
        if let (Some(tokens), Some(only)) = (tokens, inputs.first_mut()) {
            only.sample = [tokens.len() / lines.len().max(1)].into();
            only.values = Samples::Tokens(tokens);
        }
        let targets = target_name.into_iter().collect();
        let preprocessing = Preprocessing { is_named, targets, ..Preprocessing::default() };
        let dataset = Dataset { name, inputs, target, feature_names, notes, preprocessing };
        Loaded { lines: Some(lines), ..Loaded::new(file, dataset) }
    }
}

#[cfg(test)]
mod tests;
