//! Where samples come from: a table with one entry for each source, with its name, its fields with their defaults, and
//! the properties of its samples that are known before reading.
//!
//! A new source is a variant of [`DataSource`], an entry of [`KINDS`](table::KINDS), and its reader in `data`.

mod form;
mod table;

use self::table::{KINDS, SourceKind};
use super::Diagnostic;
use super::field_value::FieldValue;
use super::preset::DataSource;
use super::schema::FieldView;
use super::spec::{Fields, describe};
use serde_json::{Map, Value};

impl DataSource {
    /// The name of every source in presets, in the order in which they are offered.
    pub const NAMES: [&'static str; KINDS.len()] = {
        let (mut names, mut index) = ([""; KINDS.len()], 0);
        while index < KINDS.len() {
            names[index] = KINDS[index].name;
            index += 1;
        }
        names
    };

    fn kind(&self) -> &'static SourceKind {
        match KINDS.iter().find(|kind| (kind.is)(self)) {
            Some(kind) => kind,
            None => unreachable!("every source has an entry in the table"),
        }
    }

    /// The name used in presets.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name
    }

    /// The source with this name, with sensible fields.
    #[must_use]
    pub fn example(name: &str) -> Option<Self> {
        KINDS.iter().find(|kind| kind.name == name).map(|kind| (kind.example)())
    }

    /// True where samples are drawn from the run's seed.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.parts().any(|part| part.kind().is_drawn)
    }

    /// True if samples follow one another in a text or in time, so that they are held out by position only.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.parts().any(|part| part.kind().is_ordered)
    }

    /// True where samples are tokens.
    #[must_use]
    pub fn gives_tokens(&self) -> bool {
        self.kind().gives_tokens
    }

    /// The fields with their values, in the order in which they are shown; names are whole paths. The fields of joined
    /// sources are not included.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldView> {
        self.kind().fields.iter().map(|field| field.view(self)).collect()
    }

    /// Sets a field; returns false if the source has no such field or the value is of another kind.
    pub fn set(&mut self, name: &str, value: &FieldValue) -> bool {
        self.kind().fields.iter().find(|field| field.name == name).is_some_and(|field| field.set(self, value))
    }

    /// Reads a source; `None` if the document names none that exists. Other fields of its object are read elsewhere.
    pub(super) fn read(f: &mut Fields<'_>) -> Option<Self> {
        let name = f.choice("type", &Self::NAMES.map(|name| (name, name)), true)?;
        let mut source = Self::example(name)?;
        if let Self::Joined { inputs, .. } = &mut source {
            *inputs = read_inputs(f);
        }
        for field in source.kind().fields {
            field.read(&mut source, f);
            for (found, help) in field.findings(&source) {
                f.fail(field.key(), found, help);
            }
        }
        Some(source)
    }

    /// The source as it is in a preset.
    pub(super) fn write(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("type".into(), self.name().into());
        if let Self::Joined { inputs, .. } = self {
            let inputs = inputs.iter().map(|(name, source)| (name.clone(), Value::Object(source.write())));
            map.insert("inputs".into(), Value::Object(inputs.collect()));
        }
        self.kind().fields.iter().for_each(|field| field.write_always(self, &mut map));
        map
    }
}

/// A source for each input by its name.
fn read_inputs(f: &mut Fields<'_>) -> Vec<(String, DataSource)> {
    let example = "{\"image\": {\"type\": \"digits\"}, \"facts\": {\"type\": \"digit_sums\"}}";
    let map = f.object("inputs", Some(example)).into_iter().flatten();
    let mut inputs = Vec::new();
    for (name, item) in map {
        let at = f.at(&format!("inputs.{name}"));
        let Value::Object(map) = item else {
            let (message, help) =
                (format!("found {}", describe(item)), "expected a source such as {\"type\": \"digits\"}");
            f.sink().push(Diagnostic { layer: None, path: at, message, help: help.into() });
            continue;
        };
        let mut g = Fields::new(map, at, None, f.sink());
        match DataSource::read(&mut g) {
            Some(DataSource::Joined { .. }) => {
                g.fail("type", "found \"joined\"", "expected a source of one input: sources are joined only once");
            }
            source => {
                g.finish();
                inputs.extend(source.map(|source| (name.clone(), source)));
            }
        }
    }
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_own_example() {
        for name in DataSource::NAMES {
            let source = DataSource::example(name).unwrap();
            assert_eq!((source.name(), KINDS.iter().filter(|kind| (kind.is)(&source)).count()), (name, 1));
            // Values that are shown can be set, and values that are written can be read.
            let mut other = source.clone();
            assert!(source.fields().iter().all(|field| other.set(field.name, &field.value)));
            assert_eq!(other, source);
        }
        assert_eq!(DataSource::example("none"), None);
    }
}
