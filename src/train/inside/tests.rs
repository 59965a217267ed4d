//! The inside of small networks agrees with their outputs.

use super::*;
use crate::model::read_preset;
use crate::train::{Query, SessionSpec};

fn session(layers: &str, output: &str, data: &str, input: &str) -> Session {
    let text = format!(
        r#"{{ "version": 1, "name": "t", "about": "", "input": {input}, "layers": [{layers}],
        "loss": {{ "type": "{output}" }}, "optimizer": {{ "type": "adam", "lr": 0.01 }},
        "data": {data}, "train": {{ "steps": 5, "seed": 3 }} }}"#
    );
    let spec = SessionSpec { threads: 1, ..SessionSpec::new(read_preset(&text).unwrap(), ".".into()) };
    Session::prepare(&spec).unwrap()
}

const SUMS: &str = r#"{ "type": "sums", "samples": 200, "held_out": 50 }"#;
const TOKENS: &str = r#"{ "type": "tokens", "shape": [11], "vocab": 13, "batch": 8 }"#;
const DIGITS: &str = r#"{ "type": "digits" }"#;

fn at(path: impl Into<LayerPath>) -> Inside {
    Inside { sample: 7, layer: Some(path.into()), head: 0 }
}

#[test]
fn the_losses_of_the_positions_agree_with_the_outputs() {
    let layers =
        r#"{ "type": "embedding", "units": 8 }, { "type": "gru", "units": 8 }, { "type": "dense", "units": 13 }"#;
    let mut session = session(layers, "softmax_cross_entropy", SUMS, TOKENS);
    while session.step().unwrap().is_some() {}
    let asked = Inside { sample: 7, ..Inside::default() };
    let query = Query { samples: vec![7], inside: Some(asked), ..Query::default() };
    let result = session.query(query).unwrap();
    let Some(Insight::Positions(found)) = result.inside else { panic!("{:?}", result.inside) };
    let labels = session.dataset().unwrap().0.target.labels(&[7]).unwrap();
    assert_eq!(found.iter().map(|p| p.truth as i32).collect::<Vec<_>>(), labels);
    for (answer, row) in found.iter().zip(result.outputs.chunks_exact(13)) {
        let loss = cross_entropy(row, answer.truth as usize);
        assert!((loss - answer.loss).abs() < 1e-4, "{loss} {answer:?}");
        assert!(answer.likely.len() == LIKELY && answer.likely.windows(2).all(|w| w[0].1 >= w[1].1));
        let own = answer.likely.iter().find(|(class, _)| *class == answer.truth);
        assert!(own.is_none_or(|(_, p)| (f64::from(*p).ln() + answer.loss).abs() < 1e-3), "{answer:?}");
    }
}

#[test]
fn attention_of_a_layer_is_returned_and_is_zero_for_later_positions() {
    let layers = r#"{ "type": "embedding", "units": 8 }, { "type": "position" },
        { "type": "residual", "layers": [{ "type": "layer_norm" },
            { "type": "attention", "heads": 2, "causal": true }] }, { "type": "dense", "units": 13 }"#;
    let mut session = session(layers, "softmax_cross_entropy", SUMS, TOKENS);
    let asked = at([2, 1]);
    let Insight::Attention(map) = session.inside(&asked).unwrap() else { panic!("a map") };
    assert_eq!((map.positions, map.causal, map.weights.len()), (11, true, 121));
    for (query, row) in map.weights.chunks_exact(11).enumerate() {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(row[query + 1..].iter().all(|w| *w == 0.0) && row[..=query].iter().all(|w| *w > 0.0));
    }
    let Insight::Attention(other) = session.inside(&Inside { head: 1, ..asked.clone() }).unwrap() else { panic!() };
    assert_ne!(map, other);
    // A missing sample, layer or head is not an error: another network may have been opened.
    assert_eq!(session.inside(&Inside { head: 2, ..asked.clone() }).unwrap(), Insight::Nothing);
    assert_eq!(session.inside(&Inside { sample: 200, ..asked }).unwrap(), Insight::Nothing);
    assert_eq!(session.inside(&at([3])).unwrap(), Insight::Nothing);
    assert_eq!(session.inside(&at([9])).unwrap(), Insight::Nothing);
}

#[test]
fn states_equal_the_outputs_of_the_layer() {
    let input = r#"{ "shape": [8, 8], "batch": 8 }"#;
    for kind in ["rnn", "gru", "lstm"] {
        for both in [false, true] {
            let of = |returned: &str, rest: &str| {
                let layer =
                    format!(r#"{{ "type": "{kind}", "units": 5, "bidirectional": {both}, "return": "{returned}" }}"#);
                session(&format!("{layer}{rest}"), "softmax_cross_entropy", DIGITS, input)
            };
            let states = |session: &mut Session| match session.inside(&at([0])).unwrap() {
                Insight::States(states) => states,
                other => panic!("{kind}: {other:?}"),
            };
            let whole = states(&mut of("sequence", r#", { "type": "flatten" }, { "type": "dense", "units": 10 }"#));
            let last = states(&mut of("last", r#", { "type": "dense", "units": 10 }"#));
            let units = if both { 10 } else { 5 };
            assert_eq!((whole.positions, whole.units, whole.directions), (8, units, units / 5), "{kind}");
            assert_eq!(whole, last, "{kind} {both}");
            assert!(whole.values.iter().all(|v| v.is_finite()) && whole.values.iter().any(|v| *v != 0.0));
        }
    }
}
