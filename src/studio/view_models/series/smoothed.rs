//! A curve with its smoothed copy: a running average that starts with the first value.

use crate::studio::view_models::series::values::{FAN, Series, Span, Stretch, Tail, Whole};

/// A curve with its smoothed copy.
#[derive(Clone, Debug, Default)]
pub struct Smoothed {
    pub raw: Series,
    pub smooth: Series,
    /// The weight of the past in each smoothed value; 0 is no smoothing.
    weight: f32,
    state: f32,
    scale: f32,
}

impl Smoothed {
    /// A curve whose smoothed copy averages logarithms: for times, so that one slow step does not hide a hundred usual
    /// ones.
    #[must_use]
    pub fn geometric() -> Self {
        let series = || Series { is_geometric: true, ..Series::default() };
        Self { raw: series(), smooth: series(), ..Self::default() }
    }

    /// The weight of the past in each smoothed value.
    #[must_use]
    pub const fn weight(&self) -> f32 {
        self.weight
    }

    /// Appends a value to both.
    pub fn push(&mut self, value: f32) {
        self.raw.push(value);
        self.follow(value);
    }

    /// Bytes of memory that both curves take.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.raw.bytes_held() + self.smooth.bytes_held()
    }

    /// Updates the average with `level`, as if it had occurred `count` times.
    fn average(&mut self, level: f32, count: f32) {
        // Dividing by the sum of the weights so far removes the bias of the first values towards zero.
        let past = self.weight.powf(count);
        self.state = past * self.state + (1.0 - past) * level;
        self.scale = past * self.scale + (1.0 - past);
    }

    /// The average as a value of the curve; `or` if nothing was averaged yet.
    fn averaged(&self, or: f32) -> f32 {
        if self.scale <= 0.0 {
            return or;
        }
        let level = self.state / self.scale;
        if self.raw.is_geometric { level.exp() } else { level }
    }

    fn follow(&mut self, value: f32) {
        if let Some(level) = self.raw.level(value) {
            self.average(level, 1.0);
        }
        self.smooth.push(self.averaged(value));
    }

    /// Changes the smoothing of the whole curve.
    pub fn set_weight(&mut self, weight: f32) {
        if weight == self.weight {
            return;
        }
        (self.weight, self.state, self.scale) = (weight, 0.0, 0.0);
        self.smooth = self.smooth_stretches();
        for index in self.raw.values.dropped..self.raw.len() {
            if let Some(value) = self.raw.values.get(index) {
                self.follow(value);
            }
        }
    }

    /// Smooths the curve up to the first stored value: for older values, only the mean of every range is known.
    fn smooth_stretches(&mut self) -> Series {
        let (dropped, width) = (self.raw.values.dropped, self.raw.whole.width);
        let mut whole = Whole { width, ..Whole::new(self.raw.whole.most) };
        whole.held.reserve_exact(self.raw.whole.held.capacity());
        for at in 0..dropped.div_ceil(width) {
            let Some(&stretch) = self.raw.whole.held.get(at) else { break };
            if self.weight == 0.0 {
                whole.held.push(stretch);
                continue;
            }
            if stretch.count > 0 {
                self.average(stretch.mean, stretch.count.min((dropped - at * width) as u32) as f32);
            }
            let value = self.averaged(stretch.span.max);
            let mean = self.raw.level(value);
            whole.held.push(Stretch {
                span: Span::of(value),
                mean: mean.unwrap_or(0.0),
                count: u32::from(mean.is_some()),
            });
        }
        Series {
            values: Tail { held: Vec::new(), dropped },
            eights: Tail { held: Vec::new(), dropped: dropped / FAN },
            whole,
            held: self.raw.held,
            is_geometric: self.raw.is_geometric,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_smoothing_of_a_long_run_reaches_its_first_step() {
        let raw = || Series::holding(64, 32);
        let mut s = Smoothed { raw: raw(), smooth: raw(), ..Smoothed::default() };
        s.set_weight(0.9);
        (0..10_000u16).for_each(|i| s.push(f32::from(i)));
        let (live, at) = (s.smooth.last(), s.smooth.near(9_000));
        s.set_weight(0.5);
        s.set_weight(0.9);
        assert_eq!((s.smooth.len(), s.raw.len()), (10_000, 10_000));
        // Stored values give the same results; reduced ones give those of their ranges.
        assert!(s.smooth.last().zip(live).is_some_and(|(a, b)| (a - b).abs() < 0.1), "{live:?} {:?}", s.smooth.last());
        assert!(s.smooth.near(9_000).zip(at).is_some_and(|(a, b)| (a - b).abs() < 512.0), "{at:?}");
        let points = s.smooth.points(1.0, 1e4, 2000);
        assert!(points[0][0] == 1.0 && (points[0][1] - 255.5).abs() < 0.5, "{points:?}");
        assert!(points.windows(2).all(|w| w[0][1] <= w[1][1] + 1.0), "{points:?}");
        s.push(7.0);
        assert_eq!(s.smooth.len(), 10_001);
        s.set_weight(0.0);
        assert_eq!(s.smooth.points(1.0, 1e4, 2000), s.raw.points(1.0, 1e4, 2000));
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
