//! Mistakes where they are shown, and the heads of lists of layers.

use crate::model::{LayerPath, LayerSpec, ListField, ListId, ListPath};
use crate::studio::document::fields::layer::list_fields;
use crate::studio::document::fields::value::Field;

/// A mistake, where it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The field that causes it, empty for the whole.
    pub field: String,
    pub message: String,
    pub help: String,
}

/// The head of one of several lists of layers of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct ListHead {
    pub at: ListPath,
    /// `branch 0`.
    pub title: String,
    /// The layers in it.
    pub layers: usize,
    /// What is beside its layers.
    pub fields: Vec<Field>,
    pub problems: Vec<Problem>,
}

/// The heads of the lists of a block that may have several, with the problems of each.
pub(super) fn heads(layer: &LayerSpec, path: &LayerPath, problems: &[Problem]) -> Vec<ListHead> {
    let Some(item) = layer.list_field().and_then(ListField::item) else { return Vec::new() };
    let head = |(list, inside): (ListId, &[LayerSpec])| {
        let at = path.list(list);
        let entry = format!("{}[{}]", list.field.name(), list.number);
        let own = problems.iter().filter_map(|p| {
            let field = p.field.strip_prefix(&entry)?.trim_start_matches('.').to_owned();
            Some(Problem { field, ..p.clone() })
        });
        ListHead {
            title: format!("{item} {}", list.number),
            layers: inside.len(),
            fields: list_fields(&at, layer),
            problems: own.collect(),
            at,
        }
    };
    layer.lists().into_iter().map(head).collect()
}

/// Whether a problem of a list is this one of its block.
pub(super) fn is_same(of_list: &Problem, of_block: &Problem) -> bool {
    let is_message = of_list.message == of_block.message && of_list.help == of_block.help;
    is_message && of_block.field.ends_with(&of_list.field) && of_block.field.contains('[')
}
