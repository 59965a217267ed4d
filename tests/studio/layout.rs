//! The studio's rooms: each imports from those before it only, and a panel sees view models, widgets and commands.

use std::path::{Path, PathBuf};

/// The rooms in the order of their imports.
const ROOMS: [&str; 9] = ["theme", "document", "commands", "view_models", "jobs", "run", "widgets", "panels", "shell"];

/// What a panel must not import: who owns the state, and who works.
const SERVICES: [&str; 4] = ["document", "jobs", "run", "shell"];

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

/// Every room that a text names by its whole path, with the line.
fn rooms_named(text: &str) -> Vec<(usize, String)> {
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let named = |(n, line): (usize, &str)| -> Vec<(usize, String)> {
        let code = line.split("//").next().unwrap_or_default().to_owned();
        code.match_indices("crate::studio::").map(|(at, mark)| (n + 1, word(&code[at + mark.len()..]))).collect()
    };
    text.lines().enumerate().flat_map(named).collect()
}

#[test]
fn rooms_import_from_those_before_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/studio");
    let (mut paths, mut mistakes) = (Vec::new(), Vec::new());
    files(&root, &mut paths);
    assert!(paths.len() > 100, "the sources are there");
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let Some((room, _)) = name.split_once('/') else { continue };
        let own = ROOMS.iter().position(|r| *r == room).unwrap_or_else(|| panic!("{name} is in no room"));
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (line, to) in rooms_named(code) {
            let Some(other) = ROOMS.iter().position(|r| *r == to) else {
                mistakes.push(format!("{name}:{line} names {to}, which is no room"));
                continue;
            };
            if other > own {
                mistakes.push(format!("{name}:{line} imports from {to}, which comes after {room}"));
            }
            if room == "panels" && SERVICES.contains(&to.as_str()) {
                mistakes.push(format!("{name}:{line} is a panel and imports from {to}"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}
