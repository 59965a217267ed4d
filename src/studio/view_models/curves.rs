//! The curves of a run and the histogram of its step times.

use crate::studio::view_models::series::smoothed::Smoothed;
use crate::studio::view_models::series::values::Series;
use crate::train::BothWays;
use crate::train::runs::{Curves, LayerCurves, Quantity};

/// Points of a curve with few points, by rising step: in bounded memory, and without losing an extreme.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points(Vec<[f64; 2]>);

/// The largest number of points; a multiple of [`THINNED`].
const POINTS: usize = 1 << 12;
/// The number of points that are replaced by their minimum and maximum if there are too many.
const THINNED: usize = 4;

impl Points {
    /// Appends a point.
    pub fn push(&mut self, point: [f64; 2]) {
        if self.0.len() >= POINTS {
            self.thin();
        }
        self.0.push(point);
    }

    /// Replaces every few neighbours by their minimum and maximum.
    fn thin(&mut self) {
        let mut kept = 0;
        for from in (0..self.0.len()).step_by(THINNED) {
            let group = from..(from + THINNED).min(self.0.len());
            let by_value = |a: &usize, b: &usize| self.0[*a][1].total_cmp(&self.0[*b][1]);
            let ends = [group.clone().min_by(by_value), group.max_by(by_value)];
            let [Some(low), Some(high)] = ends else { continue };
            let pair = [self.0[low.min(high)], self.0[low.max(high)]];
            // No more points are written than were read: a single point is written once.
            for point in pair.into_iter().take(if low == high { 1 } else { 2 }) {
                self.0[kept] = point;
                kept += 1;
            }
        }
        self.0.truncate(kept);
    }

    /// Bytes of memory that the points take.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.0.capacity() * size_of::<[f64; 2]>()
    }
}

impl std::ops::Deref for Points {
    type Target = [[f64; 2]];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Extend<[f64; 2]> for Points {
    fn extend<T: IntoIterator<Item = [f64; 2]>>(&mut self, points: T) {
        points.into_iter().for_each(|p| self.push(p));
    }
}

impl FromIterator<[f64; 2]> for Points {
    fn from_iter<T: IntoIterator<Item = [f64; 2]>>(points: T) -> Self {
        let mut out = Self::default();
        out.extend(points);
        out
    }
}

/// The curves that every run has, of any length in the same memory.
#[derive(Debug)]
pub struct RunCurves {
    pub loss: Smoothed,
    pub accuracy: Smoothed,
    /// Time of the step on the host, in microseconds.
    pub step_us: Smoothed,
    /// The largest change of any parameter.
    pub update_max: Smoothed,
    /// Held-out loss and accuracy by step.
    pub held_out_loss: Points,
    pub held_out_accuracy: Points,
}

/// Data about each step of a run on the Train tab.
#[derive(Debug, Default)]
pub struct History {
    pub curves: RunCurves,
    /// The largest change of each trained parameter in one recent step.
    pub layer_updates: Vec<f32>,
    pub layers: LayerCurves,
    /// The learning rate of each step.
    pub lr: Series,
}

impl Default for RunCurves {
    fn default() -> Self {
        Self {
            loss: Smoothed::default(),
            accuracy: Smoothed::default(),
            step_us: Smoothed::geometric(),
            update_max: Smoothed::default(),
            held_out_loss: Points::default(),
            held_out_accuracy: Points::default(),
        }
    }
}

impl RunCurves {
    /// The smoothed curves, each with its quantity.
    pub fn smoothed_mut(&mut self) -> [(Quantity, &mut Smoothed); 4] {
        [
            (Quantity::Loss, &mut self.loss),
            (Quantity::Accuracy, &mut self.accuracy),
            (Quantity::StepUs, &mut self.step_us),
            (Quantity::UpdateMax, &mut self.update_max),
        ]
    }

    /// Smooths the curves with this weight.
    pub fn set_smoothing(&mut self, weight: f32) {
        self.smoothed_mut().into_iter().for_each(|(_, curve)| curve.set_weight(weight));
    }

    /// Adds the loss of held-out samples after a step, and the accuracy if there is one.
    pub fn push_held_out(&mut self, step: u64, loss: f64, accuracy: Option<f64>) {
        self.held_out_loss.push([step as f64, loss]);
        self.held_out_accuracy.extend(accuracy.map(|accuracy| [step as f64, accuracy]));
    }

    /// Bytes of memory that the curves take.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let smoothed = [&self.loss, &self.accuracy, &self.step_us, &self.update_max];
        let points = self.held_out_loss.bytes_held() + self.held_out_accuracy.bytes_held();
        smoothed.map(Smoothed::bytes_held).iter().sum::<usize>() + points
    }
}

impl History {
    /// The curves of a kept run, as if the window had trained it from its first step on; what was not kept is missing.
    #[must_use]
    pub fn of(curves: &Curves) -> Self {
        let mut out = Self { layers: curves.layers.clone(), ..Self::default() };
        let before = std::iter::repeat_n(f32::NAN, usize::try_from(curves.before).unwrap_or_default());
        let all = |quantity| before.clone().chain(curves.values(quantity).iter().copied());
        for (quantity, curve) in out.curves.smoothed_mut() {
            all(quantity).for_each(|v| curve.push(v));
        }
        all(Quantity::Lr).for_each(|v| out.lr.push(v));
        for e in &curves.evaluations {
            out.curves.push_held_out(e.step, e.loss, Some(e.accuracy).filter(|accuracy| accuracy.is_finite()));
        }
        out
    }
}

impl History {
    /// Bytes of memory that the curves take.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let layers = self.layers.bytes_held() + self.layer_updates.capacity() * size_of::<f32>();
        self.curves.bytes_held() + self.lr.bytes_held() + layers
    }
}

/// Counts of times in bins of equal width on a logarithmic axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The bins' edges in microseconds, one more than there are bins.
    pub edges_us: Vec<f64>,
    /// The share of all times in each bin.
    pub shares: Vec<f64>,
    pub count: usize,
    pub median_us: f64,
    pub p99_us: f64,
}

/// Bins of a histogram.
const BINS: usize = 48;

/// The quantile `q` of sorted values.
fn quantile(sorted: &[f32], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).map_or(0.0, |v| f64::from(*v))
}

impl Histogram {
    /// The histogram of sorted times in microseconds; empty if there are none. The slowest half per cent is counted in
    /// the last bin, so that one interruption does not compress all other times into a single bar.
    #[must_use]
    pub fn of_sorted(sorted: &[f32]) -> Self {
        let low = quantile(sorted, 0.0).max(1e-3);
        let high = (quantile(sorted, 0.995) * 1.02).max(low * 1.2);
        if sorted.is_empty() || !high.is_finite() {
            return Self::default();
        }
        Self::between(sorted, low, high)
    }

    /// Like [`Self::of_sorted`], with the first and the last edge given, in microseconds; times outside are counted in
    /// the nearest bin.
    #[must_use]
    pub fn between(sorted: &[f32], low: f64, high: f64) -> Self {
        let ratio = (high / low).ln();
        let edges_us: Vec<f64> = (0..=BINS).map(|i| low * (ratio * i as f64 / BINS as f64).exp()).collect();
        let mut shares = vec![0.0; BINS];
        for &us in sorted {
            let at = ((f64::from(us) / low).ln() / ratio * BINS as f64).floor();
            shares[(at.max(0.0) as usize).min(BINS - 1)] += 1.0 / sorted.len() as f64;
        }
        Self { edges_us, shares, count: sorted.len(), median_us: quantile(sorted, 0.5), p99_us: quantile(sorted, 0.99) }
    }
}

/// Steps timed eagerly and replayed, side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoWays {
    /// The number of steps that were made before they were timed.
    pub step: u64,
    pub eager: Histogram,
    pub replay: Histogram,
}

impl TwoWays {
    /// Both distributions over the same bins.
    #[must_use]
    pub fn of(times: &BothWays) -> Self {
        let [eager, replay] = [&times.eager_us, &times.replay_us].map(|t| {
            let mut sorted = t.clone();
            sorted.sort_by(f32::total_cmp);
            sorted
        });
        let low = quantile(&eager, 0.0).min(quantile(&replay, 0.0)).max(1e-3);
        let high = (quantile(&eager, 0.98).max(quantile(&replay, 0.98)) * 1.02).max(low * 1.2);
        let of = |sorted: &[f32]| Histogram::between(sorted, low, high);
        Self { step: times.step, eager: of(&eager), replay: of(&replay) }
    }

    /// The ratio of an eager step's time to a replayed one's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.eager.median_us / self.replay.median_us.max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stay_few_and_keep_their_extremes() {
        let mut points = Points::default();
        for step in 1..=200_000u32 {
            let y = if step == 777 { -9.0 } else { f64::from(step % 31) };
            points.push([f64::from(step), y]);
        }
        assert!(points.len() <= POINTS && points.bytes_held() <= POINTS * 16, "{}", points.len());
        assert!(points.contains(&[777.0, -9.0]) && points.last() == Some(&[200_000.0, f64::from(200_000 % 31)]));
        assert!(points.windows(2).all(|w| w[0][0] < w[1][0]));
        let even: Points = (0..5000u32).map(|step| [f64::from(step), 1.0]).collect();
        assert!(even.len() <= POINTS && even.windows(2).all(|w| w[0][0] < w[1][0]));
    }

    #[test]
    fn eager_and_replayed_times_share_their_bins() {
        let times = BothWays { step: 7, eager_us: vec![30.0, 31.0, 29.0], replay_us: vec![10.0, 11.0, 10.0] };
        let two = TwoWays::of(&times);
        assert_eq!((two.eager.edges_us.clone(), two.replay.median_us), (two.replay.edges_us.clone(), 10.0));
        assert!((two.ratio() - 3.0).abs() < 1e-9 && times.medians_us() == [30.0, 10.0]);
    }

    #[test]
    fn a_histogram_counts_everything_once() {
        let mut times: Vec<f32> = (0..1000).map(|i| 10.0 + (i % 10) as f32).collect();
        times[999] = 50_000.0;
        times.sort_by(f32::total_cmp);
        let h = Histogram::of_sorted(&times);
        assert!((h.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && h.count == 1000);
        assert!(h.edges_us[BINS] < 25.0 && (h.median_us - 14.5).abs() <= 0.5 && h.p99_us == 19.0, "{h:?}");
        assert!(*h.shares.last().unwrap() >= 0.001);
        assert_eq!(Histogram::of_sorted(&[]), Histogram::default());
        assert_eq!(Histogram::of_sorted(&[5.0]).shares.iter().sum::<f64>(), 1.0);
    }
}
