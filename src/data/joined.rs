//! A source for each input of the network, joined by row: sample `i` consists of sample `i` of each source.

use super::dataset::Loaded;
use super::error::{listed, quoted};
use super::fit::{fit, fit_samples};
use super::source::{Part, known_as, learnt};
use super::{DataError, Dataset, InputSamples, Preprocessing, Request, Target};
use crate::model::{DataSource, DataSpec, LossSpec, NamedInput};
use crate::tensor::{Shape, plural};
use std::path::Path;

/// One input with its source.
struct Joint<'a> {
    input: &'a NamedInput,
    source: &'a DataSource,
    /// What the network requires of it.
    request: Request,
    has_target: bool,
    loaded: Loaded,
}

/// The joined data set, in the network's shapes; `known` is what weights were trained with, if there are any.
///
/// # Errors
/// If an input has no source or a source no input, a source cannot be read, the sources have different numbers of
/// samples, or the data does not fit the network.
pub(super) fn load(
    spec: &DataSpec,
    request: &Request,
    base: &Path,
    known: Option<&Preprocessing>,
) -> Result<Dataset, DataError> {
    let mut sets = Vec::with_capacity(request.inputs.len());
    for Joint { input, request, has_target, mut loaded, .. } in joints(spec, request, base, known)? {
        let fitted = match has_target {
            true => fit(loaded, &request),
            false => fit_samples(&mut loaded, &request).map(|()| loaded.dataset),
        };
        sets.push((input, has_target, fitted.map_err(|error| error.of_input(&input.name))?));
    }
    Ok(joined(sets))
}

/// The joined data set as its sources return it.
///
/// # Errors
/// As [`load`], except that the data need not fit the network.
pub(super) fn load_unfitted(spec: &DataSpec, request: &Request, base: &Path) -> Result<Dataset, DataError> {
    let joints = joints(spec, request, base, None)?;
    Ok(joined(joints.into_iter().map(|joint| (joint.input, joint.has_target, joint.loaded.dataset)).collect()))
}

/// The sources of all inputs, in the order of the network's inputs.
fn joints<'a>(
    spec: &'a DataSpec,
    request: &'a Request,
    base: &Path,
    known: Option<&Preprocessing>,
) -> Result<Vec<Joint<'a>>, DataError> {
    let DataSource::Joined { inputs: sources, target } = &spec.source else { return Ok(Vec::new()) };
    check_names(sources, target, request)?;
    let mut out: Vec<Joint<'a>> = Vec::with_capacity(sources.len());
    for input in &request.inputs {
        let Some((_, source)) = sources.iter().find(|(name, _)| *name == input.name) else { continue };
        let has_target = input.name == *target;
        let asked = request.of_input(input);
        let (asked, part) = match has_target {
            true => (asked, Part::Whole),
            // Its targets are not used, regardless of what the network learns.
            false => (Request { output: [1].into(), loss: LossSpec::MSE, ..asked }, Part::Samples),
        };
        let loaded = match known.and_then(|known| known.of_input(&input.name)) {
            Some(known) => known_as(source, &asked, base, known, part),
            None => learnt(source, spec, &asked, base, part),
        };
        let loaded = loaded.map_err(|error| error.of_input(&input.name))?;
        out.push(Joint { input, source, request: asked, has_target, loaded });
    }
    check_rows(&out)?;
    Ok(out)
}

/// Compares the names of sources with those of the network's inputs.
fn check_names(sources: &[(String, DataSource)], target: &str, request: &Request) -> Result<(), DataError> {
    let names: Vec<String> = request.inputs.iter().map(|input| input.name.clone()).collect();
    let is_there = |name: &str| sources.iter().any(|(source, _)| source == name);
    let mut wrong = Vec::new();
    for name in names.iter().filter(|name| !is_there(name)) {
        let expected = format!("one for each input of the network: {}", listed(&names));
        let help = "add one, such as {\"type\": \"csv\", \"path\": \"facts.csv\"}";
        wrong.push(DataError::field(format!("inputs.{name}"), "no source", expected, help));
    }
    for (name, _) in sources.iter().filter(|(name, _)| !names.contains(name)) {
        let expected = format!("only inputs of the network: {}", listed(&names));
        let help = "remove the source, or give the network an input of this name";
        wrong.push(DataError::field(format!("inputs.{name}"), "a source", expected, help));
    }
    if !names.iter().any(|name| name == target) {
        let expected = format!("the input whose source has the targets: {}", listed(&names));
        wrong.push(DataError::field("target", quoted(target), expected, "name one of the network's inputs"));
    }
    match wrong.len() {
        0 => Ok(()),
        1 => Err(wrong.remove(0)),
        _ => Err(DataError::Several(wrong)),
    }
}

/// Every source must have as many samples as the source of the targets.
fn check_rows(joints: &[Joint<'_>]) -> Result<(), DataError> {
    let Some(first) = joints.iter().find(|joint| joint.has_target) else { return Ok(()) };
    let rows = first.loaded.dataset.len();
    let Some(other) = joints.iter().find(|joint| joint.loaded.dataset.len() != rows) else { return Ok(()) };
    let count = other.loaded.dataset.len();
    let found = format!("{count} {} in {}", plural(count as u64, "sample"), other.loaded.file);
    let expected = format!("{rows}, as many as {} has for the input {}", first.loaded.file, quoted(&first.input.name));
    let help = match other.source {
        DataSource::Csv { .. } => "sources are joined line by line: bring lines into the same order and number",
        _ => "sources are joined by row: bring samples into the same order and number",
    };
    Err(DataError::field(format!("inputs.{}", other.input.name), found, expected, help))
}

/// Joins the samples of all inputs, with the targets of one of them.
fn joined(sets: Vec<(&NamedInput, bool, Dataset)>) -> Dataset {
    let mut inputs = Vec::with_capacity(sets.len());
    let (mut names, mut notes) = (Vec::new(), Vec::new());
    let mut preprocessing = Preprocessing::default();
    let mut target = None;
    for (input, has_target, mut set) in sets {
        notes.extend(set.notes.iter().map(|note| format!("{}: {note}", input.name)));
        let mut own = std::mem::take(&mut set.preprocessing);
        if has_target {
            (preprocessing.targets, preprocessing.classes) = (own.targets.clone(), own.classes.clone());
            target = Some(set.target);
        } else {
            own.targets.clear();
            own.classes.clear();
        }
        if own.features.is_empty() {
            own.features = set.feature_names;
        }
        preprocessing.inputs.push((input.name.clone(), own));
        if !names.contains(&set.name) {
            names.push(set.name);
        }
        let own = set.inputs.into_iter().take(1);
        inputs.extend(own.map(|samples| InputSamples { name: input.name.clone(), ..samples }));
    }
    // One of the inputs has the targets, because the names were compared.
    let target = target.unwrap_or(Target::Values { values: Vec::new(), shape: Shape::default() });
    Dataset { name: names.join(" + "), inputs, target, feature_names: Vec::new(), notes, preprocessing }
}

#[cfg(test)]
mod tests;
