//! Looks for a text in another one that arrives in pieces.

/// Ends a text at the first occurrence of another one, and passes on everything before it.
#[derive(Clone, Debug, Default)]
pub(super) struct StopText {
    stop: String,
    /// Received text that may be the start of the stop text.
    held: String,
}

impl StopText {
    /// Without a stop text, or with an empty one, everything is passed on.
    pub(super) fn new(stop: Option<&str>) -> Self {
        Self { stop: stop.unwrap_or_default().to_owned(), held: String::new() }
    }

    /// The text that is certain not to belong to the stop text, and whether that has occurred.
    pub(super) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        if self.stop.is_empty() {
            return (std::mem::take(&mut self.held), false);
        }
        if let Some(at) = self.held.find(&self.stop) {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: &usize| self.stop.starts_with(&self.held[*at..]);
        let at = self.held.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Text that was held back and is not the stop text.
    pub(super) fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is passed on for these pieces, and whether the stop text occurred.
    fn passed(stop: &str, pieces: &[&str]) -> (Vec<String>, bool) {
        let mut found = StopText::new(Some(stop));
        let mut out = Vec::new();
        for piece in pieces {
            let (text, is_over) = found.push(piece);
            out.push(text);
            if is_over {
                return (out, true);
            }
        }
        out.push(found.finish());
        (out, false)
    }

    #[test]
    fn a_text_ends_before_the_stop_text() {
        assert_eq!(
            passed("END", &["a", "E", "N", "D", "b"]),
            (vec!["a".into(), "".into(), "".into(), "".into()], true)
        );
        assert_eq!(passed("\n", &["one\ntwo"]), (vec!["one".into()], true));
        // A start that does not become the whole text is passed on with what follows; here a later one begins inside
        // it.
        let pieces = ["a", "a", "b", "a", "a", "c"];
        let (out, is_over) = passed("aac", &pieces);
        assert_eq!((out.concat(), is_over), ("aab".to_owned(), true));
        assert_eq!(passed("\u{e4}\u{f6}", &["x\u{e4}", "y"]), (vec!["x".into(), "\u{e4}y".into(), "".into()], false));
        assert_eq!(passed("ab", &["xa"]), (vec!["x".into(), "a".into()], false));
        assert_eq!(passed("", &["x", "y"]), (vec!["x".into(), "y".into(), "".into()], false));
    }
}
