//! Kept runs as rows, and the differences of their presets field by field.

use crate::studio::commands::runs::Column;
use crate::studio::view_models::format;
use crate::train::runs::{RunEnd, RunEntry, calendar};
use std::cmp::Ordering;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    pub id: String,
    pub name: String,
    /// In the order of [`Column::ALL`].
    pub cells: Vec<String>,
    pub tooltip: String,
    pub state: RunEnd,
    pub is_hidden: bool,
}

/// How the table is sorted, and which runs it lists.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunsOrder {
    pub column: Column,
    pub is_reversed: bool,
    pub shows_hidden: bool,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunsView {
    pub rows: Vec<RunRow>,
    /// The number of runs that are hidden.
    pub hidden: usize,
    /// The time at which an age in it changes: milliseconds since 1970, UTC. `None` if all are dates.
    pub changes_at: Option<u64>,
}

/// The start of a run as text: how long ago, or the date.
fn started(ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(ms) / 1000;
    match seconds {
        0..60 => "just now".into(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => {
            let [y, m, d, ..] = calendar(ms);
            format!("{y:04}-{m:02}-{d:02}")
        }
    }
}

/// When the text of [`started`] changes.
fn changes_at(ms: u64, now_ms: u64) -> Option<u64> {
    let age = now_ms.saturating_sub(ms);
    let unit = match age / 1000 {
        0..3600 => 60_000,
        3600..86_400 => 3_600_000,
        _ => return None,
    };
    Some(ms + (age / unit + 1) * unit)
}

/// The order of two numbers; missing ones are last.
fn by_number(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn order(column: Column, a: &RunEntry, b: &RunEntry) -> Ordering {
    let (x, y) = (&a.record, &b.record);
    match column {
        Column::Name => a.name().to_lowercase().cmp(&b.name().to_lowercase()),
        Column::Started => y.span.started_ms.cmp(&x.span.started_ms),
        Column::Preset => x.preset_name.cmp(&y.preset_name),
        Column::Device => x.device.cmp(&y.device),
        Column::Precision => x.precision.cmp(&y.precision),
        Column::Steps => y.steps.cmp(&x.steps),
        Column::Loss => by_number(x.loss, y.loss),
        Column::HeldOut => {
            by_number(y.held_out_accuracy, x.held_out_accuracy).then(by_number(x.held_out_loss, y.held_out_loss))
        }
        Column::StepTime => by_number(x.step_us, y.step_us),
        Column::State => x.state.cmp(&y.state),
    }
}

impl RunsView {
    /// The rows of these runs, best or newest first by `column`, or in the opposite order; hidden ones only if `all` is
    /// set.
    #[must_use]
    pub fn new(entries: &[RunEntry], by: RunsOrder, now_ms: u64) -> Self {
        let mut shown: Vec<&RunEntry> = entries.iter().filter(|e| by.shows_hidden || !e.label.hidden).collect();
        let hidden = entries.len() - shown.len();
        shown.sort_by(|a, b| {
            let found = order(by.column, a, b);
            // Equal runs keep the order by age, the newest first.
            (if by.is_reversed { found.reverse() } else { found })
                .then(b.record.span.started_ms.cmp(&a.record.span.started_ms))
        });
        let changes_at = shown.iter().filter_map(|e| changes_at(e.record.span.started_ms, now_ms)).min();
        Self { rows: shown.into_iter().map(|e| row(e, now_ms)).collect(), hidden, changes_at }
    }
}

fn row(e: &RunEntry, now_ms: u64) -> RunRow {
    let r = &e.record;
    let dash = || "–".to_owned();
    let held_out = match (r.held_out_accuracy, r.held_out_loss) {
        (Some(a), _) => format!("{:.1}%", a * 100.0),
        (None, Some(loss)) => format::number(loss),
        (None, None) => dash(),
    };
    let [y, mo, d, h, mi, s] = calendar(r.span.started_ms);
    let mut tooltip = format!(
        "{}\n{}\nstarted {y:04}-{mo:02}-{d:02} {h:02}:{mi:02}:{s:02} UTC\nseed {}, plan {}\n{} of {}, {} on disk",
        e.name(),
        e.id,
        r.seed,
        r.plan_hash,
        format::exact(r.steps),
        format::counted(r.total, "step"),
        crate::tensor::Bytes(e.bytes)
    );
    if let Some(way) = e.how_to_continue(format::exact) {
        tooltip.push_str(&format!("\ninterrupted at step {}; {way}", format::exact(r.steps)));
    }
    if r.maybe_trained {
        tooltip.push_str("\nno held-out metrics: an earlier part may have been trained on the held-out samples");
    }
    if let Some(error) = &r.error {
        tooltip.push_str(&format!("\n{error}"));
    }
    let cells = vec![
        e.name().to_owned(),
        r.state.name().to_owned(),
        started(r.span.started_ms, now_ms),
        format::exact(r.steps),
        r.loss.map_or_else(dash, format::number),
        held_out,
        r.step_us.map_or_else(dash, format::micros),
        r.preset_name.clone(),
        r.precision.clone(),
        r.device.clone(),
    ];
    let (id, name) = (e.id.clone(), e.name().to_owned());
    RunRow { id, name, cells, tooltip, state: r.state, is_hidden: e.label.hidden }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::runs::{Label, RunRecord, RunSpan};

    fn entry(id: &str, started_ms: u64, loss: Option<f64>, hidden: bool) -> RunEntry {
        let record = RunRecord {
            preset_name: "net".into(),
            span: RunSpan { started_ms, ended_ms: None },
            loss,
            ..RunRecord::default()
        };
        RunEntry {
            id: id.into(),
            record,
            label: Label { name: None, hidden },
            title: "net".into(),
            has_weights: false,
            has_damaged_weights: false,
            can_continue: false,
            checkpoint_step: None,
            bytes: 0,
        }
    }

    #[test]
    fn rows_are_sorted_and_hidden() {
        let all =
            [entry("a", 1000, Some(0.5), false), entry("b", 3000, None, false), entry("c", 2000, Some(0.1), true)];
        let ids = |column, is_reversed, shows_hidden| {
            let view = RunsView::new(&all, RunsOrder { column, is_reversed, shows_hidden }, 10_000);
            view.rows.iter().map(|r| r.id.as_str()).collect::<String>()
        };
        assert_eq!(ids(Column::Started, false, true), "bca");
        assert_eq!(ids(Column::Started, true, true), "acb");
        assert_eq!(ids(Column::Loss, false, true), "cab");
        assert_eq!(ids(Column::Loss, false, false), "ab");
        let view = RunsView::new(&all, RunsOrder { column: Column::Loss, ..RunsOrder::default() }, 10_000);
        assert_eq!((view.hidden, view.rows[0].cells[4].as_str(), view.rows[1].cells[4].as_str()), (1, "0.5000", "–"));
    }

    #[test]
    fn start_times_are_written_as_ages_or_dates() {
        let at = |ago_s: u64| started(1_700_000_000_000 - ago_s * 1000, 1_700_000_000_000);
        assert_eq!([at(5), at(125), at(7300), at(200_000)], ["just now", "2 min ago", "2 h ago", "2023-11-12"]);
        // The text is the same until then, and differs from then on.
        for (ago_s, wanted_s) in [(5, 55), (125, 55), (3599, 1), (7300, 3500), (86_399, 1)] {
            let (ms, now) = (1_700_000_000_000 - ago_s * 1000, 1_700_000_000_000);
            let at = changes_at(ms, now).unwrap();
            assert_eq!(at, now + wanted_s * 1000);
            assert!(started(ms, at - 1) == started(ms, now) && started(ms, at) != started(ms, now), "{ago_s}");
        }
        assert_eq!(changes_at(1_700_000_000_000 - 86_400_000, 1_700_000_000_000), None);
    }
}
