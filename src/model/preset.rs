//! The preset document, as the user edits it.

use super::input::InputSpec;
use super::layers::LayerSpec;
use super::losses::LossSpec;
use super::optimizers::OptimizerSpec;
use super::path::{LayerPath, ListId, ListPath};
use super::update::UpdateSpec;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A network with its loss, optimizer, data and training length: one JSON file.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    pub name: String,
    /// A description for the user to read before training.
    pub about: String,
    pub input: InputSpec,
    pub layers: Vec<LayerSpec>,
    pub loss: LossSpec,
    pub optimizer: OptimizerSpec,
    /// Further settings of the update, in the optimizer's object.
    pub update: UpdateSpec,
    pub precision: Precision,
    pub data: Option<DataSpec>,
    pub train: Option<TrainSpec>,
}

impl Preset {
    /// The preset with absolute paths of its data; relative ones are relative to `base`. So it means the same in any
    /// folder.
    #[must_use]
    pub fn with_whole_paths(mut self, base: &Path) -> Self {
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let paths = self.data.iter_mut().flat_map(|data| data.source.paths_mut());
        paths.for_each(|path| *path = whole(base.join(&*path)));
        self
    }

    /// Whether both train the same network in the same way, regardless of the length of training and their names.
    #[must_use]
    pub fn trains_as(&self, other: &Self) -> bool {
        let Self { name: _, about: _, input, layers, loss, optimizer, update, precision, data, train } = self;
        let drawn = |train: &Option<TrainSpec>| train.map_or((0, 1), |t| (t.seed, t.accumulate));
        (input, loss, optimizer) == (&other.input, &other.loss, &other.optimizer)
            && update == &other.update
            && (precision, data, drawn(train)) == (&other.precision, &other.data, drawn(&other.train))
            && *layers == other.layers
    }

    /// The number of samples in a step.
    #[must_use]
    pub fn samples_a_step(&self) -> usize {
        self.input.batch.saturating_mul(self.train.unwrap_or_default().accumulate)
    }

    /// The layers of a list; `None` where there is no such list.
    #[must_use]
    pub fn list(&self, at: &ListPath) -> Option<&[LayerSpec]> {
        match at.block.is_empty() {
            true => (at.list == ListId::default()).then_some(self.layers.as_slice()),
            false => self.layer(&at.block)?.list(at.list),
        }
    }

    /// The layers of a list, mutable.
    pub fn list_mut(&mut self, at: &ListPath) -> Option<&mut Vec<LayerSpec>> {
        match at.block.is_empty() {
            true => (at.list == ListId::default()).then_some(&mut self.layers),
            false => self.layer_mut(&at.block)?.list_mut(at.list),
        }
    }

    /// The layer at a path; `None` if there is none.
    #[must_use]
    pub fn layer(&self, path: &LayerPath) -> Option<&LayerSpec> {
        let (list, index) = path.split()?;
        self.list(&list)?.get(index)
    }

    /// The layer at a path, mutable.
    pub fn layer_mut(&mut self, path: &LayerPath) -> Option<&mut LayerSpec> {
        let (list, index) = path.split()?;
        self.list_mut(&list)?.get_mut(index)
    }

    /// The last layer that determines how many values the network returns, with the field; in a network without one,
    /// its last layer.
    #[must_use]
    pub fn output_field(&self) -> Option<(LayerPath, &'static str)> {
        fn last(layers: &[LayerSpec], parent: &ListPath) -> Option<(LayerPath, &'static str)> {
            layers.iter().enumerate().rev().find_map(|(index, layer)| {
                let path = parent.child(index);
                match (layer.output_field(), layer.lists().as_slice()) {
                    (Some(field), _) => Some((path, field)),
                    (None, [(list, layers)]) => last(layers, &path.list(*list)),
                    (None, []) => None,
                    // All lists contribute to the output.
                    (None, _) => Some((path, "")),
                }
            })
        }
        let end = || Some((LayerPath::from([self.layers.len().checked_sub(1)?]), ""));
        last(&self.layers, &ListPath::default()).or_else(end)
    }
}

/// The precision of products and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    #[default]
    F32,
    /// f32 storage, products rounded to 10 bits of mantissa on a GPU's tensor cores.
    Tf32,
    Bf16,
    F16,
}

impl Precision {
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::Bf16, Self::F16];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// How long and from which seed to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainSpec {
    pub steps: usize,
    pub seed: u64,
    /// The number of consecutive batches whose mean gradient makes a step.
    pub accumulate: usize,
}

impl Default for TrainSpec {
    fn default() -> Self {
        Self { steps: 1000, seed: 0, accumulate: 1 }
    }
}

/// A data set and its split.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSpec {
    pub source: DataSource,
    /// Samples kept for evaluation: below 1 a fraction of all, from 1 on a count; 0 keeps none.
    pub held_out: f64,
    pub split: SplitKind,
    pub last_batch: LastBatch,
    /// Lengths that a step's sequences may have, ascending; if it is empty, all have the input's length.
    pub buckets: Vec<usize>,
}

impl DataSpec {
    /// This source with a fifth held out: the last part of a text or series, otherwise a random part.
    #[must_use]
    pub fn of(source: DataSource) -> Self {
        let split = SplitKind::usual(&source);
        Self { source, held_out: 0.2, split, last_batch: LastBatch::Drop, buckets: Vec::new() }
    }

    /// Whether the steps of a run may differ in their samples or positions.
    #[must_use]
    pub fn has_varied_steps(&self) -> bool {
        self.last_batch == LastBatch::Short || !self.buckets.is_empty()
    }

    /// Samples out of `count` that are held out.
    #[must_use]
    pub fn held_out_of(&self, count: usize) -> usize {
        let share = self.held_out;
        // The small tolerance keeps 0.1 of 70 at 7 although the product is slightly larger.
        let wanted = if share < 1.0 { (share * count as f64 - 1e-9).ceil().max(0.0) } else { share };
        (wanted as usize).min(count)
    }
}

/// What happens to the samples at the end of an epoch that are fewer than a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// They are left out.
    #[default]
    Drop,
    /// They make a shorter batch.
    Short,
}

impl LastBatch {
    pub const ALL: [Self; 2] = [Self::Drop, Self::Short];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Short => "short",
        }
    }
}

/// Which samples are held out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitKind {
    /// Drawn at random from the seed.
    #[default]
    Shuffled,
    /// The last samples of the file.
    Last,
}

impl SplitKind {
    /// The split of a document that names none.
    #[must_use]
    pub fn usual(source: &DataSource) -> Self {
        if source.is_ordered() { Self::Last } else { Self::Shuffled }
    }

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shuffled => "shuffled",
            Self::Last => "last",
        }
    }
}

/// Where samples come from. Relative paths are relative to the preset's folder.
#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    /// 1,797 handwritten digits, as 64 features or 1x8x8, scaled to 0..1; 10 classes. Bundled.
    Digits,
    /// Sums over the same digits: the mean of each row and of each column, 16 features; 10 classes.
    DigitSums,
    /// 150 flowers, 4 standardised features, 3 classes. Bundled.
    Iris,
    /// Interleaved spiral arms in the plane, one for each class.
    Spirals { samples: usize, classes: usize, noise: f64 },
    /// Two interleaved half circles.
    Moons { samples: usize, noise: f64 },
    /// Two concentric circles; the inner has `factor` times the radius.
    Circles { samples: usize, noise: f64, factor: f64 },
    /// Four clusters; opposite ones share a class.
    Xor { samples: usize, noise: f64 },
    /// Smooth functions of `input.shape[0]` variables, one for each output.
    Regression { samples: usize, noise: f64 },
    /// A text table. The features are `columns`, or, if it is empty, all columns except the target; for an input of
    /// tokens the bytes of one column.
    Csv {
        path: PathBuf,
        header: Header,
        target: TargetColumn,
        columns: Vec<ColumnRange>,
        standardize: bool,
        delimiter: char,
    },
    /// Arrays `x` and `y` of one `.npz` archive.
    Npz { path: PathBuf, x: String, y: String },
    /// Two `.npy` files.
    Npy { x: PathBuf, y: PathBuf },
    /// Two IDX files (the MNIST family), plain or gzip; bytes are scaled to 0..1.
    Idx { images: PathBuf, labels: PathBuf },
    /// CIFAR-10 binary batches, scaled to 0..1.
    Cifar10 { paths: Vec<PathBuf> },
    /// A folder with one subfolder of PNG or JPEG files for each class, resized to the input's height and width.
    Images { path: PathBuf },
    /// Windows of a text, as long as the network's input; the target of each token is the next one.
    Text { path: PathBuf, tokens: Tokens },
    /// The source code of a part of this program, read as a text of ASCII characters. Bundled.
    SourceCode,
    /// Additions of two numbers of up to three digits, written as characters.
    Sums { samples: usize },
    /// Noisy sums of three sines: the input is a window of one, the target the values after it.
    Waves { samples: usize, noise: f64 },
    /// Windows of `window` lines of a table, whose target is the values of the next `horizon` lines.
    Series { path: PathBuf, columns: Vec<TargetColumn>, window: usize, horizon: usize },
    /// A source for each input of the network by its name, joined by row: sample i consists of sample i of each source.
    /// Targets are those of the source of the input `target`.
    Joined { inputs: Vec<(String, Self)>, target: String },
}

/// What the tokens of a text are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// Each byte is a token; its number is the byte's value.
    #[default]
    Bytes,
    /// Each character that occurs in the text is a token; they are numbered by code point.
    Chars,
    /// The tokens of a tokenizer in this file.
    File(PathBuf),
}

impl Tokens {
    /// The text in presets: a name, or the path of a file.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Bytes => "bytes".into(),
            Self::Chars => "chars".into(),
            Self::File(path) => path.to_string_lossy(),
        }
    }

    /// The tokens with this name, or of a file whose path ends in `.json`, as those of tokenizers do.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bytes" => Some(Self::Bytes),
            "chars" => Some(Self::Chars),
            path => path.to_lowercase().ends_with(".json").then(|| Self::File(path.into())),
        }
    }
}

impl DataSource {
    /// The joined sources; this source alone if it does not join others.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        let (own, joined) = match self {
            Self::Joined { inputs, .. } => (None, inputs.as_slice()),
            own => (Some(own), &[][..]),
        };
        own.into_iter().chain(joined.iter().map(|(_, source)| source))
    }

    /// The source that targets come from.
    #[must_use]
    pub fn of_target(&self) -> &Self {
        match self {
            Self::Joined { inputs, target } => {
                inputs.iter().find(|(name, _)| name == target).map_or(self, |(_, source)| source)
            }
            own => own,
        }
    }

    /// True if features are scaled to mean 0 and deviation 1.
    #[must_use]
    pub fn is_standardized(&self) -> bool {
        self.parts().any(|part| matches!(part, Self::Iris | Self::Csv { standardize: true, .. }))
    }

    /// The number of following samples that share data with a sample.
    #[must_use]
    pub fn overlap(&self) -> usize {
        let of = |part: &Self| match part {
            // A window begins at every line.
            Self::Series { window, horizon, .. } => window.saturating_add(*horizon).saturating_sub(1),
            _ => 0,
        };
        self.parts().map(of).max().unwrap_or(0)
    }

    /// Like [`Self::paths`], mutable.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Csv { path, .. } | Self::Npz { path, .. } | Self::Images { path } | Self::Series { path, .. } => {
                vec![path]
            }
            Self::Text { path, tokens: Tokens::File(tokenizer) } => vec![path, tokenizer],
            Self::Text { path, .. } => vec![path],
            Self::Npy { x, y } => vec![x, y],
            Self::Idx { images, labels } => vec![images, labels],
            Self::Cifar10 { paths } => paths.iter_mut().collect(),
            Self::Joined { inputs, .. } => inputs.iter_mut().flat_map(|(_, source)| source.paths_mut()).collect(),
            Self::Digits
            | Self::DigitSums
            | Self::Iris
            | Self::Spirals { .. }
            | Self::Moons { .. }
            | Self::Circles { .. }
            | Self::Xor { .. }
            | Self::Regression { .. }
            | Self::SourceCode
            | Self::Sums { .. }
            | Self::Waves { .. } => Vec::new(),
        }
    }

    /// The files and folders that the source reads, as the preset names them; empty if samples are bundled or drawn.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.clone().paths_mut().into_iter().map(std::mem::take).collect()
    }
}

/// Whether a text table starts with a line of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// True if a cell of the first line, outside a column of names, is not a number.
    #[default]
    Auto,
    Yes,
    No,
}

/// A range of consecutive columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRange {
    pub first: TargetColumn,
    /// The same as `first` for a single column.
    pub last: TargetColumn,
}

/// The target column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetColumn {
    #[default]
    Last,
    /// Counted from 0.
    Index(usize),
    Name(String),
}
