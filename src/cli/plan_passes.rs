//! The passes that rewrote the program: which ran, what each changed, and the program after one of them.

use super::choices::Format;
use super::error::wrong;
use crate::compile::Compiled;
use crate::lower::Program;
use crate::model::Precision;
use crate::rewrite::{How, PASSES, Pass, PassRun, Stage, changes_text};
use serde::Serialize;

/// A pass, and what it did if it ran.
#[derive(Serialize)]
struct PassEntry<'a> {
    name: &'static str,
    about: &'static str,
    /// The condition as text.
    when: &'static str,
    /// False if the condition does not hold for this target.
    runs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    did: Option<&'a PassRun>,
}

#[derive(Serialize)]
struct List<'a> {
    preset: &'a str,
    target: &'a str,
    precision: Precision,
    passes: Vec<PassEntry<'a>>,
}

/// An operation by its number in a program.
#[derive(Serialize)]
struct OpName {
    index: usize,
    op: &'static str,
}

#[derive(Serialize)]
struct ChangeEntry {
    how: How,
    before: Vec<OpName>,
    after: Option<OpName>,
}

/// One pass with the program after it.
#[derive(Serialize)]
struct After<'a> {
    preset: &'a str,
    target: &'a str,
    pass: PassEntry<'a>,
    /// As `did.changes`, with the operations' names.
    changes: Vec<ChangeEntry>,
    program: &'a Program,
}

/// The list of passes, or one of them with the program after it.
///
/// # Errors
/// If the pass does not run for this target, or a graph of the list is requested.
pub(super) fn shown(compiled: &Compiled, pass: Option<&str>, format: Format) -> anyhow::Result<String> {
    let Some(name) = pass else {
        return match format {
            Format::Text => Ok(list(compiled)),
            Format::Json => json(&list_of(compiled)),
            Format::Dot => Err(wrong(
                "the list of passes cannot be drawn as a graph; --pass NAME draws the operations after one pass",
            )),
        };
    };
    let stages = compiled.stages()?;
    let Some(at) = stages.iter().position(|stage| stage.pass.name == name) else {
        let when = PASSES.iter().find(|pass| pass.name == name).map_or("", |pass| pass.when);
        let ran: Vec<&str> = stages.iter().map(|stage| stage.pass.name).collect();
        let others = if ran.is_empty() { "no pass runs".to_owned() } else { format!("these run: {}", ran.join(", ")) };
        return Err(wrong(format!("the pass {name} does not run for this target: it runs {when}; {others}")));
    };
    let before = if at == 0 { &compiled.program } else { &stages[at - 1].program };
    match format {
        Format::Text => Ok(text(&stages[at], before)),
        Format::Json => json(&after(compiled, &stages[at], before)),
        Format::Dot => Ok(stages[at].program.to_dot(|i, op| format!("{i} {}", op.kind.name()))),
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

fn entry<'a>(pass: &Pass, did: Option<&'a PassRun>) -> PassEntry<'a> {
    PassEntry { name: pass.name, about: pass.about, when: pass.when, runs: did.is_some(), did }
}

fn list_of(compiled: &Compiled) -> List<'_> {
    let did = |pass: &Pass| compiled.passes.iter().find(|run| run.name == pass.name);
    List {
        preset: &compiled.model.name,
        target: &compiled.selection.target.name,
        precision: compiled.model.precision,
        passes: PASSES.iter().map(|pass| entry(pass, did(pass))).collect(),
    }
}

/// One line for each pass that ran, and the other passes with their conditions.
#[must_use]
pub(super) fn list(compiled: &Compiled) -> String {
    let precision = compiled.model.precision.name();
    let mut out = format!("target: {}, {precision}\n", compiled.selection.target.name);
    out += &format!("{:<26} {:>6} -> {:<6} {}\n", "pass", "ops", "after", "what it changed");
    out.extend(compiled.passes.iter().map(|run| format!("{run}\n")));
    let ran = |pass: &&Pass| compiled.passes.iter().any(|run| run.name == pass.name);
    for pass in PASSES.iter().filter(|pass| !ran(pass)) {
        out += &format!("{:<26} does not run here; it runs {}\n", pass.name, pass.when);
    }
    out
}

fn text(stage: &Stage, before: &Program) -> String {
    let changes = changes_text(&stage.run, before, &stage.program);
    format!("{}\n{}\n\n{changes}\n{}", stage.run, stage.pass.about, stage.program)
}

fn after<'a>(compiled: &'a Compiled, stage: &'a Stage, before: &Program) -> After<'a> {
    let name = |program: &Program, index: usize| OpName { index, op: program.ops[index].kind.name() };
    let changes = stage.run.changes.iter().map(|change| ChangeEntry {
        how: change.how,
        before: change.before.iter().map(|&index| name(before, index)).collect(),
        after: change.after.map(|index| name(&stage.program, index)),
    });
    After {
        preset: &compiled.model.name,
        target: &compiled.selection.target.name,
        pass: entry(&stage.pass, Some(&stage.run)),
        changes: changes.collect(),
        program: &stage.program,
    }
}
