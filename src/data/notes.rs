//! Notes about a training part before a network is trained on it: classes without samples, and targets whose scale
//! makes training hard.

use super::error::quoted;
use super::{Dataset, Target};
use crate::tensor::{plural, scientific};

/// Standard deviations of a target between this and its reciprocal are near enough to 1.
const FAR: f64 = 5.0;
/// The largest number of names in a note.
const NAMED: usize = 8;

/// Notes about the samples `train` of a data set, which a network is trained on.
#[must_use]
pub fn training_notes(set: &Dataset, train: &[u32]) -> Vec<String> {
    let learnt_classes = &set.preprocessing.classes;
    match &set.target {
        Target::Classes { names, .. } => lacking(set, names, train),
        // Rare tokens are not a mistake.
        Target::Windows(_) => Vec::new(),
        // The scale of classes that are learnt as values has no meaning.
        Target::Values { .. } if !learnt_classes.is_empty() => lacking(set, learnt_classes, train),
        Target::Values { values, shape } => scale(values, shape.len(), &set.preprocessing.targets, train),
    }
}

/// The class of a sample, regardless of whether it is learnt as a class or as values.
fn class_of(set: &Dataset, sample: usize) -> Option<usize> {
    match &set.target {
        Target::Classes { labels, .. } => labels.get(sample).and_then(|label| usize::try_from(*label).ok()),
        Target::Values { values, shape } => {
            let width = shape.len();
            match values.get(sample * width..(sample + 1) * width)? {
                [one] => Some(usize::from(*one > 0.5)),
                row => row.iter().position(|value| *value > 0.5),
            }
        }
        Target::Windows(_) => None,
    }
}

/// A note for classes without any sample, and one for those whose samples are all held out.
fn lacking(set: &Dataset, names: &[String], train: &[u32]) -> Vec<String> {
    let counted = |samples: &mut dyn Iterator<Item = usize>| {
        let mut counts = vec![0usize; names.len()];
        for class in samples.filter_map(|sample| class_of(set, sample)) {
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
        }
        counts
    };
    let (all, trained) = (counted(&mut (0..set.len())), counted(&mut train.iter().map(|&sample| sample as usize)));
    let of = |wanted: &dyn Fn(usize) -> bool| (0..names.len()).filter(|&class| wanted(class)).collect::<Vec<_>>();
    let (absent, held) = (of(&|c| all[c] == 0), of(&|c| all[c] > 0 && trained[c] == 0));
    let mut notes = Vec::new();
    if !absent.is_empty() {
        notes.push(format!(
            "no sample is of {}, so the network cannot learn {}; labels that are numbers count from 0",
            some_of(names, &absent),
            them(&absent)
        ));
    }
    if !held.is_empty() {
        notes.push(format!(
            "no training sample is of {}, so the network cannot learn {}: all samples of {} are held out; set \
             data.split to \"shuffled\", or hold out fewer",
            some_of(names, &held),
            them(&held),
            if held.len() == 1 { "that class" } else { "those classes" }
        ));
    }
    notes
}

const fn them(classes: &[usize]) -> &'static str {
    if classes.len() == 1 { "it" } else { "them" }
}

/// `the class "a"`, or `the classes "a", "b" and 3 more`.
fn some_of(names: &[String], classes: &[usize]) -> String {
    let shown: Vec<String> = classes.iter().take(NAMED).map(|&class| quoted(&names[class])).collect();
    let more = classes.len() - shown.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the {} {}{rest}", plural(classes.len() as u64, "class"), shown.join(", "))
}

/// A note for targets that vary far more or far less than 1, and one for those that do not vary.
fn scale(values: &[f32], width: usize, names: &[String], train: &[u32]) -> Vec<String> {
    if train.is_empty() || width == 0 || values.len() < width {
        return Vec::new();
    }
    let column =
        |k: usize| train.iter().filter_map(move |&i| values.get(i as usize * width + k)).map(|v| f64::from(*v));
    let count = train.len() as f64;
    let spread = |k: usize| {
        let mean = column(k).sum::<f64>() / count;
        let variance = column(k).map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        // Equal values can leave a rounding error that is not a real spread.
        let first = column(k).next().unwrap_or(0.0);
        let deviation = if column(k).all(|v| v == first) { 0.0 } else { variance.sqrt() };
        (k, mean, deviation)
    };
    let spreads: Vec<(usize, f64, f64)> = (0..width).map(spread).collect();
    let name = |k: usize| match names.get(k) {
        Some(name) if names.len() == width => format!("the target {}", quoted(name)),
        _ if width == 1 => "the target".to_owned(),
        _ => format!("value {k} of the target"),
    };
    let others = |count: usize| match count {
        0 | 1 => String::new(),
        count => format!("; the same is true of {} other {}", count - 1, plural(count as u64 - 1, "value")),
    };
    let mut notes = Vec::new();
    let constant: Vec<_> = spreads.iter().filter(|(_, _, deviation)| *deviation == 0.0).collect();
    if let Some(&&(k, mean, _)) = constant.first() {
        let (name, value, others) = (name(k), significant(mean), others(constant.len()));
        notes.push(format!("{name} is {value} in every training sample, so the network cannot learn from it{others}"));
    }
    let distance = |deviation: f64| deviation.log2().abs();
    let far: Vec<_> = spreads.iter().filter(|s| s.2 > 0.0 && distance(s.2) > FAR.log2()).collect();
    let worst = far.iter().max_by(|a, b| distance(a.2).total_cmp(&distance(b.2)));
    if let Some(&&(k, mean, deviation)) = worst {
        let (name, others) = (name(k), others(far.len()));
        let (mean, deviation) = (significant(mean), significant(deviation));
        notes.push(format!(
            "targets are not standardised: the standard deviation of {name} is {deviation} over the training samples \
             (mean {mean}), far from 1; learn (target - mean) / deviation instead, and convert answers back{others}"
        ));
    }
    notes
}

/// A number with three significant digits: `152000`, `0.0123`, `7.72e27`.
fn significant(value: f64) -> String {
    let power = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    if !(-4.0..6.0).contains(&power) {
        return scientific(value, 2);
    }
    let decimals = (2.0 - power).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{InputSamples, Preprocessing};

    fn set(target: Target, preprocessing: Preprocessing) -> Dataset {
        let samples = target.len();
        let inputs = InputSamples::only([1], vec![0.0; samples]);
        Dataset { name: "t".into(), inputs, target, feature_names: vec![], notes: vec![], preprocessing }
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn values(values: &[f32], width: usize, targets: &[&str]) -> Dataset {
        let preprocessing = Preprocessing { targets: named(targets), ..Preprocessing::default() };
        set(Target::Values { values: values.to_vec(), shape: [width].into() }, preprocessing)
    }

    #[test]
    fn classes_without_a_training_sample_are_named() {
        let classes = |labels: &[i32], names: &[&str]| {
            set(Target::classes(labels.to_vec(), named(names)), Preprocessing::default())
        };
        let sorted = classes(&[0, 0, 1, 1, 2, 2], &["ant", "bee", "cat"]);
        assert_eq!(training_notes(&sorted, &[0, 2, 4]), Vec::<String>::new());
        let notes = training_notes(&sorted, &[0, 1, 2, 3]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("no training sample is of the class \"cat\", so the network cannot"), "{notes:?}");
        assert!(notes[0].contains("set data.split to \"shuffled\""), "{notes:?}");
        // Labels that are counted from 1 leave a class 0 without samples.
        let notes = training_notes(&classes(&[1, 2, 1], &["0", "1", "2"]), &[0, 1]);
        assert!(notes.len() == 1 && notes[0].starts_with("no sample is of the class \"0\""), "{notes:?}");
        assert!(notes[0].contains("count from 0"), "{notes:?}");
        let many: Vec<String> = (0..100).map(|class| class.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let notes = training_notes(&classes(&[0, 99], &many), &[0, 1]);
        assert!(notes[0].contains("the classes \"1\", \"2\"") && notes[0].contains("\"8\" and 90 more"), "{notes:?}");
    }

    #[test]
    fn classes_that_are_learnt_as_values_are_counted_too() {
        let preprocessing = |names: &[&str]| Preprocessing { classes: named(names), ..Preprocessing::default() };
        let one_hot = Target::Values { values: vec![1., 0., 0., 0., 1., 0., 0., 0., 1.], shape: [3].into() };
        let notes = training_notes(&set(one_hot, preprocessing(&["a", "b", "c"])), &[0, 2]);
        assert!(notes.len() == 1 && notes[0].contains("the class \"b\""), "{notes:?}");
        let single = Target::Values { values: vec![0.0, 1.0, 0.0], shape: [1].into() };
        let notes = training_notes(&set(single, preprocessing(&["no", "yes"])), &[0, 2]);
        assert!(notes.len() == 1 && notes[0].contains("the class \"yes\""), "{notes:?}");
    }

    #[test]
    fn targets_far_from_standardised_are_reported_with_their_deviation() {
        let prices = values(&[100_000.0, 300_000.0, 100_000.0, 300_000.0, 9e9], 1, &["price"]);
        let notes = training_notes(&prices, &[0, 1, 2, 3]);
        assert_eq!(notes.len(), 1);
        let wanted = "the standard deviation of the target \"price\" is 100000 over the training samples (mean 200000)";
        assert!(notes[0].contains(wanted) && notes[0].contains("(target - mean) / deviation"), "{notes:?}");
        for near in [[-1.0f32, 1.0], [-4.9, 4.9], [-0.21, 0.21], [1000.0, 1002.0]] {
            assert_eq!(training_notes(&values(&near, 1, &[]), &[0, 1]), Vec::<String>::new(), "{near:?}");
        }
        let small = training_notes(&values(&[-0.001, 0.001], 1, &[]), &[0, 1]);
        assert!(small[0].contains("of the target is 0.001 over"), "{small:?}");
        let several = training_notes(&values(&[0.0, 5.0, -1.0, 20.0, 5.0, 1.0], 3, &[]), &[0, 1]);
        assert!(several[0].starts_with("value 1 of the target is 5 in every training sample"), "{several:?}");
        assert!(several[1].contains("value 0 of the target is 10 over"), "{several:?}");
        assert_eq!(training_notes(&values(&[1.0, 2.0], 1, &[]), &[]), Vec::<String>::new());
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let texts = [152_345.6, 0.012_345, 1.5, -20.0, 0.0, 7.7e27].map(significant);
        assert_eq!(texts, ["152346", "0.0123", "1.5", "-20", "0", "7.7e27"]);
    }
}
