//! How far each layer moved, over a whole run: in bounded memory, and as chunks of a curve file.
//!
//! A chunk of names contains the layers as JSON, each with its label and its path; it is before the first chunk of
//! rows. A chunk of rows contains the number of layers and of rows (`u32` each), the first and the last step of every
//! row (`u64` each), and then, layer by layer, the smallest and the largest change in every row (`f32` each). The
//! length of rows is a share of the run before them, so that a run of any length has few.

use super::chunks::{Reader, put_chunk};
use crate::model::{LayerId, LayerPath, Model};
use crate::train::{Spans, longest_from};

/// Kinds of chunks.
pub(super) const LAYERS: u32 = 3;
pub(super) const UPDATES: u32 = 4;

/// The number of ranges; when it is reached, neighbours are merged in pairs.
const STRETCHES: usize = 1024;

/// The extremes of every layer over some steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// First and last step.
    steps: [u64; 2],
    values: Vec<[f32; 2]>,
}

/// A range of a layer's curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// First and last step.
    pub steps: [f64; 2],
    pub low: f32,
    pub high: f32,
}

/// The largest change of any parameter of each layer, over the whole run: for each range of steps the smallest and the
/// largest, so that no extreme is lost in a run of any length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerCurves {
    pub names: Vec<String>,
    pub paths: Vec<LayerPath>,
    /// The layer of each trained parameter, as an index in `names`; empty if curves were read and not recorded.
    layer_of: Vec<usize>,
    /// First and last step of each range.
    steps: Vec<[u64; 2]>,
    /// Smallest and largest change by range, one list for each layer.
    values: Vec<Vec<[f32; 2]>>,
}

impl LayerCurves {
    /// Empty curves for the layers of a network that have trained parameters.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let mut out = Self::default();
        let mut layers: Vec<LayerId> = Vec::new();
        for param in model.params.iter().filter(|p| p.kind.is_trained()) {
            let at = layers.iter().position(|l| *l == param.layer).unwrap_or_else(|| {
                let layer = model.layer(param.layer);
                layers.push(param.layer);
                out.names.push(layer.label());
                out.paths.push(layer.path.clone());
                layers.len() - 1
            });
            out.layer_of.push(at);
        }
        out.values = vec![Vec::new(); out.names.len()];
        out
    }

    /// These layers, with the data of `before` if it is about the same layers.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        if self.is_about(&before) { Self { steps: before.steps, values: before.values, ..self } } else { self }
    }

    /// True if both are about the same layers.
    #[must_use]
    pub(super) fn is_about(&self, other: &Self) -> bool {
        (&self.names, &self.paths) == (&other.names, &other.paths)
    }

    /// True if nothing was reported yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The first step that is known; `None` while empty.
    #[must_use]
    pub fn first_step(&self) -> Option<u64> {
        self.steps.first().map(|s| s[0])
    }

    /// Bytes of memory that the curves take, without the names of the layers.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let values = self.values.iter().map(|list| list.capacity() * size_of::<[f32; 2]>()).sum::<usize>();
        values + self.steps.capacity() * size_of::<[u64; 2]>()
    }

    /// First and last step of every range, in order.
    #[must_use]
    pub fn steps(&self) -> &[[u64; 2]] {
        &self.steps
    }

    /// The largest change of a layer in every range.
    pub fn tops(&self, layer: usize) -> impl Iterator<Item = f32> {
        self.values.get(layer).into_iter().flatten().map(|v| v[1])
    }

    /// The extremes of the layers over the steps of `spans`, which are those of parameters; `None` if it belongs to
    /// another network, or is empty.
    pub(super) fn row(&self, spans: &Spans) -> Option<Row> {
        let steps = spans.steps?;
        if spans.low.len() != self.layer_of.len() || spans.high.len() != self.layer_of.len() {
            return None;
        }
        // A layer's change in a step is that of the parameter that moves most, so both extremes are maxima.
        let mut values = vec![[0.0f32; 2]; self.names.len()];
        for (&layer, (&low, &high)) in self.layer_of.iter().zip(spans.low.iter().zip(&spans.high)) {
            let own = &mut values[layer];
            *own = [own[0].max(low), own[1].max(high)];
        }
        Some(Row { steps, values })
    }

    /// Receives the extremes of each trained parameter over some steps.
    pub fn push(&mut self, spans: &Spans) {
        if let Some(row) = self.row(spans) {
            self.push_row(&row);
        }
    }

    /// Steps that were made before are replaced.
    fn push_row(&mut self, row: &Row) {
        self.go_back(row.steps[0].saturating_sub(1));
        if self.steps.len() >= STRETCHES {
            self.halve();
        }
        self.steps.push(row.steps);
        for (list, value) in self.values.iter_mut().zip(&row.values) {
            list.push(*value);
        }
    }

    /// Drops everything after this step.
    pub fn go_back(&mut self, step: u64) {
        let keep = self.steps.partition_point(|s| s[0] <= step);
        self.steps.truncate(keep);
        self.values.iter_mut().for_each(|list| list.truncate(keep));
        if let Some(last) = self.steps.last_mut() {
            last[1] = last[1].min(step);
        }
    }

    /// Merges neighbours that are short relative to the length of the run, to half of the ranges or fewer: old ones are
    /// not coarser than new ones.
    fn halve(&mut self) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let longest = (4 * (last[1] + 1 - first[0])).div_ceil(STRETCHES as u64);
        let mut groups: Vec<[usize; 2]> = Vec::new();
        for (index, steps) in self.steps.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if steps[1] + 1 - self.steps[group[0]][0] <= longest => group[1] = index,
                _ => groups.push([index, index]),
            }
        }
        // In place, because a group never comes before its source: the memory is reused.
        for (at, &[from, to]) in groups.iter().enumerate() {
            for list in &mut self.values {
                list[at] = list[from..=to].iter().fold(list[from], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
            }
            self.steps[at] = [self.steps[from][0], self.steps[to][1]];
        }
        self.values.iter_mut().for_each(|list| list.truncate(groups.len()));
        self.steps.truncate(groups.len());
    }

    /// A layer's curve between two steps, as about `most` ranges at most.
    #[must_use]
    pub fn stretches(&self, layer: usize, from: f64, to: f64, most: usize) -> Vec<Stretch> {
        let first = self.steps.partition_point(|s| (s[1] as f64) < from).saturating_sub(1);
        let last = (self.steps.partition_point(|s| (s[0] as f64) <= to) + 1).min(self.steps.len());
        let Some(values) = self.values.get(layer).filter(|_| first < last) else { return Vec::new() };
        let group = (last - first).div_ceil(most.max(8));
        let join = |(steps, values): (&[[u64; 2]], &[[f32; 2]])| {
            let [low, high] = values.iter().fold(values[0], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
            Stretch { steps: [steps[0][0] as f64, steps[steps.len() - 1][1] as f64], low, high }
        };
        self.steps[first..last].chunks(group).zip(values[first..last].chunks(group)).map(join).collect()
    }

    /// The largest change of a layer in the range that contains this step.
    #[must_use]
    pub fn at(&self, layer: usize, step: f64) -> Option<f32> {
        let index = self.steps.partition_point(|s| (s[1] as f64) < step).min(self.steps.len().checked_sub(1)?);
        self.values.get(layer)?.get(index).map(|v| v[1])
    }

    /// The smallest and the largest positive change of any layer between two steps.
    #[must_use]
    pub fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let all = (0..self.values.len()).flat_map(|l| self.stretches(l, from, to, 32));
        let sound = all.flat_map(|s| [s.low, s.high]).map(f64::from).filter(|y| y.is_finite() && *y > 0.0);
        sound.fold(None, |acc, y| Some(acc.map_or((y, y), |(a, b): (f64, f64)| (a.min(y), b.max(y)))))
    }

    /// Appends the names of the layers.
    pub(super) fn put_names(&self, out: &mut Vec<u8>) {
        let names: Vec<(&String, &LayerPath)> = self.names.iter().zip(&self.paths).collect();
        let text = serde_json::to_vec(&names).unwrap_or_default();
        put_chunk(out, LAYERS, |out| out.extend(text));
    }

    /// Appends rows of these layers.
    pub(super) fn put_rows(&self, out: &mut Vec<u8>, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        put_chunk(out, UPDATES, |out| {
            out.extend((self.names.len() as u32).to_le_bytes());
            out.extend((rows.len() as u32).to_le_bytes());
            rows.iter().flat_map(|r| r.steps).for_each(|step| out.extend(step.to_le_bytes()));
            for layer in 0..self.names.len() {
                rows.iter().flat_map(|r| r.values[layer]).for_each(|v| out.extend(v.to_le_bytes()));
            }
        });
    }

    /// Receives a chunk of either kind; an invalid one is ignored.
    pub(super) fn take(&mut self, kind: u32, body: &[u8]) {
        let _ = if kind == LAYERS { self.take_names(body) } else { self.take_rows(body) };
    }

    /// Receives a chunk of names; data of other layers start again.
    fn take_names(&mut self, body: &[u8]) -> Option<()> {
        let (names, paths): (Vec<String>, Vec<LayerPath>) =
            serde_json::from_slice::<Vec<(String, LayerPath)>>(body).ok()?.into_iter().unzip();
        let read = Self { values: vec![Vec::new(); names.len()], names, paths, ..Self::default() };
        if !read.is_about(self) {
            *self = read;
        }
        Some(())
    }

    /// Receives a chunk of rows.
    fn take_rows(&mut self, body: &[u8]) -> Option<()> {
        let mut r = Reader(body);
        let (layers, count) = (r.u32()? as usize, r.u32()? as usize);
        // A number of rows is compared with the length of the chunk before it is used.
        let bytes = layers.checked_mul(8)?.checked_add(16)?.checked_mul(count)?.checked_add(8)?;
        if layers != self.names.len() || bytes != body.len() {
            return None;
        }
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let steps = [r.u64()?, r.u64()?];
            if steps[0] == 0 || steps[0] > steps[1] {
                return None;
            }
            rows.push(Row { steps, values: Vec::with_capacity(layers) });
        }
        for _ in 0..layers {
            for row in &mut rows {
                row.values.push([r.f32()?, r.f32()?]);
            }
        }
        rows.iter().for_each(|row| self.push_row(row));
        Some(())
    }
}

/// Rows before they are written to a file: short ones are merged until they are long enough for the length of the run.
#[derive(Debug, Default)]
pub(super) struct Joined {
    full: Vec<Row>,
    open: Option<Row>,
}

impl Joined {
    pub(super) fn push(&mut self, row: Row) {
        match &mut self.open {
            Some(open)
                if row.steps[0] == open.steps[1] + 1
                    && row.steps[1] + 1 - open.steps[0] <= longest_from(open.steps[0]) =>
            {
                open.steps[1] = row.steps[1];
                for (a, b) in open.values.iter_mut().zip(row.values) {
                    *a = [a[0].min(b[0]), a[1].max(b[1])];
                }
            }
            _ => self.full.extend(self.open.replace(row)),
        }
    }

    /// Releases the row that is still being merged, because no steps follow for some time.
    pub(super) fn close(&mut self) {
        self.full.extend(self.open.take());
    }

    /// The rows that end with this step or before it.
    pub(super) fn take_until(&mut self, step: u64) -> Vec<Row> {
        let ready = self.full.iter().take_while(|r| r.steps[1] <= step).count();
        self.full.drain(..ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunks::chunk;
    use super::*;

    fn curves() -> LayerCurves {
        let text = crate::model::BUNDLED.iter().find(|b| b.name == "digits-mlp").unwrap().text;
        LayerCurves::of(&crate::model::check(&crate::model::read_preset(text).unwrap()).model.unwrap())
    }

    fn spans(step: u64, values: &[f32]) -> Spans {
        let mut spans = Spans::default();
        spans.add(step, values);
        spans
    }

    #[test]
    fn a_peak_of_a_long_run_stays_in_the_curve_of_its_layer() {
        let mut curves = curves();
        assert_eq!(curves.names, ["L0:Dense", "L2:Dense"]);
        for step in 1..=200_000u64 {
            let peak = if step == 123_457 { 7.0 } else { 1e-3 };
            curves.push(&spans(step, &[1e-4, peak, 2e-4, 3e-4]));
        }
        assert!(curves.steps.len() <= STRETCHES && curves.values.iter().all(|v| v.len() == curves.steps.len()));
        let found = curves.stretches(0, 1.0, 2e5, 300);
        assert!(found.len() <= 300 && found.iter().any(|s| s.high == 7.0), "{}", found.len());
        assert!(found.windows(2).all(|w| w[0].steps[1] < w[1].steps[0]));
        assert!(curves.stretches(1, 1.0, 2e5, 300).iter().all(|s| (s.high - 3e-4).abs() < 1e-9));
        assert_eq!((curves.at(0, 123_457.0), curves.at(1, 9.0)), (Some(7.0), Some(3e-4)));
        assert_eq!(curves.extent(1.0, 2e5).unwrap().1, 7.0);
        // However often neighbours were merged, no range is much longer than the others.
        let longest = curves.steps.iter().map(|s| s[1] + 1 - s[0]).max().unwrap();
        assert!(longest <= 4 * 200_000 / STRETCHES as u64 + 2, "{longest}");
    }

    #[test]
    fn values_of_another_network_are_ignored() {
        let mut curves = curves();
        curves.push(&spans(1, &[1.0]));
        assert!(curves.is_empty() && curves.at(0, 1.0).is_none() && curves.stretches(0, 0.0, 9.0, 10).is_empty());
    }

    #[test]
    fn rows_are_merged_before_writing_and_read_back_exactly() {
        let own = curves();
        let (mut joined, mut whole) = (Joined::default(), own.clone());
        for step in 1..=5000u64 {
            let values = spans(step, &[1e-3 / step as f32, 2e-3, 1e-4, 3e-4 / step as f32]);
            joined.push(own.row(&values).unwrap());
            whole.push(&values);
        }
        let ready = joined.take_until(4000).len();
        joined.close();
        let rows = joined.take_until(u64::MAX);
        assert!(ready > 128 && rows.len() > 1 && ready + rows.len() < 700, "{ready} {}", rows.len());
        let mut file = Vec::new();
        own.put_names(&mut file);
        own.put_rows(&mut file, &rows);
        let (kind, body, rest) = chunk(&file).unwrap();
        let mut read = LayerCurves::default();
        assert!(kind == LAYERS && read.take_rows(body).is_none() && read.take_names(body).is_some());
        let (kind, body, _) = chunk(rest).unwrap();
        assert!(kind == UPDATES && read.take_rows(&body[..body.len() - 1]).is_none() && read.is_empty());
        read.take_rows(body).unwrap();
        assert!(read.is_about(&own) && read.steps().last() == Some(&[rows[rows.len() - 1].steps[0], 5000]));
        assert_eq!(read.values[1], rows.iter().map(|r| r.values[1]).collect::<Vec<_>>());
        // The same names again change nothing, other names start again, and a run continues where it was.
        own.put_names(&mut file);
        let known = own.after(read.clone());
        assert_eq!((known.steps(), known.layer_of.len()), (read.steps(), 4));
        read.go_back(4990);
        assert_eq!(read.steps().last().map(|s| s[1]), Some(4990));
        read.take_names(b"[[\"L0:Dense\",[0]]]").unwrap();
        assert!(read.is_empty() && read.take_names(b"3").is_none());
    }
}
