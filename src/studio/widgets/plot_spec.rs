//! What a plot of a run shows: its curve, its points and the format of its values.

use crate::studio::view_models::series::smoothed::Smoothed;
use crate::studio::view_models::series::values::Series;
use crate::studio::widgets::smoothing::smoothed_points;
use crate::train::runs::LayerCurves;

/// The main curve.
pub enum Curve<'a> {
    /// A curve over every step, with its smoothed copy.
    Smoothed(&'a Smoothed),
    Plain(&'a Series),
    /// One curve for each layer; `marked` is drawn bold.
    Layers {
        curves: &'a LayerCurves,
        marked: Option<usize>,
    },
}

/// The content of a plot.
pub struct PlotSpec<'a> {
    pub title: &'static str,
    /// The unit in the title, or empty.
    pub unit: &'static str,
    /// What is missing from the curve, shown as an icon with this tooltip; empty if nothing is missing.
    pub note: &'a str,
    pub curve: Curve<'a>,
    pub curve_name: &'static str,
    /// Points at some steps.
    pub points: &'a [[f64; 2]],
    pub points_name: &'static str,
    /// Steps between the points, if this is known.
    pub points_every: Option<u64>,
    /// The number of steps made.
    pub steps: usize,
    /// The curve of a pinned run, by name, drawn faintly behind this one.
    pub baseline: Option<(&'a str, &'a Series)>,
    pub log: bool,
    /// Whether the axis may be logarithmic.
    pub can_log: bool,
    /// Bounds that the data should not leave, such as 0 to 1.
    pub range: Option<(f64, f64)>,
    /// The name of the exponential of a value, if that is more useful than the value: the perplexity of a loss.
    pub exponential: Option<&'static str>,
    /// The format of a value.
    pub value: fn(f64) -> String,
    /// The format of a mark of the vertical axis, with its unit if it has one; the second argument is the distance of
    /// marks.
    pub tick: fn(f64, f64) -> String,
}

impl PlotSpec<'_> {
    /// The weight of the past in the bold curves.
    pub(super) const fn smoothing(&self) -> f32 {
        match &self.curve {
            Curve::Smoothed(curve) => curve.weight(),
            Curve::Plain(_) | Curve::Layers { .. } => 0.0,
        }
    }

    /// Every curve's name and value at a step, the layers' largest first; the last values if `step` is `None`.
    pub(super) fn values_at(&self, step: Option<f64>) -> Vec<(String, f64)> {
        let at = |series: &Series| match step {
            None => series.last(),
            Some(step) => series.near(step.round().max(1.0) as usize),
        };
        let mut out: Vec<(String, f64)> = Vec::new();
        match &self.curve {
            Curve::Smoothed(s) => {
                out.extend(at(&s.smooth).map(|v| (self.curve_name.to_owned(), f64::from(v))));
                // For values that are not stored exactly, no single value is known.
                let raw = step.and_then(|step| s.raw.at(step.round().max(1.0) as usize));
                out.extend(raw.map(|v| ("raw".to_owned(), f64::from(v))));
            }
            Curve::Plain(s) => out.extend(at(s).map(|v| (self.curve_name.to_owned(), f64::from(v)))),
            Curve::Layers { curves, marked } => {
                let step = step.unwrap_or(f64::INFINITY);
                let all = curves.names.iter().enumerate();
                out.extend(all.filter_map(|(i, n)| curves.at(i, step).map(|v| (n.clone(), f64::from(v)))));
                let first = marked.and_then(|m| curves.names.get(m));
                out.sort_by(|a, b| (Some(&b.0) == first).cmp(&(Some(&a.0) == first)).then(b.1.total_cmp(&a.1)));
            }
        }
        if !matches!(self.curve, Curve::Layers { .. }) {
            let step = step.unwrap_or(f64::INFINITY);
            let smoothed = smoothed_points(self.points, self.smoothing());
            out.extend(point_at(&smoothed, step).map(|v| (self.points_name.to_owned(), v)));
            if self.smoothing() > 0.0 && step.is_finite() {
                let raw = point_at(self.points, step);
                out.extend(raw.map(|v| (format!("{} raw", self.points_name), v)));
            }
        }
        out.retain(|(_, v)| v.is_finite());
        out
    }

    /// The exponentials of the curve's value and that of the last point, as text.
    pub(super) fn exponentials(&self, values: &[(String, f64)]) -> Option<String> {
        let name = self.exponential?;
        let curve = values.first().filter(|(own, _)| own == self.curve_name)?.1.exp();
        let point = values.iter().find(|(own, _)| own == self.points_name).map(|(_, v)| v.exp());
        let point = point.map_or_else(String::new, |p| format!(" / {}", (self.value)(p)));
        Some(format!("{name} {}{point}", (self.value)(curve)))
    }

    /// The least and the largest value between two steps.
    pub(super) fn extent(&self, from: f64, to: f64) -> Option<(f64, f64)> {
        let mut extent = match &self.curve {
            Curve::Smoothed(s) => s.raw.extent(from, to),
            Curve::Plain(s) => s.extent(from, to),
            Curve::Layers { curves, .. } => curves.extent(from, to),
        };
        if let Some((a, b)) = self.baseline.and_then(|(_, s)| s.extent(from, to)) {
            extent = Some(extent.map_or((a, b), |(low, high)| (low.min(a), high.max(b))));
        }
        for p in self.points.iter().filter(|p| from <= p[0] && p[0] <= to) {
            extent = Some(extent.map_or((p[1], p[1]), |(a, b)| (a.min(p[1]), b.max(p[1]))));
        }
        extent
    }
}

/// The value of the last point at or before a step.
pub(super) fn point_at(points: &[[f64; 2]], step: f64) -> Option<f64> {
    points[..points.partition_point(|p| p[0] <= step + 0.5)].last().map(|p| p[1])
}
