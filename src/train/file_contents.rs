//! What a safetensors file contains, by its header only: weights, a checkpoint, a capsule, data.
//!
//! Files of this program declare it in their metadata. Files of its first versions and of other programs are classified
//! by the names of their tensors.

use super::file_header::read_header;
use crate::model::Model;
use crate::tensor::Shape;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::Path;

/// The key of the metadata that names the kind of a file. Checkpoints and capsules have their own keys.
const KIND_KEY: &str = "stepgraph.kind";
/// The prefixes of the keys of checkpoints and capsules, before the version of their contents.
const CHECKPOINT_KEY: &str = "stepgraph.checkpoint.";
const CAPSULE_KEY: &str = "stepgraph.capsule.";

/// The purpose of a file of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Parameters and running statistics.
    Weights,
    Checkpoint,
    Capsule,
    /// Samples that were exported with a PyTorch script.
    Data,
    /// Batches to train on.
    Batches,
    /// No tensors.
    Nothing,
    /// Tensors of another program.
    Other,
}

impl Holding {
    /// The metadata of a file of this kind.
    pub(super) fn metadata(self) -> HashMap<String, String> {
        self.name().map(|name| (KIND_KEY.to_owned(), name.to_owned())).into_iter().collect()
    }

    /// The kind's name in metadata, if files of this program declare it.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Weights => Some("weights"),
            Self::Data => Some("data"),
            Self::Checkpoint | Self::Capsule | Self::Batches | Self::Nothing | Self::Other => None,
        }
    }

    fn of(metadata: Option<&Map<String, Value>>, layout: &Layout) -> Self {
        let has = |beginning: &str| metadata.is_some_and(|m| m.keys().any(|key| key.starts_with(beginning)));
        if has(CHECKPOINT_KEY) {
            return Self::Checkpoint;
        }
        if has(CAPSULE_KEY) {
            return Self::Capsule;
        }
        match metadata.and_then(|m| m.get(KIND_KEY)).and_then(Value::as_str) {
            // A later version may write kinds that this one does not know.
            Some(name) => {
                [Self::Weights, Self::Data].into_iter().find(|kind| kind.name() == Some(name)).unwrap_or(Self::Other)
            }
            None => Self::by_tensors(layout),
        }
    }

    fn by_tensors(Layout(tensors): &Layout) -> Self {
        let is_parameter = |name: &String| {
            let last = name.rsplit('.').next().unwrap_or_default();
            name.starts_with("layers.") && ["weight", "bias", "running_mean", "running_var"].contains(&last)
        };
        if tensors.is_empty() {
            Self::Nothing
        } else if tensors.keys().all(is_parameter) {
            Self::Weights
        } else if tensors.keys().any(|name| name.starts_with("batch.")) {
            Self::Batches
        } else if ["x", "y", "train", "held_out"].iter().all(|name| tensors.contains_key(*name)) {
            Self::Data
        } else {
            Self::Other
        }
    }
}

/// With an article, as in "it holds a checkpoint".
impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weights => "the weights of a network",
            Self::Checkpoint => "a checkpoint",
            Self::Capsule => "a capsule",
            Self::Data => "exported data",
            Self::Batches => "batches to train on",
            Self::Nothing => "no tensors",
            Self::Other => "tensors that are not parameters of a network",
        })
    }
}

/// The names and shapes of tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout(BTreeMap<String, Shape>);

impl Layout {
    /// The parameters and running statistics of a network.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        Self(model.params.iter().map(|p| (p.name.clone(), p.shape.clone())).collect())
    }

    /// The first tensor in which the file `there` differs from these; `None` if names and shapes are the same.
    fn difference(&self, there: &Self) -> Option<String> {
        let of_file = there.0.iter().find_map(|(name, shape)| match self.0.get(name) {
            Some(own) if own == shape => None,
            Some(own) => Some(format!("{name} is {shape} there and {own} here")),
            None => Some(format!("{name} is in no layer of this network")),
        });
        let absent = || self.0.keys().find(|name| !there.0.contains_key(*name));
        of_file.or_else(|| absent().map(|name| format!("it has no {name}")))
    }

    /// Without the tensors of a checkpoint that are not parameters.
    fn parameters(&self) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, _)| !name.starts_with("state."))
                .map(|(n, s)| (n.clone(), s.clone()))
                .collect(),
        )
    }
}

/// The contents according to a file's header.
#[derive(Clone, Debug)]
pub struct Contents {
    pub holding: Holding,
    layout: Layout,
}

impl Contents {
    /// The contents of a safetensors file; `None` if it is a file of another kind.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let header = match read_header(path) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?.0,
        };
        let Value::Object(entries) = header else { return Ok(None) };
        let shape = |entry: &Value| -> Option<Shape> {
            entry["dtype"].as_str()?;
            let sizes = entry["shape"].as_array()?.iter().map(|n| usize::try_from(n.as_u64()?).ok());
            sizes.collect::<Option<Vec<usize>>>().map(Shape)
        };
        let tensors = entries.iter().filter(|(name, _)| *name != "__metadata__");
        let layout: Option<BTreeMap<String, Shape>> = tensors.map(|(n, e)| Some((n.clone(), shape(e)?))).collect();
        let metadata = entries.get("__metadata__").and_then(Value::as_object);
        Ok(layout.map(Layout).map(|layout| Self { holding: Holding::of(metadata, &layout), layout }))
    }

    /// Why these are not the parameters of a network with this layout; `None` if they are.
    #[must_use]
    pub fn other_network(&self, own: &Layout) -> Option<String> {
        own.difference(&self.layout.parameters())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;
    use crate::tensor::{DType, HostTensor};
    use crate::train::TensorFile;

    fn tensors(names: &[&str]) -> Vec<(String, HostTensor)> {
        names.iter().map(|n| ((*n).to_owned(), HostTensor::zeros(DType::F32, Shape::from([2])))).collect()
    }

    fn holding(names: &[&str], metadata: HashMap<String, String>) -> Option<Holding> {
        let (_folder, path) = temporary_file("t.safetensors");
        TensorFile { tensors: tensors(names), metadata }.write(&path).unwrap();
        Contents::read(&path).unwrap().map(|c| c.holding)
    }

    #[test]
    fn files_without_a_kind_are_classified_by_their_tensors() {
        let none = HashMap::new;
        for (names, wanted) in [
            (&[][..], Holding::Nothing),
            (&["layers.0.weight", "layers.1.layers.0.running_mean"], Holding::Weights),
            (&["layers.0.weight", "batch.x", "batch.y"], Holding::Batches),
            (&["x", "y", "train", "held_out"], Holding::Data),
            (&["x", "y"], Holding::Other),
            (&["init.layers.0.weight"], Holding::Other),
            (&["model.embed.weight"], Holding::Other),
        ] {
            assert_eq!(holding(names, none()), Some(wanted), "{names:?}");
        }
    }

    #[test]
    fn a_declared_kind_takes_precedence_over_tensors() {
        let named = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
        let parameters = &["layers.0.weight"][..];
        assert_eq!(holding(parameters, Holding::Weights.metadata()), Some(Holding::Weights));
        assert_eq!(holding(parameters, Holding::Data.metadata()), Some(Holding::Data));
        assert_eq!(holding(parameters, named(KIND_KEY, "of a later version")), Some(Holding::Other));
        assert_eq!(holding(parameters, named("stepgraph.checkpoint.9", "{}")), Some(Holding::Checkpoint));
        assert_eq!(holding(parameters, named("stepgraph.capsule.1", "{}")), Some(Holding::Capsule));
        assert_eq!(holding(parameters, named("format", "pt")), Some(Holding::Weights));
    }

    #[test]
    fn a_file_of_another_format_has_no_contents() {
        let (_folder, path) = temporary_file("letter");
        for bytes in
            [&b""[..], b"a letter", b"a longer letter {", b"\x02\0\0\0\0\0\0\0[]", b"\x09\0\0\0\0\0\0\0{\"a\": 12}"]
        {
            std::fs::write(&path, bytes).unwrap();
            assert!(Contents::read(&path).unwrap().is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn networks_differ_by_names_and_shapes() {
        let layout = |names: &[&str]| Layout(tensors(names).into_iter().map(|(name, t)| (name, t.shape)).collect());
        let contents = |names: &[&str]| Contents { holding: Holding::Checkpoint, layout: layout(names) };
        let own = layout(&["layers.0.bias", "layers.0.weight"]);
        assert_eq!(contents(&["layers.0.bias", "layers.0.weight", "state.counter"]).other_network(&own), None);
        let message = |names: &[&str]| contents(names).other_network(&own).unwrap();
        assert_eq!(message(&["layers.0.bias"]), "it has no layers.0.weight");
        assert_eq!(message(&["layers.0.bias", "layers.1.bias"]), "layers.1.bias is in no layer of this network");
        let wider = Layout([("layers.0.bias".to_owned(), Shape::from([3]))].into());
        let message = contents(&["layers.0.bias"]).other_network(&wider).unwrap();
        assert_eq!(message, "layers.0.bias is [2] there and [3] here");
    }
}
