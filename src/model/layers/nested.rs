//! The lists of layers inside blocks: their form in documents, and access to them.

use super::{LayerSpec, LayerType, each_layer};
use crate::model::field_value::FieldValue;
use crate::model::infer::Join;
use crate::model::path::{ListField, ListId};
use crate::model::schema::FieldView;
use crate::model::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Reads the layers of one of the lists of the block (or of the entry) that has these fields.
pub(in crate::model) type ReadList = fn(&mut Fields<'_>, ListId) -> Vec<LayerSpec>;

/// Writes the layers inside, and the other fields of their lists.
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

/// Reads the layers inside with `nested`, and the other fields of their lists.
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

/// The layers of a list that is in a separate object; its other fields are passed to `layer`.
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

    /// The field that contains the layers inside a block.
    #[must_use]
    pub fn list_field(&self) -> Option<ListField> {
        each_layer!(self, l => list_field_of(l))
    }

    /// The lists of layers inside a block, in order; empty for other layers.
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

    /// The layers of one of a block's lists, mutable.
    pub fn list_mut(&mut self, list: ListId) -> Option<&mut Vec<Self>> {
        let field = self.list_field()?;
        let mut lists = each_layer!(self, l => l.lists_mut()).into_iter();
        if list.field == field { lists.nth(list.number) } else { None }
    }

    /// The layers directly inside a block, list by list.
    pub fn inside(&self) -> impl Iterator<Item = &Self> {
        self.lists().into_iter().flat_map(|(_, layers)| layers)
    }

    /// Inserts an empty list before this one; returns false if the block has no such place.
    pub fn insert_list(&mut self, list: ListId) -> bool {
        let is_possible =
            list.field.item().is_some() && self.list_field() == Some(list.field) && list.number <= self.lists().len();
        if is_possible {
            each_layer!(self, l => l.insert_list(list.number));
        }
        is_possible
    }

    /// Removes a list with its layers; returns false if it does not exist or is the only one.
    pub fn remove_list(&mut self, list: ListId) -> bool {
        let is_possible = list.field.item().is_some() && self.list(list).is_some() && self.lists().len() > 1;
        if is_possible {
            each_layer!(self, l => l.remove_list(list.number));
        }
        is_possible
    }

    /// The other fields of a list, with their values.
    #[must_use]
    pub fn entry_fields(&self, list: ListId) -> Vec<FieldView> {
        each_layer!(self, l => l.entry_fields(list.number))
    }

    /// Sets another field of a list; returns false if there is no such field or the value is of another kind.
    pub fn set_in_entry(&mut self, list: ListId, name: &str, value: &FieldValue) -> bool {
        each_layer!(self, l => l.set_in_entry(list.number, name, value))
    }

    /// The name of the network's input that a list takes, if it is not the block's input.
    #[must_use]
    pub fn input_of(&self, list: ListId) -> Option<&str> {
        each_layer!(self, l => l.input_of(list.number))
    }

    /// Whether an empty list of layers is allowed: it returns its input.
    #[must_use]
    pub fn may_be_empty(&self) -> bool {
        each_layer!(self, l => may_be_empty(l))
    }

    /// Whether the random layers inside a block with this input must keep its shape.
    pub(in crate::model) fn keeps_shape_inside(&self, input: &Shape) -> bool {
        each_layer!(self, l => l.keeps_shape_inside(input))
    }

    /// The output shape of a block whose lists return these shapes; `None` if they do not fit each other, which is
    /// reported to `cx`.
    pub(in crate::model) fn join(&self, cx: &mut Join<'_>) -> Option<Shape> {
        each_layer!(self, l => l.join(cx))
    }
}
