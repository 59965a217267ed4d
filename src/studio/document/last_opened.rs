//! The network that was open last, which the next start opens.

use crate::model::{Preset, read_preset, write_preset};
use crate::studio::document::files;
use crate::studio::document::history::Document;
use crate::studio::document::presets;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What was open, as it was saved or opened. Unsaved edits are handled by the recovery file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LastOpened {
    File(PathBuf),
    /// A bundled preset, by its name.
    Bundled(String),
    /// A network without a file, as the text of its preset: a new one, or that of a kept run.
    Text(String),
}

impl LastOpened {
    /// The entry for this document.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        // Only text can be stored, so every path in the preset must be text.
        if let Some(path) = document.path().filter(|path| path.to_str().is_some()) {
            return Self::File(path.to_owned());
        }
        let saved = document.saved();
        let bundled = presets::index(&saved.name).filter(|i| presets::bundled(*i).is_some_and(|p| p == **saved));
        bundled.map_or_else(|| Self::Text(write_preset(saved)), |i| Self::Bundled(presets::name(i).to_owned()))
    }

    /// The network, with its file if it has one.
    pub fn read(&self) -> Result<(Preset, Option<&Path>), String> {
        match self {
            Self::File(path) => Ok((files::read(path)?, Some(path))),
            Self::Bundled(name) => {
                let preset = presets::index(name).and_then(presets::bundled);
                preset.map(|p| (p, None)).ok_or_else(|| format!("there is no longer a bundled preset called {name}"))
            }
            Self::Text(text) => {
                let preset = read_preset(text);
                preset.map(|p| (p, None)).map_err(|_| "another version of the program wrote it".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_without_a_file_is_remembered_as_it_was_opened() {
        let index = presets::index("spirals").unwrap();
        let spirals = Document::new(presets::bundled(index).unwrap(), None);
        assert_eq!(LastOpened::of(&spirals), LastOpened::Bundled("spirals".into()));
        let own = Preset { name: "mine".into(), ..presets::digits() };
        let last = LastOpened::of(&Document::new(own.clone(), None));
        assert_eq!(last.read(), Ok((own, None)));
        assert!(LastOpened::Bundled("gone".into()).read().unwrap_err().contains("gone"));
        assert!(LastOpened::Text("{}".into()).read().is_err());
    }
}
