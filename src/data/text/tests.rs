//! Windows over texts, read as bytes or characters.

use crate::data::{Dataset, Preprocessing, Request, RowPart, Samples, Split, Target, load, load_as, split};
use crate::model::{Content, DataSource, DataSpec, LossSpec, NamedInput, Tokens};
use std::fs;
use tempfile::TempDir;

/// What a network for windows of `len` tokens requires, with an output at every position.
fn request(len: usize, vocab: usize, loss: LossSpec) -> Request {
    let input = NamedInput { name: "x".into(), content: Content::Tokens { vocab }, shape: [len].into() };
    Request { inputs: vec![input], output: [len, vocab].into(), loss, seed: 3 }
}

fn asked(len: usize, vocab: usize) -> Request {
    request(len, vocab, LossSpec::SOFTMAX_CROSS_ENTROPY)
}

fn text(tokens: Tokens) -> DataSpec {
    DataSpec::of(DataSource::Text { path: "t.txt".into(), tokens })
}

fn folder(contents: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.txt"), contents).unwrap();
    folder
}

fn read(contents: &[u8], tokens: Tokens, request: &Request) -> Dataset {
    let folder = folder(contents);
    load(&text(tokens), request, folder.path()).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(contents: &[u8], tokens: Tokens, request: &Request) -> String {
    let folder = folder(contents);
    load(&text(tokens), request, folder.path()).unwrap_err().to_string()
}

fn rows(set: &Dataset, part: RowPart) -> Vec<Vec<i32>> {
    let Samples::Windows(rows) = &set.inputs[0].values else { panic!("a text has windows") };
    (0..rows.len() as u32).map(|row| rows.rows(&[row], part).unwrap()).collect()
}

#[test]
fn the_target_of_each_byte_is_the_next_one() {
    let set = read(b"abcdefgh!", Tokens::Bytes, &asked(3, 256));
    assert_eq!((set.len(), set.classes(), &*set.name), (2, Some(256), "t"));
    assert_eq!(rows(&set, RowPart::Sample), [[97, 98, 99], [101, 102, 103]]);
    assert_eq!(rows(&set, RowPart::Target), [[98, 99, 100], [102, 103, 104]]);
    assert_eq!(set.target.labels(&[1, 0]).unwrap(), [102, 103, 104, 98, 99, 100]);
    assert_eq!(set.target.shape().0, [3]);
    let other = read(b"abcdefgi!", Tokens::Bytes, &asked(3, 256));
    assert!(set.digest() != other.digest() && set != other);
}

#[test]
fn a_network_with_one_output_learns_the_token_after_the_window() {
    let mut request = asked(3, 256);
    request.output = [256].into();
    let set = read(b"abcdefgh", Tokens::Bytes, &request);
    assert_eq!(rows(&set, RowPart::Target), [[100], [104]]);
    assert_eq!(set.target.shape().rank(), 0);
}

#[test]
fn characters_are_numbered_by_code_point() {
    let set = read("zé a\nz".as_bytes(), Tokens::Chars, &asked(2, 5));
    assert_eq!(rows(&set, RowPart::Sample), [[3, 4], [2, 0]]);
    assert_eq!(rows(&set, RowPart::Target), [[4, 1], [0, 3]]);
    assert_eq!(set.preprocessing.classes, ["\n", " ", "a", "z", "é"]);
    let Target::Windows(windows) = &set.target else { panic!("a text has windows") };
    assert_eq!((windows.text(0, RowPart::Sample), windows.text(1, RowPart::Target)), ("zé".into(), "\nz".into()));
}

#[test]
fn characters_keep_the_token_numbers_of_the_weights() {
    let known = Preprocessing { classes: ["z", "a", "b"].map(String::from).into(), ..Preprocessing::default() };
    let folder = folder(b"abaz");
    let set = load_as(&text(Tokens::Chars), &asked(3, 3), folder.path(), &known).unwrap();
    assert_eq!((rows(&set, RowPart::Sample), &set.preprocessing), (vec![vec![1, 2, 1]], &known));
    fs::write(folder.path().join("t.txt"), "aé").unwrap();
    let error = load_as(&text(Tokens::Chars), &asked(1, 3), folder.path(), &known).unwrap_err().to_string();
    assert!(error.contains("t.txt, byte 1") && error.contains("\"é\""), "{error}");
}

#[test]
fn the_last_part_is_held_out_and_shares_no_token() {
    let set = read(&[b'a'; 1000], Tokens::Bytes, &asked(9, 256));
    let spec = text(Tokens::Bytes);
    let Split { train, held_out } = split(set.len(), &spec, 0).unwrap();
    assert!(train.into_iter().eq(0..80) && held_out.into_iter().eq(80..100));
    let shuffled = DataSpec { split: crate::model::SplitKind::Shuffled, ..spec };
    let error = split(100, &shuffled, 0).unwrap_err().to_string();
    assert!(error.starts_with("data.split: found \"shuffled\", expected \"last\""), "{error}");
}

#[test]
fn mistakes_in_a_text_are_reported_with_their_place() {
    let wanted = asked(8, 256);
    let error = refused(b"abcdefgh", Tokens::Bytes, &wanted);
    assert!(error.contains("t.txt: found 8 tokens, expected at least 9"), "{error}");
    assert!(refused(b"", Tokens::Chars, &wanted).contains("found 0 tokens"));
    let error = refused(b"abc\xffdefghi", Tokens::Chars, &wanted);
    assert!(error.contains("t.txt, byte 3: found the byte 0xff, expected UTF-8 text"), "{error}");
    let error = refused(b"abcabcabcz", Tokens::Bytes, &asked(4, 100));
    assert!(error.contains("byte 9 does not fit the network: found the token 122 (\"z\")"), "{error}");
    assert!(error.contains("0 to 99") && error.contains("set input.vocab to 123 or more"), "{error}");
    let error = refused("aé é ü".as_bytes(), Tokens::Chars, &asked(2, 3));
    assert!(error.contains("character 5") && error.contains("set input.vocab to 4 or more"), "{error}");
    let mut few = asked(4, 256);
    few.output = [4, 99].into();
    let error = refused(b"abcabcabc", Tokens::Bytes, &few);
    assert!(error.contains("byte 2") && error.contains("give the last layer 100 units or more"), "{error}");
    let error = refused(b"abcabcabc", Tokens::Bytes, &request(4, 256, LossSpec::MSE));
    assert!(error.contains("found tokens as targets"), "{error}");
}

#[test]
fn a_network_of_numbers_is_advised_to_take_tokens() {
    let folder = folder(b"abcdef");
    let inputs = vec![NamedInput::only([4].into())];
    let request = Request { inputs, ..asked(4, 256) };
    let error = load(&text(Tokens::Bytes), &request, folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("data.type: found text") && error.contains("set input.type to \"tokens\""), "{error}");
    let error = load(&DataSpec::of(DataSource::Digits), &asked(64, 10), folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("data.type: found digits"), "{error}");
}

#[test]
fn additions_are_correct_and_distinct() {
    let spec = DataSpec::of(DataSource::Sums { samples: 3000 });
    let set = load(&spec, &asked(11, 13), "".as_ref()).unwrap();
    let Target::Windows(windows) = &set.target else { panic!("sums are characters") };
    let mut seen = std::collections::HashSet::new();
    let mut lengths = [0; 3];
    for row in 0..set.len() as u32 {
        let (question, answer) = (windows.text(row, RowPart::Sample), windows.text(row, RowPart::Target));
        let whole = format!("{question}{}", &answer[10..]);
        let (terms, sum) = whole.split_once('=').unwrap();
        let (a, b) = terms.split_once('+').unwrap();
        let number = |text: &str| text.trim().parse::<u32>().unwrap();
        assert_eq!(number(a) + number(b), number(sum), "{whole}");
        assert_eq!((&answer[..7], &answer[7..]), ("       ", sum));
        lengths[a.trim().len() - 1] += 1;
        assert!(seen.insert(terms.to_owned()), "{whole}");
    }
    assert!(set.len() == 3000 && lengths.iter().all(|count| *count > 400), "{lengths:?}");
    let other = Request { seed: 4, ..asked(11, 13) };
    assert_ne!(set.digest(), load(&spec, &other, "".as_ref()).unwrap().digest());
    let error = load(&spec, &asked(12, 13), "".as_ref()).unwrap_err().to_string();
    assert!(error.contains("set input.shape to [11]"), "{error}");
    let error = load(&spec, &asked(11, 12), "".as_ref()).unwrap_err().to_string();
    assert!(error.contains("set input.vocab to 13"), "{error}");
}

#[test]
fn the_source_code_is_a_text_of_ascii() {
    let set = load(&DataSpec::of(DataSource::SourceCode), &asked(64, 128), "".as_ref()).unwrap();
    assert!((2000..20_000).contains(&set.len()), "{}", set.len());
    let Target::Windows(windows) = &set.target else { panic!("a text has windows") };
    assert!(windows.text(0, RowPart::Sample).starts_with("// src/model/"));
}

/// A tokenizer of 300 merges over bytes.
fn of_tokenizer() -> DataSpec {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json");
    text(Tokens::File(own))
}

#[test]
fn the_tokens_of_a_tokenizer_are_read_as_windows() {
    let folder = folder("pub fn l\u{e4}uft() {}\n".as_bytes());
    let set = load(&of_tokenizer(), &asked(5, 557), folder.path()).unwrap();
    assert_eq!((set.len(), set.classes()), (2, Some(557)));
    assert_eq!(rows(&set, RowPart::Sample), [[460, 335, 301, 128, 98], [70, 84, 279, 270, 93]]);
    assert_eq!(rows(&set, RowPart::Target), [[335, 301, 128, 98, 85], [84, 279, 270, 93, 199]]);
    let Target::Windows(windows) = &set.target else { panic!("a text has windows") };
    assert_eq!(
        (windows.text(0, RowPart::Sample), windows.text(1, RowPart::Target)),
        ("pub fn l\u{e4}".into(), "t() {}\n".into())
    );
    assert_eq!((&*set.preprocessing.classes[335], set.preprocessing.classes.len()), (" fn", 557));
    // With weights that were trained with this tokenizer, and with weights of another one.
    assert!(load_as(&of_tokenizer(), &asked(5, 557), folder.path(), &set.preprocessing).is_ok());
    let mut other = set.preprocessing.clone();
    other.classes[3] = "x".into();
    let error = load_as(&of_tokenizer(), &asked(5, 557), folder.path(), &other).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer.json does not fit the network: found \"#\" as its token 3, expected \"x\""),
        "{error}"
    );
}

#[test]
fn mistakes_in_tokens_of_a_tokenizer_are_reported_with_their_place() {
    let refused = |contents: &[u8], request: &Request| {
        let folder = folder(contents);
        load(&of_tokenizer(), request, folder.path()).unwrap_err().to_string()
    };
    let error = refused(b"pub fn", &asked(5, 557));
    assert!(error.contains("t.txt: found 2 tokens, expected at least 6"), "{error}");
    let error = refused(b"pub fn abc fn x x", &asked(2, 400));
    assert!(error.contains("t.txt, token 0 does not fit the network: found the token 460 (\"pub\")"), "{error}");
    assert!(error.contains("set input.vocab to 461 or more"), "{error}");
    assert!(refused(b"ab\xffcdef", &asked(2, 557)).contains("t.txt, byte 2: found the byte 0xff, expected UTF-8 text"));
    let folder = folder(b"abc");
    let none = text(Tokens::File("t.txt".into()));
    let error = load(&none, &asked(1, 557), folder.path()).unwrap_err().to_string();
    assert!(error.contains("t.txt, line 1: found no JSON"), "{error}");
    let error = load(&text(Tokens::File("no.json".into())), &asked(1, 557), folder.path()).unwrap_err().to_string();
    assert!(error.contains("no.json: cannot be read"), "{error}");
}
