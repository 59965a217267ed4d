//! The curves of a kept run, ready to be drawn.

use crate::studio::view_models::curves::RunCurves;
use crate::train::runs::{Curves, Outline, RunEntry};

/// The weight with which the curves of kept runs are smoothed.
const SMOOTHING: f32 = 0.95;

/// The curves of a run, ready to be drawn.
#[derive(Debug)]
pub struct LoadedRun {
    pub id: String,
    pub curves: RunCurves,
    /// For running times and layers; the other values are in the curves above.
    pub outline: Outline,
    /// The number of steps that were known when it was read.
    pub steps: u64,
}

impl LoadedRun {
    /// The curves of this run, smoothed as they are drawn.
    #[must_use]
    pub fn new(entry: &RunEntry, kept: Curves) -> Self {
        let mut curves = RunCurves::default();
        curves.set_smoothing(SMOOTHING);
        for (quantity, curve) in curves.smoothed_mut() {
            kept.values(quantity).iter().for_each(|v| curve.push(*v));
        }
        for e in &kept.evaluations {
            let point = |value: f64| value.is_finite().then_some([e.step as f64, value]);
            curves.held_out_loss.extend(point(e.loss));
            curves.held_out_accuracy.extend(point(e.accuracy));
        }
        Self { id: entry.id.clone(), curves, outline: kept.outline(), steps: entry.record.steps }
    }
}
