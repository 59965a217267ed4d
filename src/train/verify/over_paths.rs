//! Checks of a network whose layers choose: each of its paths is a step of its own.

use super::{Check, Culprit, VerifyOptions};
use crate::model::{Foreseen, Model, Preset};
use crate::train::TrainError;
use crate::train::batch_shape::BatchShape;
use std::time::{Duration, Instant};

/// Paths that are checked, at most: those that steps take first.
pub(super) const MOST: usize = 64;
/// Paths that are checked however long that takes, and the time after which a check begins no more than these.
const AT_LEAST: usize = 8;
pub(super) const LONG: Duration = Duration::from_secs(60);

/// The number of a network's paths that a check goes through, where it has the time.
pub(super) fn paths_checked(model: &Model) -> usize {
    model.foreseen(MOST).paths.len()
}

/// A check of every path of a network; of a network that does not choose, of the network.
///
/// # Errors
/// As the check.
pub(super) fn over_paths(
    model: &Model,
    check: impl FnMut(&Model) -> Result<Check, TrainError>,
) -> Result<Check, TrainError> {
    over_most_paths(model, MOST, LONG, check)
}

/// The lengths of a run's batches besides the network's own, as `data.buckets` lists them.
pub(super) fn other_lengths(preset: &Preset, model: &Model, options: &VerifyOptions) -> Vec<usize> {
    let listed =
        preset.data.as_ref().filter(|_| options.batches.is_none()).map_or(&[][..], |data| data.buckets.as_slice());
    listed.iter().copied().filter(|length| Some(*length) != model.length()).collect()
}

/// A check of the network, together with the same check of it for sequences of each of these lengths, on every path.
///
/// # Errors
/// As the check, and where the network does not take a length.
pub(super) fn with_lengths(
    whole: Check,
    lengths: &[usize],
    model: &Model,
    check: impl Fn(&Model) -> Result<Check, TrainError>,
) -> Result<Check, TrainError> {
    if lengths.is_empty() {
        return Ok(whole);
    }
    let of_lengths = over_each(lengths, true, "length", LONG, |&length| {
        let shape = BatchShape { rows: model.batch, length: Some(length) };
        Ok((format!("length {length}"), over_paths(&shape.of(model)?, &check)?))
    })?;
    let checks = vec![("the whole length".to_owned(), whole), ("buckets".to_owned(), of_lengths)];
    Ok(joined("the whole length and those of buckets", checks))
}

/// As [`over_paths`], of `most` paths, of which no more than the first few are begun when `long` is over. The figures
/// say what was left out.
fn over_most_paths(
    model: &Model,
    most: usize,
    long: Duration,
    mut check: impl FnMut(&Model) -> Result<Check, TrainError>,
) -> Result<Check, TrainError> {
    if !model.chooses() {
        return check(model);
    }
    let Foreseen { paths, are_all } = model.foreseen(most);
    over_each(&paths, are_all, "path", long, |path| Ok((path.to_string(), check(&model.along(path))?)))
}

/// A check of each of some `things`, of which no more than the first few are begun when `long` is over; `are_all` where
/// there are no others. The check gives the name of its thing too.
///
/// # Errors
/// As the check.
pub(super) fn over_each<T>(
    each: &[T],
    are_all: bool,
    thing: &str,
    long: Duration,
    mut check: impl FnMut(&T) -> Result<(String, Check), TrainError>,
) -> Result<Check, TrainError> {
    let started = Instant::now();
    let mut checks = Vec::with_capacity(each.len());
    for one in each {
        if checks.len() >= AT_LEAST && started.elapsed() > long {
            break;
        }
        checks.push(check(one)?);
    }
    let (count, found, seconds) = (checks.len(), each.len(), long.as_secs());
    let text = match (are_all, count < found) {
        (true, false) if count == 1 => format!("the only {thing}"),
        (false, false) if count == 1 => format!("the first {thing}, the others were left out"),
        (true, false) => format!("all {count} {thing}s"),
        (false, false) => format!("the first {count} {thing}s, the others were left out"),
        (true, true) => format!("the first {count} of {found} {thing}s in {seconds} s, the others were left out"),
        (false, true) => format!("the first {count} {thing}s in {seconds} s, the others were left out"),
    };
    Ok(joined(&text, checks))
}

/// One check of several paths: the largest error represents all.
pub(super) fn joined(count: &str, checks: Vec<(String, Check)>) -> Check {
    let name = checks.first().map(|(_, check)| check.name.clone()).unwrap_or_default();
    let failed = checks.iter().any(|(_, check)| check.passed == Some(false));
    let is_done = checks.iter().any(|(_, check)| check.passed.is_some());
    let ratio = checks.iter().filter_map(|(_, check)| check.ratio).max_by(f64::total_cmp);
    // A failure says more than a figure near its bound, and that more than a check that was left out.
    let weight = |check: &Check| (check.passed == Some(false), check.passed.is_some(), check.ratio.unwrap_or(0.0));
    let worst =
        checks.iter().max_by(|a, b| weight(&a.1).partial_cmp(&weight(&b.1)).unwrap_or(std::cmp::Ordering::Equal));
    let figures = worst.map_or_else(String::new, |(path, check)| format!("{count}; {path}: {}", check.figures));
    let mut out = Check::new(&name, !failed, figures);
    out.passed = is_done.then_some(!failed);
    out.ratio = ratio;
    for (path, check) in checks {
        out.detail.extend(check.detail.into_iter().map(|line| format!("{path}: {line}")));
        // An operation is one of its own path's step, and no place in another.
        let layer = |culprit: Option<Culprit>| culprit.filter(|culprit| matches!(culprit, Culprit::Layer(_)));
        out.culprits.extend(check.culprits.into_iter().map(layer));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    /// A network of so many blocks that choose as `choose` says.
    fn model(blocks: usize, choose: &str) -> Model {
        let block =
            format!(r#", {{"type": "residual", "layers": [{{"type": "dense", "units": 3}}], "choose": {choose}}}"#);
        let text = format!(
            r#"{{"name": "n", "input": {{"shape": [6], "batch": 4}}, "layers": [{{"type": "dense", "units": 3}}{}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#,
            block.repeat(blocks)
        );
        check(&read_preset(&text).unwrap()).model.unwrap()
    }

    #[test]
    fn a_check_that_fails_on_one_path_fails() {
        let many = model(4, r#"{"by": "random", "weights": [1, 1]}"#);
        let model = model(1, r#"{"by": "cycle", "values": [1, 0]}"#);
        let on = |wrong: &str| {
            over_paths(&model, |model| {
                let path = model.path().to_string();
                let lines = if path == wrong { vec![("off".to_owned(), None)] } else { Vec::new() };
                Ok(Check::new("check", path != wrong, format!("figures of {path}")).ratio(0.5).detail(lines))
            })
            .unwrap()
        };
        let sound = on("none");
        assert!(sound.passed == Some(true) && sound.figures.starts_with("all 2 paths; ") && sound.detail.is_empty());
        let failed = on("L1=0");
        assert_eq!(failed.figures, "all 2 paths; L1=0: figures of L1=0");
        assert_eq!((failed.passed, failed.detail.as_slice()), (Some(false), &["L1=0: off".to_owned()][..]));
        // What was left out is said, for the number of paths as for the time.
        let few = |most: usize, long: Duration| {
            let done = |_: &Model| Ok(Check::new("check", true, "done".into()));
            over_most_paths(&many, most, long, done).unwrap().figures
        };
        assert!(few(64, LONG).starts_with("all 16 paths; "));
        assert!(few(10, LONG).starts_with("the first 10 paths, the others were left out; "));
        assert!(few(64, Duration::ZERO).starts_with("the first 8 of 16 paths in 0 s, the others were left out; "));
        assert!(few(10, Duration::ZERO).starts_with("the first 8 paths in 0 s, the others were left out; "));
        let one = |are_all: bool| {
            let done = |_: &()| Ok(("a".into(), Check::new("check", true, "done".into())));
            over_each(&[()], are_all, "path", LONG, done).unwrap().figures
        };
        assert_eq!(one(true), "the only path; a: done");
        assert_eq!(one(false), "the first path, the others were left out; a: done");
        assert_eq!((paths_checked(&many), paths_checked(&model)), (16, 2));
        let skipped = over_paths(&model, |_| Ok(Check::skipped("check", "no reason"))).unwrap();
        assert!(skipped.passed.is_none() && skipped.figures.ends_with("skipped: no reason"));
    }
}
