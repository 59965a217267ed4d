//! The fields of layers, losses, optimizers and data sources as data: name, kind, range, default, unit and help.
//!
//! The reader, the writer, the checker and the window's editors are made from these tables.

use super::field_value::{FieldValue, NumberOrName, pair_value};
use super::padding::Padding;
use super::spec::{Fields, pair_of};
use serde_json::{Map, Value};
use std::ops::{Bound, RangeBounds};

/// How one field of `T` is read and set.
pub struct Lens<T, V> {
    pub get: fn(&T) -> V,
    pub set: fn(&mut T, V),
}

/// The lens of a field by its name.
macro_rules! lens {
    ($field:ident) => {
        $crate::model::schema::Lens { get: |owner| owner.$field, set: |owner, value| owner.$field = value }
    };
}
pub(crate) use lens;

/// The lens of a field whose type has a list `ALL` of its values, as the index in that list.
macro_rules! choice_lens {
    ($field:ident: $Type:ident) => {
        $crate::model::schema::Lens {
            get: |owner| owner.$field as usize,
            set: |owner, index| owner.$field = $Type::ALL.get(index).copied().unwrap_or_default(),
        }
    };
}
pub(crate) use choice_lens;

/// Declares the enum of a family of layers, losses or optimizers whose members are structs, with one variant for each,
/// and with their names and examples. The members have `NAME` and `example`.
macro_rules! family {
    ($(#[$about:meta])* $Spec:ident: $($Name:ident)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $Spec {
            $($Name($Name),)*
        }

        impl $Spec {
            /// The names of all of them in presets.
            pub const NAMES: [&'static str; [$(stringify!($Name)),*].len()] = [$($Name::NAME),*];

            /// The member with this name, with sensible fields.
            #[must_use]
            pub fn example(name: &str) -> Option<Self> {
                $(if name == $Name::NAME { return Some(Self::$Name($Name::example())); })*
                None
            }
        }
    };
}
pub(super) use family;

/// The methods of a family's enum that return the name of a member in documents and in sentences.
macro_rules! names {
    ($each:ident, $name:ident, $title:ident) => {
        /// The name used in presets.
        #[must_use]
        pub fn name(&self) -> &'static str {
            $each!(self, owner => $name(owner))
        }

        /// The name in sentences; for an optimizer, the name of PyTorch's class.
        #[must_use]
        pub fn title(&self) -> &'static str {
            $each!(self, owner => $title(owner))
        }
    };
}
pub(super) use names;

/// The methods of a family's enum that return its fields and set them by name: `$each` binds the struct in a variant,
/// and `$table` returns the table of that struct's fields.
macro_rules! fields_by_name {
    ($each:ident, $table:ident) => {
        /// The fields with their values, in the order in which they are shown.
        #[must_use]
        pub fn fields(&self) -> Vec<FieldView> {
            $each!(self, owner => $table(owner).iter().map(|field| field.view(owner)).collect())
        }

        /// Sets a field; returns false if there is no field with this name or the value is of another kind.
        pub fn set(&mut self, name: &str, value: &FieldValue) -> bool {
            $each!(self, owner => {
                $table(owner).iter().find(|field| field.name == name).is_some_and(|field| field.set(owner, value))
            })
        }
    };
}
pub(super) use fields_by_name;

/// The type of a field.
pub enum Kind<T> {
    Count(Lens<T, usize>),
    Real(Lens<T, f64>),
    /// Two numbers.
    Reals(Lens<T, [f64; 2]>),
    /// Height and width.
    Pair(Lens<T, [usize; 2]>),
    Padding(Lens<T, Padding>),
    /// A whole number, or one of these names.
    Named(&'static [&'static str], Lens<T, NumberOrName>),
    Flag(Lens<T, bool>),
    /// A line of text; empty if the field is missing.
    Text(Lens<T, String>),
    /// One of a list of names, by index.
    Choice {
        options: &'static [&'static str],
        /// Whether the field may be missing or empty, which means the first option.
        optional: bool,
        lens: Lens<T, usize>,
    },
    /// A value with its own format in documents.
    Own(Own<T>),
}

/// How a field with its own format is shown, set, read and written.
pub struct Own<T> {
    pub get: fn(&T) -> FieldValue,
    /// Returns false if the value is of another kind.
    pub set: fn(&mut T, &FieldValue) -> bool,
    /// Reads the field of this name, or sets its default.
    pub read: fn(&mut T, &mut Fields<'_>, &'static str),
    /// The value in a document; `None` if the field is to be left out.
    pub json: fn(&T) -> Option<Value>,
    /// The names of a choice.
    pub options: &'static [&'static str],
}

/// The values that a field may have, regardless of the other fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    Any,
    /// Every number of the field is in this range; `help` is used in place of a description of the range.
    Whole {
        least: usize,
        most: usize,
        help: Option<&'static str>,
    },
    /// `help` is the continuation of "expected a number".
    Real {
        from: Bound<f64>,
        to: Bound<f64>,
        help: &'static str,
    },
}

impl Range {
    /// Whole numbers of at least 1.
    const POSITIVE: Self = Self::Whole { least: 1, most: usize::MAX, help: None };
    /// The dimensions of a window, in pixels: beyond this limit, computing sizes could overflow.
    pub(super) const MEASURE: Self = Self::Whole { least: 1, most: MAX_MEASURE, help: None };
    /// A fraction below 1.
    pub(super) const SHARE: Self =
        Self::Real { from: Bound::Included(0.0), to: Bound::Excluded(1.0), help: "from 0 up to, but not including, 1" };
}

/// The largest dimension of a window.
pub(super) const MAX_MEASURE: usize = 1 << 16;

/// One field of `T`.
pub struct FieldSpec<T> {
    /// The name in documents, with its section: `units`, `optimizer.lr`.
    pub name: &'static str,
    /// The name in the window.
    pub label: &'static str,
    pub kind: Kind<T>,
    /// The value if the field is missing; `None` if it is required.
    pub default: Option<fn(&T) -> FieldValue>,
    pub range: Range,
    /// The unit of its number; empty if it needs none.
    pub unit: &'static str,
    /// One line that explains it.
    pub help: &'static str,
    /// Whether it can change while the recorded step is replayed; other fields are frozen into the step.
    pub is_live: bool,
}

/// A field with its value, for editors.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldView {
    pub name: &'static str,
    pub label: &'static str,
    pub value: FieldValue,
    pub options: &'static [&'static str],
    pub range: Range,
    pub unit: &'static str,
    pub help: &'static str,
    pub is_live: bool,
}

/// A mistake in a field: what was found, and what is allowed.
pub(super) type Finding = (String, String);

impl<T> FieldSpec<T> {
    const fn new(name: &'static str, kind: Kind<T>) -> Self {
        let range = Range::Any;
        Self { name, label: name, kind, default: None, range, unit: "", help: "", is_live: false }
    }

    /// A whole number of at least 1.
    pub const fn count(name: &'static str, lens: Lens<T, usize>) -> Self {
        Self::new(name, Kind::Count(lens)).within(Range::POSITIVE)
    }

    pub const fn real(name: &'static str, lens: Lens<T, f64>) -> Self {
        Self::new(name, Kind::Real(lens))
    }

    pub const fn reals(name: &'static str, lens: Lens<T, [f64; 2]>) -> Self {
        Self::new(name, Kind::Reals(lens))
    }

    /// Height and width, in pixels.
    pub const fn pair(name: &'static str, lens: Lens<T, [usize; 2]>) -> Self {
        Self::new(name, Kind::Pair(lens)).within(Range::MEASURE).unit("pixels")
    }

    pub const fn padding(name: &'static str, lens: Lens<T, Padding>) -> Self {
        let range = Range::Whole { least: 0, most: MAX_MEASURE, help: None };
        Self::new(name, Kind::Padding(lens)).within(range).unit("pixels")
    }

    /// A whole number, or one of these names instead.
    pub const fn named(name: &'static str, names: &'static [&'static str], lens: Lens<T, NumberOrName>) -> Self {
        Self::new(name, Kind::Named(names, lens))
    }

    pub const fn flag(name: &'static str, lens: Lens<T, bool>) -> Self {
        Self::new(name, Kind::Flag(lens))
    }

    /// An optional line of text.
    pub const fn text(name: &'static str, lens: Lens<T, String>) -> Self {
        Self::new(name, Kind::Text(lens)).default(|_| FieldValue::Text(String::new()))
    }

    /// One of these names; required.
    pub const fn choice(name: &'static str, options: &'static [&'static str], lens: Lens<T, usize>) -> Self {
        Self::new(name, Kind::Choice { options, optional: false, lens })
    }

    /// One of these names; the first one by default.
    pub const fn option(name: &'static str, options: &'static [&'static str], lens: Lens<T, usize>) -> Self {
        Self::new(name, Kind::Choice { options, optional: true, lens }).default(|_| FieldValue::Choice(0))
    }

    /// A value with its own format in documents.
    pub(super) const fn own(name: &'static str, own: Own<T>) -> Self {
        Self::new(name, Kind::Own(own))
    }

    #[must_use]
    pub const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    #[must_use]
    pub const fn default(self, default: fn(&T) -> FieldValue) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Makes the field required.
    #[must_use]
    pub(super) const fn required(self) -> Self {
        Self { default: None, ..self }
    }

    #[must_use]
    pub const fn within(self, range: Range) -> Self {
        Self { range, ..self }
    }

    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    #[must_use]
    pub const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    #[must_use]
    pub const fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    /// The name inside its section.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The names of the options.
    #[must_use]
    pub const fn options(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Choice { options, .. } | Kind::Own(Own { options, .. }) => options,
            _ => &[],
        }
    }

    /// The field's value.
    #[must_use]
    pub fn get(&self, owner: &T) -> FieldValue {
        match &self.kind {
            Kind::Count(lens) => FieldValue::Count((lens.get)(owner)),
            Kind::Real(lens) => FieldValue::Number((lens.get)(owner)),
            Kind::Reals(lens) => FieldValue::Numbers((lens.get)(owner)),
            Kind::Pair(lens) => FieldValue::Pair((lens.get)(owner)),
            Kind::Padding(lens) => FieldValue::Padding((lens.get)(owner)),
            Kind::Named(names, lens) => FieldValue::Named((lens.get)(owner), names),
            Kind::Flag(lens) => FieldValue::Flag((lens.get)(owner)),
            Kind::Text(lens) => FieldValue::Text((lens.get)(owner)),
            Kind::Choice { lens, .. } => FieldValue::Choice((lens.get)(owner)),
            Kind::Own(own) => (own.get)(owner),
        }
    }

    /// Sets the field; returns false if the value is of another kind.
    pub fn set(&self, owner: &mut T, value: &FieldValue) -> bool {
        match (&self.kind, value) {
            (Kind::Count(lens), FieldValue::Count(n)) => (lens.set)(owner, *n),
            (Kind::Real(lens), FieldValue::Number(n)) => (lens.set)(owner, *n),
            (Kind::Reals(lens), FieldValue::Numbers(n)) => (lens.set)(owner, *n),
            (Kind::Pair(lens), FieldValue::Pair(p)) => (lens.set)(owner, *p),
            (Kind::Padding(lens), FieldValue::Padding(p)) => (lens.set)(owner, *p),
            (Kind::Named(_, lens), FieldValue::Named(value, _)) => (lens.set)(owner, *value),
            (Kind::Flag(lens), FieldValue::Flag(b)) => (lens.set)(owner, *b),
            (Kind::Text(lens), FieldValue::Text(text)) => (lens.set)(owner, text.clone()),
            (Kind::Choice { lens, .. }, FieldValue::Choice(i)) => (lens.set)(owner, *i),
            (Kind::Own(own), value) => return (own.set)(owner, value),
            _ => return false,
        }
        true
    }

    /// The field with its value.
    #[must_use]
    pub fn view(&self, owner: &T) -> FieldView {
        let Self { name, label, range, unit, help, is_live, .. } = *self;
        FieldView { name, label, value: self.get(owner), options: self.options(), range, unit, help, is_live }
    }

    /// Reads the field from a document, or sets its default.
    pub(super) fn read(&self, owner: &mut T, f: &mut Fields<'_>) {
        let (key, default) = (self.key(), self.default.map(|default| default(owner)));
        match &self.kind {
            Kind::Count(lens) => {
                let default = if let Some(FieldValue::Count(n)) = default { Some(n) } else { None };
                (lens.set)(owner, f.count(key, default));
            }
            Kind::Real(lens) => {
                let default = if let Some(FieldValue::Number(n)) = default { Some(n) } else { None };
                (lens.set)(owner, f.number(key, default));
            }
            Kind::Reals(lens) => {
                let default = if let Some(FieldValue::Numbers(n)) = default { n } else { [0.0; 2] };
                (lens.set)(owner, f.numbers2(key, default));
            }
            Kind::Pair(lens) => {
                let default = if let Some(FieldValue::Pair(p)) = default { Some(p) } else { None };
                (lens.set)(owner, f.pair(key, default));
            }
            Kind::Padding(lens) => (lens.set)(owner, read_padding(key, f)),
            Kind::Named(names, lens) => {
                let default = if let Some(FieldValue::Named(value, _)) = default { Some(value) } else { None };
                (lens.set)(owner, f.named(key, names, default));
            }
            Kind::Flag(lens) => {
                let default = matches!(default, Some(FieldValue::Flag(true)));
                (lens.set)(owner, f.flag(key, default));
            }
            Kind::Text(lens) => {
                let default = if let Some(FieldValue::Text(text)) = &default { Some(text.as_str()) } else { None };
                (lens.set)(owner, f.text(key, default));
            }
            Kind::Own(own) => (own.read)(owner, f, key),
            Kind::Choice { options, optional, lens } => {
                let mut names: Vec<(&str, usize)> = options.iter().enumerate().map(|(i, name)| (*name, i)).collect();
                if *optional {
                    names.insert(1, ("", 0));
                }
                let default = if let Some(FieldValue::Choice(index)) = default { Some(index) } else { None };
                let other = || default.unwrap_or_else(|| if *optional { 0 } else { (lens.get)(owner) });
                let chosen = f.choice(key, &names, !*optional && default.is_none()).unwrap_or_else(other);
                (lens.set)(owner, chosen);
            }
        }
    }

    /// Writes the field into a document, unless it has its default.
    pub(super) fn write(&self, owner: &T, map: &mut Map<String, Value>) {
        if self.default.is_none_or(|default| default(owner) != self.get(owner)) {
            self.write_always(owner, map);
        }
    }

    /// Writes the field into a document, even if it has its default.
    pub(super) fn write_always(&self, owner: &T, map: &mut Map<String, Value>) {
        let value = match &self.kind {
            Kind::Own(own) => (own.json)(owner),
            _ => Some(self.get(owner).json(self.options())),
        };
        map.extend(value.map(|value| (self.key().to_owned(), value)));
    }

    /// Every value that is out of range.
    pub(super) fn findings(&self, owner: &T) -> Vec<Finding> {
        let value = self.get(owner);
        match self.range {
            Range::Any => Vec::new(),
            Range::Whole { least, most, help } => whole_finding(&value, least, most, help).into_iter().collect(),
            Range::Real { from, to, help } => {
                let is_outside = |n: &f64| !(from, to).contains(n);
                match value {
                    FieldValue::Number(n) if is_outside(&n) => {
                        vec![(format!("found {n}"), format!("expected a number {help}"))]
                    }
                    FieldValue::Numbers(numbers) => {
                        let numbers = ["first", "second"].into_iter().zip(numbers).filter(|(_, n)| is_outside(n));
                        let finding = |(which, n)| {
                            (format!("found {n}"), format!("expected the {which} of the two numbers to be {help}"))
                        };
                        numbers.map(finding).collect()
                    }
                    _ => Vec::new(),
                }
            }
        }
    }
}

fn whole_finding(value: &FieldValue, least: usize, most: usize, help: Option<&str>) -> Option<Finding> {
    let numbers = match value {
        FieldValue::Count(n) | FieldValue::Named(NumberOrName::Number(n), _) => &[*n, *n],
        FieldValue::Pair(pair) | FieldValue::Padding(Padding::Fixed(pair)) => pair,
        _ => return None,
    };
    let (smallest, largest) = (numbers[0].min(numbers[1]), numbers[0].max(numbers[1]));
    let help = |other: String| help.map_or(other, str::to_owned);
    if smallest < least {
        return Some((format!("found {smallest}"), help(format!("expected at least {least}"))));
    }
    (largest > most).then(|| (format!("found {largest}"), help(format!("expected at most {most}"))))
}

fn read_padding(key: &'static str, f: &mut Fields<'_>) -> Padding {
    match f.raw(key) {
        None => Padding::Fixed([0, 0]),
        Some(Value::String(s)) if s == "same" => Padding::Same,
        Some(Value::String(s)) if s == "valid" => Padding::Valid,
        Some(v) => pair_of(v).map_or_else(
            || {
                f.fail(key, format!("found {v}"), "expected a whole number, [h, w], \"same\" or \"valid\"");
                Padding::Valid
            },
            Padding::Fixed,
        ),
    }
}

/// A pair in a message.
pub(super) fn pair_text(pair: [usize; 2]) -> String {
    pair_value(pair).to_string()
}
