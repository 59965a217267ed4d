//! The lists of layers inside of blocks: how documents hold them, and how they are reached.

use super::{LayerSpec, LayerType, each_layer};
use crate::model::field_value::FieldValue;
use crate::model::infer::Join;
use crate::model::path::{ListField, ListId};
use crate::model::schema::FieldView;
use crate::model::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Reads the layers of one of the lists of the block, or of the entry, that the fields are of.
pub(in crate::model) type ReadList = fn(&mut Fields<'_>, ListId) -> Vec<LayerSpec>;

/// Writes the layers inside, and what is beside the lists of them.
pub(super) fn write_lists<T: LayerType>(layer: &T, map: &mut Map<String, Value>) {
    let Some(field) = T::LISTS else { return };
    let written = |list: &Vec<LayerSpec>| -> Value { list.iter().map(|l| Value::Object(l.write())).collect() };
    let entry = |(number, list): (usize, &Vec<LayerSpec>)| {
        if !field.has_objects() {
            return written(list);
        }
        let mut entry = Map::new();
        layer.write_entry(number, &mut entry);
        entry.insert("layers".into(), written(list));
        Value::Object(entry)
    };
    let mut lists = layer.lists().into_iter().enumerate().map(entry);
    let value = if field.item().is_some() { Some(lists.collect()) } else { lists.next() };
    map.extend(value.map(|value| (field.name().to_owned(), value)));
}

/// Reads the layers inside by `nested`, and what is beside the lists of them.
pub(super) fn read_lists<T: LayerType>(layer: &mut T, f: &mut Fields<'_>, nested: ReadList) {
    let Some(field) = T::LISTS else { return };
    let count = if field.item().is_some() { entries(field, f).len() } else { 1 };
    (layer.lists().len()..count).for_each(|number| layer.insert_list(number));
    (count..layer.lists().len()).rev().for_each(|number| layer.remove_list(number));
    for number in 0..count {
        let list = ListId::new(field, number);
        let layers = if field.has_objects() { read_object(layer, list, f, nested) } else { nested(f, list) };
        if let Some(place) = layer.lists_mut().into_iter().nth(number) {
            *place = layers;
        }
    }
}

/// The entries of a field with several lists of layers.
fn entries<'a>(field: ListField, f: &mut Fields<'a>) -> &'a [Value] {
    let example = if field.has_objects() { r#"[{"layers": [...]}, ...]"# } else { "[[...], ...]" };
    match f.raw(field.name()) {
        Some(Value::Array(items)) => items,
        Some(other) => {
            f.wrong(field.name(), other, &format!("a list such as {example}"));
            &[]
        }
        None => {
            f.fail(field.name(), "is missing", format!("add \"{}\": {example}", field.name()));
            &[]
        }
    }
}

/// The layers of a list that is in an object of its own; what is beside them goes to `layer`.
fn read_object<T: LayerType>(layer: &mut T, list: ListId, f: &mut Fields<'_>, nested: ReadList) -> Vec<LayerSpec> {
    let name = format!("{}[{}]", list.field.name(), list.number);
    match entries(list.field, f).get(list.number) {
        Some(Value::Object(map)) => {
            let (at, owner) = (f.at(&name), f.layer().cloned());
            let mut entry = Fields::new(map, at, owner, f.sink());
            layer.read_entry(list.number, &mut entry);
            let layers = nested(&mut entry, list);
            entry.finish();
            layers
        }
        Some(other) => {
            f.wrong(&name, other, r#"an object such as {"layers": [...]}"#);
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn list_field_of<T: LayerType>(_layer: &T) -> Option<ListField> {
    T::LISTS
}

fn may_be_empty<T: LayerType>(_layer: &T) -> bool {
    T::MAY_BE_EMPTY
}

impl LayerSpec {
    /// Whether it holds layers.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.list_field().is_some()
    }

    /// The field that holds the layers inside of a block.
    #[must_use]
    pub fn list_field(&self) -> Option<ListField> {
        each_layer!(self, l => list_field_of(l))
    }

    /// The lists of layers inside a block, in order; none of another layer.
    #[must_use]
    pub fn lists(&self) -> Vec<(ListId, &[Self])> {
        let field = self.list_field().unwrap_or_default();
        let lists = each_layer!(self, l => l.lists()).into_iter().enumerate();
        lists.map(|(number, list)| (ListId::new(field, number), list.as_slice())).collect()
    }

    /// The layers of one of a block's lists.
    #[must_use]
    pub fn list(&self, list: ListId) -> Option<&[Self]> {
        self.lists().into_iter().find(|(id, _)| *id == list).map(|(_, layers)| layers)
    }

    /// The layers of one of a block's lists, to edit.
    pub fn list_mut(&mut self, list: ListId) -> Option<&mut Vec<Self>> {
        let field = self.list_field()?;
        let mut lists = each_layer!(self, l => l.lists_mut()).into_iter();
        if list.field == field { lists.nth(list.number) } else { None }
    }

    /// The layers right inside a block, list by list.
    pub fn inside(&self) -> impl Iterator<Item = &Self> {
        self.lists().into_iter().flat_map(|(_, layers)| layers)
    }

    /// Puts an empty list before this one; false where the block has no such place.
    pub fn insert_list(&mut self, list: ListId) -> bool {
        let is_possible =
            list.field.item().is_some() && self.list_field() == Some(list.field) && list.number <= self.lists().len();
        if is_possible {
            each_layer!(self, l => l.insert_list(list.number));
        }
        is_possible
    }

    /// Takes a list away with its layers; false where there is none, or no other one.
    pub fn remove_list(&mut self, list: ListId) -> bool {
        let is_possible = list.field.item().is_some() && self.list(list).is_some() && self.lists().len() > 1;
        if is_possible {
            each_layer!(self, l => l.remove_list(list.number));
        }
        is_possible
    }

    /// The fields beside the layers of a list, with their values.
    #[must_use]
    pub fn entry_fields(&self, list: ListId) -> Vec<FieldView> {
        each_layer!(self, l => l.entry_fields(list.number))
    }

    /// Sets a field beside the layers of a list; false where there is no such field or the value is of another kind.
    pub fn set_in_entry(&mut self, list: ListId, name: &str, value: &FieldValue) -> bool {
        each_layer!(self, l => l.set_in_entry(list.number, name, value))
    }

    /// The input of the network that a list takes, by name, where it is not the block's.
    #[must_use]
    pub fn input_of(&self, list: ListId) -> Option<&str> {
        each_layer!(self, l => l.input_of(list.number))
    }

    /// Whether a list without layers is no mistake: it passes on its input.
    #[must_use]
    pub fn may_be_empty(&self) -> bool {
        each_layer!(self, l => may_be_empty(l))
    }

    /// Whether the layers that are drawn for the inside of a block on this input keep its shape.
    pub(in crate::model) fn keeps_shape_inside(&self, input: &Shape) -> bool {
        each_layer!(self, l => l.keeps_shape_inside(input))
    }

    /// The output shape of a block whose lists give these shapes; `None` where they do not fit each other, which is
    /// reported to `cx`.
    pub(in crate::model) fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        each_layer!(self, l => l.join(cx))
    }
}
