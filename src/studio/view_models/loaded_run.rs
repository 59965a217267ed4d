//! The curves of a kept run, ready to be drawn.

use crate::studio::view_models::curves::Points;
use crate::studio::view_models::series::smoothed::Smoothed;
use crate::train::runs::{Curves, Outline, Quantity, RunEntry};

/// The curves of a run, ready to be drawn.
#[derive(Debug)]
pub struct LoadedRun {
    pub id: String,
    pub loss: Smoothed,
    pub accuracy: Smoothed,
    pub step_us: Smoothed,
    pub update_max: Smoothed,
    pub held_out_loss: Points,
    pub held_out_accuracy: Points,
    /// For running times and layers; the values are in the curves above.
    pub curves: Outline,
    /// Steps that were known when it was read.
    pub steps: u64,
}

impl LoadedRun {
    /// The curves of this run, smoothed as they are drawn.
    #[must_use]
    pub fn new(entry: &RunEntry, curves: Curves) -> Self {
        let smoothed = |quantity: Quantity| {
            let mut s = if quantity == Quantity::StepUs { Smoothed::geometric() } else { Smoothed::default() };
            s.set_weight(0.95);
            curves.values(quantity).iter().for_each(|v| s.push(*v));
            s
        };
        let points = |value: fn(&crate::train::runs::EvaluationPoint) -> f64| -> Points {
            curves.evaluations.iter().map(|e| [e.step as f64, value(e)]).filter(|p| p[1].is_finite()).collect()
        };
        Self {
            id: entry.id.clone(),
            loss: smoothed(Quantity::Loss),
            accuracy: smoothed(Quantity::Accuracy),
            step_us: smoothed(Quantity::StepUs),
            update_max: smoothed(Quantity::UpdateMax),
            held_out_loss: points(|e| e.loss),
            held_out_accuracy: points(|e| e.accuracy),
            steps: entry.record.steps,
            curves: curves.outline(),
        }
    }
}
