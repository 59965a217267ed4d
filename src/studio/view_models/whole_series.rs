//! The whole of a time series in the units of its data, reconstructed from its overlapping samples.

use crate::data::{Dataset, Split, Target};
use crate::model::DataSource;
use crate::studio::view_models::series::values::Series;
use crate::train::{SeriesUnits, series_columns};

/// A column of a series.
#[derive(Clone, Debug)]
pub struct SeriesColumn {
    pub name: String,
    /// By line, counted from 1.
    pub values: Series,
}

/// A time series. Lines are counted from 1.
#[derive(Clone, Debug)]
pub struct WholeSeries {
    pub columns: Vec<SeriesColumn>,
    /// Lines of values.
    pub lines: usize,
    pub samples: usize,
    /// The lines of a sample's input, and those of its target.
    pub window: usize,
    pub horizon: usize,
    /// The last line of a training sample; 0 if there is none.
    pub last_trained: usize,
    /// The first line of a held-out sample.
    pub first_held_out: Option<usize>,
}

impl WholeSeries {
    /// The series of a data set; `None` if its samples are not windows of one.
    #[must_use]
    pub fn of(set: &Dataset, split: &Split, source: &DataSource) -> Option<Self> {
        let DataSource::Series { window, .. } = source else { return None };
        let (names, horizon) = series_columns(source, set)?;
        let Target::Values { values: targets, .. } = &set.target else { return None };
        let (samples, width, window) = (set.len(), names.len(), *window);
        if samples == 0
            || width == 0
            || set.sample().len() != window * width
            || set.target.shape().len() != horizon * width
        {
            return None;
        }
        let units = SeriesUnits::of(set, width);
        let named = |name| SeriesColumn { name, values: Series::default() };
        let mut columns: Vec<SeriesColumn> = names.into_iter().map(named).collect();
        // Each line occurs once: as the first line of a sample, or in the last sample.
        let firsts = (0..samples - 1).map(|sample| &set.sample_slice(sample)[..width]);
        let last = set.sample_slice(samples - 1).chunks_exact(width);
        let behind = targets[(samples - 1) * horizon * width..].chunks_exact(width);
        for line in firsts.chain(last).chain(behind) {
            columns.iter_mut().zip(units.line(line)).for_each(|(column, value)| column.values.push(value));
        }
        Some(Self {
            columns,
            lines: samples - 1 + window + horizon,
            samples,
            window,
            horizon,
            last_trained: split.train.last().map_or(0, |last| *last as usize + window + horizon),
            first_held_out: split.held_out.first().map(|first| *first as usize + 1),
        })
    }

    /// The first and the last line of a sample's input, and those of its target.
    #[must_use]
    pub const fn stretches(&self, sample: usize) -> [[usize; 2]; 2] {
        let [seen, learnt] = [sample + 1, sample + 1 + self.window];
        [[seen, learnt - 1], [learnt, learnt + self.horizon - 1]]
    }

    /// The sample whose window contains a line, as nearly as possible.
    #[must_use]
    pub const fn sample_at(&self, line: usize) -> usize {
        let first = line.saturating_sub(1 + self.window / 2);
        if first < self.samples { first } else { self.samples.saturating_sub(1) }
    }

    /// The split, as text.
    #[must_use]
    pub fn parts_text(&self) -> String {
        let lines = |from: usize, to: usize| format!("lines {from} to {to}");
        match self.first_held_out {
            None => format!("{} train, none is held out", lines(1, self.last_trained)),
            Some(first) if self.last_trained == 0 => format!("{} are held out", lines(first, self.lines)),
            Some(first) => {
                format!("{} train, {} are held out", lines(1, self.last_trained), lines(first, self.lines))
            }
        }
    }

    /// The target of a sample, as text.
    #[must_use]
    pub fn sample_text(&self, sample: usize) -> String {
        let lines = |[from, to]: [usize; 2]| {
            if from == to { format!("line {from}") } else { format!("lines {from} to {to}") }
        };
        let [seen, learnt] = self.stretches(sample);
        format!("it sees {} and learns {}", lines(seen), lines(learnt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Request, load, split};
    use crate::model::{DataSpec, LossSpec, NamedInput, TargetColumn};
    use crate::studio::view_models::data::DataView;

    #[test]
    fn a_series_is_reconstructed_in_its_units() {
        let folder = tempfile::tempdir().unwrap();
        let of = |line: usize| [10.0 * line as f32 - 3.0, (line * line % 7) as f32];
        let lines: Vec<String> = (0..40).map(|line| of(line).map(|v| v.to_string()).join(",")).collect();
        std::fs::write(folder.path().join("t.csv"), format!("up,wild\n{}\n", lines.join("\n"))).unwrap();
        let columns = vec![TargetColumn::Name("up".into()), TargetColumn::Name("wild".into())];
        let source = DataSource::Series { path: "t.csv".into(), columns, window: 5, horizon: 2 };
        let spec = DataSpec { held_out: 10.0, split: crate::model::SplitKind::Last, ..DataSpec::of(source.clone()) };
        let request = Request {
            inputs: vec![NamedInput::only([5, 2].into())],
            output: [2, 2].into(),
            loss: LossSpec::MSE,
            seed: 0,
        };
        let set = load(&spec, &request, folder.path()).unwrap();
        let split = split(set.len(), &spec, 0).unwrap();
        let series = WholeSeries::of(&set, &split, &source).unwrap();
        assert_eq!((series.lines, series.samples), (40, 34));
        assert_eq!([&*series.columns[0].name, &*series.columns[1].name], ["up", "wild"]);
        for (at, column) in series.columns.iter().enumerate() {
            assert_eq!(column.values.len(), 40);
            for line in 0..40 {
                let (found, wanted) = (column.values.at(line + 1).unwrap(), of(line)[at]);
                assert!((found - wanted).abs() < 1e-4, "line {line}: {found} and {wanted}");
            }
        }
        // Samples 24 to 33 are held out; those that share a line with them are in neither part.
        assert_eq!((series.last_trained, series.first_held_out), (24, Some(25)));
        assert_eq!(series.parts_text(), "lines 1 to 24 train, lines 25 to 40 are held out");
        assert_eq!(series.sample_text(33), "it sees lines 34 to 38 and learns lines 39 to 40");
        assert_eq!([1, 4, 40].map(|line| series.sample_at(line)), [0, 1, 33]);
        assert!(WholeSeries::of(&set, &split, &DataSource::Iris).is_none());
        assert_eq!(DataView::new(set, split, &source, None).in_neither(), 6);
    }
}
