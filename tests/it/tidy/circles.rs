//! Files have no circular imports.
//!
//! A file imports another one if it uses a name that the other one defines: by `use`, or by a path in its code. A name
//! that a module re-exports with `pub use` counts as an import of the file that defines it; the re-export itself is not
//! an import.

use std::collections::{BTreeMap, BTreeSet};

use super::report;
use super::scan::{Source, Token, made_up, sources, tokens};

type Path = Vec<String>;

/// Allowed cycles, as sets of files, with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [("src/model/layers/", "a block is a layer that holds layers of any kind")];

/// One file as a module.
struct Module {
    path: Path,
    /// Every name that a `use` imports, with its path from the crate's root.
    names: BTreeMap<String, Path>,
    /// Modules that are imported with `*`.
    all_of: Vec<Path>,
    /// The names that it re-exports.
    passed_on: BTreeSet<String>,
    /// The paths in `use` and in code, from the crate's root, with their lines.
    named: Vec<(usize, Path)>,
    defined: BTreeSet<String>,
}

/// The path of a file's module; `None` for the program's main file.
fn module_path(name: &str) -> Option<Path> {
    let inner = name.strip_prefix("src/")?.strip_suffix(".rs")?;
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    match inner {
        "main" => None,
        "lib" => Some(Vec::new()),
        inner => Some(inner.split('/').map(str::to_owned).collect()),
    }
}

/// The paths of a tree of `use`, each with its local name, and the end of the tree.
fn use_tree(tokens: &[Token], mut i: usize, prefix: &[String], out: &mut Vec<(usize, Path, String)>) -> usize {
    let mut path = prefix.to_vec();
    let line = tokens[i].line;
    while i < tokens.len() {
        match tokens[i].text {
            "::" => {}
            "{" => {
                i += 1;
                while i < tokens.len() && tokens[i].text != "}" {
                    i = if tokens[i].text == "," { i + 1 } else { use_tree(tokens, i, &path, out) };
                }
                return i + 1;
            }
            "as" => {
                out.push((line, path, tokens[i + 1].text.to_owned()));
                return i + 2;
            }
            "," | "}" | ";" => break,
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        i += 1;
    }
    let name = path.last().cloned().unwrap_or_default();
    out.push((line, path, name));
    i
}

/// A path inside this many nested modules of the file, as a path from the crate's root; `None` if it starts with
/// neither a module nor a name of this file.
fn from_root(module: &Module, modules: &BTreeMap<Path, usize>, written: &[String], inner: usize) -> Option<Path> {
    let own = &module.path;
    let with = |base: &[String], rest: &[String]| Some(base.iter().chain(rest).cloned().collect());
    let child = |name: &String| modules.contains_key(&own.iter().chain([name]).cloned().collect::<Path>());
    match written[0].as_str() {
        "crate" | "stepgraph" => with(&[], &written[1..]),
        "self" => with(own, &written[1..]),
        "super" => {
            let ups = written.iter().take_while(|w| *w == "super").count();
            with(&own[..own.len().checked_sub(ups.saturating_sub(inner))?], &written[ups..])
        }
        _ if child(&written[0]) => with(own, written),
        first => module.names.get(first).and_then(|base| with(base, &written[1..])),
    }
}

/// The number of nested modules of the file that contain each token.
fn depths(tokens: &[Token]) -> Vec<usize> {
    let (mut out, mut braces, mut open) = (Vec::new(), 0, Vec::new());
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => {
                if i > 1 && tokens[i - 2].text == "mod" {
                    open.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces -= 1;
                open.retain(|at| *at < braces);
            }
            _ => {}
        }
        out.push(open.len());
    }
    out
}

fn read(source: &Source, modules: &BTreeMap<Path, usize>) -> Option<Module> {
    let tokens = tokens(&source.code);
    let path = module_path(&source.name)?;
    let (names, defined) = (BTreeMap::new(), BTreeSet::new());
    let mut module = Module { path, names, all_of: Vec::new(), passed_on: BTreeSet::new(), named: Vec::new(), defined };
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
    // The code outside `use`, which is read when all names are known.
    let (mut i, mut code) = (0, Vec::new());
    let inner = depths(&tokens);
    while i < tokens.len() {
        if ["fn", "struct", "enum", "trait", "const", "static", "type", "union"].contains(&text(i)) {
            module.defined.insert(text(i + 1).to_owned());
        }
        if text(i) != "use" {
            code.push(i);
            i += 1;
            continue;
        }
        let passes_on = i > 0 && (text(i - 1) == "pub" || (text(i - 1) == ")" && text(i.saturating_sub(4)) == "pub"));
        let mut found = Vec::new();
        let depth = inner[i];
        i = use_tree(&tokens, i + 1, &[], &mut found) + 1;
        for (line, written, name) in found {
            let Some(full) = from_root(&module, modules, &written, depth) else { continue };
            if name == "*" {
                let base = full[..full.len() - 1].to_vec();
                if !passes_on {
                    module.named.push((line, base.clone()));
                }
                module.all_of.push(base);
            } else {
                if passes_on {
                    module.passed_on.insert(name.clone());
                } else {
                    module.named.push((line, full.clone()));
                }
                module.names.insert(name, full);
            }
        }
    }
    let starts = |i: usize| tokens[i].is_word() && (i == 0 || !["::", "."].contains(&text(i - 1)));
    for &at in code.iter().filter(|at| starts(**at)) {
        let mut written = vec![text(at).to_owned()];
        let mut i = at;
        while text(i + 1) == "::" && tokens.get(i + 2).is_some_and(Token::is_word) {
            i += 2;
            written.push(text(i).to_owned());
        }
        let is_path = written.len() > 1 || module.passed_on.contains(&written[0]);
        if let Some(full) = from_root(&module, modules, &written, inner[at]).filter(|_| is_path) {
            module.named.push((tokens[at].line, full));
        }
    }
    Some(module)
}

/// The module that defines the target of a path; `None` if the path names only a module.
fn owner(path: &[String], all: &[Module], by_path: &BTreeMap<Path, usize>, depth: usize) -> Option<usize> {
    let mut at = *by_path.get(&Vec::new())?;
    for (i, name) in path.iter().enumerate() {
        let module = &all[at];
        let inner: Path = module.path.iter().chain([name]).cloned().collect();
        if let Some(child) = by_path.get(&inner) {
            at = *child;
            if i + 1 == path.len() {
                return None;
            }
            continue;
        }
        if module.defined.contains(name) || depth == 0 {
            return Some(at);
        }
        let rest = &path[i + 1..];
        let through = |base: &Path| owner(&base.iter().chain(rest).cloned().collect::<Path>(), all, by_path, depth - 1);
        if let Some(base) = module.names.get(name) {
            return through(base);
        }
        let globs = module.all_of.iter().map(|base| base.iter().chain([name]).cloned().collect::<Path>());
        for full in globs.filter(|full| *full != path[..=i]) {
            let found = through(&full);
            if found.is_some_and(|f| all[f].defined.contains(name)) {
                return found;
            }
        }
        return Some(at);
    }
    None
}

/// The cycles of a set of sources, each with the imports that cause it.
fn circles(sources: &[Source]) -> Vec<String> {
    let paths: Vec<(&Source, Path)> = sources.iter().filter_map(|s| module_path(&s.name).map(|p| (s, p))).collect();
    let by_path: BTreeMap<Path, usize> = paths.iter().enumerate().map(|(i, (_, p))| (p.clone(), i)).collect();
    let all: Vec<Module> = paths.iter().filter_map(|(s, _)| read(s, &by_path)).collect();
    let mut imports: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new(); all.len()];
    for (at, module) in all.iter().enumerate() {
        for (line, path) in &module.named {
            if let Some(to) = owner(path, &all, &by_path, 8).filter(|to| *to != at) {
                imports[at].entry(to).or_insert(*line);
            }
        }
    }
    let reaches = |from: usize| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(imports[at].keys().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let reach: Vec<BTreeSet<usize>> = (0..all.len()).map(reaches).collect();
    let (mut out, mut done) = (Vec::new(), BTreeSet::new());
    for at in 0..all.len() {
        if !reach[at].contains(&at) || done.contains(&at) {
            continue;
        }
        let members: BTreeSet<usize> = reach[at].iter().copied().filter(|m| reach[*m].contains(&at)).collect();
        done.extend(members.iter().copied());
        let within = |folder: &str| members.iter().all(|m| paths[*m].0.name.starts_with(folder));
        if EXCEPTIONS.iter().any(|(folder, _)| within(folder)) {
            continue;
        }
        let mut lines = vec![format!("a circle of {} files", members.len())];
        for &from in &members {
            for (to, line) in imports[from].iter().filter(|(to, _)| members.contains(to)) {
                lines.push(format!("  {}:{line} imports {}", paths[from].0.name, paths[*to].0.name));
            }
        }
        out.push(lines.join("\n"));
    }
    out
}

#[test]
fn a_cycle_is_found() {
    let lib = || made_up("src/lib.rs", "pub mod a;");
    let top = || made_up("src/a/mod.rs", "mod one;\nmod two;\npub use one::{One, first};\npub use two::Two;\n");
    let one = || made_up("src/a/one.rs", "use crate::a::{Two};\npub struct One(Two);\npub fn first() {}\n");
    let two = |text: &str| made_up("src/a/two.rs", text);
    let found = |text: &str| circles(&[lib(), top(), one(), two(text)]);
    assert!(found("pub struct Two;\n#[cfg(test)]\nmod tests {\n    use super::super::One;\n}\n").is_empty());
    assert_eq!(found("use super::One;\npub struct Two(One);").len(), 1);
    assert_eq!(found("pub struct Two;\nfn f() { super::one::first() }").len(), 1);
    assert_eq!(found("use crate::a;\npub struct Two;\nfn f() { a::first() }").len(), 1);
    assert_eq!(found("use super::*;\npub struct Two;\nfn f() { super::first() }").len(), 1);
    // A module within the file is not a file.
    let within = "pub struct Two;\nmod x86 {\n    use super::Two;\n    mod y { use super::super::Two; }\n}\n";
    assert!(found(within).is_empty());
    assert_eq!(found("pub struct Two;\nmod x86 {\n    use super::super::One;\n}\n").len(), 1);
    // A module that uses what it re-exports imports it.
    let user = made_up("src/a/mod.rs", "mod one;\nmod two;\npub use two::Two;\npub struct Top(Two);\n");
    assert_eq!(circles(&[lib(), user, two("use super::Top;\npub struct Two;")]).len(), 1);
    let circle = found("use super::One;\npub struct Two(One);").remove(0);
    assert!(circle.contains("src/a/two.rs:1 imports src/a/one.rs"), "{circle}");
}

#[test]
fn files_have_no_circular_imports() {
    report(&circles(&sources()));
}
