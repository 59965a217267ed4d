//! Which columns of a table are features, in which order, and which one is the target.

use crate::data::error::{Side, listed, quoted};
use crate::data::{DataError, Place, Preprocessing};
use crate::model::TargetColumn;
use std::collections::HashMap;

/// The columns of a table that are read, by number.
pub(super) struct Selected {
    pub(super) target: usize,
    /// In the order of a sample's features.
    pub(super) features: Vec<usize>,
    /// What a person should know of the choice.
    pub(super) notes: Vec<String>,
}

/// The header's name of a column, or its number from 1.
pub(super) fn name_of(names: &[String], column: usize) -> String {
    match names.get(column).map_or("", String::as_str) {
        "" => format!("column {}", column + 1),
        name => name.to_owned(),
    }
}

/// Chooses the columns: every one but the target in the file's order, or those that `known` names, in its order, where
/// it and the file have a header. `names` are those of the first line `line`, empty where that is no header.
///
/// # Errors
/// Where the target or a feature is missing.
pub(super) fn select(
    file: &str,
    line: u64,
    names: &[String],
    target: &TargetColumn,
    header: bool,
    known: Option<&Preprocessing>,
) -> Result<Selected, DataError> {
    let table = Header { file, line, names, is_there: header };
    match known.filter(|known| known.is_named && header) {
        Some(known) => table.select_by_name(target, known),
        None => {
            let target = table.target(target)?;
            let features = (0..names.len()).filter(|&column| column != target).collect();
            Ok(Selected { target, features, notes: Vec::new() })
        }
    }
}

/// The first line of a table.
struct Header<'a> {
    file: &'a str,
    line: u64,
    names: &'a [String],
    is_there: bool,
}

impl Header<'_> {
    fn select_by_name(&self, asked: &TargetColumn, known: &Preprocessing) -> Result<Selected, DataError> {
        let target = self.known_target(asked, known)?;
        let mut columns: HashMap<String, Vec<usize>> = HashMap::new();
        // The last comes first, so that equal names are taken in the file's order.
        for column in (0..self.names.len()).rev().filter(|&column| column != target) {
            columns.entry(name_of(self.names, column)).or_default().push(column);
        }
        let mut features = Vec::with_capacity(known.features.len());
        let mut missing = Vec::new();
        for name in &known.features {
            match columns.get_mut(name).and_then(Vec::pop) {
                Some(column) => features.push(column),
                None => missing.push(name),
            }
        }
        if !missing.is_empty() {
            return Err(self.lacks(&missing, "every feature that the weights were trained with"));
        }
        let mut unused: Vec<usize> = columns.into_values().flatten().collect();
        unused.sort_unstable();
        let unused: Vec<String> = unused.into_iter().map(|column| name_of(self.names, column)).collect();
        let notes = match unused.as_slice() {
            [] => Vec::new(),
            unused => vec![format!("columns that the weights do not use are ignored: {}", listed(unused))],
        };
        Ok(Selected { target, features, notes })
    }

    /// The target as the preset names it; where that gives a number, the column that the weights were trained with.
    fn known_target(&self, asked: &TargetColumn, known: &Preprocessing) -> Result<usize, DataError> {
        let wanted = known.targets.first().filter(|_| !matches!(asked, TargetColumn::Name(_)));
        let Some(wanted) = wanted else { return self.target(asked) };
        if let Some(column) = (0..self.names.len()).find(|&column| name_of(self.names, column) == *wanted) {
            return Ok(column);
        }
        let column = self.target(asked)?;
        if known.features.contains(&name_of(self.names, column)) {
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

    /// The target as the preset asks for it.
    fn target(&self, asked: &TargetColumn) -> Result<usize, DataError> {
        let width = self.names.len();
        match asked {
            TargetColumn::Last => Ok(width - 1),
            TargetColumn::Index(index) if *index < width => Ok(*index),
            TargetColumn::Index(index) => {
                let expected = format!("a number from 0, the first column, to {}, the last", width - 1);
                Err(self.unknown_target(format!("the target {index}"), expected))
            }
            TargetColumn::Name(name) => self.named_target(name),
        }
    }

    fn named_target(&self, name: &str) -> Result<usize, DataError> {
        let wanted = format!("the target column {}", quoted(name));
        let mut matching = (0..self.names.len()).filter(|&column| self.names[column] == name);
        match (matching.next(), matching.next()) {
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
