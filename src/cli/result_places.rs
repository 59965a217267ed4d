//! Where a command's results go: no two to the same place, none onto what the command reads, and none over a file of
//! another kind.

use super::error::wrong;
use super::output::{folder_of, writable};
use super::presets::Loaded;
use crate::model::Preset;
pub use crate::train::ResultKind as Kind;
use crate::train::{Layout, NotReplaced, name_aside, set_aside};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// A file or folder, in the user's words and as the system knows it.
struct Place {
    what: &'static str,
    /// As the user gave it.
    given: PathBuf,
    /// The one path that it has whichever way it is given.
    resolved: PathBuf,
}

impl Place {
    fn new(what: &'static str, given: &Path) -> Self {
        Self { what, given: given.to_owned(), resolved: resolved(given) }
    }

    /// Whether writing `file` would change what is read here: this very file, or a file in a subfolder of this folder,
    /// which is where pictures are.
    fn holds(&self, file: &Path) -> bool {
        *file == self.resolved || (file.starts_with(&self.resolved) && folder_of(file) != self.resolved)
    }
}

/// The path without links, `.` and `..`. Where there is no such file yet, that of its folder with the file's name.
fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = folder_of(path);
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        path.file_name().map_or_else(|| folder.clone(), |name| folder.join(name))
    })
}

/// Whether a result of this kind may replace this file: there is none, it is empty, or it is an older result of that
/// kind.
///
/// # Errors
/// Where it is something else, or cannot be read.
pub fn replaceable(path: &Path, what: &str, kind: Kind<'_>) -> anyhow::Result<()> {
    crate::train::replaceable(path, kind).map_err(|error| refusal(error, what))
}

/// The error of a result that must not replace what is there.
fn refusal(error: NotReplaced, what: &str) -> anyhow::Error {
    match error {
        NotReplaced::Other { .. } | NotReplaced::OtherWeights { .. } => {
            wrong(format!("{error}; give another name for {what}, or move that file away"))
        }
        unread @ NotReplaced::Unread { .. } => unread.into(),
    }
}

/// Where a network's parameters go.
pub struct WeightsFile {
    pub path: PathBuf,
    /// What is there, where it is the weights of another network, in words that follow the file's name.
    others: Option<String>,
}

impl WeightsFile {
    /// What becomes of the weights of another network, where such are there.
    #[must_use]
    pub fn plan(&self) -> Option<String> {
        let (is, path) = (self.others.as_ref()?, self.path.display());
        let aside = name_aside(&self.path);
        Some(format!("{path} {is}; they get the name {} when the new ones are saved", aside.display()))
    }

    /// Gives the weights of another network another name, where such are there, and says which.
    ///
    /// # Errors
    /// Where the file cannot be renamed.
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

    /// Adds a file that the command reads, where one is given.
    pub fn reads(&mut self, what: &'static str, path: Option<&Path>) {
        self.inputs.extend(path.map(|path| Place::new(what, path)));
    }

    /// Adds a result, where one is asked for, and gives the path to write it to.
    ///
    /// # Errors
    /// Where nothing can be written there, or it would replace another result, what the command reads, or a file of
    /// another kind.
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

    /// Adds the file of a network's parameters. Weights of another network that are there get another name when the new
    /// ones are saved.
    ///
    /// # Errors
    /// As [`Self::writes`], but for weights of another network.
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

    /// Adds a result to a place of its own that can be written to, where one is asked for.
    fn finds(&mut self, what: &'static str, path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        let Some(path) = path else { return Ok(None) };
        let target = writable(path, what)?;
        self.keeps_apart(what, &target, path)?;
        Ok(Some(target))
    }

    /// Adds the file that a log grows in, which is beside its final name.
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

/// The name of a file that grows until it gets the name `path`.
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
