//! Notes on standard error, and text that must not control a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

/// The text with its control characters escaped, except line breaks and tabs: a name read from a file must not control
/// the terminal. The escapes are those of JSON.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_escaped(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect()
}

/// Writes a note to standard error. If even that fails, there is no reader, and the work continues.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", harmless(text));
}
