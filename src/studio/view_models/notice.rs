//! A message for the user, with actions for it.

use crate::studio::commands::UiCommand;
use std::path::Path;

/// A message for the user, until it is dismissed or replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub text: String,
    pub is_error: bool,
    /// The actions, as buttons beside it.
    pub actions: Vec<UiCommand>,
    /// True if it is an error of the run, which is removed when it no longer applies.
    pub is_of_run: bool,
}

impl Notice {
    /// The message in one line. For a list of mistakes it is the first one, with the file's name and the number of the
    /// others.
    #[must_use]
    pub fn line(&self) -> String {
        let mut lines = self.text.lines();
        let head = lines.next().unwrap_or_default();
        match (head.strip_suffix(':'), lines.next()) {
            (Some(place), Some(first)) => {
                let name = Path::new(place).file_name().map_or_else(|| place.into(), |n| n.to_string_lossy());
                let more = lines.count();
                let others = if more > 0 { format!(" (and {more} more)") } else { String::new() };
                format!("{name}: {first}{others}")
            }
            _ => head.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_shortened_to_one_line() {
        let line =
            |text: &str| Notice { text: text.into(), is_error: true, actions: Vec::new(), is_of_run: false }.line();
        assert_eq!(line("Saved to /a/b.json"), "Saved to /a/b.json");
        assert_eq!(line("/a/b.json:\nname: found 3"), "b.json: name: found 3");
        assert_eq!(line("/a/b.json:\nname: found 3\nloss: missing\nx"), "b.json: name: found 3 (and 2 more)");
        assert_eq!(line("w cannot be written: no\nPath: /w"), "w cannot be written: no");
    }
}
