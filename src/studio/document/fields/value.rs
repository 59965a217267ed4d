//! A field with its typed value, which prints as text and reads back from it.

use crate::model::layers::Padding;
use crate::model::{Activation, LayerPath};

/// Whose field it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The document itself; names are whole paths such as `optimizer.lr`.
    Preset,
    Layer(LayerPath),
}

impl Owner {
    /// The field's place as diagnostics name it: `layers[1].rate`.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Preset => name.to_owned(),
            Self::Layer(path) => format!("{path}.{name}"),
        }
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    Count(usize),
    Seed(u64),
    Number(f64),
    Numbers([f64; 2]),
    Pair([usize; 2]),
    Padding(Padding),
    Shape(Vec<usize>),
    Text(String),
    Flag(bool),
    /// One of the field's options, by position.
    Choice(usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub owner: Owner,
    pub name: &'static str,
    /// The name on screen.
    pub label: &'static str,
    pub value: FieldValue,
    pub options: Vec<&'static str>,
    pub help: &'static str,
}

impl FieldValue {
    /// The value as a person types it.
    #[must_use]
    pub fn text(&self) -> String {
        let pair = |p: &[usize; 2]| if p[0] == p[1] { p[0].to_string() } else { format!("{}, {}", p[0], p[1]) };
        match self {
            Self::Count(n) => n.to_string(),
            Self::Seed(n) => n.to_string(),
            Self::Number(n) => number_text(*n),
            Self::Numbers([a, b]) => format!("{}, {}", number_text(*a), number_text(*b)),
            Self::Pair(p) | Self::Padding(Padding::Fixed(p)) => pair(p),
            Self::Padding(Padding::Same) => "same".into(),
            Self::Padding(Padding::Valid) => "valid".into(),
            Self::Shape(dims) => dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
            Self::Choice(index) => index.to_string(),
        }
    }

    /// Reads a text as a value of this one's type.
    ///
    /// # Errors
    /// What is allowed here.
    pub fn parse(&self, text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let list = || -> Option<Vec<usize>> {
            inner.split([',', 'x', ' ']).map(str::trim).filter(|p| !p.is_empty()).map(|p| p.parse().ok()).collect()
        };
        let pair = || match list()?.as_slice() {
            [n] => Some([*n, *n]),
            [a, b] => Some([*a, *b]),
            _ => None,
        };
        let finite = |t: &str| t.trim().parse::<f64>().ok().filter(|v| v.is_finite());
        Ok(match self {
            Self::Count(_) => Self::Count(text.parse().map_err(|_| "expected a whole number, at least 1")?),
            Self::Seed(_) => Self::Seed(text.parse().map_err(|_| "expected a whole number, at least 0")?),
            Self::Number(_) => Self::Number(finite(text).ok_or("expected a number, such as 0.001 or 1e-3")?),
            Self::Numbers(_) => {
                let parts: Option<Vec<f64>> = inner.split(',').map(finite).collect();
                let parts = parts.ok_or("expected two numbers, such as 0.9, 0.999")?;
                Self::Numbers(parts.try_into().map_err(|_| "expected two numbers, such as 0.9, 0.999")?)
            }
            Self::Pair(_) => Self::Pair(pair().ok_or("expected a whole number, or two as h, w")?),
            Self::Padding(_) => Self::Padding(match text {
                "same" => Padding::Same,
                "valid" => Padding::Valid,
                _ => Padding::Fixed(pair().ok_or("expected a whole number, h, w, same or valid")?),
            }),
            Self::Shape(_) => {
                let dims = list().filter(|d| !d.is_empty());
                Self::Shape(dims.ok_or("expected a size, or channels, height, width: 64 or 1, 28, 28")?)
            }
            Self::Text(_) => Self::Text(text.to_owned()),
            Self::Flag(_) | Self::Choice(_) => self.clone(),
        })
    }
}

/// A number in its shortest exact form; small and large ones with an exponent.
fn number_text(value: f64) -> String {
    let small = value != 0.0 && value.abs() < 1e-4;
    if small || value.abs() >= 1e9 { format!("{value:e}") } else { format!("{value}") }
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

    pub fn activation(&mut self, chosen: Option<Activation>) {
        let mut options = vec!["none"];
        options.extend(Activation::ALL.map(Activation::name));
        let index = chosen.and_then(|a| Activation::ALL.iter().position(|b| *b == a)).map_or(0, |i| i + 1);
        self.choose(
            "activation",
            "activation",
            options,
            index,
            "Applied to each output; fused into the product's kernel.",
        );
    }
}
