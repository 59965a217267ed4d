//! The length of lines and of files.

use super::report;
use super::scan::{root, texts};

/// The largest number of characters in a line, including comments.
const MAX_COLUMNS: usize = 120;

/// The number of lines above which a file must be split.
const MAX_LINES: usize = 500;

/// The lines of a text that are too long. Tables in documents are left out, because a row cannot be wrapped.
fn too_long(file: &str, text: &str) -> Vec<String> {
    let row = |line: &str| file.ends_with(".md") && line.trim_start().starts_with('|');
    let long = |line: &str| line.chars().count() > MAX_COLUMNS && !row(line);
    let numbered = text.lines().enumerate().filter(|(_, line)| long(line));
    numbered.map(|(n, line)| format!("{file}:{} has {} columns", n + 1, line.chars().count())).collect()
}

#[test]
fn a_long_line_is_found() {
    let long = "é".repeat(MAX_COLUMNS + 1);
    assert_eq!(too_long("a.rs", &format!("fn f() {{}}\n// {long}\n")).len(), 1);
    assert!(too_long("a.rs", &"é".repeat(MAX_COLUMNS)).is_empty());
    assert!(too_long("a.md", &format!("| {long} |")).is_empty());
    assert_eq!(too_long("a.md", &long).len(), 1);
}

#[test]
fn lines_fit_the_page() {
    let mut all = texts(&["src", "kernels", "tests", "docs", "fuzz"], &["rs", "cu", "cuh", "md"]);
    for top in ["README.md", "ARCHITECTURE.md"] {
        all.push((top.into(), std::fs::read_to_string(root().join(top)).unwrap()));
    }
    report(&all.iter().flat_map(|(name, text)| too_long(name, text)).collect::<Vec<_>>());
}

#[test]
fn files_are_short() {
    let mut mistakes = Vec::new();
    for (name, text) in texts(&["src", "tests"], &["rs"]) {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            mistakes.push(format!("{name} has {lines} lines, more than {MAX_LINES}"));
        }
    }
    report(&mistakes);
}
