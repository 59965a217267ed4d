//! Curves as text: a table with commas, or one JSON object on each line with the fields of a run's log.

use crate::train::runs::{Curves, EvaluationPoint, LayerCurves, Quantity};
use crate::train::{Names, StepReport};
use serde::Serialize;
use std::io::{self, Write};

/// One line of a log. `step` counts from 1; `loss` is that of the batch before its update; times are in microseconds.
#[derive(Serialize)]
struct Line<'a> {
    step: u64,
    loss: f32,
    update_max: f32,
    step_us: f32,
    #[serde(skip_serializing_if = "is_not_finite")]
    accuracy: f32,
    #[serde(skip_serializing_if = "is_not_finite")]
    grad_norm: f32,
    #[serde(skip_serializing_if = "is_not_finite")]
    held_out_loss: f64,
    #[serde(skip_serializing_if = "is_not_finite")]
    held_out_accuracy: f64,
    #[serde(skip_serializing_if = "is_not_finite")]
    maybe_trained_loss: f64,
    #[serde(skip_serializing_if = "is_not_finite")]
    maybe_trained_accuracy: f64,
    /// What the step used, if steps differ in that.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    rows: u32,
    #[serde(skip_serializing_if = "is_zero")]
    length: u32,
    /// The id of the key of the recording that it used, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<&'a str>,
    /// Why the step ran op by op, where its recording was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    eager: Option<&'a str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The result of an evaluation on the held-out part after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldOutFigures {
    pub loss: f64,
    /// NaN if there are no classes.
    pub accuracy: f64,
    /// Whether the run may have trained on the samples before: then they have another name.
    pub maybe_trained: bool,
}

fn is_not_finite(value: &(impl Copy + Into<f64>)) -> bool {
    !(*value).into().is_finite()
}

/// Writes one step as a JSON object with its line break, as in a run's log. `held_out` is the evaluation after the
/// step; `names` are those of the session that made it.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_line(
    out: &mut (impl Write + ?Sized),
    report: &StepReport,
    held_out: Option<HeldOutFigures>,
    names: &Names,
) -> io::Result<()> {
    let StepReport { step, loss, update_max, step_us, accuracy, grad_norm, rows, length, .. } = *report;
    let [path, eager] = [report.path, report.eager].map(|number| if number == 0 { None } else { names.name(number) });
    let recording = names.recording(report.kind);
    let of = |maybe_trained: bool| {
        let found = held_out.filter(|found| found.maybe_trained == maybe_trained);
        found.map_or((f64::NAN, f64::NAN), |found| (found.loss, found.accuracy))
    };
    let ((held_out_loss, held_out_accuracy), (maybe_trained_loss, maybe_trained_accuracy)) = (of(false), of(true));
    let line = Line {
        step,
        loss,
        update_max,
        step_us,
        accuracy,
        grad_norm,
        held_out_loss,
        held_out_accuracy,
        maybe_trained_loss,
        maybe_trained_accuracy,
        path: path.as_deref(),
        rows,
        length,
        recording: recording.as_deref(),
        eager: eager.as_deref(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// The evaluations of a run, in order of its steps.
struct Evaluations<'a> {
    points: std::iter::Peekable<std::slice::Iter<'a, EvaluationPoint>>,
    maybe_trained: bool,
}

impl<'a> Evaluations<'a> {
    fn of(curves: &'a Curves) -> Self {
        Self { points: curves.evaluations.iter().peekable(), maybe_trained: curves.maybe_trained }
    }

    /// The last one up to this step that was not requested yet.
    fn at(&mut self, step: u64) -> Option<HeldOutFigures> {
        let mut found = None;
        while let Some(e) = self.points.next_if(|e| e.step <= step) {
            let maybe_trained = self.maybe_trained;
            found = Some(HeldOutFigures { loss: e.loss, accuracy: e.accuracy, maybe_trained });
        }
        found
    }
}

/// The changes of each layer, reported at the last step of every range.
struct Moves<'a> {
    layers: &'a LayerCurves,
    tops: Vec<Vec<f32>>,
    next: usize,
}

impl<'a> Moves<'a> {
    fn new(layers: &'a LayerCurves) -> Self {
        // Without ranges there is nothing to report about any layer.
        let count = if layers.is_empty() { 0 } else { layers.names.len() };
        Self { layers, tops: (0..count).map(|l| layers.tops(l).collect()).collect(), next: 0 }
    }

    /// The largest changes of the layers in the ranges that end with this step; NaN if none does.
    fn at(&mut self, step: u64) -> Vec<f32> {
        let from = self.next;
        while self.layers.steps().get(self.next).is_some_and(|s| s[1] <= step) {
            self.next += 1;
        }
        let (from, to) = (from, self.next);
        self.tops.iter().map(|t| t[from..to].iter().copied().fold(f32::NAN, f32::max)).collect()
    }
}

/// Writes every step as a JSON object; held-out metrics are in the line of the step after which they were computed.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_jsonl(out: &mut dyn Write, curves: &Curves) -> io::Result<()> {
    let (mut evaluations, names) = (Evaluations::of(curves), Names::default());
    (0..curves.len()).try_for_each(|index| {
        let report = curves.report(index);
        write_line(out, &report, evaluations.at(report.step), &names)
    })
}

/// Writes every step as a row. Values that were not measured are empty cells; held-out metrics are at the step at which
/// they were computed, and the changes of each layer at the last step of every known range.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(out: &mut dyn Write, curves: &Curves) -> io::Result<()> {
    let names = Quantity::ALL.map(Quantity::name).join(",");
    let evaluated = curves.evaluated_name();
    write!(out, "step,time_s,{names},{evaluated}_loss,{evaluated}_accuracy")?;
    let mut moves = Moves::new(&curves.layers);
    for name in curves.layers.names.iter().take(moves.tops.len()) {
        write!(out, ",update_max {name}")?;
    }
    writeln!(out)?;
    let mut evaluations = Evaluations::of(curves);
    for index in 0..curves.len() {
        let step = curves.before + index as u64 + 1;
        write!(out, "{step},{:.6}", curves.ms(index) * 1e-3)?;
        for quantity in Quantity::ALL {
            cell(out, f64::from(curves.values(quantity)[index]), |o, v| write!(o, ",{}", v as f32))?;
        }
        let (loss, accuracy) = evaluations.at(step).map_or((f64::NAN, f64::NAN), |e| (e.loss, e.accuracy));
        cell(out, loss, |o, v| write!(o, ",{v}"))?;
        cell(out, accuracy, |o, v| write!(o, ",{v}"))?;
        for top in moves.at(step) {
            cell(out, f64::from(top), |o, v| write!(o, ",{}", v as f32))?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn cell(out: &mut dyn Write, value: f64, put: impl FnOnce(&mut dyn Write, f64) -> io::Result<()>) -> io::Result<()> {
    if value.is_finite() { put(out, value) } else { out.write_all(b",") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{curves, with_layers};
    use super::*;

    #[test]
    fn changes_of_layers_are_in_the_rows_where_their_ranges_end() {
        let mut table = Vec::new();
        write_csv(&mut table, &with_layers()).unwrap();
        let table = String::from_utf8(table).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split(',').collect()).collect();
        assert!(rows.iter().all(|r| r.len() == 14));
        assert_eq!(rows[0][12..], ["update_max L0:Dense", "update_max L2:Dense"]);
        assert_eq!(
            (&rows[10][12..], &rows[11][12..], &rows[30][12..]),
            (&["0.2", "0.4"][..], &["", ""][..], &["0.5", "0.4"][..])
        );
    }

    #[test]
    fn there_is_one_row_or_line_for_each_step() {
        let (mut table, mut lines) = (Vec::new(), Vec::new());
        write_csv(&mut table, &curves()).unwrap();
        write_jsonl(&mut lines, &curves()).unwrap();
        let table = String::from_utf8(table).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split(',').collect()).collect();
        assert_eq!(rows.len(), curves().len() + 1);
        assert!(rows.iter().all(|r| r.len() == 12));
        assert_eq!(rows[0][..3], ["step", "time_s", "loss"]);
        assert_eq!((rows[20][10], rows[20][11], rows[19][10]), ("0.25", "0.75", ""));
        // Numbers are read back exactly.
        let loss: f32 = rows[7][2].parse().unwrap();
        assert_eq!(loss.to_bits(), curves().values(Quantity::Loss)[6].to_bits());
        let lines = String::from_utf8(lines).unwrap();
        let line = |index: usize| serde_json::from_str::<serde_json::Value>(lines.lines().nth(index).unwrap()).unwrap();
        assert_eq!((&line(19)["held_out_loss"], &line(19)["held_out_accuracy"]), (&0.25.into(), &0.75.into()));
        assert!(line(18).get("held_out_loss").is_none() && line(20).get("held_out_loss").is_none());
        let third: serde_json::Value = serde_json::from_str(lines.lines().nth(2).unwrap()).unwrap();
        assert_eq!(
            (third["step"].as_u64(), third["loss"].as_f64().map(|v| v as f32)),
            (Some(3), Some(curves().values(Quantity::Loss)[2]))
        );
    }
}
