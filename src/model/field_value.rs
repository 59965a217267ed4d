//! The value of one field: how it prints as text and reads back, and how it is written into a preset.

use super::choose::Choose;
use super::padding::Padding;
use serde_json::Value;

/// A whole number, or one of a field's names instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOrName {
    Number(usize),
    Name(&'static str),
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
    /// With the names that the field may have instead of a number.
    Named(NumberOrName, &'static [&'static str]),
    Shape(Vec<usize>),
    /// Different lengths, the shortest first; empty if all are the same.
    Lengths(Vec<usize>),
    Text(String),
    Flag(bool),
    /// One of the field's options, by index.
    Choice(usize),
    /// How a layer chooses at every step; nothing if it does not choose.
    Choose(Option<Choose>),
}

impl FieldValue {
    /// The text that the user types.
    #[must_use]
    pub fn text(&self) -> String {
        let pair = |p: &[usize; 2]| if p[0] == p[1] { p[0].to_string() } else { format!("{}, {}", p[0], p[1]) };
        match self {
            Self::Count(n) | Self::Named(NumberOrName::Number(n), _) => n.to_string(),
            Self::Named(NumberOrName::Name(name), _) => (*name).to_owned(),
            Self::Seed(n) => n.to_string(),
            Self::Number(n) => number_text(*n),
            Self::Numbers([a, b]) => format!("{}, {}", number_text(*a), number_text(*b)),
            Self::Pair(p) | Self::Padding(Padding::Fixed(p)) => pair(p),
            Self::Padding(Padding::Same) => "same".into(),
            Self::Padding(Padding::Valid) => "valid".into(),
            Self::Shape(dims) | Self::Lengths(dims) => {
                dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
            Self::Choice(index) => index.to_string(),
            Self::Choose(choose) => choose.as_ref().map(Choose::text).unwrap_or_default(),
        }
    }

    /// Parses a text as a value of the same type as this one.
    ///
    /// # Errors
    /// What is allowed.
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
            Self::Named(_, names) => {
                let name = names.iter().find(|name| **name == text).copied().map(NumberOrName::Name);
                let number = || text.parse().ok().map(NumberOrName::Number);
                let expected = "expected a whole number, or one of the names that the field's help lists";
                Self::Named(name.or_else(number).ok_or(expected)?, names)
            }
            Self::Shape(_) => {
                let dims = list().filter(|d| !d.is_empty());
                Self::Shape(dims.ok_or("expected a size, or channels, height, width: 64 or 1, 28, 28")?)
            }
            Self::Lengths(_) => {
                let rises = |lengths: &[usize]| lengths.windows(2).all(|pair| pair[0] < pair[1]);
                let lengths = list().filter(|lengths| rises(lengths) && lengths.first() != Some(&0));
                Self::Lengths(lengths.ok_or("expected lengths from the shortest on, such as 16, 32, 64, or nothing")?)
            }
            Self::Text(_) => Self::Text(text.to_owned()),
            Self::Choose(_) if text.is_empty() => Self::Choose(None),
            Self::Choose(_) => Self::Choose(Some(Choose::parse(text)?)),
            Self::Flag(_) | Self::Choice(_) => self.clone(),
        })
    }

    /// The value as a preset holds it; `options` are those of a choice.
    pub(super) fn json(&self, options: &[&str]) -> Value {
        match self {
            Self::Count(n) | Self::Named(NumberOrName::Number(n), _) => (*n).into(),
            Self::Named(NumberOrName::Name(name), _) => (*name).into(),
            Self::Seed(n) => (*n).into(),
            Self::Number(n) => (*n).into(),
            Self::Numbers(numbers) => numbers.as_slice().into(),
            Self::Pair(p) | Self::Padding(Padding::Fixed(p)) => pair_value(*p),
            Self::Padding(Padding::Same | Padding::Valid) | Self::Text(_) => self.text().into(),
            Self::Shape(dims) | Self::Lengths(dims) => dims.as_slice().into(),
            Self::Flag(flag) => (*flag).into(),
            Self::Choice(index) => options.get(*index).copied().into(),
            Self::Choose(choose) => choose.as_ref().map(Choose::json).into(),
        }
    }
}

/// `n` for `[n, n]`, otherwise `[h, w]`.
pub(super) fn pair_value(pair: [usize; 2]) -> Value {
    if pair[0] == pair[1] { pair[0].into() } else { vec![pair[0], pair[1]].into() }
}

/// A number in its shortest exact form; small and large ones with an exponent.
fn number_text(value: f64) -> String {
    let small = value != 0.0 && value.abs() < 1e-4;
    if small || value.abs() >= 1e9 { format!("{value:e}") } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_invalid_texts_say_what_is_allowed() {
        assert_eq!(FieldValue::Count(1).parse("ten"), Err("expected a whole number, at least 1"));
        assert_eq!(FieldValue::Pair([1, 1]).parse("3x5"), Ok(FieldValue::Pair([3, 5])));
        assert!(FieldValue::Padding(Padding::Same).parse("most").is_err());
        let named = FieldValue::Named(NumberOrName::Number(3), &["last", "first"]);
        assert_eq!(named.parse("last"), Ok(FieldValue::Named(NumberOrName::Name("last"), &["last", "first"])));
        assert_eq!((named.parse("3").as_ref(), named.parse("middle").is_err()), (Ok(&named), true));
        assert!(FieldValue::Number(0.0).parse("NaN").is_err());
    }
}
