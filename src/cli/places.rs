//! Where a command's results go: no two to the same place, none onto what the command reads, and none over a file of another kind.

use super::error::wrong;
use super::output::{folder_of, writable};
use super::presets::Loaded;
use anyhow::Context;
use std::fs::File;
use std::io::Read;
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

    /// Whether writing `file` would change what is read here: this very file, or a file in a subfolder of this folder, which is where pictures lie.
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

/// What a result is. An older one is replaced, so that a script can run again; a file that is clearly something else is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Log,
    /// Parameters or a checkpoint.
    Tensors,
    Answers,
    Picture,
    Graph,
    /// Whoever writes it looks at what is there.
    Guarded,
}

/// The length of a safetensors file's header, which comes first.
const TENSORS_PREFIX: usize = 8;

impl Kind {
    /// Whether a file may be one of this kind, by its first bytes.
    fn is_begun_by(self, head: &[u8]) -> bool {
        match self {
            Self::Log => head.starts_with(b"{\"step\":"),
            Self::Tensors => head.get(TENSORS_PREFIX) == Some(&b'{'),
            Self::Answers => head.starts_with(b"sample,"),
            Self::Picture => [&b"<svg"[..], b"<?xml"].iter().any(|begin| head.starts_with(begin)),
            Self::Graph => head.starts_with(b"digraph"),
            Self::Guarded => true,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log of a run",
            Self::Tensors => "safetensors file",
            Self::Answers => "table of answers",
            Self::Picture => "SVG picture",
            Self::Graph => "Graphviz graph",
            Self::Guarded => "result",
        }
    }
}

/// Whether a result of this kind may replace this file: there is none, it is empty, or it is of that kind. Its first bytes tell.
///
/// # Errors
/// Where it is something else, or cannot be read.
pub fn replaceable(path: &Path, what: &str, kind: Kind) -> anyhow::Result<()> {
    let mut head = Vec::new();
    if kind != Kind::Guarded && path.is_file() {
        let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        file.take(16).read_to_end(&mut head).with_context(|| format!("{}", path.display()))?;
    }
    if head.is_empty() || kind.is_begun_by(&head) {
        return Ok(());
    }
    Err(wrong(format!(
        "{} is there and is no {}, so it is not replaced; give another name for {what}, or move that file away",
        path.display(),
        kind.name()
    )))
}

/// What a command reads and writes. What it reads is told first; a result may replace what is told after it.
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
        for path in found.preset.data.iter().flat_map(|data| data.source.paths()) {
            self.reads("the preset's data", Some(&found.base.join(path)));
        }
    }

    /// Adds a file that the command reads, where one is given.
    pub fn reads(&mut self, what: &'static str, path: Option<&Path>) {
        self.inputs.extend(path.map(|path| Place::new(what, path)));
    }

    /// Adds a result, where one is asked for, and gives the path to write it to.
    ///
    /// # Errors
    /// Where nothing can be written there, or it would replace another result, what the command reads, or a file of another kind.
    pub fn writes(&mut self, what: &'static str, kind: Kind, path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        let Some(path) = path else { return Ok(None) };
        let target = writable(path, what)?;
        self.keeps_apart(what, &target, path)?;
        replaceable(&target, what, kind)?;
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
    fn nothing_but_its_own_kind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        let own: [(Kind, &[u8]); 5] = [
            (Kind::Log, b"{\"step\":1}"),
            (Kind::Tensors, b"\x02\0\0\0\0\0\0\0{}"),
            (Kind::Answers, b"sample,target"),
            (Kind::Picture, b"<svg xmlns"),
            (Kind::Graph, b"digraph dot {"),
        ];
        for (kind, _) in own {
            replaceable(&path, "the result", kind).unwrap();
        }
        for (there, bytes) in own {
            std::fs::write(&path, bytes).unwrap();
            for (kind, _) in own {
                assert_eq!(replaceable(&path, "the result", kind).is_ok(), kind == there, "{kind:?} over {there:?}");
            }
            replaceable(&path, "the result", Kind::Guarded).unwrap();
        }
        std::fs::write(&path, "").unwrap();
        replaceable(&path, "the result", Kind::Picture).unwrap();
    }

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
