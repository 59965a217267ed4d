//! The curves of a run: the plain ones, how far each layer moved, in bounded memory, and the histogram of step times.

use super::widgets::series::{Series, Smoothed};
use crate::model::{LayerId, LayerPath, Model};
use crate::train::runs::{Curves, Quantity};
use crate::train::{BothWays, Spans};

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
    /// Steps of a kept run that goes on: its layers' changes are known behind them only.
    pub before: u64,
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
            before: 0,
            lr: Series::default(),
        }
    }
}

impl History {
    /// The curves of a kept run, as if the window had seen it from its first step on; what is not kept of it is not there.
    #[must_use]
    pub fn of(curves: &Curves) -> Self {
        let mut out = Self { before: curves.last_step(), ..Self::default() };
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

/// Stretches kept; when they are full, neighbours are joined two by two.
const STRETCHES: usize = 1024;

/// The largest change of any parameter of each layer, over the whole run: per stretch of steps the least and the largest, so that no extreme is lost
/// however long the run is.
#[derive(Clone, Debug, Default)]
pub struct LayerCurves {
    pub names: Vec<String>,
    pub paths: Vec<LayerPath>,
    /// The layer of each trained parameter, as a position in `names`.
    layer_of: Vec<usize>,
    /// First and last step of each stretch.
    steps: Vec<[u64; 2]>,
    /// Least and largest by stretch, one list a layer.
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

    /// True where nothing was told yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes in the extremes of each trained parameter over some steps.
    pub fn push(&mut self, spans: &Spans) {
        let Some(steps) = spans.steps else { return };
        if spans.low.len() != self.layer_of.len() || spans.high.len() != self.layer_of.len() {
            return;
        }
        if self.steps.len() == STRETCHES {
            self.halve();
        }
        self.steps.push(steps);
        for list in &mut self.values {
            list.push([0.0, 0.0]);
        }
        // A layer's change in a step is that of the parameter that moves most, so both extremes are maxima.
        for (&layer, (&low, &high)) in self.layer_of.iter().zip(spans.low.iter().zip(&spans.high)) {
            if let Some(last) = self.values[layer].last_mut() {
                *last = [last[0].max(low), last[1].max(high)];
            }
        }
    }

    /// Joins neighbours that are short for the length of the run, to half of the stretches or fewer: old ones are no coarser than new ones.
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
        for list in &mut self.values {
            let join = |[from, to]: &[usize; 2]| {
                list[*from..=*to].iter().fold(list[*from], |a, b| [a[0].min(b[0]), a[1].max(b[1])])
            };
            *list = groups.iter().map(join).collect();
        }
        self.steps = groups.iter().map(|[from, to]| [self.steps[*from][0], self.steps[*to][1]]).collect();
    }

    /// Points of a layer's curve between two steps, at most about `2 * pixels` of them.
    #[must_use]
    pub fn points(&self, layer: usize, from: f64, to: f64, pixels: usize) -> Vec<[f64; 2]> {
        let first = self.steps.partition_point(|s| (s[1] as f64) < from).saturating_sub(1);
        let last = (self.steps.partition_point(|s| (s[0] as f64) <= to) + 1).min(self.steps.len());
        let Some(values) = self.values.get(layer) else { return Vec::new() };
        if first >= last {
            return Vec::new();
        }
        let group = (last - first).div_ceil(pixels.max(8));
        let mut out = Vec::with_capacity(2 * (last - first).div_ceil(group));
        for (steps, values) in self.steps[first..last].chunks(group).zip(values[first..last].chunks(group)) {
            let [low, high] = values.iter().fold(values[0], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
            let (x0, x1) = (steps[0][0] as f64, steps[steps.len() - 1][1] as f64);
            if x0 == x1 {
                out.push([x0, f64::from(high)]);
                continue;
            }
            let rising = values[values.len() - 1][1] >= values[0][1];
            let (y0, y1) = if rising { (low, high) } else { (high, low) };
            out.push([x0, f64::from(y0)]);
            out.push([x1, f64::from(y1)]);
        }
        out
    }

    /// The largest change of a layer in the stretch that holds this step.
    #[must_use]
    pub fn at(&self, layer: usize, step: f64) -> Option<f32> {
        let index = self.steps.partition_point(|s| (s[1] as f64) < step).min(self.steps.len().checked_sub(1)?);
        self.values.get(layer)?.get(index).map(|v| v[1])
    }

    /// The least and the largest positive change of any layer between two steps.
    #[must_use]
    pub fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let points = (0..self.values.len()).flat_map(|l| self.points(l, from, to, 32)).map(|p| p[1]);
        let sound = points.filter(|y| y.is_finite() && *y > 0.0);
        sound.fold(None, |acc, y| Some(acc.map_or((y, y), |(a, b): (f64, f64)| (a.min(y), b.max(y)))))
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

    fn curves() -> LayerCurves {
        LayerCurves::of(&crate::model::check(&crate::studio::presets::digits()).model.unwrap())
    }

    #[test]
    fn a_peak_of_a_long_run_stays_in_the_curve_of_its_layer() {
        let mut curves = curves();
        assert_eq!(curves.names, ["L0:Dense", "L2:Dense"]);
        for step in 1..=200_000u64 {
            let mut spans = Spans::default();
            let peak = if step == 123_457 { 7.0 } else { 1e-3 };
            spans.add(step, &[1e-4, peak, 2e-4, 3e-4]);
            curves.push(&spans);
        }
        assert!(curves.steps.len() <= STRETCHES && curves.values.iter().all(|v| v.len() == curves.steps.len()));
        let points = curves.points(0, 1.0, 2e5, 300);
        assert!(points.len() <= 600 && points.iter().any(|p| p[1] == 7.0), "{}", points.len());
        assert!(points.windows(2).all(|w| w[0][0] <= w[1][0]));
        assert!(curves.points(1, 1.0, 2e5, 300).iter().all(|p| (p[1] - 3e-4).abs() < 1e-9));
        assert_eq!((curves.at(0, 123_457.0), curves.at(1, 9.0)), (Some(7.0), Some(3e-4)));
        let (_, high) = curves.extent(1.0, 2e5).unwrap();
        assert_eq!(high, 7.0);
        // However often neighbours were joined, no stretch is much longer than the others.
        let longest = curves.steps.iter().map(|s| s[1] + 1 - s[0]).max().unwrap();
        assert!(longest <= 4 * 200_000 / STRETCHES as u64 + 2, "{longest}");
    }

    #[test]
    fn values_of_another_network_are_not_taken_in() {
        let mut curves = curves();
        let mut spans = Spans::default();
        spans.add(1, &[1.0]);
        curves.push(&spans);
        assert!(curves.is_empty() && curves.at(0, 1.0).is_none() && curves.points(0, 0.0, 9.0, 10).is_empty());
    }

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
