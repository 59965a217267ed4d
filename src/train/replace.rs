//! The kinds of results, and which file each may replace: an older result of its kind, and never another file.

use super::file_contents::{Contents, Holding, Layout};
use crate::tensor::is_wrong_place;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The kind of a result.
#[derive(Clone, Copy, Debug)]
pub enum ResultKind<'a> {
    /// The log of a run, or the same lines as an export.
    Log,
    /// The curves of a run as a table.
    Curves,
    /// A network's predictions for samples.
    Answers,
    /// An SVG picture.
    Picture,
    Png,
    /// Graphviz's language.
    Graph,
    /// A PyTorch script.
    Script,
    Onnx,
    /// TensorBoard's events.
    Events,
    /// Parameters: of this network, or of any.
    Weights(Option<&'a Layout>),
    /// A checkpoint of this network.
    Checkpoint(&'a Layout),
    Capsule,
    /// Samples beside a PyTorch script.
    Data,
    /// The code that writes it checks the existing file.
    Guarded,
}

/// Why a file is not replaced.
#[derive(Debug, Error)]
pub enum NotReplaced {
    #[error("{path} cannot be read: {cause}")]
    Unread { path: PathBuf, cause: io::Error },
    /// It is something else, as a phrase that follows the file's name.
    #[error("{path} {is}, so it is not replaced")]
    Other { path: PathBuf, is: String },
    /// It contains the weights of another network, as a phrase that follows the file's name. They may be renamed.
    #[error("{path} {is}, so it is not replaced")]
    OtherWeights { path: PathBuf, is: String },
}

impl NotReplaced {
    /// True if the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match self {
            Self::Unread { cause, .. } => is_wrong_place(cause),
            Self::Other { .. } | Self::OtherWeights { .. } => true,
        }
    }
}

/// The number of a file's first bytes that is enough to identify it.
const HEAD_BYTES: u64 = 4096;

/// Checks whether a result of this kind may replace this file: it does not exist, it is empty, or it is an older result
/// of that kind.
///
/// # Errors
/// If it is something else, or cannot be read.
pub fn replaceable(path: &Path, kind: ResultKind<'_>) -> Result<(), NotReplaced> {
    if matches!(kind, ResultKind::Guarded) || !path.is_file() {
        return Ok(());
    }
    let unread = |cause| NotReplaced::Unread { path: path.to_owned(), cause };
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)).map_err(unread)?;
    if head.is_empty() {
        return Ok(());
    }
    let path = path.to_owned();
    let is = match kind.holding() {
        Some(holding) => match Contents::read(&path).map_err(unread)? {
            Some(found) => match kind.objection(holding, &found) {
                Some(is) if found.holding == Holding::Weights && holding == Holding::Weights => {
                    return Err(NotReplaced::OtherWeights { path, is });
                }
                is => is,
            },
            None => kind.missed(),
        },
        None if kind.is_begun_by(&head) => None,
        None => kind.missed(),
    };
    is.map_or(Ok(()), |is| Err(NotReplaced::Other { path, is }))
}

/// The first unused name beside `path`: `net.1.safetensors` for `net.safetensors`, then `net.2.safetensors`.
#[must_use]
pub fn name_aside(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let name = |number: u32| {
        let mut name = stem.to_owned();
        name.push(format!(".{number}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        path.with_file_name(name)
    };
    let free = (1..u32::MAX).map(name).find(|other| other.symlink_metadata().is_err());
    free.unwrap_or_else(|| name(u32::MAX))
}

/// Renames a file to [`name_aside`], and returns that.
///
/// # Errors
/// If the file cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = name_aside(path);
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

impl ResultKind<'_> {
    /// The required contents of a file of tensors of this kind; `None` for other files.
    const fn holding(self) -> Option<Holding> {
        match self {
            Self::Weights(_) => Some(Holding::Weights),
            Self::Checkpoint(_) => Some(Holding::Checkpoint),
            Self::Capsule => Some(Holding::Capsule),
            Self::Data => Some(Holding::Data),
            _ => None,
        }
    }

    /// The description of a file of tensors that a result of this kind, which contains `own`, must not replace.
    fn objection(self, own: Holding, found: &Contents) -> Option<String> {
        let network = match self {
            Self::Weights(network) => network,
            Self::Checkpoint(network) => Some(network),
            _ => None,
        };
        if found.holding == Holding::Nothing {
            return None;
        }
        if found.holding != own {
            return Some(format!("holds {}", found.holding));
        }
        let difference = found.other_network(network?)?;
        let what = if own == Holding::Checkpoint { "a checkpoint" } else { "the weights" };
        Some(format!("holds {what} of another network ({difference})"))
    }

    /// Whether a file may be of this kind, by its first bytes.
    fn is_begun_by(self, head: &[u8]) -> bool {
        let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
        match self {
            Self::Log => head.starts_with(b"{\"step\":"),
            Self::Curves => head.starts_with(b"step,"),
            Self::Answers => head.starts_with(b"sample,target"),
            // Other programs' pictures start with a declaration, a version or a comment.
            Self::Picture => {
                let tag = head.split(|byte| *byte == b'>').next().unwrap_or_default();
                tag.starts_with(b"<svg xmlns=\"http://www.w3.org/2000/svg\" ") && holds(tag, b" font-family=\"")
            }
            Self::Png => head.starts_with(b"\x89PNG"),
            Self::Graph => head.starts_with(b"digraph"),
            Self::Script => head.starts_with(b"#!/usr/bin/env python3") && holds(head, b"in PyTorch from Stepgraph."),
            Self::Onnx => matches!(head, [0x08, 1..=63, 0x12, ..]),
            // The first record follows its length, which is below 4 GiB, and four bytes of a checksum. It starts with
            // its time.
            Self::Events => head.get(4..8) == Some(&[0; 4]) && head.get(12) == Some(&0x09),
            Self::Weights(_) | Self::Checkpoint(_) | Self::Capsule | Self::Data => false,
            Self::Guarded => true,
        }
    }

    /// The description of a file that does not have the format.
    fn missed(self) -> Option<String> {
        let name = match self {
            Self::Log => "log of a run",
            Self::Curves => "table of curves",
            Self::Answers => "table of answers",
            Self::Picture => "SVG picture of this program",
            Self::Png => "PNG picture",
            Self::Graph => "Graphviz graph",
            Self::Script => "exported PyTorch script",
            Self::Onnx => "ONNX model",
            Self::Events => "file of TensorBoard events",
            Self::Weights(_) | Self::Checkpoint(_) | Self::Capsule | Self::Data => "safetensors file",
            Self::Guarded => return None,
        };
        Some(format!("exists and is not of this kind: {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    #[test]
    fn only_results_of_the_same_kind_are_replaced() {
        let (_folder, path) = temporary_file("result");
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 9 9\" font-family=\"sans-serif\">";
        let own: [(ResultKind<'_>, &[u8]); 9] = [
            (ResultKind::Log, b"{\"step\":1}"),
            (ResultKind::Curves, b"step,loss"),
            (ResultKind::Answers, b"sample,target"),
            (ResultKind::Picture, svg.as_bytes()),
            (ResultKind::Png, b"\x89PNG\r\n\x1a\n"),
            (ResultKind::Graph, b"digraph dot {"),
            (ResultKind::Script, b"#!/usr/bin/env python3\n\"\"\"net, rebuilt in PyTorch from Stepgraph."),
            (ResultKind::Onnx, b"\x08\x08\x12\x09Stepgraph"),
            (ResultKind::Events, b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09"),
        ];
        for (kind, _) in own {
            replaceable(&path, kind).unwrap();
        }
        for (there, (_, bytes)) in own.iter().enumerate() {
            std::fs::write(&path, bytes).unwrap();
            for (index, (kind, _)) in own.iter().enumerate() {
                assert_eq!(replaceable(&path, *kind).is_ok(), index == there, "{kind:?} over {bytes:?}");
            }
            assert!(replaceable(&path, ResultKind::Capsule).is_err());
            replaceable(&path, ResultKind::Guarded).unwrap();
        }
        std::fs::write(&path, "").unwrap();
        replaceable(&path, ResultKind::Picture).unwrap();
    }

    #[test]
    fn a_renamed_file_gets_the_first_unused_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, first, second) in
            [("net.safetensors", "net.1.safetensors", "net.2.safetensors"), ("net", "net.1", "net.2")]
        {
            for (text, aside) in [("old", first), ("older", second)] {
                std::fs::write(at(name), text).unwrap();
                assert_eq!(set_aside(&at(name)).unwrap(), at(aside));
                assert_eq!(std::fs::read_to_string(at(aside)).unwrap(), text);
                assert!(!at(name).exists());
            }
        }
        assert!(set_aside(&at("absent")).is_err());
    }

    #[test]
    fn files_of_other_programs_in_the_same_format_are_kept() {
        let (_folder, path) = temporary_file("result");
        let others: [(ResultKind<'_>, &str); 6] = [
            (ResultKind::Picture, "<?xml version=\"1.0\"?><settings/>"),
            (ResultKind::Picture, "<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\">"),
            (ResultKind::Picture, "<svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"a\">"),
            (ResultKind::Answers, "sample,height,width"),
            (ResultKind::Script, "#!/usr/bin/env python3\nprint(1)"),
            (ResultKind::Log, "{\"steps\": 3}"),
        ];
        for (kind, text) in others {
            std::fs::write(&path, text).unwrap();
            let kept = replaceable(&path, kind).unwrap_err();
            assert!(kept.is_user() && kept.to_string().ends_with("so it is not replaced"), "{kept}");
        }
    }
}
