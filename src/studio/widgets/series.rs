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

/// Values that are held at least, and twice as many at most; an eighth of that on each level. What is older is held by the levels above alone.
const HELD: usize = 1 << 20;

/// The newest entries of a list of any length.
#[derive(Clone, Debug)]
struct Tail<T> {
    held: Vec<T>,
    /// Entries before the first that is held.
    dropped: usize,
}

impl<T> Default for Tail<T> {
    fn default() -> Self {
        Self { held: Vec::new(), dropped: 0 }
    }
}

impl<T: Copy> Tail<T> {
    fn len(&self) -> usize {
        self.dropped + self.held.len()
    }

    fn push(&mut self, entry: T, held: usize) {
        if self.held.len() >= 2 * held {
            self.held.drain(..held);
            self.dropped += held;
        }
        self.held.push(entry);
    }

    fn get(&self, index: usize) -> Option<T> {
        self.held.get(index.checked_sub(self.dropped)?).copied()
    }

    /// Entries `from..to`, as far as they are held.
    fn slice(&self, from: usize, to: usize) -> &[T] {
        let inside = |i: usize| i.saturating_sub(self.dropped).min(self.held.len());
        &self.held[inside(from)..inside(to)]
    }
}

/// Values at x = 1, 2, 3... The newest million is held as it is, what is older by its extremes: every eight values, further back every sixty-four, and so on.
#[derive(Clone, Debug)]
pub struct Series {
    values: Tail<f32>,
    /// `levels[0]` spans eight values an entry, `levels[1]` sixty-four.
    levels: Vec<Tail<Span>>,
    held: usize,
}

impl Default for Series {
    fn default() -> Self {
        Self { values: Tail::default(), levels: Vec::new(), held: HELD }
    }
}

impl Series {
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn last(&self) -> Option<f32> {
        self.values.held.last().copied()
    }

    /// The newest values, as many as are held: all of a run of up to a million steps.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values.held
    }

    /// The value at a step from 1, where it is held.
    #[must_use]
    pub fn at(&self, step: usize) -> Option<f32> {
        self.values.get(step.checked_sub(1)?)
    }

    /// Appends a value.
    pub fn push(&mut self, value: f32) {
        self.values.push(value, self.held);
        let mut index = self.values.len() - 1;
        let span = Span { min: value, max: value };
        for depth in 0.. {
            if depth == self.levels.len() {
                // A single entry needs no summary; the second one brings it, with what the first holds.
                let below: Vec<Span> = match depth.checked_sub(1) {
                    Some(below) => self.levels[below].held.clone(),
                    None => self.values.held.iter().map(|v| Span { min: *v, max: *v }).collect(),
                };
                let dropped = depth.checked_sub(1).map_or(self.values.dropped, |d| self.levels[d].dropped);
                if below.len() < 2 {
                    break;
                }
                let mut level: Tail<Span> = Tail { held: Vec::new(), dropped: dropped / FAN };
                for (at, entry) in (dropped..).zip(below) {
                    match level.held.get_mut(at / FAN - level.dropped) {
                        Some(wide) => *wide = wide.with(entry),
                        None => level.held.push(entry),
                    }
                }
                self.levels.push(level);
            }
            index /= FAN;
            let (level, held) = (&mut self.levels[depth], self.held / FAN);
            match index.checked_sub(level.dropped).and_then(|i| level.held.get_mut(i)) {
                Some(entry) => *entry = entry.with(span),
                None => level.push(span, held),
            }
        }
    }

    /// Points of the curve between two x, at most about `2 * pixels` of them, each stretch by its least and its largest value.
    #[must_use]
    pub fn points(&self, from: f64, to: f64, pixels: usize) -> Vec<[f64; 2]> {
        if self.is_empty() || to < from {
            return Vec::new();
        }
        // One entry more on each side, so that the line runs out of the picture.
        let first = (from.floor().max(1.0) as usize).saturating_sub(2).min(self.len());
        let last = (to.ceil().max(0.0) as usize + 1).min(self.len());
        if first >= last {
            return Vec::new();
        }
        let wanted = pixels.max(16);
        let mut width = 1;
        let mut depth = None;
        let is_held = |depth: Option<usize>, width: usize| {
            depth.map_or(self.values.dropped, |d: usize| self.levels[d].dropped) * width <= first
        };
        while ((last - first) / (width * FAN) > wanted || !is_held(depth, width))
            && depth.map_or(0, |d: usize| d + 1) < self.levels.len()
        {
            depth = Some(depth.map_or(0, |d| d + 1));
            width *= FAN;
        }
        let Some(depth) = depth else {
            return (first..last).filter_map(|i| Some([i as f64 + 1.0, f64::from(self.values.get(i)?)])).collect();
        };
        let level = &self.levels[depth];
        let (a, b) = ((first / width).max(level.dropped), last.div_ceil(width).min(level.len()));
        // Several entries share a pixel where the next level would be too coarse.
        let group = b.saturating_sub(a).div_ceil(wanted).max(1);
        let mut out = Vec::with_capacity(2 * b.saturating_sub(a).div_ceil(group) + 2);
        for (index, entries) in level.slice(a, b).chunks(group).enumerate() {
            let span = entries.iter().copied().reduce(Span::with).unwrap_or(entries[0]);
            let start = (a + index * group) * width;
            let end = (start + entries.len() * width).min(self.len());
            // The extremes stand in the order in which the curve runs, so that the line does not go back and forth.
            let rising = self.values.get(end - 1) >= self.values.get(start);
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

    /// Share of the past in each smoothed value.
    #[must_use]
    pub const fn weight(&self) -> f32 {
        self.weight
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
        (self.weight, self.state, self.scale) = (weight, 0.0, 0.0);
        // Of what is held by its extremes alone, nothing can be smoothed anew: the curve begins where values are held.
        let values = Tail { held: Vec::new(), dropped: self.raw.values.dropped };
        self.smooth = Series { values, ..Series::default() };
        for index in self.raw.values.dropped..self.raw.len() {
            if let Some(value) = self.raw.values.get(index) {
                self.follow(value);
            }
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
            for (entry, chunk) in level.held.iter().zip(values.chunks(width)) {
                let min = chunk.iter().copied().fold(f32::INFINITY, f32::min);
                let max = chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(*entry, Span { min, max });
            }
        }
    }

    #[test]
    fn a_long_run_takes_bounded_memory_and_keeps_its_extremes() {
        let mut series = Series { held: 64, ..Series::default() };
        let mut exact = Series::default();
        for i in 0..200_000u32 {
            let value = if i == 777 { 5000.0 } else { ((i * 7919) % 1013) as f32 };
            series.push(value);
            exact.push(value);
        }
        let held = series.values.held.len() + series.levels.iter().map(|l| l.held.len()).sum::<usize>();
        assert!(held <= 128 * (series.levels.len() + 1) && series.len() == 200_000, "{held}");
        assert_eq!(series.extent(1.0, 2e5), exact.extent(1.0, 2e5));
        assert!(series.points(1.0, 2e5, 100).iter().any(|p| p[1] == 5000.0));
        // The newest are exact, the oldest are there by their extremes.
        assert_eq!(series.points(199_990.0, 2e5, 100), exact.points(199_990.0, 2e5, 100));
        assert!(series.points(1.0, 2000.0, 100).iter().any(|p| p[1] == 5000.0));
        assert_eq!((series.at(200_000), series.at(3), series.at(0)), (exact.at(200_000), None, None));
    }

    #[test]
    fn smoothing_a_long_run_anew_begins_where_values_are_held() {
        let mut s = Smoothed { raw: Series { held: 32, ..Series::default() }, ..Smoothed::default() };
        (0..1000u16).for_each(|i| s.push(f32::from(i)));
        s.set_weight(0.5);
        assert_eq!((s.smooth.len(), s.raw.len()), (1000, 1000));
        let first = s.smooth.points(1.0, 1e3, 2000)[0];
        assert!(first[0] > 900.0 && (first[1] - (first[0] - 1.0)).abs() < 1.0, "{first:?}");
        s.push(7.0);
        assert_eq!(s.smooth.len(), 1001);
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
