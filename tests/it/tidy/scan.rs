//! The sources as text, as code without comments and literals, and as tokens.

use std::path::{Path, PathBuf};

pub struct Source {
    /// The path from the repository's root, with `/`.
    pub name: String,
    pub text: String,
    /// The text without comments, contents of literals and `#[cfg(test)]` items; it has as many lines as the text.
    pub code: String,
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

pub fn sources() -> Vec<Source> {
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
    assert!(sources.len() > 100, "the sources exist");
    sources
}

/// A source with the given text, for tests of the rules.
pub fn made_up(name: &str, text: &str) -> Source {
    Source { name: name.into(), text: text.into(), code: without_tests(&blanked(text)) }
}

/// The files below the folders with one of the extensions, as paths from the repository's root and texts.
pub fn texts(folders: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in folders.iter().map(|f| root().join(f)).filter(|f| f.is_dir()) {
        files(&folder, &mut paths);
    }
    paths.retain(|p| p.extension().is_some_and(|e| endings.iter().any(|wanted| e == *wanted)));
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        (name, std::fs::read_to_string(&path).unwrap())
    };
    paths.into_iter().map(named).collect()
}

/// A word, a number, `::`, `->`, `=>`, or one other character, with its line.
pub struct Token<'t> {
    pub text: &'t str,
    pub line: usize,
}

impl Token<'_> {
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of blanked code, without lifetimes.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut line, mut rest) = (Vec::new(), 1, code);
    while let Some(first) = rest.chars().next() {
        let word = |s: &str| s.find(|c| !part(c)).unwrap_or(s.len());
        let len = match first {
            c if part(c) => word(rest),
            '\'' => 1 + word(&rest[1..]),
            _ if ["::", "->", "=>"].iter().any(|p| rest.starts_with(p)) => 2,
            c => c.len_utf8(),
        };
        if first != '\'' && !first.is_whitespace() {
            out.push(Token { text: &rest[..len], line });
        }
        line += usize::from(first == '\n');
        rest = &rest[len..];
    }
    out
}

/// Files that only tests use: `tests.rs`, folders `tests/`, and modules declared under `#[cfg(test)]`.
pub fn is_test(name: &str, all: &[Source]) -> bool {
    if name.ends_with("/tests.rs") || name.contains("/tests/") {
        return true;
    }
    let (folder, file) = name.rsplit_once('/').unwrap();
    let module = file.trim_end_matches(".rs");
    let parents = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
    let declares = |s: &Source| {
        ["", "pub(crate) "].iter().any(|seen| s.text.contains(&format!("#[cfg(test)]\n{seen}mod {module};")))
    };
    all.iter().any(|s| parents.contains(&s.name) && declares(s))
}

/// The text with comments and the contents of literals replaced by spaces; line breaks are kept.
pub fn blanked(text: &str) -> String {
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
pub fn without_tests(code: &str) -> String {
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

#[test]
fn the_scanner_returns_only_code() {
    let text = r#"let a = "x.unwrap()"; // crate::cli
#[cfg(test)]
mod tests {
    fn f() { y.unwrap(); }
}
let c = '"'; b
"#;
    let code = without_tests(&blanked(text));
    assert!(!code.contains("unwrap") && !code.contains("cli") && code.contains("b\n"));
    assert_eq!(code.lines().count(), text.lines().count());
}
