//! What a result is, and which file it may replace: an older result of its kind, and never a file that is something else.

use super::contents::{Contents, Holding, Layout};
use crate::tensor::is_wrong_place;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What a result is.
#[derive(Clone, Copy, Debug)]
pub enum ResultKind<'a> {
    /// The log of a run, or the same lines as an export.
    Log,
    /// The curves of a run as a table.
    Curves,
    /// What a network answers to samples.
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
    /// Whoever writes it looks at what is there.
    Guarded,
}

/// Why a file is not replaced.
#[derive(Debug, Error)]
pub enum NotReplaced {
    #[error("{path} cannot be read: {cause}")]
    Unread { path: PathBuf, cause: io::Error },
    /// It is something else, in words that follow the file's name.
    #[error("{path} {is}, so it is not replaced")]
    Other { path: PathBuf, is: String },
}

impl NotReplaced {
    /// True where the mistake is in what the user gave: exit status 2.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match self {
            Self::Unread { cause, .. } => is_wrong_place(cause),
            Self::Other { .. } => true,
        }
    }
}

/// As many of a file's first bytes as tell what it is.
const HEAD_BYTES: u64 = 4096;

/// Whether a result of this kind may replace this file: there is none, it is empty, or it is an older result of that kind.
///
/// # Errors
/// Where it is something else, or cannot be read.
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
    let is = match kind.holding() {
        Some(holding) => Contents::read(path).map_err(unread)?.map_or_else(|| kind.missed(), |c| kind.objection(holding, &c)),
        None if kind.is_begun_by(&head) => None,
        None => kind.missed(),
    };
    is.map_or(Ok(()), |is| Err(NotReplaced::Other { path: path.to_owned(), is }))
}

impl ResultKind<'_> {
    /// What a file of tensors of this kind holds; `None` for other files.
    const fn holding(self) -> Option<Holding> {
        match self {
            Self::Weights(_) => Some(Holding::Weights),
            Self::Checkpoint(_) => Some(Holding::Checkpoint),
            Self::Capsule => Some(Holding::Capsule),
            Self::Data => Some(Holding::Data),
            _ => None,
        }
    }

    /// What a file of tensors is, where a result of this kind, which holds `own`, must not replace it.
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
        let has = |part: &[u8]| head.windows(part.len()).any(|window| window == part);
        match self {
            Self::Log => head.starts_with(b"{\"step\":"),
            Self::Curves => head.starts_with(b"step,"),
            Self::Answers => head.starts_with(b"sample,"),
            Self::Picture => head.starts_with(b"<svg") || (head.starts_with(b"<?xml") && has(b"<svg")),
            Self::Png => head.starts_with(b"\x89PNG"),
            Self::Graph => head.starts_with(b"digraph"),
            Self::Script => head.starts_with(b"#!/usr/bin/env python3") && has(b"in PyTorch from Stepgraph."),
            Self::Onnx => matches!(head, [0x08, 1..=63, 0x12, ..]),
            // The length of the first record and its checksum come first; no record is as long as 4 GiB.
            Self::Events => head.get(4..8) == Some(&[0; 4]),
            Self::Weights(_) | Self::Checkpoint(_) | Self::Capsule | Self::Data => false,
            Self::Guarded => true,
        }
    }

    /// What is said of a file that is not even of the format.
    fn missed(self) -> Option<String> {
        let name = match self {
            Self::Log => "log of a run",
            Self::Curves => "table of curves",
            Self::Answers => "table of answers",
            Self::Picture => "SVG picture",
            Self::Png => "PNG picture",
            Self::Graph => "Graphviz graph",
            Self::Script => "exported PyTorch script",
            Self::Onnx => "ONNX model",
            Self::Events => "file of TensorBoard events",
            Self::Weights(_) | Self::Checkpoint(_) | Self::Capsule | Self::Data => "safetensors file",
            Self::Guarded => return None,
        };
        Some(format!("is there and is no {name}"))
    }
}
