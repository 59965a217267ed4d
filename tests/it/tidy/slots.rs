//! A kernel names its operands: the numbers of slots come from `slots.cuh`, which is generated from `src/ops`.

use super::report;
use super::scan::texts;

/// The lines on which an operand is taken by a number: `a.at<float>(3)`, `a.has(2)`.
fn numbered_slots(file: &str, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let at = code.match_indices(".at<").filter_map(|(i, m)| code[i + m.len()..].split_once(">(").map(|(_, t)| t));
        let has = [".at(", ".has("].into_iter().flat_map(|m| code.match_indices(m));
        let mut arguments = at.chain(has.map(|(i, m)| &code[i + m.len()..]));
        if arguments.any(|a| a.trim_start().starts_with(|c: char| c.is_ascii_digit())) {
            out.push(format!("{file}:{} takes an operand by a number", n + 1));
        }
    }
    out
}

#[test]
fn a_number_for_a_slot_is_seen() {
    let text =
        "x = a.at<float>(X);\ny = a.at<Pair<u8>>(3) + 1;\nif (a.has(2)) return; // a.has(1)\nz = a.at<T>( 0 );\n";
    assert_eq!(numbered_slots("k.cu", text).len(), 3);
    assert!(numbered_slots("k.cu", "a.at<u32>(FIRST + 2)[0]; // a.at<u32>(2)\n").is_empty());
}

#[test]
fn kernels_name_their_operands() {
    let all = texts(&["kernels"], &["cu", "cuh"]);
    assert!(all.len() >= 10, "the kernels are there");
    let mistakes: Vec<String> = all.iter().flat_map(|(name, text)| numbered_slots(name, text)).collect();
    report(&mistakes);
}
