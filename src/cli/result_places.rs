//! The paths of a command's results. No two results have the same path, and none replaces a file that the command reads
//! or a file of another kind.

use super::error::wrong;
use super::output::{folder_of, writable};
use super::presets::Loaded;
use crate::model::Preset;
pub use crate::train::ResultKind as Kind;
use crate::train::{Layout, NotReplaced, name_aside, set_aside};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// A file or folder, as the user named it and as the system knows it.
struct Place {
    what: &'static str,
    /// As the user gave it.
    given: PathBuf,
    /// Its canonical path, which does not depend on how the user named it.
    resolved: PathBuf,
}

impl Place {
    fn new(what: &'static str, given: &Path) -> Self {
        Self { what, given: given.to_owned(), resolved: resolved(given) }
    }

    /// Whether writing `file` would change what the command reads here: this very file, or, if this is a folder of
    /// pictures, a file in one of its subfolders.
    fn holds(&self, file: &Path) -> bool {
        *file == self.resolved || (file.starts_with(&self.resolved) && folder_of(file) != self.resolved)
    }
}

/// The path without links, `.` and `..`. If the file does not exist yet, the canonical path of its folder with the
/// file's name.
fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = folder_of(path);
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        path.file_name().map_or_else(|| folder.clone(), |name| folder.join(name))
    })
}

/// Whether a result of this kind may replace this file: it does not exist, it is empty, or it is an older result of
/// that kind.
///
/// # Errors
/// If it is something else, or cannot be read.
pub fn replaceable(path: &Path, what: &str, kind: Kind<'_>) -> anyhow::Result<()> {
    crate::train::replaceable(path, kind).map_err(|error| refusal(error, what))
}

/// The error of a result that must not replace an existing file.
fn refusal(error: NotReplaced, what: &str) -> anyhow::Error {
    match error {
        NotReplaced::Other { .. } | NotReplaced::OtherWeights { .. } => {
            wrong(format!("{error}; give another name for {what}, or move that file"))
        }
        unread @ NotReplaced::Unread { .. } => unread.into(),
    }
}

/// The path of a network's parameters.
pub struct WeightsFile {
    pub path: PathBuf,
    /// What the existing file is, if it is the weights of another network, as a phrase that follows the file's name.
    others: Option<String>,
}

impl WeightsFile {
    /// What happens to an existing file with the weights of another network; `None` if there is none.
    #[must_use]
    pub fn plan(&self) -> Option<String> {
        let (is, path) = (self.others.as_ref()?, self.path.display());
        let aside = name_aside(&self.path);
        Some(format!("{path} {is}; they get the name {} when the new ones are saved", aside.display()))
    }

    /// Renames an existing file with the weights of another network, and reports the new name.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub fn make_room(&self) -> anyhow::Result<Option<String>> {
        let path = self.path.display();
        if self.others.is_none() || !self.path.exists() {
            return Ok(None);
        }
        let aside = set_aside(&self.path)
            .with_context(|| format!("{path} holds the weights of another network and cannot be renamed"))?;
        Ok(Some(format!("the weights of another network that were in {path} are now in {}", aside.display())))
    }
}

/// What a command reads and writes. What it reads is added first; a result may replace what is added after it.
#[derive(Default)]
pub struct Places {
    inputs: Vec<Place>,
    results: Vec<Place>,
}

impl Places {
    /// The files of this preset: its own, and those that its data names.
    #[must_use]
    pub fn of(found: &Loaded) -> Self {
        let mut places = Self::default();
        places.reads_preset(found);
        places
    }

    /// Adds the files of a preset.
    pub fn reads_preset(&mut self, found: &Loaded) {
        self.reads("the preset", found.file.as_deref());
        self.reads_data(&found.preset, &found.base);
    }

    /// Adds the files that a preset's data names, from the folder that relative paths are taken from.
    pub fn reads_data(&mut self, preset: &Preset, base: &Path) {
        for path in preset.data.iter().flat_map(|data| data.source.paths()) {
            self.reads("the preset's data", Some(&base.join(path)));
        }
    }

    /// Adds a file that the command reads, if there is one.
    pub fn reads(&mut self, what: &'static str, path: Option<&Path>) {
        self.inputs.extend(path.map(|path| Place::new(what, path)));
    }

    /// Adds a result, if one is requested, and returns the path to write it to.
    ///
    /// # Errors
    /// If nothing can be written there, or if it would replace another result, a file that the command reads, or a file
    /// of another kind.
    pub fn writes(
        &mut self,
        what: &'static str,
        kind: Kind<'_>,
        path: Option<&Path>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let Some(target) = self.finds(what, path)? else { return Ok(None) };
        replaceable(&target, what, kind)?;
        Ok(Some(target))
    }

    /// Adds the file of a network's parameters. An existing file with the weights of another network is renamed when
    /// the new ones are saved.
    ///
    /// # Errors
    /// Like [`Self::writes`], except that weights of another network are allowed.
    pub fn writes_weights(&mut self, network: &Layout, path: Option<&Path>) -> anyhow::Result<Option<WeightsFile>> {
        let what = "the parameters";
        let Some(path) = self.finds(what, path)? else { return Ok(None) };
        let others = match crate::train::replaceable(&path, Kind::Weights(Some(network))) {
            Ok(()) => None,
            Err(NotReplaced::OtherWeights { is, .. }) => Some(is),
            Err(error) => return Err(refusal(error, what)),
        };
        Ok(Some(WeightsFile { path, others }))
    }

    /// Adds a result, if one is requested, after a check that its path is not used for another one and can be written
    /// to.
    fn finds(&mut self, what: &'static str, path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        let Some(path) = path else { return Ok(None) };
        let target = writable(path, what)?;
        self.keeps_apart(what, &target, path)?;
        Ok(Some(target))
    }

    /// Adds the unfinished file of a log, which is beside its final name.
    ///
    /// # Errors
    /// As [`Self::writes`].
    pub fn writes_log(&mut self, path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        let target = self.writes("the log", Kind::Guarded, path)?;
        if let Some(target) = &target {
            let part = part_of(target);
            writable(&part, "the unfinished log")?;
            self.keeps_apart("the unfinished log", &part, &part)?;
        }
        Ok(target)
    }

    fn keeps_apart(&mut self, what: &'static str, target: &Path, given: &Path) -> anyhow::Result<()> {
        let place = Place { given: given.to_owned(), ..Place::new(what, target) };
        if let Some(input) = self.inputs.iter().find(|input| input.holds(&place.resolved)) {
            return Err(wrong(format!(
                "{}: {what} would replace {} {}, which this command reads; choose another name",
                given.display(),
                input.what,
                input.given.display()
            )));
        }
        if let Some(other) = self.results.iter().find(|other| other.resolved == place.resolved) {
            return Err(wrong(format!(
                "{} is named for two different results, {} ({}) and {what}; choose another name for one of them",
                given.display(),
                other.what,
                other.given.display()
            )));
        }
        self.results.push(place);
        Ok(())
    }
}

/// The name of the unfinished file that is later renamed to `path`.
#[must_use]
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.csv"), "1").unwrap();
        std::fs::create_dir_all(at("pictures/cat")).unwrap();
        let mut places = Places::default();
        places.reads("the data", Some(&at("./a.csv")));
        places.reads("the data", Some(&at("pictures")));
        let refused = |places: &mut Places, name: &str| {
            places.writes("the picture", Kind::Picture, Some(&at(name))).unwrap_err().to_string()
        };
        assert!(refused(&mut places, "pictures/../a.csv").contains("would replace the data"));
        assert!(refused(&mut places, "pictures/cat/1.png").contains("would replace the data"));
        assert!(places.writes("the picture", Kind::Picture, Some(&at("pictures/notes.svg"))).is_ok());
        assert!(places.writes("the picture", Kind::Picture, Some(&at("n.svg"))).is_ok());
        assert!(refused(&mut places, "pictures/../n.svg").contains("two different results"));
        assert!(places.writes_log(Some(&at("n.jsonl"))).is_ok());
        assert!(refused(&mut places, "n.jsonl.part").contains("two different results"));
        assert!(places.writes("the picture", Kind::Picture, None).unwrap().is_none());
    }
}
