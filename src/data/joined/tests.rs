//! Joined sources: rows, columns of one table, texts, and mistakes reported at the right field.

use super::*;
use crate::data::{Samples, Target, load, load_as, load_to_show};
use crate::model::{ColumnRange, Content, Header, SplitKind, TargetColumn};
use crate::tensor::Shape;
use std::path::PathBuf;

const TABLE: &str = "name,a,b,c,kind\nann,1,10,0.5,yes\nbob,2,20,0.25,no\ncharlotte,3,30,0.125,yes\ndan,4,50,1,no\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), TABLE).unwrap();
    std::fs::write(folder.path().join("facts.csv"), "u\n5\n6\n7\n9\n").unwrap();
    folder
}

fn csv(path: &str, target: TargetColumn, columns: &[&str], standardize: bool) -> DataSource {
    let name = |name: &str| TargetColumn::Name(name.to_owned());
    let range = |text: &&str| {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        ColumnRange { first: name(first), last: name(last) }
    };
    DataSource::Csv {
        path: PathBuf::from(path),
        header: Header::Auto,
        target,
        columns: columns.iter().map(range).collect(),
        standardize,
        delimiter: ',',
    }
}

fn kind() -> TargetColumn {
    TargetColumn::Name("kind".into())
}

fn input(name: &str, shape: impl Into<Shape>) -> NamedInput {
    NamedInput { name: name.into(), content: Content::Real, shape: shape.into() }
}

fn words(tokens: usize, vocab: usize) -> NamedInput {
    NamedInput { content: Content::Tokens { vocab }, ..input("words", [tokens]) }
}

fn spec(sources: &[(&str, DataSource)], target: &str) -> DataSpec {
    let inputs = sources.iter().map(|(name, source)| ((*name).to_owned(), source.clone())).collect();
    let source = DataSource::Joined { inputs, target: target.into() };
    DataSpec { held_out: 1.0, split: SplitKind::Last, ..DataSpec::of(source) }
}

fn request(inputs: Vec<NamedInput>, outputs: usize) -> Request {
    Request { inputs, output: [outputs].into(), loss: LossSpec::SOFTMAX_CROSS_ENTROPY, seed: 0 }
}

fn numbers(set: &Dataset, input: usize) -> Vec<f32> {
    (0..set.len()).flat_map(|i| set.input_slice(input, i).to_vec()).collect()
}

#[test]
fn columns_of_one_table_are_divided_among_inputs() {
    let folder = folder();
    let sources = [
        ("facts", csv("t.csv", kind(), &["a..b"], true)),
        ("words", csv("t.csv", kind(), &["name"], false)),
        ("other", csv("facts.csv", TargetColumn::Last, &[], false)),
    ];
    let asked = request(vec![words(5, 256), input("facts", [2]), input("other", [1])], 2);
    let set = load(&spec(&sources, "facts"), &asked, folder.path()).unwrap();
    let names: Vec<&str> = set.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!((names, set.len(), set.value_names()[1].as_str()), (vec!["words", "facts", "other"], 4, "x.facts"));
    // A text is its bytes, padded with zeros or truncated.
    let Samples::Tokens(tokens) = &set.inputs[0].values else { panic!("tokens") };
    let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap()).collect();
    assert_eq!(&bytes, b"ann\0\0bob\0\0charldan\0\0");
    assert!(set.notes.iter().any(|note| note.starts_with("words: 1 text of more than 5 bytes")), "{:?}", set.notes);
    // Only the three training lines determine mean and deviation.
    let facts = numbers(&set, 1);
    assert!((facts[0] + 1.224_745).abs() < 1e-5 && facts[2] == 0.0 && (facts[6] - 2.449_49).abs() < 1e-5, "{facts:?}");
    assert_eq!(numbers(&set, 2), [5.0, 6.0, 7.0, 9.0]);
    assert!(
        matches!(&set.target, Target::Classes { labels, names, .. } if labels[..] == [1, 0, 1, 0] && names[1] == "yes")
    );
    // Everything learnt from the data belongs to the weights, input by input.
    let known = &set.preprocessing;
    assert_eq!(
        (known.inputs.len(), &known.classes, known.scaling.is_none()),
        (3, &vec!["no".to_owned(), "yes".into()], true)
    );
    assert_eq!(known.inputs[1].1.features, ["a", "b"]);
    assert!(known.is_sound() && known.matters() && known.is_as(known) && known.inputs[2].1.scaling.is_none());
    let again: Preprocessing = serde_json::from_str(&serde_json::to_string(known).unwrap()).unwrap();
    assert_eq!(&again, known);
}

#[test]
fn other_data_are_prepared_as_the_weights_were_trained() {
    let folder = folder();
    let sources = [("facts", csv("t.csv", kind(), &["a", "b"], true)), ("more", csv("t.csv", kind(), &["c"], true))];
    let asked = request(vec![input("facts", [2]), input("more", [1])], 2);
    let spec = spec(&sources, "more");
    let known = load(&spec, &asked, folder.path()).unwrap().preprocessing;
    // One line, with its columns in another order.
    std::fs::write(folder.path().join("t.csv"), "kind,c,b,a\nyes,0.5,30,2\n").unwrap();
    let one = DataSpec { held_out: 0.0, ..spec };
    let set = load_as(&one, &asked, folder.path(), &known).unwrap();
    let scaling = known.inputs[0].1.scaling.as_ref().unwrap();
    let wanted =
        [2.0, 30.0].iter().zip(scaling.mean.iter().zip(&scaling.scale)).map(|(v, (m, s))| ((v - m) * s) as f32);
    assert_eq!(numbers(&set, 0), wanted.collect::<Vec<_>>());
    assert!(matches!(&set.target, Target::Classes { labels, .. } if labels[..] == [1]));
}

#[test]
fn mistakes_are_reported_at_their_field() {
    let folder = folder();
    let facts = || ("facts", csv("t.csv", kind(), &["a", "b"], true));
    let more = || ("more", csv("t.csv", kind(), &["c"], true));
    let asked = || request(vec![input("facts", [2]), input("more", [1])], 2);
    let fails = |sources: &[(&str, DataSource)], target: &str, asked: &Request, wanted: &[&str]| {
        let error = load(&spec(sources, target), asked, folder.path()).unwrap_err();
        let text = error.to_string();
        wanted.iter().for_each(|wanted| assert!(text.contains(wanted), "{text}\nlacks {wanted}"));
        error
    };
    let all = ["data.inputs.more: found no source", "data.inputs.sound: found a source", "data.target: found \"name\""];
    fails(&[facts(), ("sound", DataSource::Digits)], "name", &asked(), &all);
    let short = ("more", csv("facts.csv", TargetColumn::Last, &[], false));
    std::fs::write(folder.path().join("facts.csv"), "u\n5\n6\n").unwrap();
    let rows = ["data.inputs.more: found 2 samples in", "expected 4, as many as", "line by line"];
    fails(&[facts(), short], "facts", &asked(), &rows);
    let wide = request(vec![input("facts", [3]), input("more", [1])], 2);
    let error = fails(&[facts(), more()], "more", &wide, &["samples of shape [2], expected [3]", "inputs.facts.shape"]);
    let document = r#"{"version": 1, "name": "n", "inputs": {"facts": {"shape": [3]}, "more": {"shape": [1]}},
        "input": {"batch": 2}, "layers": [{"type": "dense", "units": 2}], "loss": {"type": "mse"},
        "optimizer": {"type": "sgd", "lr": 0.1}}"#;
    assert_eq!(error.mistake(&crate::model::read_preset(document).unwrap()).path, "inputs.facts.shape");
    // Views of the data show all of them in the same way.
    let (shown, why) = load_to_show(&spec(&[facts(), more()], "more"), &wide, folder.path()).unwrap();
    assert!(shown.len() == 4 && why.is_some() && shown.inputs.len() == 2);
    let missing = ("more", csv("none.csv", kind(), &["c"], true));
    fails(&[facts(), missing], "facts", &asked(), &["none.csv: cannot be read"]);
    let column = ("more", csv("t.csv", kind(), &["d"], true));
    fails(&[facts(), column], "facts", &asked(), &["line 1: found the column \"d\", expected one of", "data.columns"]);
    let target = ("more", csv("t.csv", kind(), &["c..kind"], true));
    fails(&[facts(), target], "facts", &asked(), &["found the target \"kind\" as a feature"]);
    let texts = request(vec![input("facts", [2]), words(4, 100)], 2);
    let word = |columns: &[&str]| ("words", csv("t.csv", kind(), columns, true));
    fails(&[facts(), word(&["name"])], "facts", &texts, &["line 2", "0 to 99, as inputs.words.vocab says"]);
    fails(&[facts(), word(&["name", "a"])], "facts", &texts, &["found 2 columns", "one column of texts"]);
    fails(&[facts(), ("words", DataSource::Iris)], "facts", &texts, &["data.inputs.words.type: found iris"]);
    let only = DataSpec::of(DataSource::Digits);
    let text = load(&only, &asked(), folder.path()).unwrap_err().to_string();
    assert!(text.contains("data.type: found digits") && text.contains("\"joined\""), "{text}");
}

#[test]
fn whole_numbers_of_an_array_are_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let written = |values: &[i32], shape: &[u64]| crate::data::npy::tests::written(values, shape, npyz::Order::C);
    std::fs::write(folder.path().join("x.npy"), written(&[0, 3, 2, 1, 1, 0], &[2, 3])).unwrap();
    std::fs::write(folder.path().join("y.npy"), written(&[1, 0], &[2])).unwrap();
    let source = DataSource::Npy { x: "x.npy".into(), y: "y.npy".into() };
    let spec = DataSpec { held_out: 0.0, split: SplitKind::Last, ..DataSpec::of(source) };
    let set = load(&spec, &request(vec![words(3, 4)], 2), folder.path()).unwrap();
    assert!(matches!(&set.inputs[0].values, Samples::Tokens(tokens) if tokens[..] == [0, 3, 2, 1, 1, 0]));
    let text = load(&spec, &request(vec![words(3, 3)], 2), folder.path()).unwrap_err().to_string();
    assert!(text.contains("sample 0") && text.contains("set inputs.words.vocab to 4"), "{text}");
}
