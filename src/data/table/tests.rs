//! Tests of the text tables.

use super::*;
use crate::data::mutation;

fn options(header: Header, target: TargetColumn, classes: bool) -> CsvOptions {
    CsvOptions { header, target, delimiter: ',', classes, features: FeatureColumns::default() }
}

fn auto(classes: bool) -> CsvOptions {
    options(Header::Auto, TargetColumn::Last, classes)
}

fn table(text: &str, options: &CsvOptions) -> Table {
    read_csv(text.as_bytes(), "t.csv", options).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn fails(bytes: impl AsRef<[u8]>, options: &CsvOptions, wanted: &str) {
    let text = read_csv(bytes.as_ref(), "t.csv", options).unwrap_err().to_string();
    assert!(text.contains(wanted), "{text}");
}

fn labels(table: &Table) -> (&[i32], Vec<&str>) {
    match &table.target {
        Target::Classes { labels, names, .. } => (labels, names.iter().map(String::as_str).collect()),
        Target::Values { .. } | Target::Windows(_) => panic!("classes wanted"),
    }
}

#[test]
fn numbers_and_names_are_read() {
    let t = table("a,b,kind\n1,2.5,cat\n-3e1, .5 ,ant\n+0,1.,cat\n", &auto(true));
    assert_eq!(t.x, [1.0, 2.5, -30.0, 0.5, 0.0, 1.0]);
    assert_eq!(labels(&t), (&[1, 0, 1][..], vec!["ant", "cat"]));
    assert_eq!((t.feature_names, t.lines), (vec!["a".to_owned(), "b".to_owned()], vec![2, 3, 4]));
    let t = table("1,2,0\n3,4,2.0\n", &auto(true));
    assert_eq!((labels(&t), &t.feature_names[1]), ((&[0, 2][..], vec![]), &"column 2".to_owned()));
    let t = table("1,2,0.5\n3,4,2\n", &auto(false));
    assert_eq!(t.target, Target::Values { values: vec![0.5, 2.0], shape: Shape::default() });
    assert_eq!(labels(&table("1,2\n3,x\n", &auto(true))).1, ["2", "x"]);
}

#[test]
fn a_header_is_detected() {
    for (text, samples) in [
        ("x,y\n1,2\n", 1),
        ("1,2\n3,4\n", 2),
        ("1.5,setosa\n2.5,setosa\n", 2),
        ("1.5,setosa\n", 1),
        ("1,setosa,virginica\n5.1,3.5,0\n", 1),
        (",a\n1,2\n", 1),
        ("width,height,kind\n1,2,cat", 1),
    ] {
        assert_eq!(table(text, &auto(true)).lines.len(), samples, "{text}");
    }
    fails("?,1\n1,2\n", &auto(true), "line 1, column 1: found \"?\", expected a finite number; fill in");
    assert_eq!(table("1,2\n3,4\n", &options(Header::Yes, TargetColumn::Last, true)).lines, [2]);
    fails("a,b\n3,4\n", &options(Header::No, TargetColumn::Last, true), "line 1, column 1: found \"a\"");
}

#[test]
fn the_target_may_be_any_column() {
    let text = "7,a,1\n0,2,3\n1,4,5\n";
    for target in [TargetColumn::Index(0), TargetColumn::Name("7".into())] {
        let t = table(text, &options(Header::Auto, target, true));
        assert_eq!((t.x.as_slice(), labels(&t).0), (&[2.0, 3.0, 4.0, 5.0][..], &[0, 1][..]));
    }
    let named = |name: &str| options(Header::Auto, TargetColumn::Name(name.into()), true);
    fails(
        text,
        &named("b"),
        "found the target column \"b\", expected one of the columns \"7\", \"a\", \"1\"; set data.target",
    );
    fails("a,a\n1,2", &named("a"), "\"a\" as column 1 and as column 2");
    fails(
        text,
        &options(Header::Auto, TargetColumn::Index(3), true),
        "expected a number from 0, the first column, to 2, the last; set data.target",
    );
    fails(text, &options(Header::No, TargetColumn::Name("a".into()), true), "without a header");
}

#[test]
fn repeated_names_are_numbered_as_pandas_does() {
    let t = table("a,b,a,a.1,a,y\n1,2,3,4,5,0\n", &auto(true));
    assert_eq!(t.feature_names, ["a", "b", "a.2", "a.1", "a.3"]);
    assert_eq!(t.notes, ["the header repeats names; the columns that repeat one are called \"a.2\", \"a.3\""]);
    assert_eq!(t.x, [1.0, 2.0, 3.0, 4.0, 5.0]);
    let named = |name: &str| options(Header::Auto, TargetColumn::Name(name.into()), true);
    fails("a,a\n1,2", &named("a"), "\"a\" as column 1 and as column 2");
    let t = table("a,a\n1,2", &named("a.1"));
    assert_eq!((t.feature_names, t.target_name.as_deref()), (vec!["a".to_owned()], Some("a.1")));
    assert!(table("a,b,y\n1,2,0\n", &auto(true)).notes.is_empty());
    // Weights find the columns by these names, in any order; weights of earlier versions find them by repeated names.
    let known = |features: &[&str], target: &str| Preprocessing {
        features: features.iter().map(ToString::to_string).collect(),
        is_named: true,
        targets: vec![target.to_owned()],
        ..Preprocessing::default()
    };
    for features in [["a", "a.1", "b"], ["a", "a", "b"]] {
        let found = read_known(b"b,y,a,a\n1,0,2,3\n", "t.csv", &auto(true), Some(&known(&features, "y"))).unwrap();
        assert_eq!(found.x, [2.0, 3.0, 1.0]);
    }
    let found = read_known(b"a,b,a\n1,2,0\n", "t.csv", &auto(true), Some(&known(&["a", "b"], "a.1"))).unwrap();
    assert_eq!((found.x.as_slice(), labels(&found).0), (&[1.0, 2.0][..], &[0][..]));
}

#[test]
fn columns_that_are_taken_by_position_are_noted() {
    let by_position =
        "the table is read without a header, so columns are identified by position: column 3 is the target";
    for header in [Header::Auto, Header::No] {
        let t = table("1,2,0\n3,4,1\n", &options(header, TargetColumn::Last, true));
        assert!(t.notes.len() == 1 && t.notes[0].starts_with(by_position), "{:?}", t.notes);
        assert!(t.notes[0].ends_with("set data.header to true"));
    }
    assert!(table("a,b,y\n1,2,0\n", &auto(true)).notes.is_empty());
    let known =
        |is_named| Preprocessing { features: vec!["a".into(), "b".into()], is_named, ..Preprocessing::default() };
    let read =
        |text: &str, is_named| read_known(text.as_bytes(), "t.csv", &auto(true), Some(&known(is_named))).unwrap().notes;
    let bare = read("1,2,0\n", true);
    assert!(bare[0].contains("no header") && bare[0].ends_with("in this order, \"a\", \"b\""), "{bare:?}");
    let named = read("u,v,y\n1,2,0\n", false);
    assert!(named[0].starts_with("the weights were trained on a table without a header"), "{named:?}");
    assert!(read("b,a,y\n1,2,0\n", true).is_empty());
}

#[test]
fn other_delimiters_quotes_and_line_ends() {
    for (delimiter, text) in
        [(';', "a;b\r\n1;2\r\n\r\n3;4\r\n"), ('\t', "\u{feff}a\tb\n1\t2\n\n3\t4"), (' ', "a b\n1 2\n\n3 4\n\n")]
    {
        let t = table(text, &CsvOptions { delimiter, ..auto(true) });
        assert_eq!((t.x.as_slice(), t.lines.as_slice()), (&[1.0, 3.0][..], &[2, 4][..]), "{text:?}");
        assert_eq!(t.feature_names, ["a"]);
    }
    let t = table("\"a\nb\",c\n\n1,\"x,y\"\n2,\"z\"\"\"\n", &auto(true));
    assert_eq!((t.lines.as_slice(), labels(&t).1), (&[4, 5][..], vec!["x,y", "z\""]));
    for delimiter in ['"', '\n', 'é', '→', '\0'] {
        fails("1,2", &CsvOptions { delimiter, ..auto(true) }, "data.delimiter: found ");
    }
    fails("a;b\n1;2\n", &auto(true), "line 1: found one column, but ';' in it, expected at least two columns");
    fails("5\n", &auto(true), "found one column, expected");
}

#[test]
fn wrong_cells_name_line_and_column() {
    for cell in ["", "NaN", "inf", "-inf", "NA", "?", "x", "1 cm", "0x10", "1_000", "1e39"] {
        let found = if cell.is_empty() { "an empty cell".to_owned() } else { format!("\"{cell}\"") };
        fails(
            format!("a,b,c\n1,2,0\n1,{cell},0\n"),
            &auto(true),
            &format!("t.csv, line 3, column 2 (b): found {found}, expected a "),
        );
    }
    for cell in ["", "nan", "None"] {
        fails(format!("a,c\n1,0\n1,{cell}\n"), &auto(true), "t.csv, line 3, column 2 (c): found ");
        fails(format!("a,c\n1,0\n1,{cell}\n"), &auto(false), "t.csv, line 3, column 2 (c): found ");
    }
    fails(
        "a,c\n1,0\n1,cat\n",
        &auto(false),
        "column 2 (c): found \"cat\", expected a finite number; the loss mse needs numbers",
    );
    fails("a,c\n1,0\ncat,1\n", &auto(false), "column 1 (a): found \"cat\", expected a finite number; write numbers");
    fails("1,1\n1,1.5\n", &auto(true), "line 2, column 2: found \"1.5\", expected a class");
    fails("1,1\n1,inf\n", &auto(true), "line 2, column 2: found \"inf\"");
    fails("1,1\n1,99999999999\n", &auto(true), "found \"99999999999\"");
    fails("1,2\n\n\n1,2,3\n", &auto(true), "line 4: found 3 columns, expected 2, as in the first line");
    fails("1,2\n1\n", &auto(true), "line 2: found 1 column, expected 2");
    let long = "x".repeat(500);
    fails(format!("1,2\n{long},3\n"), &auto(true), "xxx...\", expected");
}

#[test]
fn files_that_are_not_tables_are_refused() {
    fails("", &auto(true), "t.csv: found an empty file");
    fails("\n\r\n \n", &auto(true), "found an empty file");
    fails("a,b\n", &options(Header::Yes, TargetColumn::Last, true), "found only a header");
    fails("a,b\n", &options(Header::Yes, TargetColumn::Last, true), "set data.header to false");
    fails("a,b,c\n", &auto(true), "found only a header");
    fails(b"1,2\n\x00\x01", &auto(true), "line 2: found a zero byte");
    fails(b"1,2\n3,4\n\xe9,5\n", &auto(true), "line 3: found the byte 0xe9, expected UTF-8 text");
    fails(b"\xff\xfe1\x00", &auto(true), "found UTF-16 text");
    fails(b"\x1f\x8b\x08junk", &auto(true), "damaged gzip data");
}

#[test]
fn no_input_panics() {
    let text = b"a,b,kind\n1,2.5,cat\n-3,0.5,\"a\"\"nt\"\n\n0,1,cat\n";
    let numbers = b"1;2;3\r\n4;5;6\r\n7;8;9";
    for options in [
        auto(true),
        CsvOptions { delimiter: ';', ..auto(false) },
        options(Header::Yes, TargetColumn::Name("kind".into()), true),
        options(Header::No, TargetColumn::Index(1), false),
    ] {
        mutation::throw(&[text, numbers], 2500, |bytes| {
            if let Ok(table) = read_csv(bytes, "f", &options) {
                assert_eq!(table.x.len(), table.lines.len() * table.feature_names.len());
                assert!(table.x.iter().all(|v| v.is_finite()) && table.lines.is_sorted());
            }
        });
    }
}
