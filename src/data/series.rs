//! Time series: windows over the lines of a table, whose target is the lines that follow.

use super::dataset::Loaded;
use super::error::quoted;
use super::file::{read_file, shown};
use super::table::text_of;
use super::{DataError, Dataset, InputSamples, Place, Preprocessing, Scaling, Target};
use crate::model::TargetColumn;
use crate::tensor::{Shape, plural};
use csv::{ReaderBuilder, StringRecord};
use std::path::Path;

/// The largest number of values in all samples.
const MOST_VALUES: usize = 1 << 30;

/// Samples of the columns of a table: `window` lines each, `[window, columns]`, with the next `horizon` lines as
/// target, `[horizon, columns]`; a sample begins at every line.
///
/// # Errors
/// If the file cannot be read, lacks a column, contains something other than numbers there, or is shorter than a
/// sample.
pub(super) fn load(path: &Path, columns: &[TargetColumn], [window, horizon]: [usize; 2]) -> Result<Loaded, DataError> {
    let file = shown(path);
    let Lines { names, values } = read_columns(&read_file(path)?, &file, columns)?;
    let (width, lines) = (names.len(), values.len() / names.len().max(1));
    let span = window.saturating_add(horizon);
    if window == 0 || horizon == 0 || lines < span {
        let expected = format!("at least {span}: a window of {window} and a horizon of {horizon}");
        let help = "use a longer table, or a smaller data.window and data.horizon";
        let found = format!("{lines} {} of values", plural(lines as u64, "line"));
        return Err(DataError::content(&file, Place::Whole, found, expected, help));
    }
    let samples = lines - span + 1;
    if samples.saturating_mul(span).saturating_mul(width) > MOST_VALUES {
        let found = format!("{samples} samples of {span} lines");
        let help = "use a shorter table, or a smaller data.window";
        return Err(DataError::content(&file, Place::Whole, found, format!("at most {MOST_VALUES} values"), help));
    }
    let stretches = |from: usize, len: usize| -> Vec<f32> {
        let of = |sample: usize| &values[(sample + from) * width..][..len * width];
        (0..samples).flat_map(of).copied().collect()
    };
    let name = path.file_stem().map_or_else(|| "series".to_owned(), |name| name.to_string_lossy().into_owned());
    let before = |line: usize| move |column: &String| format!("{column} t-{}", window - 1 - line);
    let after = |line: usize| move |column: &String| format!("{column} t+{}", line + 1);
    let targets = (0..horizon).flat_map(|line| names.iter().map(after(line))).collect();
    let dataset = Dataset {
        name,
        inputs: InputSamples::only([window, width], stretches(0, window)),
        target: Target::Values { values: stretches(window, horizon), shape: Shape::from([horizon, width]) },
        feature_names: (0..window).flat_map(|line| names.iter().map(before(line))).collect(),
        notes: Vec::new(),
        preprocessing: Preprocessing { targets, ..Preprocessing::default() },
    };
    Ok(Loaded::new(file, dataset))
}

/// The chosen columns of a table.
struct Lines {
    names: Vec<String>,
    /// `[lines, names.len()]`, finite.
    values: Vec<f32>,
}

fn read_columns(bytes: &[u8], file: &str, columns: &[TargetColumn]) -> Result<Lines, DataError> {
    let text = text_of(bytes, file)?;
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut cells = StringRecord::new();
    let mut chosen: Option<Vec<(usize, String)>> = None;
    let mut values = Vec::new();
    loop {
        let damaged = |e: csv::Error| {
            let found = format!("text that is not a table ({e})");
            DataError::content(file, Place::Whole, found, "cells", "quote cells that contain commas")
        };
        if !reader.read_record(&mut cells).map_err(damaged)? {
            break;
        }
        let line = cells.position().map_or(0, csv::Position::line);
        cells.trim();
        let chosen = match &chosen {
            Some(chosen) => chosen,
            None => {
                let (found, is_header) = choose(&cells, line, file, columns)?;
                let found = &*chosen.insert(found);
                if is_header {
                    continue;
                }
                found
            }
        };
        for (column, name) in chosen {
            values.push(number(cells.get(*column), file, line, (*column, name))?);
        }
    }
    let names = chosen.unwrap_or_default().into_iter().map(|(_, name)| name).collect();
    Ok(Lines { names, values })
}

/// The column numbers with their names, and whether the first line is a header: it is one if columns are selected by
/// name, or if a selected cell is not a number.
fn choose(
    first: &StringRecord,
    line: u64,
    file: &str,
    columns: &[TargetColumn],
) -> Result<(Vec<(usize, String)>, bool), DataError> {
    let refused = |found: String, expected: String| {
        let help = "name columns as the first line does, or by number from 0";
        DataError::content(file, Place::Line(line), found, expected, help)
    };
    let mut found = Vec::with_capacity(columns.len());
    for column in columns {
        let at = match column {
            TargetColumn::Name(name) => first.iter().position(|cell| cell == name),
            TargetColumn::Index(index) => Some(*index).filter(|index| *index < first.len()),
            TargetColumn::Last => first.len().checked_sub(1),
        };
        let expected = match column {
            TargetColumn::Name(name) => format!("the column {}", quoted(name)),
            TargetColumn::Index(index) => format!("a column {index}, counted from 0"),
            TargetColumn::Last => "a column".to_owned(),
        };
        let count = first.len();
        let at = at.ok_or_else(|| refused(format!("{count} {}", plural(count as u64, "column")), expected))?;
        found.push((at, first[at].to_owned()));
    }
    let is_named = columns.iter().any(|column| matches!(column, TargetColumn::Name(_)));
    let is_header = is_named || found.iter().any(|(_, cell)| cell.parse::<f64>().is_err());
    if !is_header {
        found.iter_mut().for_each(|(at, name)| *name = format!("column {}", *at + 1));
    }
    Ok((found, is_header))
}

fn number(cell: Option<&str>, file: &str, line: u64, (column, name): (usize, &str)) -> Result<f32, DataError> {
    let value = cell.and_then(|cell| cell.parse::<f32>().ok()).filter(|value| value.is_finite());
    value.ok_or_else(|| {
        let at = Place::Cell { line, column, name: name.into() };
        let found = cell.filter(|cell| !cell.is_empty()).map_or_else(|| "an empty cell".to_owned(), quoted);
        let help = "fill in or remove incomplete lines: there is no default for missing values";
        DataError::content(file, at, found, "a finite number", help)
    })
}

/// Scales every column to mean 0 and deviation 1 over the lines of the training part, in samples and targets.
pub(super) fn standardize(data: &mut Dataset, train: &[u32]) {
    let Target::Values { values, shape } = &data.target else { return };
    let sample = data.sample();
    let (&[window, width], Some(&last)) = (&sample.0[..], train.last()) else { return };
    let (last, x) = (last as usize, data.x());
    // Each line occurs once: as the first line of a sample, or in the last sample.
    let firsts = (0..last).flat_map(|sample| &x[sample * window * width..][..width]);
    let rest = x[last * window * width..][..window * width].iter();
    let lines = firsts.chain(rest).chain(&values[last * shape.len()..][..shape.len()]);
    let lines: Vec<f64> = lines.copied().map(f64::from).collect();
    let count = (lines.len() / width.max(1)) as f64;
    let mut of_line = Scaling::default();
    for column in 0..width {
        let values = || lines.iter().skip(column).step_by(width);
        let mean = values().sum::<f64>() / count;
        let variance = values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        let is_constant = values().all(|v| *v == lines[column]);
        of_line.mean.push(mean);
        of_line.scale.push(if is_constant || variance <= 0.0 { 0.0 } else { 1.0 / variance.sqrt() });
    }
    of_line.apply(data.x_mut());
    scale_targets(data, &of_line);
    let mean = of_line.mean.repeat(window);
    let scale = of_line.scale.repeat(window);
    data.preprocessing.scaling = Some(Scaling { mean, scale });
    let note = "the columns are standardised with the training part's mean and deviation, in samples and targets";
    data.notes.push(note.to_owned());
}

/// Standardises targets like the lines of samples.
pub(super) fn scale_targets(data: &mut Dataset, scaling: &Scaling) {
    let Target::Values { values, shape } = &mut data.target else { return };
    let width = shape.0.last().copied().unwrap_or(0).min(scaling.mean.len());
    let of_line = Scaling { mean: scaling.mean[..width].to_vec(), scale: scaling.scale[..width].to_vec() };
    of_line.apply(values);
}

#[cfg(test)]
mod tests;
