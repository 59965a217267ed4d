//! A curve of any length that draws in time of the screen's width: a pyramid of minima and maxima.
//!
//! Level 0 holds the values, each further level the least and the largest of eight entries below. Appending touches one entry a level, and a
//! window of a million points is drawn from the level whose entries are about as wide as a pixel.

/// Entries of one level that make one of the next.
const FAN: usize = 8;

/// The least and the largest of a stretch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    min: f32,
    max: f32,
}

impl Span {
    fn with(self, value: Self) -> Self {
        Self { min: self.min.min(value.min), max: self.max.max(value.max) }
    }
}

/// Values at x = 1, 2, 3...
#[derive(Clone, Debug, Default)]
pub struct Series {
    values: Vec<f32>,
    /// `levels[0]` spans eight values an entry, `levels[1]` sixty-four.
    levels: Vec<Vec<Span>>,
}

impl Series {
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[must_use]
    pub fn last(&self) -> Option<f32> {
        self.values.last().copied()
    }

    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Appends a value.
    pub fn push(&mut self, value: f32) {
        self.values.push(value);
        let mut index = self.values.len() - 1;
        let span = Span { min: value, max: value };
        for depth in 0.. {
            if depth == self.levels.len() {
                // A single entry needs no summary; the second one brings it, with what the first holds.
                let below = depth.checked_sub(1).map(|d| &self.levels[d]);
                if below.map_or(self.values.len(), Vec::len) < 2 {
                    break;
                }
                let first = below.map_or(Span { min: self.values[0], max: self.values[0] }, |b| b[0]);
                self.levels.push(vec![first]);
            }
            index /= FAN;
            let level = &mut self.levels[depth];
            match level.get_mut(index) {
                Some(entry) => *entry = entry.with(span),
                None => level.push(span),
            }
        }
    }

    /// Points of the curve between two x, at most about `2 * pixels` of them, each stretch by its least and its largest value.
    #[must_use]
    pub fn points(&self, from: f64, to: f64, pixels: usize) -> Vec<[f64; 2]> {
        if self.values.is_empty() || to < from {
            return Vec::new();
        }
        // One entry more on each side, so that the line runs out of the picture.
        let first = (from.floor().max(1.0) as usize).saturating_sub(2).min(self.values.len());
        let last = (to.ceil().max(0.0) as usize + 1).min(self.values.len());
        if first >= last {
            return Vec::new();
        }
        let wanted = pixels.max(16);
        let mut width = 1;
        let mut depth = None;
        while (last - first) / width > wanted * 2 && depth.map_or(0, |d: usize| d + 1) < self.levels.len() {
            depth = Some(depth.map_or(0, |d| d + 1));
            width *= FAN;
        }
        let Some(depth) = depth else {
            return (first..last).map(|i| [i as f64 + 1.0, f64::from(self.values[i])]).collect();
        };
        let level = &self.levels[depth];
        let (a, b) = (first / width, last.div_ceil(width).min(level.len()));
        // Several entries share a pixel where the next level would be too coarse.
        let group = (b - a).div_ceil(wanted).max(1);
        let mut out = Vec::with_capacity(2 * (b - a).div_ceil(group) + 2);
        for (index, entries) in level[a..b].chunks(group).enumerate() {
            let span = entries.iter().copied().reduce(Span::with).unwrap_or(entries[0]);
            let start = (a + index * group) * width;
            let end = (start + entries.len() * width).min(self.values.len());
            // The extremes stand in the order in which the curve runs, so that the line does not go back and forth.
            let rising = self.values[end - 1] >= self.values[start];
            let (y0, y1) = if rising { (span.min, span.max) } else { (span.max, span.min) };
            let (x0, x1) = (start as f64 + 1.0, end as f64);
            out.push([x0, f64::from(y0)]);
            out.push([x1, f64::from(y1)]);
        }
        out
    }

    /// The least and the largest finite value between two x.
    #[must_use]
    pub fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let finite = self.points(from, to, 512).into_iter().map(|p| p[1]).filter(|y| y.is_finite());
        finite.fold(None, |acc, y| Some(acc.map_or((y, y), |(a, b): (f64, f64)| (a.min(y), b.max(y)))))
    }
}

/// A curve with its smoothed twin.
#[derive(Clone, Debug, Default)]
pub struct Smoothed {
    pub raw: Series,
    pub smooth: Series,
    /// Share of the past in each smoothed value; 0 is no smoothing.
    weight: f32,
    state: f32,
    scale: f32,
    /// Averages logarithms: for times, where one slow step should not hide a hundred usual ones.
    is_geometric: bool,
}

impl Smoothed {
    /// A curve whose smoothed twin averages logarithms.
    #[must_use]
    pub fn geometric() -> Self {
        Self { is_geometric: true, ..Self::default() }
    }

    /// Appends a value to both.
    pub fn push(&mut self, value: f32) {
        self.raw.push(value);
        self.follow(value);
    }

    fn follow(&mut self, value: f32) {
        let sound = value.is_finite() && (value > 0.0 || !self.is_geometric);
        let (value, back): (f32, fn(f32) -> f32) =
            if self.is_geometric { (value.ln(), f32::exp) } else { (value, |v| v) };
        if sound {
            // Dividing by the weights given so far keeps the first values from leaning towards zero.
            self.state = self.weight * self.state + (1.0 - self.weight) * value;
            self.scale = self.weight * self.scale + (1.0 - self.weight);
        }
        self.smooth.push(back(if self.scale > 0.0 { self.state / self.scale } else { value }));
    }

    /// Changes the smoothing of the whole curve.
    pub fn set_weight(&mut self, weight: f32) {
        if weight == self.weight {
            return;
        }
        (self.weight, self.state, self.scale, self.smooth) = (weight, 0.0, 0.0, Series::default());
        for index in 0..self.raw.len() {
            self.follow(self.raw.values[index]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f32>) -> Series {
        let mut s = Series::default();
        values.into_iter().for_each(|v| s.push(v));
        s
    }

    #[test]
    fn every_level_holds_the_extremes_of_what_it_spans() {
        let values: Vec<f32> = (0..5000u32).map(|i| ((i * 7919) % 1013) as f32).collect();
        let series = of(values.iter().copied());
        assert!(series.levels.len() >= 3);
        for (depth, level) in series.levels.iter().enumerate() {
            let width = FAN.pow(depth as u32 + 1);
            assert_eq!(level.len(), values.len().div_ceil(width));
            for (entry, chunk) in level.iter().zip(values.chunks(width)) {
                let min = chunk.iter().copied().fold(f32::INFINITY, f32::min);
                let max = chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(*entry, Span { min, max });
            }
        }
    }

    #[test]
    fn a_peak_among_a_million_is_drawn() {
        let mut values = vec![1.0; 1_000_000];
        values[654_321] = 9.0;
        let points = of(values).points(1.0, 1e6, 800);
        assert!(points.len() <= 1700, "{}", points.len());
        assert!(points.iter().any(|p| p[1] == 9.0));
        assert!(points.windows(2).all(|w| w[0][0] <= w[1][0]));
    }

    #[test]
    fn few_points_are_drawn_as_they_are() {
        let series = of([3.0, 1.0, 2.0]);
        assert_eq!(series.points(0.0, 9.0, 100), [[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]]);
        assert_eq!(series.extent(0.0, 9.0), Some((1.0, 3.0)));
    }

    #[test]
    fn one_slow_step_does_not_hide_the_usual_ones() {
        let mut s = Smoothed::geometric();
        s.set_weight(0.5);
        [10.0, 1000.0, 10.0, 10.0].into_iter().for_each(|v| s.push(v));
        assert!(s.smooth.last().is_some_and(|v| v < 40.0), "{:?}", s.smooth.last());
    }

    #[test]
    fn smoothing_starts_at_the_first_value() {
        let mut s = Smoothed::default();
        s.set_weight(0.9);
        [4.0, 4.0, 4.0].into_iter().for_each(|v| s.push(v));
        assert!(s.smooth.values().iter().all(|v| (v - 4.0).abs() < 1e-5));
    }
}
