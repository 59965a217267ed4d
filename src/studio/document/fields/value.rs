//! A field with its typed value, which can be printed as text and parsed again.

pub use crate::model::FieldValue;
use crate::model::{LayerPath, ListPath};
use std::borrow::Cow;

/// The owner of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The document itself; names are whole paths such as `optimizer.lr`.
    Preset,
    Layer(LayerPath),
    /// A named input; names of fields are like `shape`.
    Input(String),
    /// The source of an input if several are joined; names of fields are as for a single source, such as `data.type`.
    Source(String),
    /// One of several lists of layers of a block, for its other fields.
    List(ListPath),
}

impl Owner {
    /// The field's path, as in diagnostics: `layers[1].rate`.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Preset => name.to_owned(),
            Self::Layer(path) => format!("{path}.{name}"),
            Self::Input(input) => format!("inputs.{input}.{name}"),
            Self::Source(input) => {
                format!("data.inputs.{input}.{}", name.strip_prefix("data.").unwrap_or(name))
            }
            Self::List(list) => format!("{}.{name}", list.entry()),
        }
    }
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub owner: Owner,
    pub name: &'static str,
    /// The name in the window.
    pub label: &'static str,
    pub value: FieldValue,
    pub options: Vec<&'static str>,
    pub help: &'static str,
}

impl Field {
    /// The name in the window, after that of the input that it belongs to.
    #[must_use]
    pub fn title(&self) -> Cow<'static, str> {
        match &self.owner {
            Owner::Input(input) | Owner::Source(input) => format!("{input} {}", self.label).into(),
            Owner::Preset | Owner::Layer(_) | Owner::List(_) => self.label.into(),
        }
    }
}

pub(super) struct List {
    pub owner: Owner,
    pub fields: Vec<Field>,
}

impl List {
    pub fn put(&mut self, name: &'static str, label: &'static str, value: FieldValue, help: &'static str) {
        self.fields.push(Field { owner: self.owner.clone(), name, label, value, options: Vec::new(), help });
    }

    pub fn choose(
        &mut self,
        name: &'static str,
        label: &'static str,
        options: Vec<&'static str>,
        chosen: usize,
        help: &'static str,
    ) {
        self.fields.push(Field {
            owner: self.owner.clone(),
            name,
            label,
            value: FieldValue::Choice(chosen),
            options,
            help,
        });
    }
}
