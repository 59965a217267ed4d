//! The views of bundled networks.

use super::inside::Found;
use super::*;
use crate::data::Split;
use crate::train::{Inside, Query, Session, SessionSpec};
use std::sync::Arc;

fn session(name: &str, steps: usize) -> (Session, DataSource) {
    let bundled = crate::model::BUNDLED.iter().find(|b| b.name == name).unwrap();
    let preset = crate::model::read_preset(bundled.text).unwrap();
    let source = preset.data.as_ref().unwrap().source.clone();
    let mut session = Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap();
    for _ in 0..steps {
        session.step().unwrap();
    }
    (session, source)
}

fn data(session: &Session) -> (Arc<Dataset>, Arc<Split>) {
    session.dataset().map(|(set, split)| (Arc::clone(set), Arc::clone(split))).unwrap()
}

fn found(session: &mut Session, inside: Inside) -> Found {
    let (set, _) = data(session);
    let result = session.query(Query { inside: Some(inside.clone()), ..Query::default() }).unwrap();
    assert!(result.outputs.is_empty() && result.at_points.is_empty());
    Found::of(session.model(), &set, inside.sample, &result.inside.unwrap())
}

#[test]
fn each_network_offers_its_pages() {
    let facts = |name| {
        let (session, source) = session(name, 0);
        SequenceFacts::of(session.model(), &data(&session).0, &source)
    };
    let pages = |facts: &SequenceFacts| {
        let offered = AnswersPage::ALL.into_iter().filter(|p| facts.offers(*p));
        offered.filter(|p| !facts.answers.contains(p)).collect::<Vec<_>>()
    };
    let sums = facts("gpt-sums");
    assert_eq!(pages(&sums), [AnswersPage::Tokens, AnswersPage::Writing, AnswersPage::Attention]);
    assert_eq!((sums.layers.attention.len(), sums.layers.attention[1].heads, sums.adds), (2, 4, true));
    // One selection: the layer itself, the block around it, or the first layer if something else is selected.
    let layer = |selected: &[usize]| sums.layer(AnswersPage::Attention, Some(&selected.into())).unwrap().label.clone();
    assert_eq!([layer(&[4, 1]), layer(&[4]), layer(&[3])], ["L4.1:Attention", "L4.1:Attention", "L2.1:Attention"]);
    assert!(sums.layer(AnswersPage::States, None).is_none());
    assert_eq!(pages(&facts("gru-digits")), [AnswersPage::States]);
    assert_eq!(pages(&facts("lstm-waves")), [AnswersPage::Forecasts, AnswersPage::States]);
    let digits = facts("digits-mlp");
    assert_eq!(pages(&digits), []);
    assert_eq!(digits.answers, [AnswersPage::Confusion, AnswersPage::Samples, AnswersPage::Filters]);
    assert_eq!(facts("spirals").answers[..2], [AnswersPage::Plane, AnswersPage::Confusion]);
}

#[test]
fn the_tokens_of_an_addition_have_their_losses() {
    let (mut session, _) = session("gpt-sums", 3);
    let (set, _) = data(&session);
    let Found::Tokens(view) = found(&mut session, Inside { sample: 5, ..Inside::default() }) else { panic!("tokens") };
    let read: String = view.tokens.iter().map(|t| t.read.as_str()).collect();
    let Samples::Windows(rows) = &set.inputs[0].values else { panic!("windows") };
    assert_eq!(read, visible(&rows.text(5, RowPart::Sample)));
    let right: String = view.tokens.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(right, visible(&rows.text(5, RowPart::Target)));
    let mean = view.tokens.iter().map(|t| t.loss).sum::<f64>() / 11.0;
    assert!((view.loss - mean).abs() < 1e-12 && (view.perplexity.unwrap() - mean.exp()).abs() < 1e-9);
    assert!(view.tokens.iter().all(|t| t.loss <= view.tokens[view.hardest].loss));
    assert!(view.tokens.iter().all(|t| (0.0..=1.0).contains(&t.hardness()) && t.likely.len() == 5));
    // The question is not trained: its targets are blanks.
    assert!(!view.goes_on);
    assert!(view.figures().starts_with("perplexity ") && view.tokens[0].about(0).starts_with("position 1: "));
}

#[test]
fn attention_and_states_are_shown_for_their_positions() {
    let (mut sums, source) = session("gpt-sums", 1);
    let layer = SequenceFacts::of(sums.model(), &data(&sums).0, &source).layers.attention[0].path.clone();
    let asked = Inside { sample: 5, layer: Some(layer), head: 3 };
    let Found::Attention(view) = found(&mut sums, asked) else { panic!("a map") };
    assert_eq!((view.names.len(), view.map.columns, view.causal), (11, 11, true));
    assert!(view.about([3, 1]).ends_with("masked, as it comes later"), "{}", view.about([3, 1]));
    assert!(view.about([0, 0]).contains("weight 100"), "{}", view.about([0, 0]));
    assert!(view.sharpness > 1.0 / 11.0 && view.sharpness <= 1.0);
    let (mut digits, source) = session("gru-digits", 1);
    let layer = SequenceFacts::of(digits.model(), &data(&digits).0, &source).layers.recurrent[0].path.clone();
    let Found::States(view) = found(&mut digits, Inside { sample: 0, layer: Some(layer), head: 0 }) else { panic!() };
    assert_eq!((view.map.columns, view.map.rows, view.directions), (8, 192, 2));
    let message = view.about([7, 100]);
    assert!(message.starts_with("unit 4 of the reverse direction after position 8: "), "{message}");
    assert!(view.scale > 0.0 && view.scale <= 1.0);
}

#[test]
fn invisible_tokens_have_visible_names() {
    assert_eq!(visible("a b\n\u{7f}\u{e4}"), "a·b\\n\\u{7f}\u{e4}");
    assert_eq!((token_name(&["\t".into()], 0), token_name(&[], 7)), ("\\t".to_owned(), "7".to_owned()));
}
