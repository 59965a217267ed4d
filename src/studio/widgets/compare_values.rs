//! The values of several runs' curves at one position: the values under the pointer.

use crate::studio::view_models::format;
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::widgets::compare_spec::{CompareSpec, Compared, Shown};
use crate::studio::widgets::plot_spec::point_at;
use crate::studio::widgets::smoothing::smoothed_points;

/// The largest number of values that are listed at the pointer.
const LISTED: usize = 12;
/// Characters of a run's name beside its letter.
const NAME_LENGTH: usize = 18;

/// The last step of a run at this position of the axis; `None` before its first and after its last one.
fn step_at(run: &LoadedRun, x: f64, by_time: bool) -> Option<u64> {
    let outline = &run.outline;
    let step = if by_time {
        // Running times increase from step to step.
        let (mut low, mut high) = (0, (outline.last_step - outline.before) as usize);
        while low < high {
            let middle = usize::midpoint(low, high);
            if outline.ms(middle) * 1e-3 < x { low = middle + 1 } else { high = middle }
        }
        outline.before + low as u64 + 1
    } else {
        x.round().max(1.0) as u64
    };
    (outline.before < step && step <= outline.last_step).then_some(step)
}

/// Every curve's name and value at a position of the axis, in the order of the runs; for a single run its layers with
/// the largest first.
pub(super) fn values_at(runs: &[Compared<'_>], spec: &CompareSpec<'_>, x: f64) -> Vec<(String, f64)> {
    let is_alone = runs.len() == 1;
    let mut out = Vec::new();
    for of in runs {
        let Some(step) = step_at(of.run, x, spec.by_time) else { continue };
        let name = format!("{} {}", of.letter, format::elided(of.name, NAME_LENGTH));
        match spec.shown {
            Shown::Curve(curve, points) => {
                let (curve, points) = (curve(of.run), points(of.run));
                let index = (step - of.run.outline.before) as usize;
                let smooth = curve.smooth.at(index).map(f64::from);
                out.extend(smooth.map(|v| (if is_alone { "smoothed".to_owned() } else { name }, v)));
                if is_alone {
                    out.extend(curve.raw.at(index).map(|v| ("raw".to_owned(), f64::from(v))));
                }
                let smoothed = smoothed_points(points, curve.weight());
                let held_out = if is_alone { "held-out".to_owned() } else { format!("{} held-out", of.letter) };
                out.extend(point_at(&smoothed, step as f64).map(|v| (held_out, v)));
            }
            Shown::Layer(shown) => {
                let layers = &of.run.outline.layers;
                let wanted = layers.names.iter().enumerate().filter(|(_, n)| is_alone || *n == shown);
                let found = wanted.filter_map(|(i, n)| {
                    let value = f64::from(layers.at(i, step as f64)?);
                    Some((if is_alone { n.clone() } else { name.clone() }, value))
                });
                out.extend(found);
            }
        }
    }
    out.retain(|(_, v)| v.is_finite());
    if is_alone && matches!(spec.shown, Shown::Layer(_)) {
        out.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
    out
}

/// The position on the axis, and a line for every curve there.
pub(super) fn listed(runs: &[Compared<'_>], spec: &CompareSpec<'_>, x: f64) -> Vec<String> {
    let values = values_at(runs, spec, x);
    let x = x.max(0.0);
    let place = if spec.by_time { format!("at {x:.3} s") } else { format!("step {}", format::exact(x.round() as u64)) };
    let lines = values.iter().take(LISTED).map(|(name, v)| format!("{name} {}", (spec.value)(*v)));
    let mut out: Vec<String> = std::iter::once(place).chain(lines).collect();
    if values.len() > LISTED {
        out.push(format!("and {} more", values.len() - LISTED));
    }
    out
}
