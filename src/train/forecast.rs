//! Forecasts of a series and the actual values, in the units of the data, and their error compared with that of
//! repeating the last value.

use crate::data::{Dataset, Target};
use crate::model::DataSource;
use serde::Serialize;

/// A network's forecasts for windows of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The columns that are forecast; an unnamed one is `value`.
    pub columns: Vec<String>,
    /// The number of input lines.
    pub window: usize,
    /// The number of lines that are forecast.
    pub horizon: usize,
    /// The error of each column, in its units.
    pub errors: Vec<ForecastError>,
    /// The mean squared error as a share of that of repeating the last value, over all standardised columns; `None` if
    /// repeating makes no error.
    pub share: Option<f64>,
    /// The forecasts, in the order of the samples.
    pub windows: Vec<ForecastWindow>,
}

/// The errors of the forecasts of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ForecastError {
    /// The root of the mean squared error.
    pub rmse: f64,
    /// The mean absolute error.
    pub mae: f64,
    /// The same two for forecasts that repeat the last input value for every line.
    pub repeated_rmse: f64,
    pub repeated_mae: f64,
}

/// A forecast and the actual values, in the units of the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForecastWindow {
    /// Its number in the data set.
    pub sample: u32,
    /// The last input line, `[columns]`.
    pub last: Vec<f32>,
    /// `[horizon][columns]`.
    pub truth: Vec<Vec<f32>>,
    /// `[horizon][columns]`.
    pub forecast: Vec<Vec<f32>>,
}

/// The units of the columns that standardised values come from.
pub(crate) struct SeriesUnits {
    mean: Vec<f64>,
    scale: Vec<f64>,
}

impl SeriesUnits {
    /// The units of the columns of a data set; values that are not standardised keep theirs.
    pub(crate) fn of(set: &Dataset, columns: usize) -> Self {
        let scaling = set.preprocessing.scaling.as_ref().filter(|s| s.mean.len() >= columns);
        let part = |values: &[f64]| values[..columns].to_vec();
        let plain = || Self { mean: vec![0.0; columns], scale: vec![1.0; columns] };
        scaling.map_or_else(plain, |s| Self { mean: part(&s.mean), scale: part(&s.scale) })
    }

    /// A line of standardised values in the units of the data. A constant column has its only value.
    pub(crate) fn line(&self, values: &[f32]) -> Vec<f32> {
        let of = |((value, mean), scale): ((&f32, &f64), &f64)| {
            let above = if *scale > 0.0 { f64::from(*value) / scale } else { 0.0 };
            (mean + above) as f32
        };
        values.iter().zip(&self.mean).zip(&self.scale).map(of).collect()
    }
}

/// The names of the columns of a series, and the number of lines that are forecast; `None` for data that are not a
/// series.
pub(crate) fn columns(source: &DataSource, set: &Dataset) -> Option<(Vec<String>, usize)> {
    match source {
        DataSource::Series { columns, horizon, .. } => {
            let plain = |target: &String| target.strip_suffix(" t+1").unwrap_or(target).to_owned();
            let names: Vec<String> = set.preprocessing.targets.iter().take(columns.len()).map(plain).collect();
            let numbered = || (1..=columns.len()).map(|n| format!("column {n}")).collect();
            Some((if names.len() == columns.len() { names } else { numbered() }, *horizon))
        }
        DataSource::Waves { .. } => Some((vec!["value".to_owned()], set.target.shape().len())),
        _ => None,
    }
}

impl Forecast {
    /// The forecasts in `outputs`, `[samples, horizon * columns]`, for samples of a data set; `None` if its source is
    /// not a series, or if there are no samples.
    #[must_use]
    pub fn of(source: &DataSource, set: &Dataset, samples: &[u32], outputs: &[f32]) -> Option<Self> {
        let (columns, horizon) = columns(source, set)?;
        let Target::Values { values, shape } = &set.target else { return None };
        let (width, len) = (columns.len(), shape.len());
        let seen = set.sample().len();
        if samples.is_empty() || width == 0 || seen < width || len != horizon * width {
            return None;
        }
        let units = SeriesUnits::of(set, width);
        // The sums of squared errors and of absolute errors: of forecasts, and of repeating the last value.
        let mut sums = vec![[0.0f64; 4]; width];
        let mut windows = Vec::with_capacity(samples.len());
        for (sample, forecast) in samples.iter().zip(outputs.chunks_exact(len)) {
            let last = &set.sample_slice(*sample as usize)[seen - width..];
            let truth = &values[*sample as usize * len..][..len];
            for (at, (value, truth)) in forecast.iter().zip(truth).enumerate() {
                let of = |guess: f32| f64::from(guess) - f64::from(*truth);
                let (error, repeated) = (of(*value), of(last[at % width]));
                let found = [error * error, error.abs(), repeated * repeated, repeated.abs()];
                sums[at % width].iter_mut().zip(found).for_each(|(sum, v)| *sum += v);
            }
            let lines = |values: &[f32]| values.chunks_exact(width).map(|line| units.line(line)).collect();
            let (truth, forecast) = (lines(truth), lines(forecast));
            windows.push(ForecastWindow { sample: *sample, last: units.line(last), truth, forecast });
        }
        let count = (windows.len() * horizon) as f64;
        let of_column = |(sums, scale): (&[f64; 4], &f64)| {
            let unit = if *scale > 0.0 { 1.0 / scale } else { 0.0 };
            let [square, size, repeated_square, repeated_size] = sums.map(|sum| sum / count);
            ForecastError {
                rmse: square.sqrt() * unit,
                mae: size * unit,
                repeated_rmse: repeated_square.sqrt() * unit,
                repeated_mae: repeated_size * unit,
            }
        };
        let errors = sums.iter().zip(&units.scale).map(of_column).collect();
        let total = |which: usize| sums.iter().map(|sums| sums[which]).sum::<f64>();
        let share = Some(total(0) / total(2)).filter(|_| total(2) > 0.0);
        Some(Self { columns, window: seen / width, horizon, errors, share, windows })
    }

    /// The input of a sample, `[window][columns]`, in the units of the data.
    #[must_use]
    pub fn seen(&self, set: &Dataset, sample: u32) -> Vec<Vec<f32>> {
        let width = self.columns.len().max(1);
        let units = SeriesUnits::of(set, width);
        set.sample_slice(sample as usize).chunks_exact(width).map(|line| units.line(line)).collect()
    }

    /// At most `most` of the windows, evenly spaced.
    #[must_use]
    pub fn some(&self, most: usize) -> Vec<&ForecastWindow> {
        let count = self.windows.len().min(most);
        let at = |i: usize| i * (self.windows.len() - 1) / (count - 1).max(1);
        (0..count).map(|i| &self.windows[at(i)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{InputSamples, Preprocessing, Scaling};
    use crate::model::TargetColumn;
    use crate::tensor::Shape;

    /// Two samples of two lines and two columns, of which two lines are forecast; the second column is in tens.
    fn set() -> Dataset {
        let scaling = Scaling { mean: vec![1.0, 50.0, 1.0, 50.0], scale: vec![1.0, 0.1, 1.0, 0.1] };
        let targets = ["a t+1", "b t+1", "a t+2", "b t+2"].map(str::to_owned).to_vec();
        let values = vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
        Dataset {
            name: "s".into(),
            inputs: InputSamples::only([2, 2], vec![-1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0]),
            target: Target::Values { values, shape: Shape::from([2, 2]) },
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing { targets, scaling: Some(scaling), ..Preprocessing::default() },
        }
    }

    fn series() -> DataSource {
        let columns = vec![TargetColumn::Index(0), TargetColumn::Index(1)];
        DataSource::Series { path: "s.csv".into(), columns, window: 2, horizon: 2 }
    }

    #[test]
    fn errors_are_in_the_units_of_the_data_and_compared_with_repeating() {
        // The first column is forecast exactly, the second is half a deviation too high.
        let outputs = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5];
        let found = Forecast::of(&series(), &set(), &[0, 1], &outputs).unwrap();
        assert_eq!((&found.columns[..], found.window, found.horizon), (&["a".into(), "b".into()][..], 2, 2));
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        near(found.errors[0].rmse, 0.0);
        near(found.errors[1].rmse, 5.0);
        near(found.errors[1].mae, 5.0);
        // Repeating has errors of 1 and 2 in every sample: the mean square is 2.5, in tens of the second column.
        near(found.errors[0].repeated_rmse, 2.5f64.sqrt());
        near(found.errors[1].repeated_rmse, 10.0 * 2.5f64.sqrt());
        near(found.errors[1].repeated_mae, 15.0);
        near(found.share.unwrap(), 0.25 / 2.0 / 2.5);
        let second = &found.windows[1];
        assert_eq!((second.sample, &second.last[..]), (1, &[3.0, 70.0][..]));
        assert_eq!(found.seen(&set(), 1), [[2.0, 60.0], [3.0, 70.0]]);
        assert_eq!((&second.truth[1][..], &second.forecast[1][..]), (&[5.0, 90.0][..], &[5.0, 95.0][..]));
    }

    #[test]
    fn data_that_are_not_a_series_and_empty_parts_have_no_forecast() {
        let outputs = [0.0; 8];
        assert!(Forecast::of(&DataSource::Iris, &set(), &[0, 1], &outputs).is_none());
        assert!(Forecast::of(&series(), &set(), &[], &[]).is_none());
        // Values that are not standardised keep their units; if nothing changes, there is no share.
        let mut still = set();
        still.preprocessing = Preprocessing::default();
        still.target = Target::Values { values: vec![2.0; 8], shape: Shape::from([2, 2]) };
        let found = Forecast::of(&series(), &still, &[1], &[2.0; 4]).unwrap();
        assert_eq!(
            (found.share, &found.columns[0][..], &found.windows[0].last[..]),
            (None, "column 1", &[2.0, 2.0][..])
        );
    }

    #[test]
    fn selected_windows_are_evenly_spaced() {
        let found = Forecast::of(&series(), &set(), &[0, 1, 0, 1, 0], &[0.0; 20]).unwrap();
        let mut found = found;
        (0..5).for_each(|i| found.windows[i].sample = i as u32);
        let some = |most| found.some(most).iter().map(|w| w.sample).collect::<Vec<_>>();
        assert_eq!((some(3), some(1), some(9)), (vec![0, 2, 4], vec![0], vec![0, 1, 2, 3, 4]));
    }
}
