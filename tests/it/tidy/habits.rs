//! No forbidden shortcuts outside tests, unsafe code only in its places and explained, a header in each file, no
//! machine's name.

use super::report;
use super::scan::{blanked, files, is_test, root, sources};

/// Files outside `exec` that may contain unsafe code: both query the processor or the system for something that does
/// not affect values, and are below `exec` because data sets need them.
const UNSAFE_ELSEWHERE: [&str; 2] = ["src/data/shuffle.rs", "src/tensor/large_pages.rs"];

#[test]
fn no_shortcuts_outside_tests() {
    const FORBIDDEN: [&str; 7] = [".unwrap()", ".expect(", "todo!", "unimplemented!", "dbg!", "#[ignore", "FIXME"];
    let all = sources();
    let mut mistakes = Vec::new();
    for source in all.iter().filter(|s| !is_test(&s.name, &all)) {
        for (index, (line, text)) in source.code.lines().zip(source.text.lines()).enumerate() {
            // A parser may have a method with this name; that of the standard library takes a message.
            let own = |word: &str| word == ".expect(" && !text.contains(".expect(\"");
            for word in FORBIDDEN.iter().filter(|w| line.contains(**w) && !own(w)) {
                mistakes.push(format!("{}:{} {word}", source.name, index + 1));
            }
        }
    }
    let mut tests = Vec::new();
    files(&root().join("tests"), &mut tests);
    for path in tests.iter().filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.ends_with("it/tidy/habits.rs")) {
        let text = blanked(&std::fs::read_to_string(path).unwrap());
        if text.contains("#[ignore") {
            mistakes.push(format!("{} ignores a test", path.display()));
        }
    }
    report(&mistakes);
}

#[test]
fn anyhow_stays_in_the_program() {
    let allowed = |name: &str| ["src/cli/", "src/studio/", "src/main.rs"].iter().any(|p| name.starts_with(p));
    let all = sources();
    let mistakes: Vec<String> =
        all.iter().filter(|s| !allowed(&s.name) && s.code.contains("anyhow")).map(|s| s.name.clone()).collect();
    report(&mistakes);
}

#[test]
fn unsafe_code_lives_in_exec_and_says_why_it_is_sound() {
    let all = sources();
    let mut mistakes = Vec::new();
    for source in &all {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, code) in source.code.lines().enumerate() {
            let is_word = |at: usize, len: usize| {
                let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !part(code[..at].chars().next_back()) && !part(code[at + len..].chars().next())
            };
            let Some((at, _)) = code.match_indices("unsafe").find(|(at, _)| is_word(*at, 6)) else { continue };
            if !source.name.starts_with("src/exec/") && !UNSAFE_ELSEWHERE.contains(&source.name.as_str()) {
                mistakes.push(format!("{}:{} unsafe code outside exec", source.name, index + 1));
            }
            let tail = code[at + 6..].trim_start();
            if !(tail.starts_with('{') || tail.starts_with("impl")) {
                continue;
            }
            // The comment is above the statement that the block belongs to.
            let before = &lines[index.saturating_sub(6)..=index];
            if !before.iter().any(|l| l.contains("SAFETY:")) {
                mistakes.push(format!("{}:{} unsafe without SAFETY", source.name, index + 1));
            }
        }
    }
    report(&mistakes);
}

#[test]
fn files_have_a_header() {
    let mut mistakes = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//!") {
            mistakes.push(format!("{} does not start with a `//!` header", source.name));
        }
    }
    report(&mistakes);
}

#[test]
fn no_machine_is_named() {
    // Written in pieces, so that this file passes its own test: folders of particular machines, and names of package
    // hosts.
    let pieces = [
        ("/ho", "me/"),
        ("/ro", "ot/"),
        ("/Us", "ers/"),
        ("/wo", "rk/"),
        ("static.", "crates.io"),
        ("index.", "crates.io"),
    ];
    let marks: Vec<String> = pieces.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut paths = Vec::new();
    for folder in ["src", "tests", "presets", "kernels", "assets", "docs", ".ci", "fuzz"] {
        if root().join(folder).is_dir() {
            files(&root().join(folder), &mut paths);
        }
    }
    let top = ["Cargo.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "clippy.toml", "rustfmt.toml"];
    paths.extend(top.iter().map(|n| root().join(n)).filter(|p| p.is_file()));
    let mut mistakes = Vec::new();
    for path in paths.iter().filter(|p| !p.components().any(|c| c.as_os_str() == "target")) {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for (index, line) in text.lines().enumerate() {
            for mark in marks.iter().filter(|m| line.contains(m.as_str())) {
                mistakes.push(format!("{}:{} {mark}", path.display(), index + 1));
            }
        }
    }
    report(&mistakes);
}
