//! The length of functions and the number of their arguments.

use super::report;
use super::scan::{blanked, root, texts, tokens, without_tests};

/// No function is longer than this, from its first line to its last.
const MAX_LINES: usize = 80;

/// Functions above this length are counted, and the count must not grow.
const LONG: usize = 60;

/// How many functions outside tests have more than `LONG` lines.
const MAX_LONG: usize = 4;

/// `self` is not counted.
const MAX_ARGUMENTS: usize = 6;

/// Functions that may be longer, or take more arguments, as `file::function`, with the reason.
const EXCEPTIONS: [(&str, &str); 6] = [
    ("src/exec/cpu/kernels/gemm/micro.rs::micro", "the innermost loop, which keeps a tile in registers"),
    ("src/exec/cpu/kernels/gemm/pack.rs::transpose_rows", "an inlined loop over two matrices with their strides"),
    ("src/exec/cpu/kernels/conv/correlate.rs::multiply", "the loops over tiles and taps, one body for the optimizer"),
    ("src/exec/cpu/kernels/conv/weight.rs::sum_group", "the inlined loops over images and taps"),
    ("src/exec/cpu/kernels/elementwise.rs::add_chunks", "an inlined loop over a stretch of two matrices"),
    ("src/exec/cpu/kernels/tests/harness.rs::length", "one arm for each operation, stated apart from its table"),
];

struct Function {
    name: String,
    line: usize,
    lines: usize,
    arguments: usize,
}

/// The functions of blanked code that have a body; nested ones too.
fn functions(code: &str) -> Vec<Function> {
    let tokens = tokens(code);
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
    let mut out = Vec::new();
    for at in 0..tokens.len() {
        if text(at) != "fn" || !tokens.get(at + 1).is_some_and(|t| t.is_word()) {
            continue;
        }
        let mut i = at + 2;
        let (mut angles, mut depth) = (0, 0);
        while i < tokens.len() && (angles > 0 || text(i) != "(") {
            angles += i32::from(text(i) == "<") - i32::from(text(i) == ">");
            i += 1;
        }
        let (mut arguments, mut filled, mut receiver) = (0, false, false);
        while i < tokens.len() {
            match text(i) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "<" => angles += 1,
                ">" => angles -= 1,
                "," if depth == 1 && angles == 0 => {
                    arguments += usize::from(filled);
                    filled = false;
                    i += 1;
                    continue;
                }
                "self" if depth == 1 && arguments == 0 => receiver = true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            filled |= depth > 1 || text(i) != "(";
            i += 1;
        }
        arguments += usize::from(filled);
        i += 1;
        while i < tokens.len() && (depth > 0 || !["{", ";"].contains(&text(i))) {
            depth += i32::from(["(", "["].contains(&text(i))) - i32::from([")", "]"].contains(&text(i)));
            if i > at && depth == 0 && text(i) == "{" {
                break;
            }
            i += 1;
        }
        if text(i) != "{" {
            continue;
        }
        let mut braces = 0;
        while i < tokens.len() {
            braces += i32::from(text(i) == "{") - i32::from(text(i) == "}");
            if braces == 0 {
                break;
            }
            i += 1;
        }
        let last = tokens.get(i).map_or(tokens[at].line, |t| t.line);
        let name = text(at + 1).to_owned();
        let lines = last - tokens[at].line + 1;
        out.push(Function { name, line: tokens[at].line, lines, arguments: arguments - usize::from(receiver) });
    }
    out
}

/// The violations in a file's functions.
fn mistakes(file: &str, found: &[Function], exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut out = Vec::new();
    for Function { name, line, lines, arguments } in found {
        if exceptions.iter().any(|(at, _)| *at == format!("{file}::{name}")) {
            continue;
        }
        if *lines > MAX_LINES {
            out.push(format!("{file}:{line} {name} has {lines} lines, more than {MAX_LINES}"));
        }
        if *arguments > MAX_ARGUMENTS {
            out.push(format!("{file}:{line} {name} takes {arguments} arguments, more than {MAX_ARGUMENTS}"));
        }
    }
    out
}

#[test]
fn a_long_function_and_one_with_many_arguments_are_found() {
    let text = r"impl A {
    fn six(&self, a: Map<u8, u8>, b: (u8, u8), c: u8, d: u8, e: u8, f: fn(u8, u8) -> u8) {
    }
    fn none() -> [u8; 3] {
    }
    fn seven<F: Fn(u8, u8) -> u8>(a: u8, b: u8, c: u8, d: u8, e: u8, f: F, g: u8,)
    {
    }
}
";
    let found = functions(&blanked(text));
    let seen: Vec<(&str, usize, usize)> = found.iter().map(|f| (f.name.as_str(), f.arguments, f.lines)).collect();
    assert_eq!(seen, [("six", 6, 2), ("none", 0, 2), ("seven", 7, 3)]);
    assert_eq!(mistakes("a.rs", &found, &[]).len(), 1);
    assert!(mistakes("a.rs", &found, &[("a.rs::seven", "a reason")]).is_empty());
    let long = format!("fn long() {{\n{}}}\n", "    a();\n".repeat(MAX_LINES - 1));
    assert_eq!(mistakes("a.rs", &functions(&long), &[]).len(), 1);
    assert!(mistakes("a.rs", &functions(&long.replacen("    a();\n", "", 1)), &[]).is_empty());
}

#[test]
fn functions_are_short_and_take_few_arguments() {
    let (mut out, mut long) = (Vec::new(), Vec::new());
    for (name, text) in texts(&["src", "tests"], &["rs"]) {
        let found = functions(&blanked(&text));
        out.extend(mistakes(&name, &found, &EXCEPTIONS));
        if name.starts_with("src/") && !name.contains("/tests/") && !name.ends_with("/tests.rs") {
            let outside = functions(&without_tests(&blanked(&text)));
            let over = outside.iter().filter(|f| f.lines > LONG);
            long.extend(over.map(|f| format!("{name}:{} {} has {} lines", f.line, f.name, f.lines)));
        }
    }
    if long.len() > MAX_LONG {
        out.push(format!("{} functions have more than {LONG} lines, and {MAX_LONG} may:", long.len()));
        out.extend(long);
    }
    for (at, _) in EXCEPTIONS {
        let (file, name) = at.split_once("::").expect("an exception names a file and a function");
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        let still = functions(&blanked(&text));
        let needed = still.iter().any(|f| f.name == name && (f.lines > MAX_LINES || f.arguments > MAX_ARGUMENTS));
        if !needed {
            out.push(format!("{file} {name} needs no exception any more"));
        }
    }
    report(&out);
}
