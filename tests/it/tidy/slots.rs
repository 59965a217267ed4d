//! Kernels name their operands: the numbers of slots come from `slots.cuh`, which is generated from `src/ops`.

use super::report;
use super::scan::texts;

/// The lines on which an operand is accessed by a number: `a.at<float>(3)`, `a.has(2)`.
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
fn a_number_for_a_slot_is_found() {
    let text =
        "x = a.at<float>(X);\ny = a.at<Pair<u8>>(3) + 1;\nif (a.has(2)) return; // a.has(1)\nz = a.at<T>( 0 );\n";
    assert_eq!(numbered_slots("k.cu", text).len(), 3);
    assert!(numbered_slots("k.cu", "a.at<u32>(FIRST + 2)[0]; // a.at<u32>(2)\n").is_empty());
}

#[test]
fn kernels_name_their_operands() {
    let all = texts(&["kernels"], &["cu", "cuh"]);
    assert!(all.len() >= 10, "the kernels exist");
    let mistakes: Vec<String> = all.iter().flat_map(|(name, text)| numbered_slots(name, text)).collect();
    report(&mistakes);
}

/// Template parameters that are hidden by the name of a slot: in a type whose base has the slots of an operation, the
/// name refers to the slot's number instead of the parameter.
fn hidden_parameters(file: &str, text: &str, slots: &str) -> Vec<String> {
    let mut out = Vec::new();
    let above = std::iter::once("").chain(text.lines());
    for (n, (line, above)) in text.lines().zip(above).enumerate() {
        // The parameters of a long declaration are on a separate line.
        let line = if line.starts_with("struct ") { format!("{above} {line}") } else { line.to_owned() };
        let Some((head, base)) = line.split_once(" : slots::") else { continue };
        let Some(parameters) = head.strip_prefix("template <").and_then(|h| h.rsplit_once('>')) else { continue };
        let base = base.split(',').next().unwrap_or_default().trim_end_matches(" {");
        let Some((_, body)) = slots.split_once(&format!("struct {base} {{ enum : int {{ ")) else {
            out.push(format!("{file}:{}: no slots are named {base}", n + 1));
            continue;
        };
        let body = body.split('}').next().unwrap_or_default();
        let names: Vec<&str> = body.split(',').filter_map(|slot| slot.split_whitespace().next()).collect();
        for parameter in parameters.0.split(',').filter_map(|p| p.split_whitespace().last()) {
            if names.contains(&parameter) {
                out.push(format!("{file}:{}: {base} has a slot {parameter}, which hides the parameter", n + 1));
            }
        }
    }
    out
}

#[test]
fn a_hidden_parameter_is_found() {
    let slots = "struct sgd_step { enum : int { GRAD = 0, MOMENTUM_PREV = 1,\n    MOMENTUM = 2 }; };";
    let mistakes = |text: &str| hidden_parameters("k.cuh", text, slots);
    assert_eq!(mistakes("template <u64 MOMENTUM, bool NESTEROV> struct Sgd : slots::sgd_step {\n").len(), 1);
    assert_eq!(
        mistakes("template <u64 MOMENTUM>\nstruct Sgd : slots::sgd_step, Rate<slots::sgd_step::GRAD> {\n").len(),
        1
    );
    assert_eq!(mistakes("template <class Rule> struct Sgd : slots::other_step {\n").len(), 1);
    assert!(mistakes("template <u64 FACTOR, bool NESTEROV> struct Sgd : slots::sgd_step {\n").is_empty());
}

#[test]
fn no_slot_hides_a_parameter_of_a_template() {
    let all = texts(&["kernels"], &["cu", "cuh"]);
    let slots = &all.iter().find(|(name, _)| name.ends_with("slots.cuh")).unwrap().1;
    let seen: usize = all.iter().map(|(_, text)| text.matches("> struct ").count()).sum();
    assert!(seen > 20, "the kernels are templates");
    report(&all.iter().flat_map(|(name, text)| hidden_parameters(name, text, slots)).collect::<Vec<_>>());
}
