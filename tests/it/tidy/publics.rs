//! Every `pub` item is used by another file.
//!
//! The search is by name. A name that several files define is ambiguous, so it is skipped and counted.

use std::collections::{BTreeMap, BTreeSet};

use super::report;
use super::scan::{blanked, texts, tokens, without_tests};

/// Items that may be `pub` although no other file names them, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    ("src/ops/optimizer.rs", "AdamTerms", TERMS),
    ("src/ops/optimizer.rs", "SgdTerms", TERMS),
    ("src/ops/optimizer.rs", "LionTerms", TERMS),
];
const TERMS: &str = "callers reach it as the associated type of a public trait";

const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];

/// A name that several files define is skipped, and so is a shorter name, which may be anything.
const SHORTEST: usize = 4;

struct Item {
    name: String,
    line: usize,
}

/// The names that a file defines and uses.
struct File {
    name: String,
    items: Vec<Item>,
    /// Every name that is defined, public or not.
    defined: BTreeSet<String>,
    /// Names in code, except where they are defined or re-exported.
    named: BTreeSet<String>,
    /// Names in the declarations of public items: their signatures, fields and variants.
    shown: BTreeSet<String>,
}

fn read(name: &str, text: &str) -> File {
    let code = blanked(text);
    let all = tokens(&code);
    let word = |i: usize| all.get(i).map_or("", |t| t.text);
    let file = name.to_owned();
    let (mut defined, mut named, mut shown) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut i, mut passing_on) = (0, false);
    while i < all.len() {
        passing_on |= word(i) == "use" && i > 0 && ["pub", ")"].contains(&word(i - 1));
        passing_on &= word(i) != ";";
        let defines = i > 0 && KINDS.contains(&word(i - 1)) && all[i].is_word();
        if defines {
            defined.insert(word(i).to_owned());
        } else if all[i].is_word() && !passing_on {
            named.insert(word(i).to_owned());
        }
        i += 1;
    }
    let outside = without_tests(&code);
    let all = tokens(&outside);
    let word = |i: usize| all.get(i).map_or("", |t| t.text);
    let mut items = Vec::new();
    for at in (0..all.len()).filter(|at| word(*at) == "pub") {
        let mut i = at + 1;
        if word(i) == "(" {
            while word(i) != ")" && i < all.len() {
                i += 1;
            }
            i += 1;
        }
        while ["const", "unsafe", "async", "extern"].contains(&word(i)) && KINDS.contains(&word(i + 1)) {
            i += 1;
        }
        let kind = word(i);
        if KINDS.contains(&kind) {
            items.push(Item { name: word(i + 1).to_owned(), line: all[i].line });
        }
        // For a type its fields and variants are included, for a trait its methods; for other items only the signature.
        let whole = ["struct", "enum", "trait"].contains(&kind);
        let (mut depth, mut j) = (0, i + 2);
        while j < all.len() {
            match word(j) {
                "{" | "(" | "[" if word(j) != "{" || whole => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                "{" => break,
                _ => {}
            }
            if depth < 0 || (depth == 0 && (word(j) == ";" || (word(j) == "}" && whole))) {
                break;
            }
            if all[j].is_word() {
                shown.insert(word(j).to_owned());
            }
            j += 1;
        }
    }
    // A name in a macro counts as used where the macro is used.
    for at in (0..all.len()).filter(|at| word(*at) == "macro_rules") {
        let (mut depth, mut j) = (1, at + 4);
        while j < all.len() && depth > 0 {
            depth += i32::from(word(j) == "{") - i32::from(word(j) == "}");
            if all[j].is_word() {
                shown.insert(word(j).to_owned());
            }
            j += 1;
        }
    }
    // An associated type is as public as its trait.
    let associated = (0..all.len()).filter(|at| word(*at) == "type" && word(at + 2) == "=");
    shown.extend(associated.map(|at| word(at + 3).to_owned()));
    File { name: file, items, defined, named, shown }
}

/// Public items that no other file names, and the number of names that were skipped.
fn unused(files: &[File], exceptions: &[(&str, &str, &str)]) -> (Vec<String>, usize) {
    let mut definitions: BTreeMap<&str, usize> = BTreeMap::new();
    for name in files.iter().flat_map(|f| &f.defined) {
        *definitions.entry(name).or_default() += 1;
    }
    let (mut out, mut skipped) = (Vec::new(), 0);
    for file in files {
        for Item { name, line } in &file.items {
            if definitions.get(name.as_str()).is_some_and(|n| *n > 1) || name.len() < SHORTEST {
                skipped += 1;
                continue;
            }
            let elsewhere = files.iter().any(|f| f.name != file.name && f.named.contains(name));
            let allowed = exceptions.iter().any(|(f, n, _)| *f == file.name && n == name);
            if !elsewhere && !file.shown.contains(name) && !allowed {
                out.push(format!("{}:{line} {name} is public, and no other file names it", file.name));
            }
        }
    }
    (out, skipped)
}

#[test]
fn an_unused_public_item_is_found() {
    let one = r"pub struct Shown;
pub enum Kept { A(Shown) }
pub fn called() -> u8 { 0 }
pub(crate) const fn dead() {}
pub fn new() {}
#[cfg(test)]
mod tests {
    pub fn helper() { super::dead(); }
}
";
    let two = "pub use super::one::dead;\nfn f(k: Kept) { called(); } // dead\nfn new() {}\n";
    let (found, skipped) = unused(&[read("one.rs", one), read("two.rs", two)], &[]);
    assert_eq!(found, ["one.rs:4 dead is public, and no other file names it"]);
    assert_eq!(skipped, 1);
    assert!(unused(&[read("one.rs", one), read("two.rs", two)], &[("one.rs", "dead", "a reason")]).0.is_empty());
}

#[test]
fn public_items_are_used() {
    let files: Vec<File> =
        texts(&["src", "tests", "fuzz"], &["rs"]).iter().map(|(name, text)| read(name, text)).collect();
    let of_sources = |f: &&File| f.name.starts_with("src/");
    let public: usize = files.iter().filter(of_sources).map(|f| f.items.len()).sum();
    let (mut mistakes, skipped) = unused(&files, &EXCEPTIONS);
    mistakes.retain(|m| m.starts_with("src/"));
    println!("{public} public items; {skipped} names that are too common or too short are skipped");
    report(&mistakes);
}
