//! Values as literals of Python.

use crate::model::Activation;

/// A boolean.
pub(super) fn flag(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A text as a literal of Python.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The function of an activation.
pub(super) fn activation(function: Option<Activation>) -> &'static str {
    match function {
        None => "None",
        Some(Activation::Relu) => "F.relu",
        Some(Activation::LeakyRelu) => "leaky_relu",
        Some(Activation::Gelu) => "F.gelu",
        Some(Activation::Silu) => "F.silu",
        Some(Activation::Sigmoid) => "torch.sigmoid",
        Some(Activation::Tanh) => "torch.tanh",
    }
}

/// Two whole numbers.
pub(super) fn pair(p: [usize; 2]) -> String {
    format!("({}, {})", p[0], p[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(literal("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
    }
}
