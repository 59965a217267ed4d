//! The style of the house, held by a test: the order of imports, no shortcuts outside tests, unsafe code in its place and explained.

use std::path::{Path, PathBuf};

/// The layers of the program, each of which may import from those before it.
const LAYERS: [&str; 14] = [
    "tensor", "model", "ir", "ops", "lower", "rewrite", "select", "plan", "compile", "data", "exec", "train", "cli",
    "studio",
];

/// Pairs that the order would allow and the architecture does not: what trains knows nothing of those who show it, and these nothing of each other.
const STRANGERS: [(&str, &str); 1] = [("studio", "cli")];

/// Files outside `exec` that may hold unsafe code: both ask the processor or the system for something that changes no
/// value, and lie below `exec` because data sets need them.
const UNSAFE_ELSEWHERE: [&str; 2] = ["src/data/shuffle.rs", "src/tensor/large_pages.rs"];

/// A file's length in lines above which it must be split.
const MAX_LINES: usize = 500;

struct Source {
    /// From the repository's root, with `/`.
    name: String,
    text: String,
    /// The text without comments, literals' contents and `#[cfg(test)]` items; as many lines as the text.
    code: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    files(&root().join("src"), &mut paths);
    let rust = paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs"));
    let sources: Vec<Source> = rust
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            let text = std::fs::read_to_string(&path).unwrap();
            let code = without_tests(&blanked(&text));
            Source { name, text, code }
        })
        .collect();
    assert!(sources.len() > 100, "the sources are there");
    sources
}

/// Files that only tests use: `tests.rs`, folders `tests/`, and modules declared under `#[cfg(test)]`.
fn is_test(name: &str, all: &[Source]) -> bool {
    if name.ends_with("/tests.rs") || name.contains("/tests/") {
        return true;
    }
    let (folder, file) = name.rsplit_once('/').unwrap();
    let module = file.trim_end_matches(".rs");
    let parents = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
    let declares = |s: &Source| s.text.contains(&format!("#[cfg(test)]\nmod {module};"));
    all.iter().any(|s| parents.contains(&s.name) && declares(s))
}

/// The text with comments and the contents of literals replaced by spaces, line breaks kept.
fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut i) = (String::with_capacity(text.len()), 0);
    let keep = |c: char| if c == '\n' { '\n' } else { ' ' };
    let starts = |i: usize, what: &str| what.chars().enumerate().all(|(k, c)| chars.get(i + k) == Some(&c));
    while i < chars.len() {
        let end = if starts(i, "//") {
            (i..chars.len()).find(|&k| chars[k] == '\n').unwrap_or(chars.len())
        } else if starts(i, "/*") {
            (i + 2..chars.len()).find(|&k| starts(k, "*/")).map_or(chars.len(), |k| k + 2)
        } else if chars[i] == '"' {
            let mut k = i + 1;
            while k < chars.len() && chars[k] != '"' {
                k += if chars[k] == '\\' { 2 } else { 1 };
            }
            k + 1
        } else if starts(i, "r\"") || starts(i, "r#\"") {
            let close = if starts(i, "r\"") { "\"" } else { "\"#" };
            (i + 3..chars.len()).find(|&k| starts(k, close)).map_or(chars.len(), |k| k + close.len())
        } else if chars[i] == '\'' && (chars.get(i + 1) == Some(&'\\') || chars.get(i + 2) == Some(&'\'')) {
            (i + 2..chars.len()).find(|&k| chars[k] == '\'').map_or(chars.len(), |k| k + 1)
        } else {
            out.push(chars[i]);
            i += 1;
            continue;
        };
        let end = end.min(chars.len());
        out.extend(chars[i..end].iter().map(|&c| keep(c)));
        i = end;
    }
    out
}

/// The code with every item under `#[cfg(test)]` replaced by empty lines.
fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let (mut depth, mut end) = (0, item.len());
        for (i, c) in item.char_indices().skip("#[cfg(test)]".len()) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && (c == '}' || c == ';') {
                end = i + 1;
                break;
            }
        }
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out + rest
}

/// The layer that a source belongs to; `None` for `lib.rs` and `main.rs`.
fn layer(name: &str) -> Option<usize> {
    let first = name.strip_prefix("src/")?.split('/').next()?.trim_end_matches(".rs");
    LAYERS.iter().position(|l| *l == first)
}

/// The words that follow `crate::` in a text, those in braces included, with the line of each.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let tail = &code[at + "crate::".len()..];
        let word =
            |s: &str| s.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match tail.strip_prefix('{') {
            None => out.push((line, word(tail))),
            Some(list) => {
                // Only the outermost commas part imports.
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

fn report(mistakes: &[String]) {
    assert!(mistakes.is_empty(), "{} places:\n{}", mistakes.len(), mistakes.join("\n"));
}

#[test]
fn the_scanner_sees_code_and_nothing_else() {
    let text = "let a = \"x.unwrap()\"; // crate::cli\n#[cfg(test)]\nmod tests {\n    fn f() { y.unwrap(); }\n}\nlet c = '\"'; b\n";
    let code = without_tests(&blanked(text));
    assert!(!code.contains("unwrap") && !code.contains("cli") && code.contains("b\n"));
    assert_eq!(code.lines().count(), text.lines().count());
    let found = imports("use crate::{ir::{Mode, Role}, plan};\nlet x = crate::exec::cpu::Pool;");
    let found: Vec<(usize, &str)> = found.iter().map(|(l, w)| (*l, w.as_str())).collect();
    assert_eq!(found, [(1, "ir"), (1, "plan"), (2, "exec")]);
}

#[test]
fn imports_point_up_the_list_only() {
    let mut mistakes = Vec::new();
    for source in sources() {
        let Some(own) = layer(&source.name) else { continue };
        for (line, word) in imports(&source.code) {
            let Some(other) = LAYERS.iter().position(|l| *l == word) else {
                mistakes.push(format!("{}:{line} names crate::{word}, which is no layer", source.name));
                continue;
            };
            let strange = STRANGERS.contains(&(LAYERS[own], LAYERS[other]));
            // The command line opens the window; everything else imports from what stands before it.
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

#[test]
fn no_shortcuts_outside_tests() {
    const FORBIDDEN: [&str; 7] = [".unwrap()", ".expect(", "todo!", "unimplemented!", "dbg!", "#[ignore", "FIXME"];
    let all = sources();
    let mut mistakes = Vec::new();
    for source in all.iter().filter(|s| !is_test(&s.name, &all)) {
        for (index, (line, text)) in source.code.lines().zip(source.text.lines()).enumerate() {
            // A parser may have a method of the name; that of the library takes a message.
            let own = |word: &str| word == ".expect(" && !text.contains(".expect(\"");
            for word in FORBIDDEN.iter().filter(|w| line.contains(**w) && !own(w)) {
                mistakes.push(format!("{}:{} {word}", source.name, index + 1));
            }
        }
    }
    let mut tests = Vec::new();
    files(&root().join("tests"), &mut tests);
    for path in tests.iter().filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.ends_with("it/tidy.rs")) {
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
            // The comment stands above the statement that the block belongs to.
            let before = &lines[index.saturating_sub(6)..=index];
            if !before.iter().any(|l| l.contains("SAFETY:")) {
                mistakes.push(format!("{}:{} unsafe without SAFETY", source.name, index + 1));
            }
        }
    }
    report(&mistakes);
}

#[test]
fn files_have_a_header_and_an_end() {
    let mut mistakes = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//!") {
            mistakes.push(format!("{} does not start with a `//!` header", source.name));
        }
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            mistakes.push(format!("{} has {lines} lines, more than {MAX_LINES}", source.name));
        }
    }
    report(&mistakes);
}

#[test]
fn no_machine_is_named() {
    // Spelled in pieces, so that this file passes its own test. The machines' own folders and the names of hosts that hand out packages.
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
    for folder in ["src", "tests", "presets", "kernels", "assets", ".ci", "fuzz"] {
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
