//! The network as cards, with every mistake on the card or section that causes it.

use crate::model::{Checked, Diagnostic, LayerPath, LayerSpec, ListPath, Preset};
use crate::studio::commands::fold::Fold;
use crate::studio::document::edit::split_path;
use crate::studio::document::fields::layer::layer_fields;
use crate::studio::document::fields::preset::preset_fields;
use crate::studio::document::fields::value::{Field, FieldValue};
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::hints::Hint;
pub use crate::studio::view_models::list_head::{ListHead, Problem};
use crate::studio::view_models::list_head::{heads, is_same};
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::totals::Totals;
use std::collections::HashMap;

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub path: LayerPath,
    pub class: &'static str,
    pub about: &'static str,
    pub fields: Vec<Field>,
    /// One sample's shape after the layer, if it is known.
    pub output: Option<String>,
    /// Its totals, without the layers inside a block.
    pub own: Totals,
    pub problems: Vec<Problem>,
    /// What is unusual about it, although it can be trained.
    pub hint: Option<String>,
    /// The number of layers inside, for a block.
    pub children: Option<usize>,
    /// The lists inside, for a block that may have several.
    pub lists: Vec<ListHead>,
    /// The totals of a block including all layers inside it.
    pub whole: Option<Sum>,
    /// The number of layers in the same list.
    pub siblings: usize,
    /// The number of lists of the block that contains the layer.
    pub lists_beside: usize,
}

impl Card {
    /// The fields line by line: two in a line, and the choice of a layer in a separate line.
    #[must_use]
    pub fn field_lines(&self) -> Vec<&[Field]> {
        let fields = &self.fields;
        let is_wide = |at: usize| fields.get(at).is_none_or(|field| matches!(field.value, FieldValue::Choose(_)));
        let (mut out, mut at) = (Vec::with_capacity(fields.len()), 0);
        while at < fields.len() {
            let count = if is_wide(at) || is_wide(at + 1) { 1 } else { 2 };
            out.push(&fields[at..at + count]);
            at += count;
        }
        out
    }

    /// The number in the network, such as `1.0`.
    #[must_use]
    pub fn number(&self) -> String {
        self.path.number()
    }

    /// The list that contains the layer, and its index there.
    #[must_use]
    pub fn place(&self) -> (ListPath, usize) {
        split_path(&self.path)
    }

    /// The depth of its nesting; 0 is outermost.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.path.depth().saturating_sub(1)
    }

    /// Whether it is a block whose layers can be folded.
    #[must_use]
    pub fn can_fold(&self) -> bool {
        self.children.is_some_and(|n| n > 0) || !self.lists.is_empty()
    }

    /// The name of its lists: `branch`, if it is a block that may have several lists of layers.
    #[must_use]
    pub fn list_noun(&self) -> Option<&'static str> {
        self.lists.first().and_then(|head| head.at.list.field.item())
    }

    /// Whether it can be moved towards the start of its list, or to the preceding list.
    #[must_use]
    pub fn can_move_up(&self) -> bool {
        self.path.split().is_some_and(|(list, index)| index > 0 || list.list.number > 0)
    }

    /// Whether it can be moved towards the end of its list, or to the following list.
    #[must_use]
    pub fn can_move_down(&self) -> bool {
        let place = self.path.split();
        place.is_some_and(|(list, index)| index + 1 < self.siblings || list.list.number + 1 < self.lists_beside)
    }

    /// Parameters, bytes and share of the work in a line; for a block including all layers inside it.
    #[must_use]
    pub fn facts(&self) -> String {
        self.whole.as_ref().map_or(self.own, |sum| sum.totals).facts()
    }
}

/// From this number on, equal neighbours can be folded to a line.
const LEAST_RUN: usize = 4;

/// Equal neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub first: LayerPath,
    pub count: usize,
    /// Their cards, with those of the layers inside them.
    cards: [usize; 2],
}

impl Run {
    /// True for a layer of the sequence, and for those inside one.
    #[must_use]
    pub fn holds(&self, path: &LayerPath) -> bool {
        let Some((list, first)) = self.first.split() else { return false };
        list.place_of(path).is_some_and(|place| (first..first + self.count).contains(&place))
    }

    /// `L1 to L49`.
    #[must_use]
    pub fn span(&self) -> String {
        let mut last = self.first.clone();
        if let Some(place) = last.0.last_mut() {
            place.index += self.count - 1;
        }
        format!("L{} to L{}", self.first.number(), last.number())
    }
}

/// The totals of several layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    pub layers: usize,
    pub totals: Totals,
    pub problems: usize,
}

impl Sum {
    fn of(cards: &[Card]) -> Self {
        let mut out = Self::default();
        for card in cards {
            out.layers += 1;
            out.totals.add(card.own);
            out.problems += card.problems.len() + card.lists.iter().map(|head| head.problems.len()).sum::<usize>();
        }
        out
    }

    /// Parameters, bytes and share of the work in a line.
    #[must_use]
    pub fn facts(&self) -> String {
        self.totals.facts()
    }

    /// A summary of what is folded, in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let facts = self.facts();
        let layers = plain_count(self.layers, "layer");
        if facts.is_empty() { layers } else { format!("{layers} · {facts}") }
    }
}

/// A row of the list of layers.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// The card of this position.
    Card(usize),
    /// A block whose layers are folded into its card.
    Block(usize, Sum),
    /// The head of this list of the block at this position; the cards of its layers start at `next`.
    List { card: usize, list: usize, next: usize },
    /// The head of equal neighbours, which follow it if it is unfolded. It has the depth of their cards.
    Run { run: usize, class: &'static str, depth: usize, folded: bool, sum: Sum },
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
    /// Equal neighbours, in order of their first cards.
    pub runs: Vec<Run>,
    pub sections: Vec<Section>,
    /// Mistakes that belong to no card or section.
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
        "input" | "inputs" | "precision" => "Input",
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

/// The message about a network that does not compile.
fn failed(failure: &str) -> Problem {
    Problem {
        field: String::new(),
        message: failure.to_owned(),
        help: "undo the last edit, or make the network or the batch smaller".into(),
    }
}

impl NetworkView {
    /// The cards of a document. `checked` and `plan` may be those of an older revision; information about a layer that
    /// has changed its kind is left out. `misfits` are mistakes that its data has shown.
    #[must_use]
    pub fn new(
        preset: &Preset,
        checked: Option<&Checked>,
        plan: Option<&PlanView>,
        failure: Option<&str>,
        misfits: &[Diagnostic],
    ) -> Self {
        let mut out = Self::default();
        let facts = checked.map(|c| c.facts.as_slice()).unwrap_or_default();
        let by_path: HashMap<&LayerPath, usize> = facts.iter().enumerate().map(|(i, f)| (&f.path, i)).collect();
        let ids: HashMap<&LayerPath, usize> = plan
            .map(|p| p.compiled.model.layers.iter().enumerate().map(|(i, l)| (&l.path, i)).collect())
            .unwrap_or_default();
        let diagnostics = checked.map(|c| c.diagnostics.as_slice()).unwrap_or_default();
        let diagnostics: Vec<&Diagnostic> = diagnostics.iter().chain(misfits).collect();
        walk(&preset.layers, &ListPath::default(), 1, &mut |layer, path, [siblings, lists_beside]| {
            let fact = by_path.get(path).map(|&i| &facts[i]).filter(|f| f.kind == layer.kind());
            let id = fact.and_then(|_| ids.get(path)).copied();
            let own = diagnostics.iter().filter(|d| d.layer.as_ref() == Some(path));
            let is_block = layer.is_block();
            let params = if is_block { 0 } else { fact.map_or(0, |f| f.params) };
            let problems: Vec<Problem> = own.map(|d| problem(d, &path.to_string())).collect();
            let lists = heads(layer, path, &problems);
            let is_of_list = |p: &Problem| lists.iter().any(|head| head.problems.iter().any(|own| is_same(own, p)));
            out.cards.push(Card {
                path: path.clone(),
                class: layer.kind().class,
                about: layer.kind().about,
                fields: layer_fields(path, layer),
                output: fact.and_then(|f| f.output.as_ref()).map(ToString::to_string),
                own: Totals { params, step: id.and_then(|i| plan.map(|p| p.layers[i])) },
                problems: problems.iter().filter(|p| !is_of_list(p)).cloned().collect(),
                hint: None,
                children: is_block.then(|| layer.inside().count()),
                lists,
                whole: None,
                siblings,
                lists_beside,
            });
        });
        for at in 0..out.cards.len() {
            if out.cards[at].children.is_some() {
                out.cards[at].whole = Some(Sum::of(&out.cards[at..out.end_of(at)]));
            }
        }
        find_runs(&preset.layers, &ListPath::default(), &mut 0, &mut out.runs);
        out.runs.sort_by_key(|r| r.cards[0]);
        for (title, fields) in preset_fields(preset) {
            let own = diagnostics.iter().filter(|d| d.layer.is_none() && section_of(&d.path) == Some(title));
            out.sections.push(Section { title, fields, problems: own.map(|d| problem(d, "")).collect() });
        }
        let elsewhere = diagnostics.iter().filter(|d| d.layer.is_none() && section_of(&d.path).is_none());
        out.general = elsewhere.map(|d| problem(d, "")).collect();
        out.general.extend(failure.map(failed));
        out.params = out.cards.iter().map(|c| c.own.params).fold(0, usize::saturating_add);
        out.problems = diagnostics.len() + usize::from(failure.is_some());
        out.first_problem = diagnostics.iter().find_map(|d| d.layer.clone());
        out
    }

    /// Receives unusual properties of layers.
    pub fn set_hints(&mut self, hints: Vec<Hint>) {
        for hint in hints {
            if let Some(card) = self.cards.iter_mut().find(|c| c.path == hint.path) {
                card.hint = Some(hint.text);
            }
        }
    }

    /// Everything that can be folded.
    pub fn folds(&self) -> impl Iterator<Item = Fold> {
        let blocks = self.cards.iter().filter(|c| c.can_fold());
        let runs = self.runs.iter().map(|r| Fold::Run(r.first.clone()));
        blocks.map(|c| Fold::Block(c.path.clone())).chain(runs)
    }

    /// The sequence that begins with this layer.
    #[must_use]
    pub fn run_at(&self, first: &LayerPath) -> Option<&Run> {
        self.runs.iter().find(|r| r.first == *first)
    }

    /// The cards of a block's layers start after its own; this is their end.
    fn end_of(&self, block: usize) -> usize {
        let path = &self.cards[block].path;
        block + 1 + self.cards[block + 1..].iter().take_while(|c| c.path.starts_with(path)).count()
    }

    /// The list, in which each folded item is one line.
    #[must_use]
    pub fn rows(&self, is_folded: impl Fn(&Fold) -> bool) -> Vec<Row> {
        let (mut rows, mut at, mut runs) = (Vec::new(), 0, self.runs.iter().enumerate().peekable());
        // The heads of the remaining lists, the next one last.
        let mut heads: Vec<Row> = Vec::new();
        let is_due = |head: &mut Row, at: usize| matches!(head, Row::List { next, .. } if *next <= at);
        while let Some(card) = self.cards.get(at) {
            rows.extend(std::iter::from_fn(|| heads.pop_if(|head| is_due(head, at))));
            // Sequences inside a folded item are skipped.
            while runs.next_if(|(_, r)| r.cards[0] < at).is_some() {}
            if let Some((run, r)) = runs.next_if(|(_, r)| r.cards[0] == at) {
                let folded = is_folded(&Fold::Run(r.first.clone()));
                let sum = Sum::of(&self.cards[r.cards[0]..r.cards[1]]);
                rows.push(Row::Run { run, class: card.class, depth: card.depth(), folded, sum });
                if folded {
                    at = r.cards[1];
                    continue;
                }
            }
            if card.can_fold() && is_folded(&Fold::Block(card.path.clone())) {
                let end = self.end_of(at);
                let mut sum = Sum::of(&self.cards[at..end]);
                sum.layers -= 1;
                rows.push(Row::Block(at, sum));
                at = end;
            } else {
                rows.push(Row::Card(at));
                heads.extend((0..card.lists.len()).rev().map(|list| self.head(at, list)));
                at += 1;
            }
        }
        rows.extend(heads.into_iter().rev());
        rows
    }

    /// The head of a list of the block at this position.
    fn head(&self, card: usize, list: usize) -> Row {
        let (from, depth) = (card + 1, self.cards[card].path.depth());
        let inside = &self.cards[from..self.end_of(card)];
        let is_before = |c: &Card| c.path.0.get(depth).is_some_and(|segment| segment.list.number < list);
        Row::List { card, list, next: from + inside.partition_point(is_before) }
    }
}

/// Finds equal neighbours; `card` counts the cards that were passed.
fn find_runs(layers: &[LayerSpec], parent: &ListPath, card: &mut usize, out: &mut Vec<Run>) {
    let mut index = 0;
    for group in layers.chunk_by(|a, b| a == b) {
        let (first, from) = (parent.child(index), *card);
        for layer in group {
            *card += 1;
            let path = parent.child(index);
            layer.lists().into_iter().for_each(|(list, inside)| find_runs(inside, &path.list(list), card, out));
            index += 1;
        }
        if group.len() >= LEAST_RUN {
            out.push(Run { first, count: group.len(), cards: [from, *card] });
        }
    }
}

/// Visits every layer with the number of layers in its list, and of lists in its block.
fn walk(
    layers: &[LayerSpec],
    parent: &ListPath,
    lists: usize,
    visit: &mut impl FnMut(&LayerSpec, &LayerPath, [usize; 2]),
) {
    for (index, layer) in layers.iter().enumerate() {
        let path = parent.child(index);
        visit(layer, &path, [layers.len(), lists]);
        let inside = layer.lists();
        let count = inside.len();
        inside.into_iter().for_each(|(list, layers)| walk(layers, &path.list(list), count, visit));
    }
}

/// One line for each card, with its fields and mistakes.
impl std::fmt::Display for NetworkView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for card in &self.cards {
            let is_said = |x: &&Field| !matches!(&x.value, FieldValue::Text(text) if text.is_empty());
            let fields = card.fields.iter().filter(is_said).map(|x| {
                let value = match x.value {
                    FieldValue::Choice(i) => x.options.get(i).copied().unwrap_or_default().to_owned(),
                    ref v => v.text(),
                };
                format!("{}={value}", x.name)
            });
            let fields = fields.collect::<Vec<_>>().join(" ");
            let indent = "  ".repeat(card.depth());
            let output = card.output.as_deref().unwrap_or("?");
            writeln!(f, "{indent}{} {} {fields} -> {output} {} params", card.number(), card.class, card.own.params)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::check;
    use crate::studio::document::presets;
    use crate::studio::view_models::format;

    #[test]
    fn a_block_has_the_share_of_its_layers() {
        let text = r#"{"version": 1, "name": "nested", "input": {"shape": [64], "batch": 32}, "layers": [
            {"type": "dense", "units": 48},
            {"type": "residual", "layers": [
                {"type": "repeat", "times": 3, "layers": [{"type": "dense", "units": 48, "activation": "relu"}]},
                {"type": "dense", "units": 48}]},
            {"type": "dense", "units": 10}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1},
            "data": {"type": "digits"}}"#;
        let residual = (0..presets::count()).find(|i| presets::name(*i) == "digits-residual").unwrap();
        for preset in [crate::model::read_preset(text).unwrap(), presets::bundled(residual).unwrap()] {
            let plan = PlanView::of_preset(&preset);
            let view = NetworkView::new(&preset, Some(&check(&preset)), Some(&plan), None, &[]);
            let blocks = view.cards.iter().filter(|c| c.children.is_some());
            let mut seen = 0;
            for block in blocks {
                let whole = block.whole.as_ref().unwrap();
                let inside: Vec<&Card> = view.cards.iter().filter(|c| c.path.starts_with(&block.path)).collect();
                let share: f64 = inside.iter().filter_map(|c| c.own.step).map(|s| s.share).sum();
                // From the operations themselves: those of all layers inside, forward and backward, in every
                // application.
                let model = &plan.compiled.model;
                let is_inside = |id| model.layer(id).path.starts_with(&block.path);
                let ops = plan.compiled.plan.program.ops.iter().zip(&plan.compiled.selection.choices);
                let flops: u64 = ops.filter(|(op, _)| op.layer.is_some_and(is_inside)).map(|(_, c)| c.flops).sum();
                assert!((whole.totals.step.unwrap().share - share).abs() < 1e-12);
                assert!((share - flops as f64 / plan.whole.flops as f64).abs() < 1e-9, "{}", block.number());
                assert!(share > 0.2 && block.facts().contains(&format!("{} of FLOPs", format::percent(share))));
                assert!((plan.flop_share(&block.path) - share).abs() < 1e-12);
                seen += 1;
            }
            assert!(seen > 0);
            // The totals of folded neighbours count nothing twice.
            let all: f64 = view.cards.iter().filter_map(|c| c.own.step).map(|s| s.share).sum();
            assert!(all <= 1.0 + 1e-9 && Sum::of(&view.cards).totals.step.unwrap().share == all);
        }
    }
}
