//! What `predict` reports about a series: forecasts and actual values side by side.

use super::output::count;
use crate::tensor::{figure, plural};
use crate::train::{Forecast, ForecastError, ForecastWindow};
use serde::Serialize;

/// The largest number of forecasts in JSON; the table of `--out` has all of them.
const MOST_IN_JSON: usize = 200;
/// The number of forecasts that are printed, and the lines and columns of each.
const MOST_PRINTED: [usize; 3] = [3, 12, 4];

/// A forecast, as `--json` prints it.
#[derive(Serialize)]
pub struct Series {
    window: usize,
    horizon: usize,
    /// The mean squared error as a share of the error of repeating the last value.
    share: Option<f64>,
    columns: Vec<Column>,
    /// At most 200 of the samples, evenly spaced.
    windows: Vec<ForecastWindow>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    /// In the units of the data.
    #[serde(flatten)]
    error: ForecastError,
}

impl Series {
    #[must_use]
    pub fn of(found: &Forecast) -> Self {
        let columns = found.columns.iter().zip(&found.errors);
        Self {
            window: found.window,
            horizon: found.horizon,
            share: found.share,
            columns: columns.map(|(name, error)| Column { name: name.clone(), error: *error }).collect(),
            windows: found.some(MOST_IN_JSON).into_iter().cloned().collect(),
        }
    }
}

/// The number of decimals with which a column's values show its naive error (of repeating the last value) to about four
/// digits.
fn decimals(error: &ForecastError) -> usize {
    let size = error.repeated_rmse.max(error.rmse);
    if size > 0.0 { (3.0 - size.log10().floor()).clamp(0.0, 12.0) as usize } else { 4 }
}

/// The forecasts as text: errors, and some forecasts beside the actual values.
#[must_use]
pub fn text(found: &Forecast) -> String {
    let lines = |n: usize| format!("{} {}", count(n as u64), plural(n as u64, "line"));
    let mut text = format!("forecasts of {} from {}", lines(found.horizon), lines(found.window));
    if let Some(share) = found.share {
        text.push_str(&format!(": {:.2}% of the squared error of repeating the last value", share * 100.0));
    }
    text.push_str("\n\n");
    let head = ["column", "rms error", "repeating", "mean error", "repeating"].map(str::to_owned).to_vec();
    let row = |(name, e): (&String, &ForecastError)| {
        let figures = [e.rmse, e.repeated_rmse, e.mae, e.repeated_mae].map(|v| figure(v, decimals(e)));
        [&[name.clone()][..], &figures].concat()
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(found.columns.iter().zip(&found.errors).map(row)).collect();
    text.push_str(&table(&rows));
    let [windows, most_lines, most_columns] = MOST_PRINTED;
    let width = found.columns.len().min(most_columns);
    for window in found.some(windows) {
        text.push_str(&format!("\nsample {}\n", window.sample));
        let names = found.columns[..width].iter();
        let head = ["line".to_owned()].into_iter().chain(names.flat_map(|name| [name.clone(), "forecast".to_owned()]));
        let mut rows: Vec<Vec<String>> = vec![head.collect()];
        let cell = |(value, error): (&f32, &ForecastError)| figure(f64::from(*value), decimals(error));
        let cells = |line: &[f32]| line.iter().zip(&found.errors).take(width).map(cell).collect::<Vec<_>>();
        let last = cells(&window.last).into_iter().flat_map(|value| [value, String::new()]);
        rows.push(["last".to_owned()].into_iter().chain(last).collect());
        for (at, (truth, forecast)) in window.truth.iter().zip(&window.forecast).take(most_lines).enumerate() {
            let pairs = cells(truth).into_iter().zip(cells(forecast)).flat_map(|(truth, guess)| [truth, guess]);
            rows.push([format!("+{}", at + 1)].into_iter().chain(pairs).collect());
        }
        text.push_str(&table(&rows));
        if found.horizon > most_lines {
            text.push_str(&format!("  and {} more\n", lines(found.horizon - most_lines)));
        }
    }
    if found.columns.len() > width {
        text.push_str(&format!("\nthe first {width} of {} columns are shown\n", found.columns.len()));
    }
    text
}

/// One line for each sample: its number, the actual values, and the forecast, in the units of the data.
#[must_use]
pub fn csv(found: &Forecast, cell: impl Fn(&str) -> String) -> String {
    let mut text = String::from("sample");
    for kind in ["target", "predicted"] {
        for line in 1..=found.horizon {
            found
                .columns
                .iter()
                .for_each(|name| text.push_str(&format!(",{}", cell(&format!("{kind}_{name} t+{line}")))));
        }
    }
    text.push('\n');
    for window in &found.windows {
        text.push_str(&window.sample.to_string());
        let values = window.truth.iter().chain(&window.forecast).flatten();
        values.for_each(|value| text.push_str(&format!(",{value}")));
        text.push('\n');
    }
    text
}

/// Aligned columns: the first one to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(&if at == 0 { format!(" {cell:<width$}") } else { format!("  {cell:>width$}") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Forecast {
        let error = ForecastError { rmse: 0.5, mae: 0.25, repeated_rmse: 2.0, repeated_mae: 1.5 };
        let window = |sample| ForecastWindow {
            sample,
            last: vec![1.0],
            truth: vec![vec![2.0], vec![3.0]],
            forecast: vec![vec![2.5], vec![2.75]],
        };
        let windows = (7..12).map(window).collect();
        let columns = vec!["sun, spots".into()];
        Forecast { columns, window: 24, horizon: 2, errors: vec![error], share: Some(0.0625), windows }
    }

    #[test]
    fn a_forecast_is_shown_beside_the_actual_values() {
        let text = text(&found());
        assert!(text.starts_with("forecasts of 2 lines from 24 lines: 6.25% of the squared error of"), "{text}");
        let sample = "\nsample 7\n  line  sun, spots  forecast\n  last";
        assert!(text.contains(sample) && text.contains("sample 9") && text.contains("sample 11"), "{text}");
        let row = text.lines().find(|line| line.starts_with("  +2")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["+2", "3.000", "2.750"], "{text}");
        let json = serde_json::to_value(Series::of(&found())).unwrap();
        assert_eq!((&json["columns"][0]["rmse"], &json["windows"][4]["sample"]), (&0.5.into(), &11.into()));
    }

    #[test]
    fn small_and_large_units_show_enough_digits() {
        let of = |repeated_rmse| decimals(&ForecastError { repeated_rmse, ..ForecastError::default() });
        assert_eq!([0.0, 0.7, 7.3, 73_000.0, 2e-5, 1e-30].map(of), [4, 4, 3, 0, 8, 12]);
    }

    #[test]
    fn a_table_has_a_line_for_each_sample() {
        let csv = csv(&found(), |cell| format!("\"{cell}\""));
        let mut lines = csv.lines();
        let head = "sample,\"target_sun, spots t+1\",\"target_sun, spots t+2\",\"predicted_sun, spots t+1\"";
        assert!(lines.next().unwrap().starts_with(head), "{csv}");
        assert_eq!((lines.next(), lines.count()), (Some("7,2,3,2.5,2.75"), 4));
    }
}
