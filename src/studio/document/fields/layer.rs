//! The fields of each layer, from the model's table.

use crate::model::schema::FieldView;
use crate::model::{FieldValue, LayerPath, LayerSpec, ListPath};
use crate::studio::document::fields::value::{Field, Owner};

/// The fields of a layer, in the order in which they are shown.
#[must_use]
pub fn layer_fields(path: &LayerPath, layer: &LayerSpec) -> Vec<Field> {
    layer.fields().into_iter().map(|view| Field::of(&Owner::Layer(path.clone()), view)).collect()
}

/// The other fields of one of a block's lists of layers.
#[must_use]
pub fn list_fields(list: &ListPath, block: &LayerSpec) -> Vec<Field> {
    let owner = Owner::List(list.clone());
    block.entry_fields(list.list).into_iter().map(|view| Field::of(&owner, view)).collect()
}

/// Sets a field of a layer; returns false if it has no such field or the value is of another type.
pub fn set_layer_field(layer: &mut LayerSpec, name: &str, value: &FieldValue) -> bool {
    layer.set(name, value)
}

impl Field {
    /// A field of a table, with its value.
    pub(super) fn of(owner: &Owner, view: FieldView) -> Self {
        let FieldView { name, label, value, options, help, .. } = view;
        Self { owner: owner.clone(), name, label, value, options: options.to_vec(), help }
    }
}
