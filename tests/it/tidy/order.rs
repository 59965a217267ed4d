//! Folders import only from those before them: the layers of the program, and the folders of the studio.

use super::report;
use super::scan::{Source, made_up, sources};

/// The layers of the program, each of which may import from those before it.
const LAYERS: [&str; 14] = [
    "tensor", "model", "ir", "ops", "lower", "rewrite", "select", "plan", "compile", "data", "exec", "train", "cli",
    "studio",
];

/// Pairs that the order would allow but that are forbidden: the window and the command line do not depend on each
/// other.
const STRANGERS: [(&str, &str); 1] = [("studio", "cli")];

/// The layer that a source belongs to; `None` for `lib.rs` and `main.rs`.
fn layer(name: &str) -> Option<usize> {
    let first = name.strip_prefix("src/")?.split('/').next()?.trim_end_matches(".rs");
    LAYERS.iter().position(|l| *l == first)
}

/// The words that follow a text such as `crate::`, including those in braces, with the line of each.
fn imports(code: &str, mark: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices(mark) {
        let line = code[..at].matches('\n').count() + 1;
        let tail = &code[at + mark.len()..];
        let word =
            |s: &str| s.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match tail.strip_prefix('{') {
            None => out.push((line, word(tail))),
            Some(list) => {
                // Only the outermost commas separate imports.
                let (mut depth, mut start) = (0, 0);
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth > 0 => depth -= 1,
                        ',' | '}' if depth == 0 => {
                            out.push((line, word(&list[start..i])));
                            start = i + 1;
                            if c == '}' {
                                break;
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    out.retain(|(_, w)| !w.is_empty());
    out
}

/// The folders of the studio in the order of their imports.
const ROOMS: [&str; 9] = ["theme", "document", "commands", "view_models", "jobs", "run", "widgets", "panels", "shell"];

/// The folders that a panel may import from: those of its view models and commands, but neither those that own the
/// state nor those that do the work.
const SEEN_BY_PANELS: [&str; 5] = ["panels", "view_models", "widgets", "theme", "commands"];

/// The forbidden imports of a file of the studio.
fn strange_rooms(source: &Source) -> Vec<String> {
    let name = &source.name;
    let Some((room, _)) = name.strip_prefix("src/studio/").and_then(|n| n.split_once('/')) else { return Vec::new() };
    let mut out = Vec::new();
    let Some(own) = ROOMS.iter().position(|r| *r == room) else { return vec![format!("{name} is in no room")] };
    for (line, to) in imports(&source.code, "crate::studio::") {
        match ROOMS.iter().position(|r| *r == to) {
            None => out.push(format!("{name}:{line} names {to}, which is no room")),
            Some(_) if room == "panels" && !SEEN_BY_PANELS.contains(&to.as_str()) => {
                out.push(format!("{name}:{line} is a panel and imports from {to}"));
            }
            Some(other) if other > own => {
                out.push(format!("{name}:{line} imports from {to}, which comes after {room}"));
            }
            Some(_) => {}
        }
    }
    out
}

#[test]
fn an_import_of_a_later_folder_is_found() {
    let found = |name: &str, text: &str| strange_rooms(&made_up(name, text)).len();
    let panel = "src/studio/panels/curve.rs";
    assert_eq!(found(panel, "use crate::studio::{theme, widgets::Plot};\nuse crate::studio::commands::Queue;"), 0);
    assert_eq!(found(panel, "use crate::studio::{theme, run::Run};\nuse crate::studio::shell::Studio;"), 2);
    assert_eq!(found("src/studio/widgets/plot.rs", "use crate::studio::panels::curve;"), 1);
    assert_eq!(found("src/studio/attic/plot.rs", ""), 1);
}

#[test]
fn folders_of_the_studio_import_only_from_those_before_them() {
    let mistakes: Vec<String> = sources().iter().flat_map(strange_rooms).collect();
    report(&mistakes);
}

#[test]
fn imports_are_found() {
    let found = imports("use crate::{ir::{Mode, Role}, plan};\nlet x = crate::exec::cpu::Pool;", "crate::");
    let found: Vec<(usize, &str)> = found.iter().map(|(l, w)| (*l, w.as_str())).collect();
    assert_eq!(found, [(1, "ir"), (1, "plan"), (2, "exec")]);
}

#[test]
fn layers_import_only_from_those_before_them() {
    let mut mistakes = Vec::new();
    for source in sources() {
        let Some(own) = layer(&source.name) else { continue };
        for (line, word) in imports(&source.code, "crate::") {
            let Some(other) = LAYERS.iter().position(|l| *l == word) else {
                mistakes.push(format!("{}:{line} names crate::{word}, which is no layer", source.name));
                continue;
            };
            let strange = STRANGERS.contains(&(LAYERS[own], LAYERS[other]));
            // The command line opens the window; everything else imports only from what comes before it.
            let opens = LAYERS[own] == "cli" && LAYERS[other] == "studio" && source.name == "src/cli/studio.rs";
            if (other > own || strange) && !opens {
                mistakes.push(format!("{}:{line} imports crate::{word}, which {} may not", source.name, LAYERS[own]));
            }
        }
        if own < layer("src/studio/mod.rs").unwrap() && source.code.contains("egui") {
            mistakes.push(format!("{} speaks of egui", source.name));
        }
        if own < layer("src/exec/mod.rs").unwrap() && source.code.contains("cudarc") {
            mistakes.push(format!("{} speaks of cudarc", source.name));
        }
    }
    report(&mistakes);
}
