//! `stepgraph runs`: the runs that were kept.

use super::error::wrong;
use super::output;
use super::presets::DataLook;
use super::run_args::{RunsAction, RunsArgs};
use crate::model::write_preset;
use crate::tensor::figure;
use crate::train::runs::{Label, RunEnd, RunEntry, RunStore, RunsError, calendar};
use serde_json::{Value, json};
use std::ffi::OsStr;

/// A date and time as text, UTC: `2026-03-14 12:01`.
#[must_use]
fn date_time(ms: u64) -> String {
    let [y, mo, d, h, mi, _] = calendar(ms);
    format!("{y:04}-{mo:02}-{d:02} {h:02}:{mi:02}")
}

fn json_of(entry: &RunEntry, store: &RunStore) -> Value {
    let mut value = serde_json::to_value(&entry.record).unwrap_or_default();
    if let Value::Object(map) = &mut value {
        map.insert("id".into(), entry.id.clone().into());
        map.insert("name".into(), entry.name().into());
        map.insert("hidden".into(), entry.label.hidden.into());
        map.insert("has_weights".into(), (entry.has_weights && !entry.has_damaged_weights).into());
        map.insert("can_continue".into(), entry.can_continue.into());
        map.insert("checkpoint_step".into(), entry.checkpoint_step.into());
        map.insert("bytes".into(), entry.bytes.into());
        map.insert("base".into(), entry.record.base.display().to_string().into());
        map.insert("path".into(), store.path(&entry.id).display().to_string().into());
        // The preset's document is JSON itself.
        if let Some(preset) = map.get("preset").and_then(Value::as_str).and_then(|t| serde_json::from_str(t).ok()) {
            map.insert("preset".into(), preset);
        }
    }
    value
}

/// Lists runs, or performs an action on one.
///
/// # Errors
/// If there is no such run, or its files cannot be read or written.
pub fn run(args: &RunsArgs) -> anyhow::Result<()> {
    let store = RunStore::of_user()?;
    let relabel = |given: &[String], what: &str, change: &dyn Fn(&mut Label)| -> anyhow::Result<()> {
        let mut ids = Vec::new();
        for given in given {
            let entry = store.find(given)?;
            let mut label = entry.label.clone();
            change(&mut label);
            store.set_label(&entry.id, &label)?;
            ids.push(entry.id);
        }
        done(args, what, &ids)
    };
    match &args.action {
        None => list(&store, args),
        Some(RunsAction::Show { run }) => {
            let entry = store.read_whole(store.find(run)?);
            if args.json { output::print_json(&json_of(&entry, &store)) } else { output::print(&shown(&entry, &store)) }
        }
        Some(RunsAction::Preset { run }) => {
            let record = store.find(run)?.record;
            let preset = record.read_preset().map(|p| write_preset(&p.with_whole_paths(&record.base)));
            output::print(&preset.unwrap_or(record.preset))
        }
        Some(RunsAction::Rename { run, name }) => {
            let name = (!name.trim().is_empty()).then(|| name.trim().to_owned());
            relabel(std::slice::from_ref(run), "renamed", &|l| l.name.clone_from(&name))
        }
        Some(RunsAction::Hide { runs }) => relabel(runs, "hidden", &|l| l.hidden = true),
        Some(RunsAction::Unhide { runs }) => relabel(runs, "unhidden", &|l| l.hidden = false),
        Some(RunsAction::Delete { runs }) => done(args, "deleted", &delete(&store, runs)?),
        Some(RunsAction::Trash) => trash(&store, args.json),
        Some(RunsAction::Restore { runs }) => done(args, "restored", &restore(&store, runs)?),
        Some(RunsAction::EmptyTrash) => {
            let count = store.empty_trash()?;
            output::note(&format!("removed {count} from the trash"));
            if args.json { output::print_json(&json!({ "removed": count })) } else { Ok(()) }
        }
        Some(RunsAction::Path { run }) => {
            let path = match run {
                Some(run) => store.path(&store.find(run)?.id),
                None => store.folder().to_owned(),
            };
            if args.json {
                output::print_json(&json!({ "path": path.display().to_string() }))
            } else {
                output::print(&format!("{}\n", path.display()))
            }
        }
    }
}

/// Moves runs to the trash, and returns their ids.
fn delete(store: &RunStore, runs: &[String]) -> anyhow::Result<Vec<String>> {
    // All runs are found before the first one is moved, so that after a mistake nothing has changed.
    let ids = runs.iter().map(|r| store.find(r).map(|e| e.id)).collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        store.delete(id)?;
        output::note(&format!("moved to the trash; bring it back with: stepgraph runs restore {id}"));
    }
    Ok(ids)
}

/// Restores runs from the trash, and returns their ids.
fn restore(store: &RunStore, runs: &[String]) -> anyhow::Result<Vec<String>> {
    let trash = store.trash();
    let found = |given: &String| match trash.find(given) {
        // A run that is too damaged to be listed still has the name of its folder.
        Err(RunsError::Unknown(given) | RunsError::Misspelt { given, .. }) if trash.path(&given).is_dir() => Ok(given),
        Err(RunsError::Unknown(given) | RunsError::Misspelt { given, .. }) => Err(RunsError::NotInTrash(given)),
        other => other.map(|e| e.id),
    };
    let ids = runs.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    ids.iter().try_for_each(|id| store.restore(id))?;
    Ok(ids)
}

/// Prints which runs were changed, as JSON if requested: `{"deleted": ["20260314-120100"]}`.
fn done(args: &RunsArgs, what: &str, ids: &[String]) -> anyhow::Result<()> {
    if args.json { output::print_json(&json!({ what: ids })) } else { Ok(()) }
}

fn list(store: &RunStore, args: &RunsArgs) -> anyhow::Result<()> {
    let all = store.list()?;
    let shown: Vec<&RunEntry> = all.iter().filter(|e| args.all || !e.label.hidden).collect();
    if args.json {
        return output::print_json(&shown.iter().map(|e| json_of(e, store)).collect::<Vec<_>>());
    }
    if shown.is_empty() {
        let hidden = all.len();
        output::note(&match hidden {
            0 => format!(
                "no runs are kept in {} yet: train in the studio, or with stepgraph train PRESET --keep",
                store.folder().display()
            ),
            1 => "the only run is hidden; --all lists it".to_owned(),
            _ => format!("all {hidden} runs are hidden; --all lists them"),
        });
        return Ok(());
    }
    output::print(&rows_of(&shown))?;
    // The window reports the newest run in the same way.
    if let Some((e, way)) = shown.first().and_then(|e| Some((e, e.how_to_continue(output::count)?))) {
        output::note(&format!("note: {} was interrupted at step {}; {way}", e.id, output::count(e.record.steps)));
    }
    let doubtful: Vec<&str> = shown.iter().filter(|e| e.record.maybe_trained).map(|e| e.id.as_str()).collect();
    if !doubtful.is_empty() {
        output::note(&format!("note: {}: {NO_HELD_OUT}", doubtful.join(", ")));
    }
    for e in shown.iter().filter(|e| e.record.state == RunEnd::Damaged) {
        output::note(&format!("note: {}: {}", e.id, e.record.error.as_deref().unwrap_or_default()));
    }
    Ok(())
}

/// Why a run has no held-out metric.
const NO_HELD_OUT: &str = "no held-out metrics: an earlier part of this run was trained on other samples, which may \
                           include the samples that are held out now; start a new run to get them";

/// Lists the deleted runs that can be restored.
fn trash(store: &RunStore, json: bool) -> anyhow::Result<()> {
    let trash = store.trash();
    let all = trash.list()?;
    if json {
        return output::print_json(&all.iter().map(|e| json_of(e, &trash)).collect::<Vec<_>>());
    }
    if all.is_empty() {
        output::note("the trash is empty");
        return Ok(());
    }
    output::print(&rows_of(&all.iter().collect::<Vec<_>>()))?;
    output::note(
        "bring one back with: stepgraph runs restore RUN; remove all permanently with: stepgraph runs empty-trash",
    );
    Ok(())
}

/// A table of runs.
fn rows_of(shown: &[&RunEntry]) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |v| figure(v, digits));
    let head = ["id", "name", "steps", "loss", "held-out", "step us", "state"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    for e in shown {
        let r = &e.record;
        rows.push(vec![
            e.id.clone(),
            e.name().to_owned(),
            output::count(r.steps),
            number(r.loss, 4),
            r.held_out_accuracy.map_or_else(|| number(r.held_out_loss, 4), |a| format!("{:.1} %", a * 100.0)),
            number(r.step_us, 1),
            format!("{}{}", r.state.name(), if e.label.hidden { ", hidden" } else { "" }),
        ]);
    }
    table(&rows)
}

/// Rows in columns of equal width; numbers are aligned to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(c, text)| match c {
            2..=5 => format!("{text:>w$}", w = widths[c]),
            _ => format!("{text:<w$}", w = widths[c]),
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn shown(entry: &RunEntry, store: &RunStore) -> String {
    let r = &entry.record;
    let mut out = format!("{}  ({})\n", entry.name(), entry.id);
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<18}{value}\n"));
    let error = r.error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
    line("state", format!("{}{error}", r.state.name()));
    if entry.label.hidden {
        line("hidden", "yes; `stepgraph runs` lists it only with --all".to_owned());
    }
    line("started", format!("{} UTC", date_time(r.span.started_ms)));
    if let Some(ended) = r.span.ended_ms {
        line("ended", format!("{} UTC", date_time(ended)));
    }
    line("preset", r.preset_name.clone());
    line("seed", r.seed.to_string());
    line("device", r.device.clone());
    line("precision", r.precision.clone());
    line("steps", format!("{} of {}", output::count(r.steps), output::count(r.total)));
    let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| figure(v, 6));
    line("loss", format!("{} (mean of the last 32 steps)", number(r.loss)));
    line("held-out loss", number(r.held_out_loss));
    line("held-out accuracy", r.held_out_accuracy.map_or_else(|| "-".into(), |a| format!("{:.2} %", a * 100.0)));
    if r.maybe_trained {
        let accuracy = r.maybe_trained_accuracy.map_or_else(String::new, |a| format!(", accuracy {:.2} %", a * 100.0));
        line("evaluated", format!("loss {}{accuracy}; {NO_HELD_OUT}", number(r.maybe_trained_loss)));
    }
    line("step", r.step_us.map_or_else(|| "-".into(), |us| format!("{} (median)", output::micros(us))));
    line("plan", r.plan_hash.clone());
    let weights = match (entry.can_continue, entry.has_weights) {
        _ if entry.has_damaged_weights => "damaged",
        (true, _) => "kept, with a checkpoint to continue from",
        (false, true) => "kept",
        (false, false) => "none",
    };
    line("weights", weights.to_owned());
    if let Some(way) = entry.how_to_continue(output::count) {
        let how = match entry.can_continue {
            true => "in the studio, or with train --resume and the checkpoint in its folder".to_owned(),
            false => format!("stepgraph runs preset {} prints its preset", entry.id),
        };
        line("continue", format!("{way}; {how}"));
    }
    if let Some(torn) = torn(entry, store) {
        line("curves", torn);
    }
    line("folder", store.path(&entry.id).display().to_string());
    out
}

/// What is wrong with the curves of a run that finished; `None` if nothing is.
pub fn torn(entry: &RunEntry, store: &RunStore) -> Option<String> {
    let curves = store.curves(&entry.id).ok()?;
    let lacks = curves.last_step() < entry.record.steps && entry.record.state != RunEnd::Running;
    lacks.then(|| format!("damaged: only the first {} can be read", output::counted(curves.last_step(), "step")))
}

/// What a name refers to: a run, or, if no run has that name, a preset.
pub enum Named {
    Run(RunStore, Box<RunEntry>),
    Preset(Box<super::presets::Loaded>),
}

/// Finds the run or preset that the user named.
///
/// # Errors
/// If it is neither, or the preset has mistakes.
pub fn find(what: &OsStr) -> anyhow::Result<Named> {
    let is_file = std::path::Path::new(what).is_file();
    let mut near = None;
    // The names of runs are Unicode text.
    if !is_file
        && let Some(given) = what.to_str()
        && let Ok(store) = RunStore::of_user()
    {
        match store.find(given) {
            Ok(entry) => return Ok(Named::Run(store, Box::new(entry))),
            Err(error @ RunsError::Ambiguous(..)) if !crate::model::BUNDLED.iter().any(|b| b.name == given) => {
                return Err(error.into());
            }
            // Without the folder of runs, the name can still be that of a preset.
            Err(error @ (RunsError::File { .. } | RunsError::NoLast)) if given == "last" => return Err(error.into()),
            Err(_) if given == "last" => {
                return Err(wrong("no runs are kept yet: train in the studio, or with stepgraph train PRESET --keep"));
            }
            Err(RunsError::Misspelt { near: run, .. }) => near = Some(run),
            Err(_) => {}
        }
    }
    match (super::presets::load(what, DataLook::Ignore), near) {
        (Ok(found), _) => Ok(Named::Preset(Box::new(found))),
        (Err(error), Some(run)) if !std::path::Path::new(what).exists() => {
            Err(wrong(format!("{error}; a kept run is called \"{run}\"")))
        }
        (Err(error), _) => Err(error),
    }
}

/// Reports what was written, as lines on standard error.
pub fn wrote(files: &[std::path::PathBuf]) {
    for file in files {
        output::note(&format!("wrote {}", file.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let rows = [["id", "name", "9", "1", "2", "3", "ok"], ["longer", "n", "1,000", "1", "2", "3", "ok"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(table(&rows), "id      name      9  1  2  3  ok\nlonger  n     1,000  1  2  3  ok\n");
        assert_eq!(date_time(951_782_400_000), "2000-02-29 00:00");
    }
}
