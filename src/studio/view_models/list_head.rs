//! Mistakes as they are shown, and the heads of lists of layers.

use crate::model::{LayerPath, LayerSpec, ListField, ListId, ListPath};
use crate::studio::document::fields::layer::list_fields;
use crate::studio::document::fields::value::Field;

/// A mistake, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The field that causes it, empty for the whole layer.
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
    /// Its fields other than its layers.
    pub fields: Vec<Field>,
    pub problems: Vec<Problem>,
}

/// The heads of the lists of a block that may have several, with the mistakes of each.
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

/// Whether a mistake of a list is this one of its block.
pub(super) fn is_same(of_list: &Problem, of_block: &Problem) -> bool {
    let is_message = of_list.message == of_block.message && of_list.help == of_block.help;
    is_message && of_block.field.ends_with(&of_list.field) && of_block.field.contains('[')
}

#[cfg(test)]
mod tests {
    use crate::model::{check, read_preset};
    use crate::studio::view_models::network::{NetworkView, Row};

    /// The rows as text: cards by their numbers, heads by their names.
    fn lines(view: &NetworkView, is_folded: bool) -> Vec<String> {
        let line = |row: &Row| match row {
            Row::Card(card) => view.cards[*card].number(),
            Row::Block(card, sum) => format!("{} with {}", view.cards[*card].number(), sum.layers),
            Row::List { card, list, .. } => view.cards[*card].lists[*list].at.label(),
            Row::Run { .. } => "run".into(),
        };
        view.rows(|_| is_folded).iter().map(line).collect()
    }

    #[test]
    fn branches_have_heads_between_the_cards_of_their_layers() {
        let text = r#"{"name": "n", "input": {"shape": [6], "batch": 4}, "layers": [
            {"type": "parallel", "branches": [
                {"layers": [{"type": "dense", "units": 3}, {"type": "parallel", "branches": [{"layers": []}]}]},
                {"layers": []}, {"input": "words", "layers": [{"type": "dense", "units": 3}]}]},
            {"type": "dense", "units": 2}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let preset = read_preset(text).unwrap();
        let view = NetworkView::new(&preset, Some(&check(&preset)), None, None, &[]);
        let expected =
            ["0", "L0 branch 0", "0.0.0", "0.0.1", "L0.0.1 branch 0", "L0 branch 1", "L0 branch 2", "0.2.0", "1"];
        assert_eq!(lines(&view, false), expected);
        assert_eq!(lines(&view, true), ["0 with 3", "1"]);
        let heads = &view.cards[0].lists;
        assert_eq!(heads.iter().map(|head| head.problems.len()).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!((heads[2].problems[0].field.as_str(), view.cards[0].problems.len()), ("input", 0));
        assert!(view.cards[1].can_move_down() && !view.cards[1].can_move_up() && view.cards[4].can_move_up());
    }
}
