//! Windows over the columns of a table.

use crate::data::{Dataset, Preprocessing, Request, Target, load, load_as, split};
use crate::model::{DataSource, DataSpec, LossSpec, NamedInput, TargetColumn};
use std::fs;

fn spec(columns: &[&str], window: usize, horizon: usize) -> DataSpec {
    let columns = columns.iter().map(|name| TargetColumn::Name((*name).into())).collect();
    DataSpec::of(DataSource::Series { path: "s.csv".into(), columns, window, horizon })
}

fn request(input: [usize; 2], output: usize) -> Request {
    Request { inputs: vec![NamedInput::only(input.into())], output: [output].into(), loss: LossSpec::MSE, seed: 0 }
}

/// A date, a value that counts, one that counts by tens, and a constant one.
fn table(lines: usize) -> String {
    let line = |i: usize| format!("day {i},{i},{},7\n", i * 10);
    ["day,a,b,c\n".to_owned()].into_iter().chain((0..lines).map(line)).collect()
}

fn values(set: &Dataset) -> &[f32] {
    let Target::Values { values, .. } = &set.target else { panic!("a series has values") };
    values
}

#[test]
fn a_window_begins_at_every_line_and_none_overlaps_the_held_out_part() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.csv"), table(30)).unwrap();
    let spec = DataSpec { held_out: 5.0, ..spec(&["b", "a"], 4, 2) };
    let set = load(&spec, &request([4, 2], 4), folder.path()).unwrap();
    let parts = split(set.len(), &spec, 0).unwrap();
    // Of 25 windows the last 5 are held out, and the 5 before them share lines with these.
    assert_eq!((set.len(), parts.train.len(), parts.held_out), (25, 15, vec![20, 21, 22, 23, 24]));
    // The training part has the lines up to 20: mean 9.5, and 10 times as much for b.
    let scaling = set.preprocessing.scaling.as_ref().unwrap();
    assert_eq!((scaling.mean.len(), scaling.mean[0], scaling.mean[1]), (8, 95.0, 9.5));
    let (x, y) = (set.sample_slice(3), &values(&set)[3 * 4..4 * 4]);
    for (line, pair) in x.chunks(2).chain(y.chunks(2)).enumerate() {
        let a = (3.0 + line as f64 - 9.5) * scaling.scale[1];
        assert!(pair.iter().all(|v| (f64::from(*v) - a).abs() < 1e-6), "{line}: {pair:?}, {a}");
    }
    assert_eq!((&*set.feature_names[0], &*set.feature_names[7]), ("b t-3", "a t-0"));
    assert_eq!(set.preprocessing.targets, ["b t+1", "a t+1", "b t+2", "a t+2"]);
    let again = load_as(&spec, &request([4, 2], 4), folder.path(), &set.preprocessing).unwrap();
    assert_eq!((again.x(), values(&again)), (set.x(), values(&set)));
    let other = Preprocessing { scaling: None, ..set.preprocessing.clone() };
    assert_eq!(load_as(&spec, &request([4, 2], 4), folder.path(), &other).unwrap().x()[0], 0.0);
}

#[test]
fn a_constant_column_becomes_0() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.csv"), table(20)).unwrap();
    let set = load(&spec(&["c"], 3, 1), &request([3, 1], 1), folder.path()).unwrap();
    assert!(set.x().iter().chain(values(&set)).all(|v| *v == 0.0));
}

#[test]
fn mistakes_in_a_series_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str, spec: &DataSpec| {
        fs::write(folder.path().join("s.csv"), text).unwrap();
        load(spec, &request([4, 1], 2), folder.path()).unwrap_err().to_string()
    };
    let error = refused(&table(5), &spec(&["a"], 4, 2));
    assert!(error.contains("found 5 lines of values, expected at least 6"), "{error}");
    let error = refused(&table(9), &spec(&["d"], 4, 2));
    assert!(error.contains("line 1: found 4 columns, expected the column \"d\""), "{error}");
    let error = refused(&table(9).replace("day 6,6", "day 6,six"), &spec(&["a"], 4, 2));
    assert!(error.contains("line 8, column 2 (a): found \"six\", expected a finite number"), "{error}");
    let error = refused(&table(9), &spec(&["a", "b"], 4, 2));
    assert!(error.contains("does not fit the network"), "{error}");
}

#[test]
fn waves_can_be_forecast_better_than_by_repeating_them() {
    let spec = DataSpec::of(DataSource::Waves { samples: 50, noise: 0.0 });
    let set = load(&spec, &request([48, 1], 12), "".as_ref()).unwrap();
    assert_eq!((set.len(), set.x().len(), values(&set).len()), (50, 50 * 48, 50 * 12));
    assert!(set.notes[0].starts_with("repeating the last value has a mean squared error of "), "{:?}", set.notes);
    assert_eq!(set, load(&spec, &request([48, 1], 12), "".as_ref()).unwrap());
}
