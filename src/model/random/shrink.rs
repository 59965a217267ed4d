//! Reduces networks while a condition still holds.
//!
//! The reduction works on the document and does not depend on layers: lists of layers become shorter, a block is
//! replaced by the layers inside it, fields are reset to their defaults, and numbers become smaller and rounder. A
//! document that the reader or the checker refuses is not a candidate.

use crate::model::{LayerPath, LayerSpec, ListField, ListId, Precision, Preset, check, read_value, write_preset};
use serde_json::{Map, Value, json};

/// The smallest network that is found, starting from `preset`, for which `holds` is true, one change at a time;
/// `preset` itself if nothing smaller is found. No single change makes the result smaller.
pub fn shrink(preset: &Preset, mut holds: impl FnMut(&Preset) -> bool) -> Preset {
    let mut best = preset.clone();
    // A change that failed at a place is not tried there again until all others were.
    let (mut at, mut since_success) = (0, 0);
    loop {
        let document = document(&best);
        let changes = changes(&document);
        if since_success >= changes.len() {
            return best;
        }
        let change = &changes[at % changes.len()];
        match smaller(&best, &document, change).filter(|smaller| holds(smaller)) {
            Some(smaller) => {
                best = smaller;
                since_success = 0;
            }
            None => {
                at = at % changes.len() + 1;
                since_success += 1;
            }
        }
    }
}

/// The network as a document.
fn document(preset: &Preset) -> Value {
    serde_json::from_str(&write_preset(preset)).unwrap_or_default()
}

/// The network after a change, if it has no mistake and is smaller.
fn smaller(preset: &Preset, document: &Value, change: &Change) -> Option<Preset> {
    let mut document = document.clone();
    change.apply(&mut document)?;
    let changed = repaired(read_value(&document).ok()?)?;
    (cost(&changed) < cost(preset)).then_some(changed)
}

/// The size of a network: layers, then the sum of its whole numbers, then the settings that are not the simplest, then
/// the length of its numbers as text. Every change makes it smaller, so that the reduction ends.
fn cost(preset: &Preset) -> (usize, u64, usize, usize) {
    fn layers(list: &[LayerSpec]) -> usize {
        list.iter().map(|l| 1 + l.lists().into_iter().map(|(_, inside)| layers(inside)).sum::<usize>()).sum()
    }
    fn whole(value: &Value) -> u64 {
        match value {
            Value::Number(n) => n.as_u64().unwrap_or(0),
            Value::Array(items) => items.iter().map(whole).fold(0, u64::saturating_add),
            Value::Object(map) => map.values().map(whole).fold(0, u64::saturating_add),
            _ => 0,
        }
    }
    let decays = usize::from(preset.optimizer.weight_decay() != 0.0);
    let settings = preset.loss.cost()
        + preset.update.cost()
        + preset.optimizer.cost()
        + decays
        + usize::from(preset.precision != Precision::F32);
    let document = document(preset);
    (layers(&preset.layers), whole(&document), settings, document.to_string().len())
}

/// A change to a document.
#[derive(Clone, Debug)]
enum Change {
    /// Removes items `from..to` from the list at a place.
    Cut {
        list: Place,
        from: usize,
        to: usize,
    },
    /// Replaces a block by the layers of these lists, one list after the other.
    Unwrap {
        list: Place,
        index: usize,
        inner: Vec<Place>,
    },
    /// Keeps only the outermost layers from this one on, with a single number as input.
    StartAt {
        layer: usize,
    },
    /// Removes a field, which then has its default.
    Remove {
        object: Place,
        field: String,
    },
    Set {
        place: Place,
        value: Value,
    },
    /// Makes all whole numbers of a layer smaller at once: the window may not allow a smaller padding, nor the padding
    /// a smaller window.
    Together {
        layer: Place,
        smaller: fn(u64) -> u64,
    },
    /// Replaces every whole number of one value: sizes that must be equal, such as a vocabulary and the units of a
    /// classifier that uses the weight of its embedding.
    Alike {
        from: u64,
        to: u64,
    },
    /// Keeps one of several inputs, without a name, and replaces the first layer by the layers of its branch, followed
    /// by those of the other branches if `with_others`, because these may contain all trained parameters.
    OnlyInput {
        name: String,
        with_others: bool,
    },
    /// Replaces tokens by numbers of this shape, and removes the embeddings of these tokens.
    TakeNumbers {
        shape: Vec<Value>,
    },
}

/// The keys that lead to a place in a document.
type Place = Vec<Key>;

#[derive(Clone, Debug)]
enum Key {
    Field(String),
    Item(usize),
}

fn at<'v>(document: &'v mut Value, place: &[Key]) -> Option<&'v mut Value> {
    place.iter().try_fold(document, |value, key| match key {
        Key::Field(name) => value.get_mut(name),
        Key::Item(index) => value.get_mut(index),
    })
}

impl Change {
    fn apply(&self, document: &mut Value) -> Option<()> {
        match self {
            Self::Cut { list, from, to } => {
                at(document, list)?.as_array_mut()?.drain(*from..*to);
            }
            Self::Unwrap { list, index, inner } => {
                let list = at(document, list)?.as_array_mut()?;
                let block = list.get_mut(*index)?;
                let mut layers = Vec::new();
                for place in inner {
                    layers.append(at(block, place)?.as_array_mut()?);
                }
                list.splice(*index..=*index, layers);
            }
            Self::StartAt { layer } => {
                let layers = document.get_mut("layers")?.as_array_mut()?;
                layers.drain(..(*layer).min(layers.len()));
                *document.get_mut("input")?.get_mut("shape")? = json!([1]);
            }
            Self::Remove { object, field } => {
                at(document, object)?.as_object_mut()?.shift_remove(field)?;
            }
            Self::Set { place, value } => *at(document, place)? = value.clone(),
            Self::OnlyInput { name, with_others } => {
                let mut only = document.get_mut("inputs")?.get_mut(name)?.take();
                only.as_object_mut()?.insert("batch".into(), document["input"]["batch"].clone());
                let layers = document.get_mut("layers")?.as_array_mut()?;
                let branches = layers.first_mut()?.get_mut("branches")?.as_array_mut()?;
                let is_own = |branch: &Value| branch["input"] == name.as_str();
                let own = branches.iter().position(is_own)?;
                branches.swap(0, own);
                let taken = if *with_others { branches.len() } else { 1 };
                let mut inner = Vec::new();
                for branch in &mut branches[..taken] {
                    inner.append(branch.get_mut("layers")?.as_array_mut()?);
                }
                // Only the first layer may take tokens.
                let mut at = 0;
                inner.retain(|layer| (std::mem::replace(&mut at, 1) == 0) || layer["type"] != "embedding");
                layers.splice(..1, inner);
                let fields = document.as_object_mut()?;
                fields.insert("input".into(), only);
                fields.shift_remove("inputs");
                // Their sources are for inputs that no longer exist.
                fields.shift_remove("data");
            }
            Self::TakeNumbers { shape } => {
                let input = document.get_mut("input")?.as_object_mut()?;
                input.shift_remove("vocab")?;
                input.shift_remove("type");
                input.insert("shape".into(), shape.clone().into());
                document.get_mut("layers")?.as_array_mut()?.retain(|layer| layer["type"] != "embedding");
            }
            Self::Together { layer, smaller } => make_smaller(at(document, layer)?, *smaller, 1),
            Self::Alike { from, to } => make_alike(document, *from, *to),
        }
        Some(())
    }
}

/// Makes the whole numbers of a value smaller, except those of layers inside it. Padding may become 0; other numbers
/// stay at 1 or above, as most of them must.
fn make_smaller(value: &mut Value, smaller: fn(u64) -> u64, least: u64) {
    match value {
        Value::Number(number) => {
            if let Some(n) = number.as_u64() {
                *value = smaller(n).max(least.min(n)).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| make_smaller(item, smaller, least)),
        Value::Object(map) => {
            for (name, value) in map.iter_mut().filter(|(name, _)| !is_lists(name)) {
                make_smaller(value, smaller, u64::from(name != "padding"));
            }
        }
        _ => {}
    }
}

/// Replaces every whole number `from` of a value by `to`.
fn make_alike(value: &mut Value, from: u64, to: u64) {
    match value {
        Value::Number(number) if number.as_u64() == Some(from) => *value = to.into(),
        Value::Array(items) => items.iter_mut().for_each(|item| make_alike(item, from, to)),
        Value::Object(map) => map.values_mut().for_each(|value| make_alike(value, from, to)),
        _ => {}
    }
}

/// Sizes of a network of tokens that must change together: its vocabulary and the units of its embedding equal those of
/// a classifier that uses the embedding's weight, and of the layer before it.
fn sizes_of_tokens(document: &Value) -> Vec<Change> {
    let sizes = [&document["input"]["vocab"], &document["layers"][0]["units"]];
    let smaller = |from: u64| {
        let to = smaller_counts(from).into_iter().filter_map(|to| to.as_u64()).filter(|to| *to > 0);
        to.map(move |to| Change::Alike { from, to })
    };
    sizes.into_iter().filter_map(Value::as_u64).flat_map(smaller).collect()
}

/// Every change that may make a document smaller, the largest changes first.
fn changes(document: &Value) -> Vec<Change> {
    let mut out = Changes::default();
    out.of(document, &mut Vec::new());
    let Changes { mut bold, fields, numbers } = out;
    let settings = [
        ("optimizer", json!({ "type": "sgd", "lr": document["optimizer"]["lr"] })),
        ("optimizer", json!({ "type": "sgd", "lr": 0.1 })),
        ("loss", json!({ "type": "mse" })),
        ("input", json!({ "shape": [1], "batch": document["input"]["batch"] })),
    ];
    let names = document["inputs"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let alone = |name: String| [false, true].map(|with_others| Change::OnlyInput { name: name.clone(), with_others });
    bold.extend(names.flat_map(alone));
    let set = |(name, value): (&str, Value)| Change::Set { place: vec![Key::Field(name.into())], value };
    bold.extend(settings.into_iter().map(set));
    bold.extend([1, 2].map(|layer| Change::StartAt { layer }));
    if document["input"]["type"] == "tokens" {
        let positions = document["input"]["shape"][0].clone();
        let shapes = [vec![json!(1)], vec![positions, document["layers"][0]["units"].clone()]];
        bold.extend(shapes.into_iter().map(|shape| Change::TakeNumbers { shape }));
        bold.extend(sizes_of_tokens(document));
    }
    bold.into_iter().chain(fields).chain(numbers).collect()
}

#[derive(Default)]
struct Changes {
    bold: Vec<Change>,
    fields: Vec<Change>,
    numbers: Vec<Change>,
}

impl Changes {
    fn of(&mut self, value: &Value, place: &mut Place) {
        match value {
            Value::Object(map) => self.of_object(map, place),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    place.push(Key::Item(index));
                    self.of(item, place);
                    place.pop();
                }
            }
            Value::Number(number) => {
                let values = number.as_u64().map_or_else(|| rounder(number.as_f64()), smaller_counts);
                self.numbers.extend(values.into_iter().map(|value| Change::Set { place: place.clone(), value }));
            }
            _ => {}
        }
    }

    fn of_object(&mut self, map: &Map<String, Value>, place: &mut Place) {
        for (name, value) in map {
            self.fields.push(Change::Remove { object: place.clone(), field: name.clone() });
            place.push(Key::Field(name.clone()));
            match value.as_array().filter(|_| is_lists(name)) {
                Some(layers) if name == "layers" => self.of_layers(layers, place),
                Some(lists) => self.of_lists(lists, place),
                None => self.of(value, place),
            }
            place.pop();
        }
    }

    /// Halves of a list, then single items.
    fn cuts(&mut self, count: usize, place: &Place) {
        let mut length = count / 2;
        while length > 0 {
            for from in (0..count).step_by(length) {
                let to = (from + length).min(count);
                self.bold.push(Change::Cut { list: place.clone(), from, to });
            }
            length /= 2;
        }
    }

    /// The lists of a block that has several: each is a list of layers, or an object with one.
    fn of_lists(&mut self, lists: &[Value], place: &mut Place) {
        self.cuts(lists.len(), place);
        for (number, list) in lists.iter().enumerate() {
            place.push(Key::Item(number));
            match list {
                Value::Array(layers) => self.of_layers(layers, place),
                other => self.of(other, place),
            }
            place.pop();
        }
    }

    /// Layers are removed, and blocks are replaced by the layers in them.
    fn of_layers(&mut self, layers: &[Value], place: &mut Place) {
        self.cuts(layers.len(), place);
        for (index, layer) in layers.iter().enumerate() {
            let unwrap = |inner| Change::Unwrap { list: place.clone(), index, inner };
            let lists = lists_of(layer);
            self.bold.extend(lists.iter().map(|list| unwrap(vec![list.clone()])));
            self.bold.extend((lists.len() > 1).then(|| unwrap(lists)));
            place.push(Key::Item(index));
            let ways: [fn(u64) -> u64; 2] = [|n| n / 2, |n| n.saturating_sub(1)];
            self.numbers.extend(ways.map(|smaller| Change::Together { layer: place.clone(), smaller }));
            self.of(layer, place);
            place.pop();
        }
    }
}

/// Whether a field with this name contains the layers inside a block.
fn is_lists(name: &str) -> bool {
    [ListField::Layers, ListField::Branches, ListField::Paths].iter().any(|field| field.name() == name)
}

/// The paths of the lists of layers of a block, starting at its object.
fn lists_of(layer: &Value) -> Vec<Place> {
    let fields = layer.as_object().into_iter().flatten().filter(|(name, _)| is_lists(name));
    let places = fields.flat_map(|(name, value)| {
        let field = Key::Field(name.clone());
        let count = if name == "layers" { 0 } else { value.as_array().map_or(0, Vec::len) };
        let inner = (0..count).map(|number| {
            let is_object = value[number].is_object();
            let layers = is_object.then(|| Key::Field("layers".into()));
            [field.clone(), Key::Item(number)].into_iter().chain(layers).collect()
        });
        let own = (name == "layers").then(|| vec![field.clone()]);
        own.into_iter().chain(inner).collect::<Vec<Place>>()
    });
    places.collect()
}

fn smaller_counts(n: u64) -> Vec<Value> {
    let mut values = vec![0, 1, 2, n / 2, n.saturating_sub(1)];
    values.retain(|v| *v < n);
    values.dedup();
    values.into_iter().map(Value::from).collect()
}

/// Simple numbers, and the nearest number with one digit.
fn rounder(number: Option<f64>) -> Vec<Value> {
    let Some(number) = number else { return Vec::new() };
    let short: Option<f64> = format!("{number:.0e}").parse().ok();
    [Some(0.0), Some(0.5), Some(0.1), short].into_iter().flatten().filter(|v| *v != number).map(Value::from).collect()
}

/// Repairs the shapes inside blocks that must keep theirs; `None` if the network still has mistakes.
fn repaired(mut preset: Preset) -> Option<Preset> {
    /// Nested blocks are repaired from the outside in, one level in each pass.
    const PASSES: usize = 8;
    for _ in 0..PASSES {
        let checked = check(&preset);
        if checked.model.is_some() {
            return Some(preset);
        }
        let block = checked.diagnostics.iter().find_map(|mistake| {
            let is_of_lists = |path: &&LayerPath| {
                let field = mistake.path.strip_prefix(&format!("{path}.")).unwrap_or_default();
                is_lists(field.split('[').next().unwrap_or_default())
            };
            let path = mistake.layer.as_ref().filter(is_of_lists)?;
            let input = checked.facts.iter().find(|fact| fact.path == *path)?.input.clone()?;
            Some((path.clone(), input))
        });
        let (path, input) = block?;
        let block = preset.layer_mut(&path)?;
        let ids: Vec<ListId> = block.lists().into_iter().map(|(id, _)| id).collect();
        for id in ids {
            block.list_mut(id)?.iter_mut().for_each(|child| child.keep_shape(&input));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::random::{Size, random_preset};

    fn has(layers: &[LayerSpec], wanted: &impl Fn(&LayerSpec) -> bool) -> bool {
        layers.iter().any(|l| wanted(l) || l.lists().into_iter().any(|(_, inside)| has(inside, wanted)))
    }

    /// Reduces the first networks that contain such a layer; each result must be at most as large as `most`.
    fn shrinks_to(most: (usize, u64), wanted: impl Fn(&LayerSpec) -> bool) {
        // A branch that takes an input by name needs the other branches, or its own trained layer.
        let is_large = |p: &Preset| has(&p.layers, &wanted) && p.input.inputs.len() == 1;
        let large = (0..).map(|seed| random_preset(seed, Size::SMALL)).filter(is_large);
        for preset in large.take(12) {
            let small = shrink(&preset, |p| has(&p.layers, &wanted));
            assert!(check(&small).model.is_some() && has(&small.layers, &wanted));
            let (layers, whole, settings, _) = cost(&small);
            assert!((layers, whole) <= most && settings == 0, "{}", write_preset(&small));
        }
    }

    #[test]
    fn a_network_shrinks_to_the_layer_that_matters() {
        // A layer without parameters needs another layer that has some.
        shrinks_to((1, 4), |l| matches!(l, LayerSpec::Dense(_)));
        shrinks_to((1, 9), |l| matches!(l, LayerSpec::Conv2d(_)));
        shrinks_to((1, 6), |l| matches!(l, LayerSpec::BatchNorm(_)));
        shrinks_to((2, 9), |l| matches!(l, LayerSpec::Dropout(d) if d.rate > 0.2));
        shrinks_to((3, 12), |l| matches!(l, LayerSpec::Residual(_)));
        shrinks_to((3, 12), |l| matches!(l, LayerSpec::Repeat(r) if r.times > 1));
        shrinks_to((2, 15), |l| matches!(l, LayerSpec::MaxPool2d(_)));
    }

    #[test]
    fn networks_of_tokens_shrink_in_vocabulary_width_and_length() {
        // An embedding and its classifier: 1 token of 1 value, in batches of 1 or 2.
        shrinks_to((2, 10), |l| l.tied().is_some());
        // Whether the error needs more than a few tokens or positions is preserved.
        let wanted = |p: &Preset| {
            let input = &p.input.inputs[0];
            p.layers.iter().any(|l| l.tied().is_some()) && input.content.vocab() >= Some(5) && input.shape.0[0] >= 2
        };
        let found = (0..).map(|seed| random_preset(seed, Size::SMALL)).filter(wanted);
        for preset in found.take(6) {
            let small = shrink(&preset, wanted);
            let input = &small.input.inputs[0];
            let found = (small.layers.len(), input.content.vocab(), input.shape.0[0]);
            assert_eq!(found, (2, Some(5), 2), "{}", write_preset(&small));
        }
    }

    #[test]
    fn settings_that_matter_are_kept() {
        let preset = (0..)
            .map(|seed| random_preset(seed, Size::SMALL))
            .find(|p| p.optimizer.name() == "adamw" && p.precision == Precision::Bf16);
        let wanted = |p: &Preset| p.optimizer.name() == "adamw" && p.precision == Precision::Bf16;
        let small = shrink(&preset.unwrap(), wanted);
        assert!(wanted(&small) && small.train.is_none() && small.input.batch <= 2, "{}", write_preset(&small));
        let (layers, _, settings, _) = cost(&small);
        assert_eq!((layers, settings), (1, 5), "{}", write_preset(&small));
    }

    #[test]
    fn the_network_itself_is_returned_if_nothing_smaller_is_found() {
        let preset = random_preset(3, Size::SMALL);
        let mut tried = 0;
        let same = shrink(&preset, |smaller| {
            tried += 1;
            assert!(cost(smaller) < cost(&preset) && check(smaller).model.is_some());
            false
        });
        assert_eq!(same, preset);
        assert!(tried > 10, "{tried}");
    }
}
