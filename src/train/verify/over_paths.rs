//! Checks of a network whose layers choose: each of its paths is a step of its own.

use super::{Check, Culprit};
use crate::model::{Foreseen, Model};
use crate::train::TrainError;

/// Paths that are checked, at most: those that steps take first.
const MOST: usize = 8;

/// How many paths of a network are checked; one of a network that does not choose.
pub(super) fn count(model: &Model) -> usize {
    if model.chooses() { model.foreseen(MOST).paths.len().max(1) } else { 1 }
}

/// A check of every path of a network; of a network that does not choose, of the network.
///
/// # Errors
/// As the check.
pub(super) fn over_paths(
    model: &Model,
    mut check: impl FnMut(&Model) -> Result<Check, TrainError>,
) -> Result<Check, TrainError> {
    if !model.chooses() {
        return check(model);
    }
    let Foreseen { paths, are_all } = model.foreseen(MOST);
    let mut checks = Vec::with_capacity(paths.len());
    for path in &paths {
        checks.push((path.to_string(), check(&model.along(path))?));
    }
    let count = match (are_all, paths.len()) {
        (true, count) => format!("all {count} paths"),
        (false, count) => format!("the first {count} paths"),
    };
    Ok(joined(&count, checks))
}

/// One check of several paths: what is farthest from right stands for all.
fn joined(count: &str, checks: Vec<(String, Check)>) -> Check {
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

    fn model() -> Model {
        let text = r#"{"name": "n", "input": {"shape": [6], "batch": 4}, "layers": [{"type": "dense", "units": 3},
            {"type": "residual", "choose": {"by": "cycle", "values": [1, 0]},
            "layers": [{"type": "dense", "units": 3}]}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        check(&read_preset(text).unwrap()).model.unwrap()
    }

    #[test]
    fn a_check_that_fails_on_one_path_fails() {
        let model = model();
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
        let skipped = over_paths(&model, |_| Ok(Check::skipped("check", "no reason"))).unwrap();
        assert!(skipped.passed.is_none() && skipped.figures.ends_with("skipped: no reason"));
    }
}
