//! A data set in the window: its samples, its classes, its features, its split.

use crate::data::{
    DataError, Dataset, InputSamples, Request, RowPart, Samples, Split, Target, load_to_show, split, training_notes,
};
use crate::model::{DataSource, DataSpec};
use crate::studio::view_models::format;
use crate::studio::view_models::whole_series::WholeSeries;
use crate::tensor::plural;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What a data set is loaded from and for. If two are equal, their views are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct DataKey {
    pub spec: DataSpec,
    pub request: Request,
    /// Whether the network has no mistakes; if it has some, its output is a guess, and nothing can be compared with it.
    pub has_network: bool,
    pub base: PathBuf,
}

/// How a sample is drawn as a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picture {
    /// The input whose samples are pictures.
    pub input: usize,
    /// 1 or 3.
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    /// The values that are drawn as black and white.
    pub low: f32,
    pub high: f32,
}

/// A class with its numbers of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCount {
    pub name: String,
    pub train: usize,
    pub held_out: usize,
}

/// Statistics of the values of a feature, or of a channel of a picture, over all samples.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureStats {
    pub name: String,
    pub min: f32,
    pub max: f32,
    pub mean: f64,
    /// Standard deviation of the population.
    pub std: f64,
}

/// A data set, ready to be drawn.
#[derive(Clone, Debug)]
pub struct DataView {
    pub set: Arc<Dataset>,
    pub split: Split,
    /// For each sample, whether it is held out.
    held: Vec<bool>,
    pub picture: Option<Picture>,
    pub classes: Vec<ClassCount>,
    pub features: Vec<FeatureStats>,
    /// Samples drawn in the plane, if a sample has two values; at most `SCATTERED`, spread evenly.
    pub scatter: Vec<u32>,
    /// The series that the samples are windows of, if they are.
    pub series: Option<WholeSeries>,
    /// Why the network cannot be trained on it.
    pub misfit: Option<Arc<DataError>>,
}

/// The largest number of samples in a scatter plot.
const SCATTERED: usize = 4000;
/// The largest number of features with statistics.
const LISTED: usize = 512;

/// Loads a data set and makes its view; this takes as long as reading the files.
///
/// # Errors
/// If a file cannot be read or is malformed, or a field of the preset cannot work: the message says what to do.
pub fn load_view(key: &DataKey) -> Result<DataView, DataError> {
    let (mut set, misfit) = load_to_show(&key.spec, &key.request, &key.base)?;
    let split = split(set.len(), &key.spec, key.request.seed)?;
    set.notes.extend(training_notes(&set, &split.train));
    // If the output of the network is a guess, the comparison with it has no meaning.
    let misfit = misfit.filter(|_| key.has_network).map(Arc::new);
    Ok(DataView::new(set, split, &key.spec.source, misfit))
}

/// At most `most` of this many samples, spread evenly: one of each range of equal length, at a position that varies
/// from one range to the next, because classes may alternate.
#[must_use]
pub fn spread(len: usize, most: usize) -> Vec<u32> {
    let stride = len.div_ceil(most.max(1)).max(1);
    let place = |block: usize| block * stride + (block.wrapping_mul(0x9E37_79B1) >> 8) % stride;
    (0..len.div_ceil(stride)).map(|block| place(block).min(len - 1) as u32).collect()
}

/// The picture of a sample for the first such input, if there is one.
#[must_use]
pub fn picture(set: &Dataset, source: &DataSource) -> Option<Picture> {
    let of = |(at, input): (usize, &InputSamples)| {
        let own = source.parts().next().filter(|_| set.inputs.len() == 1);
        let named = || match source {
            DataSource::Joined { inputs, .. } => inputs.iter().find(|(name, _)| *name == input.name),
            _ => None,
        };
        picture_of(at, input, own.or_else(|| named().map(|(_, source)| source))?)
    };
    set.inputs.iter().enumerate().find_map(of)
}

fn picture_of(at: usize, input: &InputSamples, source: &DataSource) -> Option<Picture> {
    let Samples::Real(x) = &input.values else { return None };
    let [channels, height, width] = match (&input.sample.0[..], source) {
        (&[c @ (1 | 3), h, w], _) if h > 1 && w > 1 => [c, h, w],
        // A picture whose rows are the positions of a sequence.
        (&[h, w], DataSource::Digits | DataSource::Idx { .. } | DataSource::Images { .. }) if h > 1 && w > 1 => {
            [1, h, w]
        }
        // A picture stored as one row of values, as fully connected networks use it.
        (&[len], DataSource::Digits | DataSource::Idx { .. } | DataSource::Images { .. }) => square(len, 1)?,
        (&[len], DataSource::Cifar10 { .. }) => square(len, 3)?,
        _ => return None,
    };
    // A part of the values is enough to find their range.
    let some = x.iter().step_by((x.len() / 100_000).max(1)).copied().filter(|v| v.is_finite());
    let (low, high) = some.fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    let (low, high) = if low >= 0.0 && high <= 1.0 { (0.0, 1.0) } else { (low, high.max(low + 1e-6)) };
    Some(Picture { input: at, channels, height, width, low, high })
}

fn square(len: usize, channels: usize) -> Option<[usize; 3]> {
    let side = ((len / channels) as f64).sqrt().round() as usize;
    (side > 1 && side * side * channels == len).then_some([channels, side, side])
}

impl Picture {
    /// The grey or coloured pixels of a sample, row by row, three bytes for each.
    #[must_use]
    pub fn rgb(&self, sample: &[f32]) -> Vec<u8> {
        let area = self.height * self.width;
        let byte = |v: f32| (((v - self.low) / (self.high - self.low)).clamp(0.0, 1.0) * 255.0).round() as u8;
        let at = |channel: usize, i: usize| sample.get(channel.min(self.channels - 1) * area + i).copied();
        (0..area).flat_map(|i| [0, 1, 2].map(|c| at(c, i).map_or(0, byte))).collect()
    }
}

impl DataView {
    /// Samples that neither train nor are held out.
    #[must_use]
    pub fn in_neither(&self) -> usize {
        self.set.len().saturating_sub(self.split.train.len() + self.split.held_out.len())
    }

    /// The view of a set with its split.
    #[must_use]
    pub fn new(set: Dataset, split: Split, source: &DataSource, misfit: Option<Arc<DataError>>) -> Self {
        let mut held = vec![false; set.len()];
        for i in &split.held_out {
            held[*i as usize] = true;
        }
        let picture = picture(&set, source);
        let scatter = if set.sample().len() == 2 { spread(set.len(), SCATTERED) } else { Vec::new() };
        let classes = classes(&set, &held);
        let features = features(&set, picture);
        let series = WholeSeries::of(&set, &split, source);
        Self { set: Arc::new(set), split, held, picture, classes, features, scatter, series, misfit }
    }

    /// True if sample `index` is held out.
    #[must_use]
    pub fn is_held_out(&self, index: u32) -> bool {
        self.held.get(index as usize).copied().unwrap_or(false)
    }

    /// The class of a sample, if there are classes.
    #[must_use]
    pub fn class(&self, index: u32) -> Option<usize> {
        class_of(&self.set, index)
    }

    /// The target of sample `index`, as text.
    #[must_use]
    pub fn target_text(&self, index: u32) -> String {
        target_text(&self.set, index)
    }

    /// The samples of a class (all if `None`) and of one side of the split (both if `None`), in order.
    #[must_use]
    pub fn filtered(&self, class: Option<usize>, held_out: Option<bool>) -> Vec<u32> {
        let wanted = |i: &u32| {
            class.is_none_or(|c| self.class(*i) == Some(c)) && held_out.is_none_or(|h| self.is_held_out(*i) == h)
        };
        (0..self.set.len() as u32).filter(wanted).collect()
    }
}

/// The class of a sample, if there are classes.
#[must_use]
pub fn class_of(set: &Dataset, index: u32) -> Option<usize> {
    match &set.target {
        Target::Classes { labels, shape, .. } if shape.rank() == 0 => {
            labels.get(index as usize).and_then(|l| usize::try_from(*l).ok())
        }
        Target::Classes { .. } | Target::Values { .. } | Target::Windows(_) => None,
    }
}

/// The name of a class; its number if it has none.
#[must_use]
pub fn class_name(set: &Dataset, class: usize) -> String {
    set.target.names().get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// A column of the table of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// The number of the input.
    pub input: usize,
    /// The index of its value; `None` if the whole sample is a text.
    pub value: Option<usize>,
    pub name: String,
}

/// The columns of a table of samples, at most `most` values of each input.
#[must_use]
pub fn table_columns(set: &Dataset, most: usize) -> Vec<TableColumn> {
    let is_only = set.inputs.len() == 1;
    let of_input = |(at, input): (usize, &InputSamples)| {
        let before = if is_only { String::new() } else { format!("{} ", input.name) };
        if !matches!(input.values, Samples::Real(_)) {
            let name = if is_only { "text".to_owned() } else { input.name.clone() };
            return vec![TableColumn { input: at, value: None, name }];
        }
        let names = set.names_of(at);
        let name = |i: usize| names.get(i).cloned().unwrap_or_else(|| format!("x{i}"));
        let column = |i: usize| TableColumn { input: at, value: Some(i), name: format!("{before}{}", name(i)) };
        (0..input.sample.len().min(most)).map(column).collect()
    };
    set.inputs.iter().enumerate().flat_map(of_input).collect()
}

/// A sample of one of the inputs as text, if its tokens are bytes or characters; line breaks and similar characters are
/// escaped, and padding zeros are left out.
#[must_use]
pub fn sample_text(set: &Dataset, input: usize, index: u32) -> Option<String> {
    let InputSamples { sample, values, .. } = set.inputs.get(input)?;
    match values {
        Samples::Windows(rows) => Some(one_line(&rows.text(index, RowPart::Sample))),
        Samples::Tokens(tokens) => {
            let own = tokens.get(index as usize * sample.len()..(index as usize + 1) * sample.len())?;
            let bytes: Option<Vec<u8>> = own.iter().map(|token| u8::try_from(*token).ok()).collect();
            let numbers = || own.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
            Some(bytes.map_or_else(numbers, |bytes| one_line(&text(bytes))))
        }
        Samples::Real(_) => None,
    }
}

/// The shape of a sample: that of each input, after its name if there are several.
#[must_use]
pub fn shapes_text(set: &Dataset) -> String {
    let of = |input: &InputSamples| match set.inputs.len() {
        1 => input.sample.to_string(),
        _ => format!("{} {}", input.name, input.sample),
    };
    set.inputs.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Text in which line breaks and other characters that are not printed are escaped.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// The target of a sample, as text.
#[must_use]
pub fn target_text(set: &Dataset, index: u32) -> String {
    match &set.target {
        Target::Classes { .. } => class_of(set, index).map_or_else(String::new, |c| class_name(set, c)),
        Target::Windows(rows) => one_line(&rows.text(index, RowPart::Target)),
        Target::Values { values, shape } => {
            let width = shape.len();
            let own = values.get(index as usize * width..(index as usize + 1) * width).unwrap_or_default();
            let mut text: Vec<String> = own.iter().take(4).map(|v| format::number(f64::from(*v))).collect();
            if own.len() > 4 {
                text.push("…".into());
            }
            text.join(", ")
        }
    }
}

fn classes(set: &Dataset, held: &[bool]) -> Vec<ClassCount> {
    let Target::Classes { labels, names, shape } = &set.target else { return Vec::new() };
    if shape.rank() > 0 {
        return Vec::new();
    }
    let highest = labels.iter().copied().max().map_or(0, |l| usize::try_from(l).unwrap_or(0) + 1);
    let mut out: Vec<ClassCount> =
        (0..names.len().max(highest)).map(|c| ClassCount { name: class_name(set, c), train: 0, held_out: 0 }).collect();
    for (label, held) in labels.iter().zip(held) {
        if let Some(count) = usize::try_from(*label).ok().and_then(|l| out.get_mut(l)) {
            *(if *held { &mut count.held_out } else { &mut count.train }) += 1;
        }
    }
    out
}

fn features(set: &Dataset, picture: Option<Picture>) -> Vec<FeatureStats> {
    let of = |at: usize| features_of(set, at, picture.filter(|picture| picture.input == at));
    (0..set.inputs.len()).flat_map(of).collect()
}

/// The features of one of the inputs.
fn features_of(set: &Dataset, at: usize, picture: Option<Picture>) -> Vec<FeatureStats> {
    let InputSamples { name: input, sample, values: Samples::Real(x) } = &set.inputs[at] else { return Vec::new() };
    let width = sample.len();
    if width == 0 || x.is_empty() {
        return Vec::new();
    }
    let names = set.names_of(at);
    let before = if set.inputs.len() == 1 { String::new() } else { format!("{input} ") };
    // For a picture the statistics are those of channels, not of pixels.
    let (groups, area) = picture.map_or((width.min(LISTED), 1), |p| (p.channels, p.height * p.width));
    let name = |g: usize| match picture {
        Some(p) if p.channels == 3 => ["red", "green", "blue"][g.min(2)].to_owned(),
        Some(_) => "grey".to_owned(),
        None => names.get(g).cloned().unwrap_or_else(|| format!("x{g}")),
    };
    let mut sums = vec![(f32::INFINITY, f32::NEG_INFINITY, 0.0f64, 0.0f64); groups];
    for sample in x.chunks_exact(width) {
        for (sum, values) in sums.iter_mut().zip(sample.chunks_exact(area)) {
            for &v in values {
                let wide = f64::from(v);
                *sum = (sum.0.min(v), sum.1.max(v), sum.2 + wide, sum.3 + wide * wide);
            }
        }
    }
    let count = (x.len() / width * area) as f64;
    let stats = |(g, (min, max, sum, squares)): (usize, (f32, f32, f64, f64))| {
        let mean = sum / count;
        FeatureStats {
            name: format!("{before}{}", name(g)),
            min,
            max,
            mean,
            std: (squares / count - mean * mean).max(0.0).sqrt(),
        }
    };
    sums.into_iter().enumerate().map(stats).collect()
}

/// A line of general information, one for each class, one for each feature, and the notes.
impl fmt::Display for DataView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (train, held) = (self.split.train.len(), self.split.held_out.len());
        writeln!(
            f,
            "{}: {} {} of {}, {train} train, {held} held out",
            self.set.name,
            self.set.len(),
            plural(self.set.len() as u64, "sample"),
            shapes_text(&self.set)
        )?;
        for c in &self.classes {
            writeln!(f, "class {}: {} + {}", c.name, c.train, c.held_out)?;
        }
        for s in &self.features {
            writeln!(f, "{}: {} to {}, mean {:.4}, std {:.4}", s.name, s.min, s.max, s.mean, s.std)?;
        }
        if let Some(why) = &self.misfit {
            writeln!(f, "! {why}")?;
        }
        self.set.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LossSpec, NamedInput};
    use crate::tensor::Shape;

    fn key(source: DataSource, input: &[usize], output: Option<usize>) -> DataKey {
        DataKey {
            spec: DataSpec::of(source),
            request: Request {
                inputs: vec![NamedInput::only(Shape(input.to_vec()))],
                output: Shape::from([output.unwrap_or(1)]),
                loss: LossSpec::SOFTMAX_CROSS_ENTROPY,
                seed: 0,
            },
            has_network: output.is_some(),
            base: PathBuf::new(),
        }
    }

    #[test]
    fn evenly_spread_samples_include_every_class() {
        for (len, most) in [(3000, 2000), (3000, 1000), (100_000, 4000)] {
            let found = spread(len, most);
            assert!(found.len() <= most && found.windows(2).all(|w| w[0] < w[1]) && (found[0] as usize) < len);
            let classes: std::collections::HashSet<u32> = found.iter().map(|i| i % 12).collect();
            assert_eq!(classes.len(), 12, "{len} {most}");
        }
        assert_eq!((spread(3, 10), spread(0, 10)), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn digits_are_pictures_with_counted_classes() {
        let view = load_view(&key(DataSource::Digits, &[64], Some(10))).unwrap();
        let text = view.to_string();
        assert!(text.starts_with("digits: 1797 samples of [64], 1437 train, 360 held out\n"), "{text}");
        assert_eq!(view.classes.iter().map(|c| c.train + c.held_out).sum::<usize>(), 1797);
        let picture = view.picture.unwrap();
        assert_eq!((picture.channels, picture.height, picture.width), (1, 8, 8));
        assert_eq!(picture.rgb(view.set.sample_slice(0)).len(), 8 * 8 * 3);
        assert_eq!(view.in_neither(), 0);
        let rows = load_view(&key(DataSource::Digits, &[8, 8], Some(10))).unwrap();
        assert_eq!(rows.picture.map(|p| (p.channels, p.height, p.width)), Some((1, 8, 8)));
        assert_eq!(view.features.len(), 1);
        let held = view.filtered(Some(3), Some(true));
        assert_eq!(held.len(), view.classes[3].held_out);
        assert!(held.iter().all(|i| view.target_text(*i) == "3" && view.is_held_out(*i)));
    }

    #[test]
    fn data_that_does_not_fit_is_shown_with_the_reason() {
        let view = load_view(&key(DataSource::Digits, &[64], Some(4))).unwrap();
        assert_eq!(view.set.len(), 1797);
        assert!(view.misfit.as_ref().is_some_and(|m| m.to_string().contains("does not fit the network")), "{view}");
        // A network with mistakes is not compared with the data.
        assert!(load_view(&key(DataSource::Digits, &[64], None)).unwrap().misfit.is_none());
        let csv = DataSource::Npz { path: "none.npz".into(), x: "x".into(), y: "y".into() };
        let why = load_view(&key(csv, &[64], Some(4))).unwrap_err().to_string();
        assert!(why.contains("none.npz: cannot be read"), "{why}");
    }

    #[test]
    fn a_set_in_the_plane_is_scattered_and_large_ones_are_thinned() {
        let spirals = DataSource::Spirals { samples: 30_000, classes: 3, noise: 0.1 };
        let view = load_view(&key(spirals, &[2], Some(3))).unwrap();
        assert!(view.scatter.len() <= SCATTERED && view.scatter.len() > SCATTERED / 2 && view.picture.is_none());
        assert_eq!(view.features.len(), 2);
        assert!(view.features.iter().all(|f| f.min < f.max && f.std > 0.0));
    }

    #[test]
    fn values_outside_0_to_1_are_stretched() {
        let p = Picture { input: 0, channels: 3, height: 1, width: 2, low: -1.0, high: 1.0 };
        assert_eq!(p.rgb(&[-1.0, 1.0, 0.0, -3.0, 1.0, 0.5]), [0, 128, 255, 255, 0, 191]);
    }
}
