//! Compares data with the network: shapes, classes and targets are compared before the first step.

use super::dataset::Loaded;
use super::error::Side;
use super::fit_tokens::{fit_token_samples, fit_windows};
use super::request::shape_place;
use super::{DataError, Dataset, Place, Request, Samples, Target};
use crate::model::Targets;
use crate::tensor::{Shape, plural};

/// The data set in the network's shapes.
///
/// Samples of equal length are reshaped if one side is flat or only dimensions of 1 differ. For a loss on values,
/// classes become one-hot vectors, or 0 and 1 if the network has a single output.
///
/// # Errors
/// If features, classes or target values do not fit.
pub(super) fn fit(mut loaded: Loaded, request: &Request) -> Result<Dataset, DataError> {
    fit_samples(&mut loaded, request)?;
    match (&loaded.dataset.target, request.loss.wants_classes()) {
        (Target::Classes { .. }, true) => fit_classes(&mut loaded, request)?,
        (Target::Classes { .. }, false) => spread_classes(&mut loaded, request)?,
        (Target::Values { .. }, false) => {
            fit_values(&mut loaded, request)?;
            fit_binary(&loaded, request)?;
        }
        (Target::Values { .. }, true) => {
            return Err(DataError::fit(
                Side::Loss,
                &loaded.target_file,
                Place::Whole,
                "target values",
                "one class for each sample, because the loss takes classes",
                "use the loss mse, or data with classes",
            ));
        }
        (Target::Windows(_), _) => fit_windows(&mut loaded, request)?,
    }
    let data = &mut loaded.dataset;
    if let Target::Classes { names, .. } = &data.target {
        data.preprocessing.classes.clone_from(names);
    }
    Ok(loaded.dataset)
}

/// Converts the samples of a source to the shape of the only input of `request`, regardless of its targets.
///
/// # Errors
/// If there is no input, or the samples do not fit it.
pub(super) fn fit_samples(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    if loaded.dataset.is_empty() {
        return Err(DataError::content(
            &loaded.file,
            Place::Whole,
            "no samples",
            "at least one",
            "add samples to the file or name another",
        ));
    }
    if loaded.dataset.inputs.iter().any(|input| !matches!(input.values, Samples::Real(_))) {
        fit_token_samples(loaded, request)?;
    } else {
        fit_numbers(loaded, request)?;
    }
    let data = &mut loaded.dataset;
    data.preprocessing.features.clone_from(&data.feature_names);
    Ok(())
}

fn fit_numbers(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    let data = &mut loaded.dataset;
    // A source that was read has one input.
    let ([own, ..], [wanted, ..]) = (&mut data.inputs[..], &request.inputs[..]) else { return Ok(()) };
    let input = &wanted.shape;
    own.name.clone_from(&wanted.name);
    let place = shape_place(wanted);
    if !matches_up_to_layout(&own.sample, input) {
        let help = if own.sample.checked_len() == input.checked_len() {
            format!("images are [C, H, W]: store channels first, or give {place} as a flat [features]")
        } else {
            format!("set {place} to the data's shape, or change the data's columns")
        };
        return Err(DataError::fit(
            Side::Input,
            &loaded.file,
            Place::Whole,
            format!("samples of shape {}{}", own.sample, counted(&own.sample)),
            format!("{input}{} as {place} says", counted(input)),
            help,
        ));
    }
    if own.sample.rank() == 1 && input.rank() == 3 && input.0[0] > 1 {
        data.notes.push(format!("features are taken as {input} in C, H, W order"));
    }
    own.sample.clone_from(input);
    Ok(())
}

/// Equal lengths, and either a flat side or equal dimensions apart from those of 1.
fn matches_up_to_layout(a: &Shape, b: &Shape) -> bool {
    let solid = |shape: &Shape| shape.0.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
    let (Some(a_len), Some(b_len)) = (a.checked_len(), b.checked_len()) else { return false };
    a_len == b_len && a_len > 0 && (a.rank() <= 1 || b.rank() <= 1 || solid(a) == solid(b))
}

/// ` (64 values)` after a shape of more than one dimension.
fn counted(shape: &Shape) -> String {
    match shape.checked_len() {
        Some(len) if shape.rank() > 1 => format!(" ({len} {})", plural(len as u64, "value")),
        _ => String::new(),
    }
}

/// Checks that every label is below `allowed`, and names unnamed classes by their number.
fn check_labels(loaded: &mut Loaded, allowed: usize, why: &str) -> Result<(), DataError> {
    let Target::Classes { labels, names, .. } = &loaded.dataset.target else { return Ok(()) };
    // A class below 0, or an implausibly large one, is a mistake in the data.
    let most = labels.iter().copied().max().and_then(|m| usize::try_from(m).ok()).map_or(0, |m| m.saturating_add(1));
    let needed = most.max(names.len());
    let help = if needed > allowed {
        format!("give the last layer {needed} units, one for each class, or count classes from 0 in the data")
    } else {
        "count classes from 0 in the data".to_owned()
    };
    if names.len() > allowed {
        let some: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
        let more = if names.len() > some.len() { ", ..." } else { "" };
        let found = format!("{} classes ({}{more})", names.len(), some.join(", "));
        return Err(DataError::fit(
            Side::Output,
            &loaded.target_file,
            Place::Whole,
            found,
            format!("at most {allowed}, {why}"),
            help,
        ));
    }
    let wrong = labels.iter().position(|&label| usize::try_from(label).map_or(true, |label| label >= allowed));
    if let Some(i) = wrong {
        let expected = format!("0 to {}, {why}", allowed.saturating_sub(1));
        return Err(DataError::fit(
            Side::Output,
            &loaded.target_file,
            loaded.place(i),
            format!("class {}", labels[i]),
            expected,
            help,
        ));
    }
    let highest = labels.iter().copied().max().unwrap_or(0);
    if let Target::Classes { names, .. } = &mut loaded.dataset.target
        && names.is_empty()
    {
        names.extend((0..=highest).map(|class| class.to_string()));
    }
    Ok(())
}

fn fit_classes(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    let outputs = request.output.checked_len().unwrap_or(usize::MAX);
    check_labels(loaded, outputs, &format!("as the network's output is {}", request.output))?;
    if let Some(classes) = loaded.dataset.classes()
        && classes < outputs
    {
        loaded.dataset.notes.push(format!(
            "{classes} {} for {outputs} outputs: the other outputs are never correct",
            plural(classes as u64, "class")
        ));
    }
    Ok(())
}

/// Classes as values: 0 and 1 for a single output, one-hot otherwise.
fn spread_classes(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    let outputs = request.output.checked_len().unwrap_or(usize::MAX);
    let name = request.loss.name();
    let why = format!("as the loss {name} learns classes one-hot, or two of them as 0 and 1 from one output");
    check_labels(loaded, if outputs == 1 { 2 } else { outputs }, &why)?;
    let data = &mut loaded.dataset;
    let Target::Classes { labels, names, .. } = &data.target else { return Ok(()) };
    data.preprocessing.classes.clone_from(names);
    let values = if outputs == 1 {
        data.notes.push("classes are learnt as the values 0 and 1".to_owned());
        labels.iter().map(|&label| label as f32).collect()
    } else {
        let total = labels.len().checked_mul(outputs).filter(|&total| total <= isize::MAX as usize / 4);
        let mut values: Vec<f32> = Vec::new();
        if total.is_none_or(|total| values.try_reserve_exact(total).is_err()) {
            let found = format!("{} samples of {outputs} one-hot values", labels.len());
            return Err(DataError::fit(
                Side::Output,
                &loaded.target_file,
                Place::Whole,
                found,
                "what memory holds",
                "use fewer outputs",
            ));
        }
        data.notes.push("classes are learnt as one-hot values".to_owned());
        for &label in labels {
            values.extend((0..outputs).map(|output| f32::from(u8::from(usize::try_from(label) == Ok(output)))));
        }
        values
    };
    data.target = Target::Values { values, shape: request.output.clone() };
    Ok(())
}

fn fit_values(loaded: &mut Loaded, request: &Request) -> Result<(), DataError> {
    if let Target::Values { shape, .. } = &mut loaded.dataset.target {
        if !matches_up_to_layout(shape, &request.output) {
            let help = format!(
                "give the last layer {} {}, one for each value of a target; for classes use softmax_cross_entropy",
                shape.len(),
                plural(shape.len() as u64, "unit")
            );
            return Err(DataError::fit(
                Side::Output,
                &loaded.target_file,
                Place::Whole,
                format!("targets of shape {shape}{}", counted(shape)),
                format!("{}{}, the network's output", request.output, counted(&request.output)),
                help,
            ));
        }
        *shape = request.output.clone();
    }
    Ok(())
}

/// Refuses target values that a loss on 0 and 1 does not accept.
fn fit_binary(loaded: &Loaded, request: &Request) -> Result<(), DataError> {
    let Target::Values { values, shape } = &loaded.dataset.target else { return Ok(()) };
    let is_wrong = |v: &f32| request.loss.targets() == Targets::Binary && *v != 0.0 && *v != 1.0;
    let Some(at) = values.iter().position(is_wrong) else { return Ok(()) };
    Err(DataError::fit(
        Side::Loss,
        &loaded.target_file,
        loaded.place(at / shape.len().max(1)),
        format!("the target {}", values[at]),
        format!("0 or 1, as the loss {} asks", request.loss.name()),
        "use the loss mse for other values, or data whose targets are 0 and 1",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{InputSamples, Preprocessing};
    use crate::model::{LossSpec, NamedInput};

    fn loaded(sample: Shape, target: Target) -> Loaded {
        let n = target.len();
        let x = vec![0.5; n * sample.len()];
        let dataset = Dataset {
            name: "t".into(),
            inputs: InputSamples::only(sample, x),
            target,
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        };
        Loaded { lines: Some((2..2 + n as u64).collect()), ..Loaded::new("t.csv".into(), dataset) }
    }

    fn classes(labels: &[i32], names: &[&str]) -> Target {
        Target::classes(labels.to_vec(), names.iter().map(ToString::to_string).collect())
    }

    fn values(shape: impl Into<Shape>, n: usize) -> Target {
        let shape = shape.into();
        Target::Values { values: vec![1.0; n * shape.len()], shape }
    }

    fn check(
        sample: impl Into<Shape>,
        target: Target,
        input: impl Into<Shape>,
        output: impl Into<Shape>,
        wants_classes: bool,
    ) -> Result<Dataset, String> {
        let loss = if wants_classes { LossSpec::SOFTMAX_CROSS_ENTROPY } else { LossSpec::MSE };
        check_for(loss, sample, target, input, output)
    }

    fn check_for(
        loss: LossSpec,
        sample: impl Into<Shape>,
        target: Target,
        input: impl Into<Shape>,
        output: impl Into<Shape>,
    ) -> Result<Dataset, String> {
        let inputs = vec![NamedInput::only(input.into())];
        let request = Request { inputs, output: output.into(), loss, seed: 0 };
        fit(loaded(sample.into(), target), &request).map_err(|e| e.to_string())
    }

    #[test]
    fn flat_and_image_shapes_are_the_same_values() {
        for (file, net) in [
            (vec![64], vec![1, 8, 8]),
            (vec![1, 8, 8], vec![64]),
            (vec![8, 8], vec![1, 8, 8]),
            (vec![3072], vec![3, 32, 32]),
            (vec![3, 32, 32], vec![3072]),
            (vec![], vec![1]),
        ] {
            let data = check(file.clone(), classes(&[0, 1], &[]), net.clone(), [2], true).unwrap();
            assert_eq!(data.sample().0, net, "{file:?}");
        }
        let text = check([32, 32, 3], classes(&[0], &[]), [3, 32, 32], [2], true).unwrap_err();
        assert!(
            text.contains("found samples of shape [32, 32, 3] (3072 values)") && text.contains("channels first"),
            "{text}"
        );
        let text = check([4], classes(&[0], &[]), [5], [2], true).unwrap_err();
        assert_eq!(
            text,
            "t.csv does not fit the network: found samples of shape [4], expected [5] as input.shape says; set \
             input.shape to the data's shape, or change the data's columns"
        );
        assert!(check([4], classes(&[0], &[]), [usize::MAX, 16], [2], true).is_err());
    }

    #[test]
    fn labels_out_of_range_name_their_line() {
        let text = check([1], classes(&[0, 9, 10], &[]), [1], [10], true).unwrap_err();
        assert!(text.starts_with("t.csv, line 4 does not fit the network: found class 10, expected 0 to 9"), "{text}");
        assert!(check([1], classes(&[0, -1], &[]), [1], [10], true).unwrap_err().contains("line 3"));
        let text = check([1], classes(&[0, 1, 2], &["a", "b", "c"]), [1], [2], true).unwrap_err();
        assert!(text.contains("found 3 classes (a, b, c), expected at most 2"), "{text}");
        let data = check([1], classes(&[0, 2], &[]), [1], [4], true).unwrap();
        assert!(matches!(&data.target, Target::Classes { names, .. } if names.len() == 3));
        assert_eq!(data.notes.len(), 1);
    }

    #[test]
    fn data_that_do_not_fit_are_a_mistake_at_the_field_to_change() {
        let text = r#"{"name": "n", "input": {"shape": [1], "batch": 2}, "loss": {"type": "softmax_cross_entropy"},
            "optimizer": {"type": "sgd", "lr": 0.1},
            "layers": [{"type": "dense", "units": 4},
            {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 4}]},
            {"type": "dropout", "rate": 0.1}]}"#;
        let preset = crate::model::read_preset(text).unwrap();
        let request = |input: usize, wants_classes| {
            let loss = if wants_classes { LossSpec::SOFTMAX_CROSS_ENTROPY } else { LossSpec::MSE };
            let inputs = vec![NamedInput::only([input].into())];
            Request { inputs, output: [4].into(), loss, seed: 0 }
        };
        let found = |target: Target, input, wants| {
            fit(loaded([1].into(), target), &request(input, wants)).unwrap_err().mistake(&preset)
        };
        let mistake = found(classes(&[0, 9], &[]), 1, true);
        assert_eq!(
            (mistake.path.as_str(), mistake.layer),
            ("layers[1].layers[0].units", Some(crate::model::LayerPath::from([1, 0])))
        );
        assert!(mistake.message.ends_with("expected 0 to 3, as the network's output is [4]"), "{}", mistake.message);
        assert_eq!(
            mistake.help,
            "give the last layer 10 units, one for each class, or count classes from 0 in the data"
        );
        assert_eq!(found(classes(&[0], &[]), 3, true).path, "input.shape");
        assert_eq!(found(values([4], 2), 1, true).path, "loss");
        let batch = DataError::Batch { train: 3, batch: 8 }.mistake(&preset);
        assert_eq!(batch.path, "input.batch");
        assert!(batch.help.starts_with("use a smaller input.batch") && batch.message.ends_with("one batch of 8"));
        let below = found(classes(&[0, -1], &[]), 1, true);
        assert_eq!(below.help, "count classes from 0 in the data");
    }

    #[test]
    fn values_fit_the_output() {
        assert!(matches!(
            check([1], values([], 3), [1], [1], false).unwrap().target,
            Target::Values { shape, .. } if shape.0 == [1]
        ));
        assert!(check([1], values([2, 2], 3), [1], [4], false).is_ok());
        let text = check([1], values([2], 3), [1], [3], false).unwrap_err();
        assert!(text.contains("found targets of shape [2], expected [3], the network's output"), "{text}");
        assert!(check([1], values([1], 3), [1], [3], true).unwrap_err().contains("use the loss mse"));
        assert!(check([1], values([1], 0), [1], [1], false).unwrap_err().contains("no samples"));
    }

    #[test]
    fn classes_become_values_if_the_loss_requires_values() {
        let data = check([1], classes(&[1, 0], &["no", "yes"]), [1], [1], false).unwrap();
        assert_eq!(data.target, Target::Values { values: vec![1.0, 0.0], shape: [1].into() });
        let data = check([1], classes(&[1, 2], &[]), [1], [3], false).unwrap();
        assert_eq!(data.target, Target::Values { values: vec![0., 1., 0., 0., 0., 1.], shape: [3].into() });
        let binary = LossSpec::example("binary_cross_entropy").unwrap();
        let data = check_for(binary, [1], classes(&[1, 0], &["no", "yes"]), [1], [1]).unwrap();
        assert_eq!(data.target, Target::Values { values: vec![1.0, 0.0], shape: [1].into() });
        let text = check_for(binary, [1], classes(&[2], &[]), [1], [1]).unwrap_err();
        assert!(text.contains("found class 2, expected 0 to 1, as the loss binary_cross_entropy learns"), "{text}");
        let half = Target::Values { values: vec![1.0, 0.5], shape: [1].into() };
        let text = check_for(binary, [1], half.clone(), [1], [1]).unwrap_err();
        assert!(text.contains("line 3 does not fit the network: found the target 0.5, expected 0 or 1"), "{text}");
        assert!(check_for(LossSpec::example("huber").unwrap(), [1], half, [1], [1]).is_ok());
        assert!(check([1], classes(&[2], &[]), [1], [1], false).unwrap_err().contains("expected 0 to 1"));
        assert!(check([1], classes(&[0], &[]), [1], [usize::MAX], false).unwrap_err().contains("memory"));
    }
}
