//! Marks on axes: at round values, as short as they can be.

use crate::studio::view_models::format;
use egui_plot::{GridInput, GridMark};

/// Marks of a logarithmic axis: powers of ten, with twos and fives between them where there is room.
pub(super) fn log_marks((low, high): (f64, f64)) -> Vec<GridMark> {
    let fine = high - low < 2.5;
    let powers = (low.floor().max(-40.0) as i32)..=(high.ceil().min(40.0) as i32);
    let mut marks = Vec::new();
    for power in powers {
        marks.push(GridMark { value: f64::from(power), step_size: 1.0 });
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

/// The smallest of 1, 2 and 5 times a power of ten that is not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= wanted * (1.0 - 1e-9)).unwrap_or(power)
}

/// Marks of the step axis: at whole numbers, at most about `room` of them.
pub(super) fn step_marks((low, high): (f64, f64), room: f64) -> Vec<GridMark> {
    let step_size = round_step(((high - low) / room.max(1.0)).max(1.0));
    // The bounds come back from pixels: a mark at the very edge must not be lost to rounding.
    let first = (low.max(0.0) / step_size - 1e-6).ceil() as i64;
    let last = (high / step_size + 1e-6).floor() as i64;
    (first..=last.min(first + 64)).map(|i| GridMark { value: i as f64 * step_size, step_size }).collect()
}

/// A mark on the step axis: short where the marks stay apart, otherwise exact.
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

/// A mark on the vertical axis, as short as it can be.
pub(super) fn tick(value: f64) -> String {
    let a = value.abs();
    if value == 0.0 {
        "0".into()
    } else if a >= 1000.0 {
        format::count(value).replace(".0 ", " ")
    } else if a < 1e-3 {
        format!("{value:.0e}")
    } else {
        // Three digits that count are enough for a mark.
        let digits = (2 - a.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{value:.digits$}");
        if !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_short() {
        assert_eq!([0.0, 0.5, 2.0, 0.000_1, 12_000.0].map(tick), ["0", "0.5", "2", "1e-4", "12 k"]);
    }

    #[test]
    fn marks_stand_at_round_values() {
        let values =
            |marks: Vec<GridMark>| marks.iter().map(|m| (m.value * 1000.0).round() / 1000.0).collect::<Vec<_>>();
        assert_eq!(values(log_marks((0.9, 2.1))), [1.0, 1.301, 1.699, 2.0]);
        assert_eq!(values(log_marks((0.0, 4.0))), [0.0, 1.0, 2.0, 3.0, 4.0]);
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
