//! Paths of layers: lists of layers in blocks, and indices in those lists.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The field of a block that contains its lists of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListField {
    /// `layers`: one list of layers.
    #[default]
    Layers,
    /// `branches`: a list of objects, each with a list `layers`.
    Branches,
    /// `paths`: a list of lists of layers.
    Paths,
}

impl ListField {
    const ALL: [Self; 3] = [Self::Layers, Self::Branches, Self::Paths];

    /// The name in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::Branches => "branches",
            Self::Paths => "paths",
        }
    }

    /// The name of one of its lists, if there may be several.
    #[must_use]
    pub const fn item(self) -> Option<&'static str> {
        match self {
            Self::Layers => None,
            Self::Branches => Some("branch"),
            Self::Paths => Some("path"),
        }
    }

    /// Whether every list is the `layers` of an object that may have other fields.
    #[must_use]
    pub const fn has_objects(self) -> bool {
        matches!(self, Self::Branches)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// One of the lists of layers of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId {
    pub field: ListField,
    /// Its index among the lists of the field; 0 if there is one.
    pub number: usize,
}

/// An element of a path: a list of the block that the path has reached, and an index in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    pub list: ListId,
    pub index: usize,
}

/// The path of a layer: the lists that lead to it and the indices in them, outermost first. The network itself has the
/// empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerPath(pub Vec<Segment>);

/// The path of a list of layers: the block that contains it, and which of the block's lists it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListPath {
    /// The empty path for the network's own list.
    pub block: LayerPath,
    pub list: ListId,
}

impl LayerPath {
    /// The path of the layer at `index` of this block's only list.
    #[must_use]
    pub fn child(&self, index: usize) -> Self {
        self.list(ListId::default()).child(index)
    }

    /// The path of one of this block's lists.
    #[must_use]
    pub fn list(&self, list: ListId) -> ListPath {
        ListPath { block: self.clone(), list }
    }

    /// The list that contains the layer, and its index in it; `None` for the network itself.
    #[must_use]
    pub fn split(&self) -> Option<(ListPath, usize)> {
        let (last, block) = self.0.split_last()?;
        Some((ListPath { block: Self(block.to_vec()), list: last.list }, last.index))
    }

    /// The layer's index in its list; `None` for the network itself.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        self.0.last().map(|last| last.index)
    }

    /// Whether it is this layer, or one inside it.
    #[must_use]
    pub fn starts_with(&self, block: &Self) -> bool {
        self.0.starts_with(&block.0)
    }

    /// Whether it is the network itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of lists that lead to it.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// The prefix of the layer's parameter names: `layers.1.branches.0.layers.2`.
    #[must_use]
    pub fn dotted(&self) -> String {
        self.0.iter().map(Segment::dotted).collect::<Vec<_>>().join(".")
    }

    /// The layer's number in listings: `1.0.2`.
    #[must_use]
    pub fn number(&self) -> String {
        self.0.iter().map(Segment::short).collect::<Vec<_>>().join(".")
    }
}

/// A path through lists named `layers` only.
impl<const N: usize> From<[usize; N]> for LayerPath {
    fn from(places: [usize; N]) -> Self {
        Self::from(places.as_slice())
    }
}

/// A path through lists named `layers` only.
impl From<&[usize]> for LayerPath {
    fn from(places: &[usize]) -> Self {
        Self(places.iter().map(|index| Segment { list: ListId::default(), index: *index }).collect())
    }
}

impl ListId {
    /// The list with this index in a field.
    #[must_use]
    pub const fn new(field: ListField, number: usize) -> Self {
        Self { field, number }
    }

    /// Its path in dotted names: `branches.0.layers`.
    fn dotted(self) -> String {
        let Self { field, number } = self;
        match (field.item(), field.has_objects()) {
            (None, _) => field.name().to_owned(),
            (Some(_), true) => format!("{}.{number}.layers", field.name()),
            (Some(_), false) => format!("{}.{number}", field.name()),
        }
    }
}

/// The path in the block's object: `branches[0].layers`.
impl fmt::Display for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, number } = self;
        f.write_str(field.name())?;
        if field.item().is_some() {
            write!(f, "[{number}]")?;
        }
        if field.has_objects() { f.write_str(".layers") } else { Ok(()) }
    }
}

impl Segment {
    fn dotted(&self) -> String {
        format!("{}.{}", self.list.dotted(), self.index)
    }

    fn short(&self) -> String {
        match self.list.field.item() {
            None => self.index.to_string(),
            Some(_) => format!("{}.{}", self.list.number, self.index),
        }
    }
}

impl ListPath {
    /// The path of the layer at `index` of the list.
    #[must_use]
    pub fn child(&self, index: usize) -> LayerPath {
        let mut path = self.block.clone();
        path.0.push(Segment { list: self.list, index });
        path
    }

    /// The path of a layer relative to this list, if the list or one of its blocks contains it; otherwise `None`.
    #[must_use]
    pub fn place_of(&self, path: &LayerPath) -> Option<usize> {
        let next = path.0.get(self.block.depth()).filter(|_| path.starts_with(&self.block))?;
        (next.list == self.list).then_some(next.index)
    }

    /// The short name in listings: `L1 branch 0`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.list.field.item() {
            None => format!("L{}", self.block.number()),
            Some(item) => format!("L{} {item} {}", self.block.number(), self.list.number),
        }
    }

    /// The path of the list's object in the JSON document, which also contains its other fields:
    /// `layers[1].branches[0]`.
    #[must_use]
    pub fn entry(&self) -> String {
        let text = self.to_string();
        let is_object = self.list.field.has_objects();
        text.strip_suffix(".layers").filter(|_| is_object).map_or_else(|| text.clone(), str::to_owned)
    }
}

/// The list with this name in a network or its only one in a block.
impl From<LayerPath> for ListPath {
    fn from(block: LayerPath) -> Self {
        block.list(ListId::default())
    }
}

/// The path in the JSON document: `layers[1].branches[0].layers[2]`.
impl fmt::Display for LayerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, segment) in self.0.iter().enumerate() {
            let dot = if depth == 0 { "" } else { "." };
            write!(f, "{dot}{}[{}]", segment.list, segment.index)?;
        }
        Ok(())
    }
}

/// The path in the JSON document: `layers[1].branches[0].layers`.
impl fmt::Display for ListPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.block.is_empty() {
            write!(f, "{}.", self.block)?;
        }
        write!(f, "{}", self.list)
    }
}

/// A text that is not the path of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPath;

/// Parses both forms: dotted, as in the names of parameters, and the path in the JSON document.
impl FromStr for LayerPath {
    type Err = NoPath;

    fn from_str(text: &str) -> Result<Self, NoPath> {
        let dotted = text.replace("].", ".").replace(']', "").replace('[', ".");
        let mut words = dotted.split('.').filter(|_| !dotted.is_empty());
        let number = |word: Option<&str>| {
            let is_plain = |w: &&str| w.bytes().all(|b| b.is_ascii_digit());
            word.filter(is_plain).and_then(|w| w.parse::<usize>().ok()).ok_or(NoPath)
        };
        let mut segments = Vec::new();
        while let Some(word) = words.next() {
            let field = ListField::from_name(word).ok_or(NoPath)?;
            let list = ListId::new(field, if field.item().is_some() { number(words.next())? } else { 0 });
            if field.has_objects() && words.next() != Some("layers") {
                return Err(NoPath);
            }
            segments.push(Segment { list, index: number(words.next())? });
        }
        Ok(Self(segments))
    }
}

/// The stored form: only the index for a list named `layers`, as when there were no others, and otherwise the field,
/// the index of the list, and the index.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Plain(usize),
    Of(ListField, usize, usize),
}

impl Serialize for Segment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ListId { field, number } = self.list;
        let kept = match field {
            ListField::Layers => Kept::Plain(self.index),
            _ => Kept::Of(field, number, self.index),
        };
        kept.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Segment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Kept::deserialize(deserializer)? {
            Kept::Plain(index) => Self { list: ListId::default(), index },
            Kept::Of(field, number, index) => Self { list: ListId::new(field, number), index },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_printed_forms_of_a_path_can_be_parsed() {
        let branch = LayerPath::from([1]).list(ListId::new(ListField::Branches, 0)).child(2);
        let path = branch.list(ListId::new(ListField::Paths, 3)).child(0).child(4);
        assert_eq!(path.to_string(), "layers[1].branches[0].layers[2].paths[3][0].layers[4]");
        assert_eq!(path.dotted(), "layers.1.branches.0.layers.2.paths.3.0.layers.4");
        assert_eq!((path.number().as_str(), branch.number().as_str()), ("1.0.2.3.0.4", "1.0.2"));
        for path in [path, branch, LayerPath::from([1, 0]), LayerPath::default()] {
            assert_eq!(path.to_string().parse(), Ok(path.clone()));
            assert_eq!(path.dotted().parse(), Ok(path.clone()));
            let kept = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<LayerPath>(&kept).unwrap(), path, "{kept}");
        }
        for text in
            ["layers", "layers.x", "layers.0.branches.1", "layers.0.rate", "0", "layers.0.branches.1.2", "layers.+1"]
        {
            assert_eq!(text.parse::<LayerPath>(), Err(NoPath), "{text}");
        }
    }

    #[test]
    fn paths_stored_before_branches_existed_can_be_read() {
        assert_eq!(serde_json::to_string(&LayerPath::from([1, 0])).unwrap(), "[1,0]");
        let branch = LayerPath::from([1]).list(ListId::new(ListField::Branches, 0)).child(2);
        assert_eq!(serde_json::to_string(&branch).unwrap(), r#"[1,["branches",0,2]]"#);
    }

    #[test]
    fn a_list_gives_the_paths_of_its_layers() {
        let list = LayerPath::from([1]).list(ListId::new(ListField::Branches, 1));
        assert_eq!(
            (list.to_string().as_str(), list.entry().as_str()),
            ("layers[1].branches[1].layers", "layers[1].branches[1]")
        );
        assert_eq!(list.place_of(&list.child(3).child(0)), Some(3));
        assert_eq!(list.place_of(&LayerPath::from([1, 3])), None);
        assert_eq!(list.child(3).split(), Some((list.clone(), 3)));
        assert_eq!(ListPath::default().to_string(), "layers");
        assert_eq!(ListPath::from(LayerPath::from([2])).entry(), "layers[2].layers");
    }
}
