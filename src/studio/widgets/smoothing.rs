//! Smoothed held-out points: an exponential moving average over every step, as for the training curve, of the line
//! between the points.
//!
//! A falling curve is below its average over the past. Unsmoothed held-out points beside a smoothed training curve
//! would make training look worse than it is, so both are averaged over the same steps.

/// The smoothed values of points `[step, value]`. `weight` is the weight of the past for each step, from 0 (no
/// smoothing) to below 1. Before its first point the line has the value of that point, and the first smoothed value is
/// the first value.
#[must_use]
pub fn smoothed_points(points: &[[f64; 2]], weight: f32) -> Vec<[f64; 2]> {
    let weight = f64::from(weight);
    if weight <= 0.0 {
        return points.to_vec();
    }
    let mut average = Average { weight, sum: 0.0, scale: 0.0 };
    let mut last: Option<[f64; 2]> = None;
    let mut smooth = |&[step, value]: &[f64; 2]| {
        if !value.is_finite() {
            return [step, value];
        }
        let [from, before] = last.replace([step, value]).unwrap_or([0.0, value]);
        average.line(before, value, step - from);
        [step, if average.scale > 0.0 { average.sum / average.scale } else { value }]
    };
    points.iter().map(&mut smooth).collect()
}

/// An exponential average without an initial value: the weighted sum of its values, and the sum of the weights to
/// divide it by.
struct Average {
    weight: f64,
    sum: f64,
    scale: f64,
}

impl Average {
    /// Adds the values of `steps` steps, which are on a line from `before` (exclusive) to `value`.
    fn line(&mut self, before: f64, value: f64, steps: f64) {
        if steps < 1.0 {
            return;
        }
        let (w, rise) = (self.weight, (value - before) / steps);
        // The sum over j from 0 to steps - 1 of (1 - w) w^j (value - rise j), in closed form.
        let past = w.powf(steps);
        let behind = (w - steps * past + (steps - 1.0) * past * w) / (1.0 - w);
        self.sum = past * self.sum + value * (1.0 - past) - rise * behind;
        self.scale = past * self.scale + 1.0 - past;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::view_models::series::smoothed::Smoothed;

    /// The same with the average of a curve over every step.
    fn step_by_step(points: &[[f64; 2]], weight: f32) -> Vec<f64> {
        let mut curve = Smoothed::default();
        curve.set_weight(weight);
        let mut from = [0.0, points[0][1]];
        let mut out = Vec::new();
        for p in points {
            let steps = p[0] - from[0];
            (1..=steps as usize).for_each(|i| curve.push((from[1] + (p[1] - from[1]) * i as f64 / steps) as f32));
            from = *p;
            out.push(curve.smooth.last().map_or(f64::NAN, f64::from));
        }
        out
    }

    #[test]
    fn held_out_points_are_averaged_over_the_same_steps_as_the_curve() {
        let points = [[20.0, 2.0], [40.0, 1.0], [100.0, 0.4], [101.0, 0.9], [500.0, 0.3]];
        for weight in [0.5, 0.95, 0.999] {
            for (p, wanted) in smoothed_points(&points, weight).iter().zip(step_by_step(&points, weight)) {
                assert!((p[1] - wanted).abs() < 1e-4, "{weight}: {p:?}, {wanted}");
            }
        }
        assert_eq!(smoothed_points(&points, 0.0), points);
        assert_eq!(smoothed_points(&points, 0.95)[0], points[0]);
    }

    #[test]
    fn equal_training_and_held_out_losses_look_equal() {
        let truth = |step: f64| 2.0 * (-step / 60.0).exp() + 0.1;
        let mut curve = Smoothed::default();
        curve.set_weight(0.95);
        (1..=400u16).for_each(|step| curve.push(truth(f64::from(step)) as f32));
        let points: Vec<[f64; 2]> = (1..=40u16).map(|i| f64::from(i) * 10.0).map(|s| [s, truth(s)]).collect();
        for p in &smoothed_points(&points, 0.95)[4..] {
            let train = f64::from(curve.smooth.at(p[0] as usize).unwrap());
            assert!((train - p[1]).abs() < 0.05 * p[1], "{p:?} beside {train}");
        }
        // The points without smoothing would be far below it.
        let train = f64::from(curve.smooth.at(100).unwrap());
        assert!(train > 1.2 * truth(100.0), "{train}");
    }

    #[test]
    fn a_point_that_is_not_finite_does_not_affect_the_others() {
        let points = [[10.0, 1.0], [20.0, f64::NAN], [30.0, 1.0], [30.0, 1.0]];
        let found = smoothed_points(&points, 0.9);
        assert!(found[1][1].is_nan() && [0, 2, 3].iter().all(|i| (found[*i][1] - 1.0).abs() < 1e-12), "{found:?}");
    }
}
