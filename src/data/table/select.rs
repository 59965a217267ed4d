//! Selects the columns of a table that are features, their order, and the target column.

use crate::data::error::{Side, listed, quoted};
use crate::data::{DataError, Place, Preprocessing};
use crate::model::{ColumnRange, TargetColumn};
use std::collections::{HashMap, HashSet};

/// Which columns of a table are features, and how they are read. By default all but the target are features, read as
/// numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureColumns {
    /// If this is empty, all columns but the target.
    pub ranges: Vec<ColumnRange>,
    /// Tokens of a sample, if the only feature is a text whose bytes are tokens: a shorter text is padded with zeros, a
    /// longer one is truncated.
    pub text: Option<usize>,
    /// Whether the table has no target: then the target is 0 for every line.
    pub without_target: bool,
}

/// The columns of a table that are read, by number.
pub(super) struct Selected {
    /// A distinct name for every column.
    pub(super) names: Vec<String>,
    /// `None` if the table has no target.
    pub(super) target: Option<usize>,
    /// In the order of a sample's features.
    pub(super) features: Vec<usize>,
    /// Notes about the choice.
    pub(super) notes: Vec<String>,
}

/// The columns that the preset selects.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) target: &'a TargetColumn,
    pub(super) features: &'a FeatureColumns,
}

/// The header's name of a column, or its number from 1.
fn name_of(names: &[String], column: usize) -> String {
    match names.get(column).map_or("", String::as_str) {
        "" => format!("column {}", column + 1),
        name => name.to_owned(),
    }
}

/// The names, with a number after each repeated one: `a`, `a.1`, `a.2`, as in pandas. A number is skipped if another
/// column already has that name.
fn distinct(names: &[String]) -> Vec<String> {
    let given: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut used: HashMap<&str, usize> = HashMap::new();
    let mut out = Vec::with_capacity(names.len());
    for name in names {
        let count = used.entry(name).or_insert(0);
        *count += 1;
        let mut own = name.clone();
        if *count > 1 {
            own = format!("{name}.{}", *count - 1);
            while given.contains(own.as_str()) {
                *count += 1;
                own = format!("{name}.{}", *count - 1);
            }
        }
        out.push(own);
    }
    out
}

/// Selects the columns: those that the preset names; without any, all but the target in the file's order; or those that
/// `known` names, in its order, if both it and the file have a header. `names` are those of the first line `line`,
/// empty if that is not a header.
///
/// # Errors
/// If the target or a feature is missing.
pub(super) fn select(
    file: &str,
    line: u64,
    names: &[String],
    asked: Asked<'_>,
    header: bool,
    known: Option<&Preprocessing>,
) -> Result<Selected, DataError> {
    let spelt: Vec<String> = (0..names.len()).map(|column| name_of(names, column)).collect();
    let table = Header { file, line, names, distinct: distinct(&spelt), is_there: header };
    let repeated: Vec<String> =
        table.distinct.iter().zip(&spelt).filter(|(name, spelt)| name != spelt).map(|(name, _)| name.clone()).collect();
    let mut selected = match known.filter(|known| known.is_named && header) {
        Some(known) => table.select_by_name(asked, known)?,
        None => {
            let target = table.asked_target(asked)?;
            let features = match &asked.features.ranges[..] {
                [] => (0..names.len()).filter(|&column| Some(column) != target).collect(),
                ranges => table.in_ranges(ranges, target)?,
            };
            let notes = by_position(target, header, known).filter(|_| asked.features.ranges.is_empty());
            let target = target.filter(|_| !asked.features.without_target);
            Selected { names: Vec::new(), target, features, notes: notes.into_iter().collect() }
        }
    };
    if !repeated.is_empty() {
        let text = format!("the header repeats names; the columns that repeat one are called {}", listed(&repeated));
        selected.notes.insert(0, text);
    }
    selected.names = table.distinct;
    Ok(selected)
}

/// A note about columns that are identified by position; `None` if the table's own header names them.
fn by_position(target: Option<usize>, header: bool, known: Option<&Preprocessing>) -> Option<String> {
    let column = target? + 1;
    match known {
        Some(known) if known.is_named => Some(format!(
            "the table has no header, so its columns are identified by position: column {column} is the target, and \
             the others are, in this order, {}",
            listed(&known.features)
        )),
        Some(known) if header && !known.features.is_empty() => Some(format!(
            "the weights were trained on a table without a header, so columns are identified by position, whatever \
             their names are: column {column} is the target"
        )),
        _ if !header => Some(format!(
            "the table is read without a header, so columns are identified by position: column {column} is the target; \
             where the first line holds names, set data.header to true"
        )),
        _ => None,
    }
}

/// The first line of a table.
struct Header<'a> {
    file: &'a str,
    line: u64,
    /// The cells of that line; empty texts if it is not a header.
    names: &'a [String],
    /// A distinct name for every column.
    distinct: Vec<String>,
    is_there: bool,
}

impl Header<'_> {
    /// The target, if the table has one, or a column that is named as the target and is not a feature.
    fn asked_target(&self, asked: Asked<'_>) -> Result<Option<usize>, DataError> {
        match asked.target {
            TargetColumn::Last if asked.features.without_target => Ok(None),
            target => self.target(target).map(Some),
        }
    }

    /// The columns of these ranges, each once.
    fn in_ranges(&self, ranges: &[ColumnRange], target: Option<usize>) -> Result<Vec<usize>, DataError> {
        let mut out = Vec::new();
        for ColumnRange { first, last } in ranges {
            let (from, to) = (self.feature(first)?, self.feature(last)?);
            if from > to {
                let found = format!("columns from {} to {}", from + 1, to + 1);
                return Err(self.unknown_feature(found, "the first of them before the last".to_owned()));
            }
            for column in from..=to {
                let name = quoted(&self.distinct[column]);
                if Some(column) == target {
                    let expected = "other columns than the target".to_owned();
                    return Err(self.unknown_feature(format!("the target {name} as a feature"), expected));
                }
                if out.contains(&column) {
                    return Err(self.unknown_feature(format!("the column {name} twice"), "each column once".to_owned()));
                }
                out.push(column);
            }
        }
        Ok(out)
    }

    /// The column of this number, or an error that says what is expected.
    fn numbered(&self, index: usize) -> Result<usize, String> {
        let width = self.names.len();
        let expected = || format!("a number from 0, the first column, to {}, the last", width - 1);
        if index < width { Ok(index) } else { Err(expected()) }
    }

    /// A column that is selected as a feature.
    fn feature(&self, asked: &TargetColumn) -> Result<usize, DataError> {
        match asked {
            TargetColumn::Last => Ok(self.names.len() - 1),
            TargetColumn::Index(index) => {
                self.numbered(*index).map_err(|expected| self.unknown_feature(format!("the column {index}"), expected))
            }
            TargetColumn::Name(name) => match self.distinct.iter().position(|own| own == name && self.is_there) {
                Some(column) => Ok(column),
                None => {
                    let expected = format!("one of the columns {}", listed(&self.distinct));
                    Err(self.unknown_feature(format!("the column {}", quoted(name)), expected))
                }
            },
        }
    }

    fn unknown_feature(&self, found: String, expected: String) -> DataError {
        let help = "set data.columns to names or numbers of columns, counted from 0, such as [\"age\", 3, [5, 68]]";
        DataError::content(self.file, Place::Line(self.line), found, expected, help)
    }

    fn select_by_name(&self, asked: Asked<'_>, known: &Preprocessing) -> Result<Selected, DataError> {
        let target = match asked.features.without_target {
            true => None,
            false => Some(self.known_target(asked.target, known)?),
        };
        let others = (0..self.names.len()).filter(|&column| Some(column) != target);
        let mut columns: HashMap<&str, usize> = others.map(|column| (self.distinct[column].as_str(), column)).collect();
        let mut features = Vec::with_capacity(known.features.len());
        let mut missing = Vec::new();
        // Weights saved by earlier versions have repeated column names.
        let wanted = distinct(&known.features);
        for name in &wanted {
            match columns.remove(name.as_str()) {
                Some(column) => features.push(column),
                None => missing.push(name),
            }
        }
        if !missing.is_empty() {
            return Err(self.lacks(&missing, "every feature that the weights were trained with"));
        }
        let mut unused: Vec<usize> = columns.into_values().collect();
        unused.sort_unstable();
        let unused: Vec<String> = unused.into_iter().map(|column| self.distinct[column].clone()).collect();
        let notes = match unused.as_slice() {
            // A user who names some columns knows about the others.
            _ if !asked.features.ranges.is_empty() => Vec::new(),
            [] => Vec::new(),
            unused => vec![format!("columns that the weights do not use are ignored: {}", listed(unused))],
        };
        Ok(Selected { names: Vec::new(), target, features, notes })
    }

    /// The target as the preset names it; if the preset gives a number, the column that the weights were trained with.
    fn known_target(&self, asked: &TargetColumn, known: &Preprocessing) -> Result<usize, DataError> {
        let wanted = known.targets.first().filter(|_| !matches!(asked, TargetColumn::Name(_)));
        let Some(wanted) = wanted else { return self.target(asked) };
        if let Some(column) = self.distinct.iter().position(|name| name == wanted) {
            return Ok(column);
        }
        let column = self.target(asked)?;
        if known.features.contains(&self.distinct[column]) {
            return Err(self.lacks(&[wanted], "the target that the weights were trained with"));
        }
        Ok(column)
    }

    fn lacks(&self, missing: &[&String], expected: &str) -> DataError {
        let noun = if missing.len() == 1 { "column" } else { "columns" };
        let missing: Vec<String> = missing.iter().map(|name| (*name).clone()).collect();
        DataError::fit(
            Side::Input,
            self.file,
            Place::Line(self.line),
            format!("no {noun} {}", listed(&missing)),
            expected,
            "add what is missing, or correct the names in the header; the order of columns does not matter",
        )
    }

    /// The target as the preset gives it.
    fn target(&self, asked: &TargetColumn) -> Result<usize, DataError> {
        match asked {
            TargetColumn::Last => Ok(self.names.len() - 1),
            TargetColumn::Index(index) => {
                self.numbered(*index).map_err(|expected| self.unknown_target(format!("the target {index}"), expected))
            }
            TargetColumn::Name(name) => self.named_target(name),
        }
    }

    fn named_target(&self, name: &str) -> Result<usize, DataError> {
        let wanted = format!("the target column {}", quoted(name));
        let mut matching = (0..self.names.len()).filter(|&column| self.names[column] == name);
        // A column with a repeated name is found by its numbered name.
        let numbered = || self.distinct.iter().position(|n| n == name).filter(|_| self.is_there);
        match (matching.next().or_else(numbered), matching.next()) {
            (Some(column), None) => Ok(column),
            (Some(a), Some(b)) => {
                let found = format!("{wanted} as column {} and as column {}", a + 1, b + 1);
                Err(self.unknown_target(found, "a name that only one column has".to_owned()))
            }
            (None, _) if self.is_there => {
                Err(self.unknown_target(wanted, format!("one of the columns {}", listed(self.names))))
            }
            (None, _) => Err(self.unknown_target(wanted, "a number, as the table is read without a header".to_owned())),
        }
    }

    fn unknown_target(&self, found: String, expected: String) -> DataError {
        let help = "set data.target to a column's name, to its number counted from 0, or to -1 for the last";
        DataError::content(self.file, Place::Line(self.line), found, expected, help)
    }
}
