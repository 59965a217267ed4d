//! The curves of a run and the histogram of its step times.

use super::widgets::series::{Series, Smoothed};
use crate::train::BothWays;
use crate::train::runs::{Curves, LayerCurves, Quantity};

/// The curves of a run.
#[derive(Debug)]
pub struct History {
    pub loss: Smoothed,
    pub accuracy: Smoothed,
    /// Time of the step on the host, in microseconds.
    pub step_us: Smoothed,
    /// The largest change of any parameter.
    pub update_max: Smoothed,
    /// Held-out loss and accuracy by step.
    pub held_out_loss: Vec<[f64; 2]>,
    pub held_out_accuracy: Vec<[f64; 2]>,
    /// The largest change of each trained parameter in one recent step.
    pub layer_updates: Vec<f32>,
    pub layers: LayerCurves,
    /// The learning rate of each step.
    pub lr: Series,
}

impl Default for History {
    fn default() -> Self {
        Self {
            loss: Smoothed::default(),
            accuracy: Smoothed::default(),
            step_us: Smoothed::geometric(),
            update_max: Smoothed::default(),
            held_out_loss: Vec::new(),
            held_out_accuracy: Vec::new(),
            layer_updates: Vec::new(),
            layers: LayerCurves::default(),
            lr: Series::default(),
        }
    }
}

impl History {
    /// The curves of a kept run, as if the window had seen it from its first step on; what is not kept of it is not there.
    #[must_use]
    pub fn of(curves: &Curves) -> Self {
        let mut out = Self { layers: curves.layers.clone(), ..Self::default() };
        let before = std::iter::repeat_n(f32::NAN, usize::try_from(curves.before).unwrap_or_default());
        let all = |quantity| before.clone().chain(curves.values(quantity).iter().copied());
        for (curve, quantity) in [
            (&mut out.loss, Quantity::Loss),
            (&mut out.accuracy, Quantity::Accuracy),
            (&mut out.step_us, Quantity::StepUs),
            (&mut out.update_max, Quantity::UpdateMax),
        ] {
            all(quantity).for_each(|v| curve.push(v));
        }
        all(Quantity::Lr).for_each(|v| out.lr.push(v));
        for e in &curves.evaluations {
            out.held_out_loss.push([e.step as f64, e.loss]);
            out.held_out_accuracy.extend(e.accuracy.is_finite().then_some([e.step as f64, e.accuracy]));
        }
        out
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
    /// The histogram of sorted times in microseconds; empty where there are none. The slowest half per cent falls into the last bin, so that one
    /// interruption does not squeeze all other times into a single bar.
    #[must_use]
    pub fn of_sorted(sorted: &[f32]) -> Self {
        let low = quantile(sorted, 0.0).max(1e-3);
        let high = (quantile(sorted, 0.995) * 1.02).max(low * 1.2);
        if sorted.is_empty() || !high.is_finite() {
            return Self::default();
        }
        Self::between(sorted, low, high)
    }

    /// As [`Self::of_sorted`], with the first and the last edge given, in microseconds; times outside count in the bin next to them.
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
    /// Steps made when they were timed.
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

    /// How many times as long an eager step takes.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.eager.median_us / self.replay.median_us.max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ways_share_their_bins() {
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
