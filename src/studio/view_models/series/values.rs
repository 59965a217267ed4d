//! A curve of any length in bounded memory, which can be drawn in time proportional to the screen's width.
//!
//! The newest values are stored exactly, and as the extremes of eight at a time. The whole run is stored as the
//! extremes of ranges of equal length, so that no peak is ever lost: if there are too many ranges, neighbours are
//! merged and every range is twice as long from then on. A run of any length takes the same memory; for a run that is
//! kept, the exact values are in its file.

/// The number of values of an entry at the level above the newest values.
pub(super) const FAN: usize = 8;
/// The smallest number of values that are stored exactly; the largest is twice as many.
const HELD: usize = 1 << 17;
/// The largest number of ranges of the whole run.
const STRETCHES: usize = 1 << 15;

/// The smallest and the largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub min: f32,
    pub max: f32,
}

impl Span {
    pub(super) const fn of(value: f32) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn with(self, value: Self) -> Self {
        Self { min: self.min.min(value.min), max: self.max.max(value.max) }
    }
}

/// The newest entries of a list of any length.
#[derive(Clone, Debug)]
pub(super) struct Tail<T> {
    pub held: Vec<T>,
    /// The number of entries before the first stored one.
    pub dropped: usize,
}

impl<T> Default for Tail<T> {
    fn default() -> Self {
        Self { held: Vec::new(), dropped: 0 }
    }
}

impl<T: Copy> Tail<T> {
    pub(super) fn len(&self) -> usize {
        self.dropped + self.held.len()
    }

    fn push(&mut self, entry: T, held: usize) {
        if self.held.len() >= 2 * held {
            self.held.drain(..held);
            self.dropped += held;
        }
        self.held.push(entry);
    }

    pub(super) fn get(&self, index: usize) -> Option<T> {
        self.held.get(index.checked_sub(self.dropped)?).copied()
    }

    fn bytes_held(&self) -> usize {
        self.held.capacity() * size_of::<T>()
    }
}

/// Consecutive values, as their extremes and the mean of those that are not NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub span: Span,
    /// The mean of logarithms if the curve averages these.
    pub mean: f32,
    /// The number of values in the mean.
    pub count: u32,
}

impl Stretch {
    pub(super) fn with(self, other: Self) -> Self {
        let count = self.count.saturating_add(other.count);
        let share = other.count as f32 / count.max(1) as f32;
        let mean = match (self.count, other.count) {
            (_, 0) => self.mean,
            (0, _) => other.mean,
            _ => self.mean + (other.mean - self.mean) * share,
        };
        Self { span: self.span.with(other.span), mean, count }
    }
}

/// A run of any length as ranges of equal length.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub held: Vec<Stretch>,
    /// The number of values in a range.
    pub width: usize,
    /// The largest number of ranges; even.
    pub most: usize,
}

impl Whole {
    pub(super) const fn new(most: usize) -> Self {
        Self { held: Vec::new(), width: 1, most }
    }

    /// Receives the value at `index`, which follows the last one.
    fn take(&mut self, index: usize, value: Stretch) {
        while index / self.width >= self.most {
            self.join();
        }
        match self.held.get_mut(index / self.width) {
            Some(stretch) => *stretch = stretch.with(value),
            None => self.held.push(value),
        }
    }

    /// Merges neighbours in pairs, in place.
    fn join(&mut self) {
        let joined = self.held.len().div_ceil(2);
        for at in 0..joined {
            let (left, right) = (self.held[2 * at], self.held.get(2 * at + 1).copied());
            self.held[at] = right.map_or(left, |right| left.with(right));
        }
        self.held.truncate(joined);
        self.width *= 2;
    }
}

/// Values at x = 1, 2, 3... The newest are stored exactly, the whole run by its extremes.
#[derive(Clone, Debug)]
pub struct Series {
    pub(super) values: Tail<f32>,
    /// The extremes of every [`FAN`] of the newest values.
    pub(super) eights: Tail<Span>,
    pub(super) whole: Whole,
    pub(super) held: usize,
    /// Means are those of logarithms.
    pub(super) is_geometric: bool,
}

impl Default for Series {
    fn default() -> Self {
        Self::holding(HELD, STRETCHES)
    }
}

impl Series {
    /// A curve that stores this many values exactly and this many ranges; the first is a multiple of [`FAN`], the
    /// second even.
    pub(super) const fn holding(held: usize, stretches: usize) -> Self {
        Self {
            values: Tail { held: Vec::new(), dropped: 0 },
            eights: Tail { held: Vec::new(), dropped: 0 },
            whole: Whole::new(stretches),
            held,
            is_geometric: false,
        }
    }

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

    /// The newest values that are stored exactly: all of a run of up to 131 072 steps.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values.held
    }

    /// The value at a step from 1, if it is stored exactly.
    #[must_use]
    pub fn at(&self, step: usize) -> Option<f32> {
        self.values.get(step.checked_sub(1)?)
    }

    /// The value at a step from 1, or the mean of the range that contains it if it is not stored exactly.
    #[must_use]
    pub fn near(&self, step: usize) -> Option<f32> {
        let index = step.checked_sub(1).filter(|i| *i < self.len())?;
        let mean = || {
            let stretch = self.whole.held.get(index / self.whole.width).filter(|s| s.count > 0)?;
            Some(if self.is_geometric { stretch.mean.exp() } else { stretch.mean })
        };
        self.at(step).or_else(mean)
    }

    /// Bytes of memory that the curve takes.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let whole = self.whole.held.capacity() * size_of::<Stretch>();
        self.values.bytes_held() + self.eights.bytes_held() + whole
    }

    /// What is averaged for a value; `None` if it is NaN.
    pub(super) fn level(&self, value: f32) -> Option<f32> {
        let is_sound = value.is_finite() && (value > 0.0 || !self.is_geometric);
        is_sound.then(|| if self.is_geometric { value.ln() } else { value })
    }

    /// Appends a value.
    pub fn push(&mut self, value: f32) {
        self.values.push(value, self.held);
        let index = self.values.len() - 1;
        let span = Span::of(value);
        let (eights, held) = (&mut self.eights, self.held / FAN);
        match (index / FAN).checked_sub(eights.dropped).and_then(|i| eights.held.get_mut(i)) {
            Some(entry) => *entry = entry.with(span),
            None => eights.push(span, held),
        }
        let level = self.level(value);
        self.whole.take(index, Stretch { span, mean: level.unwrap_or(0.0), count: u32::from(level.is_some()) });
    }

    /// Points of the curve between two x, at most about `2 * pixels` of them, with the smallest and the largest value
    /// of each range.
    #[must_use]
    pub fn points(&self, from: f64, to: f64, pixels: usize) -> Vec<[f64; 2]> {
        if self.is_empty() || to < from {
            return Vec::new();
        }
        // One more entry on each side, so that the line extends beyond the picture.
        let first = (from.floor().max(1.0) as usize).saturating_sub(2).min(self.len());
        let last = (to.ceil().max(0.0) as usize + 1).min(self.len());
        if first >= last {
            return Vec::new();
        }
        let wanted = pixels.max(16);
        if first < self.values.dropped {
            return self.folded([first, last], wanted, self.whole.width, |i| self.whole.held.get(i).map(|s| s.span));
        }
        if (last - first) / FAN > wanted {
            return self.folded([first, last], wanted, FAN, |i| self.eights.get(i));
        }
        (first..last).filter_map(|i| Some([i as f64 + 1.0, f64::from(self.values.get(i)?)])).collect()
    }

    /// The values `first..last` as the extremes of at most about `wanted` groups of entries, which span `width` values
    /// each.
    fn folded(
        &self,
        [first, last]: [usize; 2],
        wanted: usize,
        width: usize,
        entry: impl Fn(usize) -> Option<Span>,
    ) -> Vec<[f64; 2]> {
        let (a, b) = (first / width, last.div_ceil(width));
        let group = b.saturating_sub(a).div_ceil(wanted).max(1);
        let mut out = Vec::with_capacity(2 * b.saturating_sub(a).div_ceil(group) + 2);
        for from in (a..b).step_by(group) {
            let to = (from + group).min(b);
            let Some(span) = (from..to).filter_map(&entry).reduce(Span::with) else { continue };
            let (start, end) = (from * width, (to * width).min(self.len()));
            // The extremes are in the order in which the curve passes them, so that the line does not go back and
            // forth.
            let is_rising = self.values.get(end - 1) >= self.values.get(start);
            let (y0, y1) = if is_rising { (span.min, span.max) } else { (span.max, span.min) };
            out.push([start as f64 + 1.0, f64::from(y0)]);
            out.push([end as f64, f64::from(y1)]);
        }
        out
    }

    /// The smallest and the largest finite value between two x.
    #[must_use]
    pub fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let finite = self.points(from, to, 512).into_iter().map(|p| p[1]).filter(|y| y.is_finite());
        finite.fold(None, |acc, y| Some(acc.map_or((y, y), |(a, b): (f64, f64)| (a.min(y), b.max(y)))))
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

    /// A small curve: 64 exact values and 32 ranges.
    fn small() -> Series {
        Series::holding(64, 32)
    }

    #[test]
    fn every_range_has_the_extremes_of_its_values() {
        let values: Vec<f32> = (0..5000u32).map(|i| ((i * 7919) % 1013) as f32).collect();
        let mut series = small();
        values.iter().for_each(|v| series.push(*v));
        let span = |chunk: &[f32]| {
            let min = chunk.iter().copied().fold(f32::INFINITY, f32::min);
            Span { min, max: chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max) }
        };
        assert_eq!((series.whole.width, series.whole.held.len()), (256, 20));
        for (stretch, chunk) in series.whole.held.iter().zip(values.chunks(series.whole.width)) {
            let mean = chunk.iter().sum::<f32>() / chunk.len() as f32;
            assert_eq!((stretch.span, stretch.count as usize), (span(chunk), chunk.len()));
            assert!((stretch.mean - mean).abs() < 0.01, "{} {mean}", stretch.mean);
        }
        let eights = values.chunks(FAN).skip(series.eights.dropped);
        assert!(series.eights.held.iter().zip(eights).all(|(entry, chunk)| *entry == span(chunk)));
    }

    #[test]
    fn a_long_run_takes_bounded_memory_and_keeps_its_extremes() {
        let (mut series, mut exact) = (small(), Series::default());
        for i in 0..200_000u32 {
            let value = if i == 777 { 5000.0 } else { ((i * 7919) % 1013) as f32 };
            series.push(value);
            exact.push(value);
        }
        assert!(series.values.held.len() <= 128 && series.whole.held.len() <= 32 && series.len() == 200_000);
        assert_eq!(series.extent(1.0, 2e5), exact.extent(1.0, 2e5));
        assert!(series.points(1.0, 2e5, 100).iter().any(|p| p[1] == 5000.0));
        // The newest values are exact, the oldest are represented by their extremes.
        assert_eq!(series.points(199_990.0, 2e5, 100), exact.points(199_990.0, 2e5, 100));
        assert!(series.points(1.0, 2000.0, 100).iter().any(|p| p[1] == 5000.0));
        assert_eq!((series.at(200_000), series.at(3), series.at(0)), (exact.at(200_000), None, None));
        assert!(series.near(3).is_some_and(|mean| (mean - 506.0).abs() < 10.0), "{:?}", series.near(3));
        assert_eq!((series.near(200_000), series.near(200_001)), (exact.at(200_000), None));
    }

    #[test]
    fn a_run_ten_times_as_long_takes_the_same_memory() {
        let mut series = Series::default();
        let mut grow = |to: u32| {
            (series.len() as u32..to).for_each(|i| series.push((i % 977) as f32));
            series.bytes_held()
        };
        let [early, late] = [2_000_000, 20_000_000].map(&mut grow);
        assert!(early == late && late < 2 << 20, "{early} {late}");
    }

    #[test]
    fn a_peak_among_a_million_values_is_drawn() {
        let mut values = vec![1.0; 1_000_000];
        values[654_321] = 9.0;
        let points = of(values).points(1.0, 1e6, 800);
        assert!(points.len() <= 1700, "{}", points.len());
        assert!(points.iter().any(|p| p[1] == 9.0));
        assert!(points.windows(2).all(|w| w[0][0] <= w[1][0]));
    }

    #[test]
    fn few_points_are_drawn_exactly() {
        let series = of([3.0, 1.0, 2.0]);
        assert_eq!(series.points(0.0, 9.0, 100), [[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]]);
        assert_eq!(series.extent(0.0, 9.0), Some((1.0, 3.0)));
    }
}
