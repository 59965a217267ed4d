//! The network as cards, with every mistake on the card or section that causes it.

use super::PlanView;
use super::format;
use crate::model::{Checked, Diagnostic, LayerPath, LayerSpec, Preset};
use crate::studio::fields::{Field, layer_fields, preset_fields};
use crate::tensor::Bytes;
use std::collections::HashMap;

/// A mistake, where it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The field that causes it, empty for the whole.
    pub field: String,
    pub message: String,
    pub help: String,
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub path: LayerPath,
    pub class: &'static str,
    pub about: &'static str,
    pub fields: Vec<Field>,
    /// One sample's shape after the layer, where it is known.
    pub output: Option<String>,
    /// Trained values, the layers inside a block not counted.
    pub params: usize,
    /// Share of the step's floating-point operations and bytes of its buffers, where the step is compiled.
    pub share: Option<f64>,
    pub bytes: Option<u64>,
    pub problems: Vec<Problem>,
    /// The number of layers inside, for a block.
    pub children: Option<usize>,
    /// Layers in the same list.
    pub siblings: usize,
}

impl Card {
    /// The place in the network, such as `1.0`.
    #[must_use]
    pub fn number(&self) -> String {
        self.path.number()
    }

    /// How deep it is nested; 0 is outermost.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.path.0.len().saturating_sub(1)
    }

    /// Parameters, bytes and share of the work in a line.
    #[must_use]
    pub fn facts(&self) -> String {
        let mut parts = Vec::new();
        if self.params > 0 {
            parts.push(format!("{} params", format::count(self.params as f64)));
        }
        parts.extend(self.bytes.filter(|b| *b > 0).map(|b| Bytes(b).to_string()));
        parts.extend(self.share.filter(|s| *s > 0.0).map(|s| format!("{} of FLOPs", format::percent(s))));
        parts.join(" · ")
    }
}

/// Fields outside the layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    pub title: &'static str,
    pub fields: Vec<Field>,
    pub problems: Vec<Problem>,
}

/// The whole network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkView {
    pub cards: Vec<Card>,
    pub sections: Vec<Section>,
    /// Mistakes that belong nowhere else.
    pub general: Vec<Problem>,
    pub params: usize,
    /// The number of mistakes, and the first layer that has one.
    pub problems: usize,
    pub first_problem: Option<LayerPath>,
}

/// The section that shows mistakes at `path`.
fn section_of(path: &str) -> Option<&'static str> {
    let head = path.split('.').next().unwrap_or_default();
    Some(match head {
        "input" | "precision" => "Input",
        "loss" => "Loss",
        "optimizer" => "Optimizer",
        "data" => "Data",
        "train" => "Run",
        _ => return None,
    })
}

fn problem(d: &Diagnostic, prefix: &str) -> Problem {
    let field = d.path.strip_prefix(prefix).map_or("", |f| f.trim_start_matches('.'));
    Problem { field: field.to_owned(), message: d.message.clone(), help: d.help.clone() }
}

impl NetworkView {
    /// The cards of a document. `checked` and `plan` may be those of an older revision; what they know of a layer that changed its kind is left out.
    #[must_use]
    pub fn new(preset: &Preset, checked: Option<&Checked>, plan: Option<&PlanView>, failure: Option<&str>) -> Self {
        let mut out = Self::default();
        let facts = checked.map(|c| c.facts.as_slice()).unwrap_or_default();
        let by_path: HashMap<&LayerPath, usize> = facts.iter().enumerate().map(|(i, f)| (&f.path, i)).collect();
        let ids: HashMap<&LayerPath, usize> = plan
            .map(|p| p.compiled.model.layers.iter().enumerate().map(|(i, l)| (&l.path, i)).collect())
            .unwrap_or_default();
        let diagnostics = checked.map(|c| c.diagnostics.as_slice()).unwrap_or_default();
        walk(&preset.layers, &LayerPath::default(), &mut |layer, path, siblings| {
            let fact = by_path.get(path).map(|&i| &facts[i]).filter(|f| f.kind == layer.kind());
            let id = fact.and_then(|_| ids.get(path)).copied();
            let own = diagnostics.iter().filter(|d| d.layer.as_ref() == Some(path));
            let is_block = matches!(layer, LayerSpec::Residual(_) | LayerSpec::Repeat(_));
            out.cards.push(Card {
                path: path.clone(),
                class: layer.kind().class,
                about: layer.kind().about,
                fields: layer_fields(path, layer),
                output: fact.and_then(|f| f.output.as_ref()).map(ToString::to_string),
                params: if is_block { 0 } else { fact.map_or(0, |f| f.params) },
                share: id.and_then(|i| plan.map(|p| p.flop_shares[i])),
                bytes: id.and_then(|i| plan.map(|p| p.layer_bytes[i])),
                problems: own.map(|d| problem(d, &path.to_string())).collect(),
                children: is_block.then(|| layer.children().len()),
                siblings,
            });
        });
        for (title, fields) in preset_fields(preset) {
            let own = diagnostics.iter().filter(|d| d.layer.is_none() && section_of(&d.path) == Some(title));
            out.sections.push(Section { title, fields, problems: own.map(|d| problem(d, "")).collect() });
        }
        let elsewhere = diagnostics.iter().filter(|d| d.layer.is_none() && section_of(&d.path).is_none());
        out.general = elsewhere.map(|d| problem(d, "")).collect();
        out.general.extend(failure.map(|f| Problem {
            field: String::new(),
            message: f.to_owned(),
            help: "undo the last edit, or make the network or the batch smaller".into(),
        }));
        out.params = out.cards.iter().map(|c| c.params).fold(0, usize::saturating_add);
        out.problems = diagnostics.len() + usize::from(failure.is_some());
        out.first_problem = diagnostics.iter().find_map(|d| d.layer.clone());
        out
    }
}

fn walk(layers: &[LayerSpec], parent: &LayerPath, visit: &mut impl FnMut(&LayerSpec, &LayerPath, usize)) {
    for (index, layer) in layers.iter().enumerate() {
        let path = parent.child(index);
        visit(layer, &path, layers.len());
        walk(layer.children(), &path, visit);
    }
}

/// A line a card, with its fields and mistakes.
impl std::fmt::Display for NetworkView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for card in &self.cards {
            let fields = card.fields.iter().map(|x| {
                let value = match x.value {
                    crate::studio::fields::FieldValue::Choice(i) => {
                        x.options.get(i).copied().unwrap_or_default().to_owned()
                    }
                    ref v => v.text(),
                };
                format!("{}={value}", x.name)
            });
            let fields = fields.collect::<Vec<_>>().join(" ");
            let indent = "  ".repeat(card.depth());
            let output = card.output.as_deref().unwrap_or("?");
            writeln!(f, "{indent}{} {} {fields} -> {output} {} params", card.number(), card.class, card.params)?;
            for p in &card.problems {
                writeln!(f, "{indent}  ! {}: {}; {}", p.field, p.message, p.help)?;
            }
        }
        for (title, p) in self.sections.iter().flat_map(|s| s.problems.iter().map(move |p| (s.title, p))) {
            writeln!(f, "{title} ! {}: {}; {}", p.field, p.message, p.help)?;
        }
        for p in &self.general {
            writeln!(f, "! {}: {}; {}", p.field, p.message, p.help)?;
        }
        Ok(())
    }
}
