//! Collects all mistakes of a document, from every stage that finds some.
//!
//! The reader finds fields of a wrong type, the checker values out of range and shapes that do not fit. The checker
//! runs on what the reader could read, and reports nothing about a field that could not be read, because its value is
//! not the document's.

use super::diagnostic::Diagnostic;
use super::path::LayerPath;
use std::collections::HashSet;

/// The mistakes of a document so far.
pub(super) struct Mistakes {
    list: Vec<Diagnostic>,
    /// The fields in which the reader found mistakes.
    unread: HashSet<String>,
    /// The layers in which it found mistakes.
    unread_layers: HashSet<LayerPath>,
}

impl Mistakes {
    /// Starts with the reader's mistakes.
    pub(super) fn after(list: Vec<Diagnostic>) -> Self {
        let unread = list.iter().map(|d| d.path.clone()).collect();
        let unread_layers = list.iter().filter_map(|d| d.layer.clone()).collect();
        Self { list, unread, unread_layers }
    }

    /// Adds a mistake that the checker found, unless the field could not be read.
    pub(super) fn add(&mut self, mistake: Diagnostic) {
        if self.is_read(&mistake.path) {
            self.list.push(mistake);
        }
    }

    /// Adds a mistake outside the layers.
    pub(super) fn fail(&mut self, path: impl Into<String>, message: impl Into<String>, help: impl Into<String>) {
        self.add(Diagnostic { layer: None, path: path.into(), message: message.into(), help: help.into() });
    }

    /// False if the reader found a mistake in this field or in an object that contains it.
    pub(super) fn is_read(&self, path: &str) -> bool {
        let ends = path.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
        self.unread.is_empty() || !ends.chain([path.len()]).any(|end| self.unread.contains(&path[..end]))
    }

    pub(super) fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }
}

/// The checks of one layer's fields.
pub struct FieldChecks<'a> {
    path: &'a LayerPath,
    mistakes: &'a mut Mistakes,
    /// The number of mistakes before those of this layer.
    from: usize,
}

impl<'a> FieldChecks<'a> {
    pub(super) fn new(path: &'a LayerPath, mistakes: &'a mut Mistakes) -> Self {
        let from = mistakes.list.len();
        Self { path, mistakes, from }
    }

    fn at(&self, name: &str) -> String {
        if name.is_empty() { self.path.to_string() } else { format!("{}.{name}", self.path) }
    }

    /// Records a mistake in field `name`, or in the layer as a whole if it is empty.
    pub fn fail(&mut self, name: &str, message: impl Into<String>, help: impl Into<String>) {
        let (layer, path) = (Some(self.path.clone()), self.at(name));
        self.mistakes.add(Diagnostic { layer, path, message: message.into(), help: help.into() });
    }

    /// Whether no mistake was found in these fields so far, so that they can be compared with each other.
    #[must_use]
    pub fn are_sound(&self, names: &[&str]) -> bool {
        names
            .iter()
            .map(|name| self.at(name))
            .all(|path| self.mistakes.is_read(&path) && !self.mistakes.list[self.from..].iter().any(|d| d.path == path))
    }

    /// Whether no mistake was found in this layer so far.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.mistakes.list.len() == self.from && !self.mistakes.unread_layers.contains(self.path)
    }
}
