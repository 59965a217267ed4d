//! The network that was open last: it is what the next start opens.

use super::document::Document;
use super::files;
use super::presets;
use super::state::Studio;
use crate::model::{Preset, read_preset, write_preset};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What was open, as it was saved or opened. Edits that were not saved are the recovery's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Last {
    File(PathBuf),
    /// A bundled preset, by its name.
    Bundled(String),
    /// A network that has no file, as the text of its preset: a new one, or that of a kept run.
    Text(String),
}

impl Last {
    /// What is open in this document.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        // What is remembered is text, and so is every path in it.
        if let Some(path) = document.path().filter(|path| path.to_str().is_some()) {
            return Self::File(path.to_owned());
        }
        let saved = document.saved();
        let bundled = presets::index(&saved.name).filter(|i| presets::bundled(*i).is_some_and(|p| p == **saved));
        bundled.map_or_else(|| Self::Text(write_preset(saved)), |i| Self::Bundled(presets::name(i).to_owned()))
    }

    /// The network, with its file where it has one.
    fn read(&self) -> Result<(Preset, Option<&Path>), String> {
        match self {
            Self::File(path) => Ok((files::read(path)?, Some(path))),
            Self::Bundled(name) => {
                let preset = presets::index(name).and_then(presets::bundled);
                preset.map(|p| (p, None)).ok_or_else(|| format!("no bundled preset is called {name} any more"))
            }
            Self::Text(text) => {
                let preset = read_preset(text);
                preset.map(|p| (p, None)).map_err(|_| "another version of the program wrote it".to_owned())
            }
        }
    }
}

impl Studio {
    /// Opens the network that was open last, before the first frame. Where it is gone, that is reported, and the first
    /// preset stays open.
    pub(super) fn open_last(&mut self) {
        let Some(last) = self.settings.last.clone() else { return };
        match last.read() {
            Ok((preset, path)) => {
                self.document.replace(preset, path.map(Path::to_owned));
                if let Some(path) = path {
                    self.files.learn(path.to_owned());
                }
            }
            Err(why) => {
                // A file that cannot be opened is not offered again.
                self.settings.recent.retain(|p| last != Last::File(p.clone()));
                let lost = match &last {
                    Last::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
                    Last::Bundled(name) => name.clone(),
                    Last::Text(_) => "The network".to_owned(),
                };
                let open = &self.document.preset().name;
                self.complain(format!(
                    "{lost} that was open last cannot be opened; {open} is open in its place.\n{why}"
                ));
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
        assert_eq!(Last::of(&spirals), Last::Bundled("spirals".into()));
        let own = Preset { name: "mine".into(), ..presets::digits() };
        let last = Last::of(&Document::new(own.clone(), None));
        assert_eq!(last.read(), Ok((own, None)));
        assert!(Last::Bundled("gone".into()).read().unwrap_err().contains("gone"));
        assert!(Last::Text("{}".into()).read().is_err());
    }
}
