//! Marks on axes: at round values, as short as they can be.

use crate::studio::view_models::format;
use crate::tensor::scientific;
use egui_plot::{GridInput, GridMark, HoverPosition, Plot, PlotPoint};
use std::ops::RangeInclusive;

/// The smallest value on a logarithmic axis.
const FLOOR: f64 = 1e-12;

/// The position of a value along an axis.
pub(super) fn scale(log: bool, y: f64) -> f64 {
    if log { y.max(FLOOR).log10() } else { y }
}

/// The place in a plot whose values are shown beside the pointer: the nearest point of a curve, otherwise the pointer.
pub fn hovered(at: &HoverPosition<'_>) -> PlotPoint {
    match at {
        HoverPosition::NearDataPoint { position, .. } | HoverPosition::Elsewhere { position } => *position,
    }
}

/// The distance of marks on a vertical axis, in points, below which labels fade.
const LOG_MARK: f64 = 30.0;
/// Powers of ten that a number of 64 bits can hold.
const POWERS: (f64, f64) = (-320.0, 308.0);
/// The number of decades below which a logarithmic axis has its marks at round values, like a linear one.
const NARROW: f64 = 0.7;

/// The distance of marks at round values on a logarithmic axis whose range is too small for powers of ten; `None` for
/// other axes.
fn narrow_step(low: f64, high: f64) -> Option<f64> {
    (high - low < NARROW).then(|| round_step(((10f64.powf(high) - 10f64.powf(low)) / 5.0).max(1e-300)))
}

/// The number of powers of ten between marks of a logarithmic axis, if a decade has this many points.
fn power_step(decade: f64) -> i32 {
    const STEPS: [i32; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    STEPS.into_iter().find(|n| f64::from(*n) * decade >= LOG_MARK).unwrap_or(STEPS[STEPS.len() - 1])
}

/// Marks of a logarithmic axis of this length in points: powers of ten, fewer if there are many, and with twos and
/// fives between them, or at round values, if there are few.
fn log_marks((low, high): (f64, f64), length: f32) -> Vec<GridMark> {
    if let Some(step) = narrow_step(low, high) {
        let (first, last) = (10f64.powf(low) / step, 10f64.powf(high) / step);
        let marks = (first.ceil() as i64..=(last.floor() as i64).min(first.ceil() as i64 + 64)).filter(|i| *i > 0);
        return marks.map(|i| GridMark { value: (i as f64 * step).log10(), step_size: 1.0 }).collect();
    }
    let fine = high - low < 2.5;
    let apart = power_step(f64::from(length) / (high - low));
    let (low, high) = (low.max(POWERS.0), high.min(POWERS.1));
    let mut marks = Vec::new();
    for power in ((low.floor() as i32)..=(high.ceil() as i32)).filter(|p| p.rem_euclid(apart) == 0) {
        marks.push(GridMark { value: f64::from(power), step_size: f64::from(apart) });
        if fine {
            marks.extend([2.0f64, 5.0].map(|m| GridMark {
                value: f64::from(power) + m.log10(),
                step_size: if high - low < 1.2 { 1.0 } else { 0.3 },
            }));
        }
    }
    marks.retain(|m| low <= m.value && m.value <= high);
    marks
}

/// A mark of a logarithmic axis as its value, and the distance to the neighbouring marks; 0 if that grows with the
/// value.
fn log_value(mark: GridMark, range: &RangeInclusive<f64>) -> (f64, f64) {
    (10f64.powf(mark.value), narrow_step(*range.start(), *range.end()).unwrap_or(0.0))
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= wanted * (1.0 - 1e-9)).unwrap_or(power)
}

/// Marks of the step axis: at whole numbers, at most about `room` of them.
pub(super) fn step_marks((low, high): (f64, f64), room: f64) -> Vec<GridMark> {
    let step_size = round_step(((high - low) / room.max(1.0)).max(1.0));
    // The bounds are computed from pixels: a mark at the edge must not be lost to rounding.
    let first = (low.max(0.0) / step_size - 1e-6).ceil() as i64;
    let last = (high / step_size + 1e-6).floor() as i64;
    (first..=last.min(first + 64)).map(|i| GridMark { value: i as f64 * step_size, step_size }).collect()
}

/// A mark on the step axis: shortened if the marks remain distinguishable, otherwise exact.
pub(super) fn step_tick(mark: GridMark) -> String {
    let step = mark.value.round().max(0.0);
    let shown = if step >= 999_500.0 { 1e5 } else { 100.0 };
    if step >= 1000.0 && mark.step_size < shown {
        return format::exact(step as u64);
    }
    format::count(step).replace(".0 ", " ")
}

/// Marks of a linear axis: about `most`, at round values.
pub(super) fn linear_marks(input: &GridInput, most: f64) -> Vec<GridMark> {
    let (low, high) = input.bounds;
    let step = round_step(((high - low) / most).max(1e-12));
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 64)).map(|i| GridMark { value: i as f64 * step, step_size: step }).collect()
}

/// The number of decimals that distinguish values with this distance; `i32::MIN` if it is not known.
fn decimals(step: f64) -> i32 {
    if step > 0.0 && step.is_finite() { -(step.log10() + 1e-9).floor() as i32 } else { i32::MIN }
}

/// A mark on the vertical axis, as short as possible but different from that at a distance of `step`; a step of 0 means
/// that it is not known.
pub(crate) fn tick(value: f64, step: f64) -> String {
    let a = value.abs();
    let apart = decimals(step);
    if value == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&a) {
        let digits = apart.saturating_add(a.log10().floor() as i32).clamp(0, 8) as usize;
        // The neighbours of a mark on a logarithmic axis are far away, so two or three digits are enough.
        scientific(value, if step > 0.0 { digits } else { 1 })
    } else if a >= 1000.0 && step > 0.0 && step < a * 1e-3 {
        format!("{value:.0$}", apart.clamp(0, 5) as usize)
    } else if a >= 1000.0 {
        format::count(value).replace(".0 ", " ")
    } else {
        // Three significant digits are enough for a mark, unless its neighbours need more.
        let digits = (2 - a.log10().floor() as i32).max(apart).clamp(0, 8) as usize;
        let text = format!("{value:.digits$}");
        if !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// A time in microseconds on an axis, with its unit and without superfluous digits.
pub(crate) fn time_tick(us: f64, step: f64) -> String {
    let (scale, unit) = match us {
        us if us >= 0.9995e6 => (1e6, "s"),
        us if us >= 999.5 => (1e3, "ms"),
        _ => (1.0, "µs"),
    };
    let value = us / scale;
    if value <= 0.0 {
        return format!("0 {unit}");
    }
    let digits = (2 - value.log10().floor() as i32).clamp(0, 3).max(decimals(step / scale)).min(8) as usize;
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// The largest width of a mark's label, in points.
fn width_of(text: &str) -> f32 {
    const LETTER: f32 = 8.0;
    text.chars().count() as f32 * LETTER
}

/// A mark's label along the bottom, which is centred on its position, unless it would extend beyond the edge of a plot
/// that is `width` points wide.
pub(super) fn inside(text: String, at: f64, range: &RangeInclusive<f64>, width: f32) -> String {
    let span = (range.end() - range.start()).max(f64::MIN_POSITIVE);
    let left = ((range.end() - at) / span) as f32 * width;
    if left + 0.5 >= width_of(&text) / 2.0 { text } else { String::new() }
}

/// A plot with marks and numbers at its vertical axis, `inner` points high; `log` if it shows logarithms. `tick`
/// returns the text of a value, for marks with this distance.
pub(super) fn with_values(plot: Plot<'_>, log: bool, tick: fn(f64, f64) -> String, inner: f32) -> Plot<'_> {
    plot.y_grid_spacer(move |input| if log { log_marks(input.bounds, inner) } else { linear_marks(&input, 6.0) })
        .y_axis_formatter(move |mark: GridMark, range| {
            let (at, step) = if log { log_value(mark, range) } else { (mark.value, mark.step_size) };
            below(tick(at, step), mark.value, range, inner)
        })
}

/// A mark's label along the side of a plot that is `height` points high, unless it would extend beyond the upper edge.
pub(super) fn below(text: String, at: f64, range: &RangeInclusive<f64>, height: f32) -> String {
    const HALF: f64 = 4.5;
    let span = (range.end() - range.start()).max(f64::MIN_POSITIVE);
    if (range.end() - at) / span * f64::from(height) >= HALF { text } else { String::new() }
}

/// The end of a step axis of `width` points at which the label of the last mark fits.
pub(super) fn step_end(steps: f64, room: f64, width: f32) -> f64 {
    let marks = step_marks((0.0, steps), room);
    let Some(last) = marks.last() else { return steps };
    let half = f64::from(width_of(&step_tick(*last)) / 2.0 + 1.0);
    let width = f64::from(width);
    // At most an eighth of the axis stays empty.
    steps.max((last.value * width / (width - half).max(1.0)).min(steps * 1.125))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_short() {
        assert_eq!([0.0, 0.5, 2.0, 0.000_1, 12_000.0].map(|v| tick(v, 0.0)), ["0", "0.5", "2", "1e-4", "12 k"]);
        assert_eq!([0.0, 0.5, 1.0].map(|v| tick(v, 0.5)), ["0", "0.5", "1"]);
    }

    #[test]
    fn a_logarithmic_axis_has_readable_labels_over_any_range() {
        let labels = |low: f64, high: f64, length: f32| -> Vec<String> {
            let marks = log_marks((low, high), length);
            let points = |step: f64| step * f64::from(length) / (high - low);
            // Marks that are closer together have no label.
            let labelled = marks.into_iter().filter(|m| points(m.step_size) >= 29.9);
            labelled.map(|m| log_value(m, &(low..=high))).map(|(value, step)| tick(value, step)).collect()
        };
        assert_eq!(labels(-12.5, 30.5, 150.0), ["1e-10", "1", "1e10", "1e20", "1e30"]);
        assert_eq!(labels(-3.2, 3.2, 100.0), ["0.01", "1", "100"]);
        assert_eq!(labels(0.004, 0.03, 150.0), ["1.02", "1.04", "1.06"]);
        let ranges = [
            (-12.0, 38.0),
            (-300.0, 300.0),
            (5.9, 6.2),
            (-4.1, -3.9),
            (0.2, 2.0),
            (-7.3, 1.1),
            (27.6, 28.2),
            (0.75, 1.45),
        ];
        for (low, high) in ranges {
            for length in [110.0, 150.0, 600.0] {
                let found = labels(low, high, length);
                let distinct: std::collections::HashSet<_> = found.iter().collect();
                assert!(found.len() >= 2 && distinct.len() == found.len(), "{low} to {high} in {length}: {found:?}");
                assert!(found.iter().all(|text| text.len() <= 8), "{found:?}");
            }
        }
    }

    #[test]
    fn marks_differ_from_each_other() {
        assert_eq!([2.295, 2.3, 2.305, 2.31].map(|v| tick(v, 0.005)), ["2.295", "2.3", "2.305", "2.31"]);
        assert_eq!([12_340.0, 12_345.0].map(|v| tick(v, 5.0)), ["12340", "12345"]);
        assert_eq!([1e-4, 1.05e-4].map(|v| tick(v, 5e-6)), ["1e-4", "1.05e-4"]);
        assert_eq!([1200.0, 1200.5].map(|us| time_tick(us, 0.5)), ["1.2 ms", "1.2005 ms"]);
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!(
            [0.0, 0.5, 10.0, 1000.0, 1200.0, 25_000.0, 2e6].map(|us| time_tick(us, 0.0)),
            ["0 µs", "0.5 µs", "10 µs", "1 ms", "1.2 ms", "25 ms", "2 s"]
        );
    }

    #[test]
    fn no_label_extends_beyond_the_edge() {
        let range = 0.0..=1000.0;
        let shown = |at: f64| !inside("1 k".into(), at, &range, 300.0).is_empty();
        assert_eq!([900.0, 970.0, 1000.0].map(shown), [true, false, false]);
        let shown = |at: f64| !below("1 k".into(), at, &range, 100.0).is_empty();
        assert_eq!([900.0, 960.0, 1000.0].map(shown), [true, false, false]);
        // An axis of whole steps is longer by the width of the last label.
        let end = step_end(3000.0, 3.0, 266.0);
        assert!(end > 3000.0 && end < 3200.0 && !inside("3 k".into(), 3000.0, &(0.0..=end), 266.0).is_empty(), "{end}");
        assert_eq!(step_end(3400.0, 3.0, 266.0), 3400.0);
    }

    #[test]
    fn marks_are_at_round_values() {
        let values =
            |marks: Vec<GridMark>| marks.iter().map(|m| (m.value * 1000.0).round() / 1000.0).collect::<Vec<_>>();
        assert_eq!(values(log_marks((0.9, 2.1), 200.0)), [1.0, 1.301, 1.699, 2.0]);
        assert_eq!(values(log_marks((0.0, 4.0), 200.0)), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            values(linear_marks(&GridInput { bounds: (0.0, 1.0), base_step_size: 0.1 }, 6.0)),
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        );
    }

    #[test]
    fn the_step_axis_has_whole_marks() {
        let labels = |bounds, room| step_marks(bounds, room).into_iter().map(step_tick).collect::<Vec<_>>().join(" ");
        assert_eq!(labels((0.0, 2.0), 4.0), "0 1 2");
        assert_eq!(labels((0.0, 10.0), 4.0), "0 5 10");
        assert_eq!(labels((0.0, 10.0), 5.0), "0 2 4 6 8 10");
        assert_eq!(labels((0.0, 800.0), 4.0), "0 200 400 600 800");
        assert_eq!(labels((-0.4, 0.8), 4.0), "0");
        assert_eq!(labels((0.0, 2000.0), 4.0), "0 500 1 k 1.5 k 2 k");
        assert_eq!(labels((12_000.0, 12_100.0), 2.0), "12\u{2009}000 12\u{2009}050 12\u{2009}100");
    }
}
