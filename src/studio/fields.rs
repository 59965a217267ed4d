//! The fields of a preset as data: what a person edits, one by one.
//!
//! Every field has a typed value that prints as text and reads back from it, so that one editor serves them all, and a wrong text
//! never reaches the document.

use crate::model::layers::Padding;
use crate::model::{
    Activation, DataSource, DataSpec, Header, LayerPath, LayerSpec, LossSpec, OptimizerSpec, Precision, Preset,
    SplitKind, TargetColumn, TrainSpec,
};
use std::path::PathBuf;

/// Whose field it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The document itself; names are whole paths such as `optimizer.lr`.
    Preset,
    Layer(LayerPath),
}

impl Owner {
    /// The field's place as diagnostics name it: `layers[1].rate`.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Preset => name.to_owned(),
            Self::Layer(path) => format!("{path}.{name}"),
        }
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    Count(usize),
    Seed(u64),
    Number(f64),
    Numbers([f64; 2]),
    Pair([usize; 2]),
    Padding(Padding),
    Shape(Vec<usize>),
    Text(String),
    Flag(bool),
    /// One of the field's options, by position.
    Choice(usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub owner: Owner,
    pub name: &'static str,
    /// The name on screen.
    pub label: &'static str,
    pub value: FieldValue,
    pub options: Vec<&'static str>,
    pub help: &'static str,
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

impl FieldValue {
    /// The value as a person types it.
    #[must_use]
    pub fn text(&self) -> String {
        let pair = |p: &[usize; 2]| if p[0] == p[1] { p[0].to_string() } else { format!("{}, {}", p[0], p[1]) };
        match self {
            Self::Count(n) => n.to_string(),
            Self::Seed(n) => n.to_string(),
            Self::Number(n) => number_text(*n),
            Self::Numbers([a, b]) => format!("{}, {}", number_text(*a), number_text(*b)),
            Self::Pair(p) | Self::Padding(Padding::Fixed(p)) => pair(p),
            Self::Padding(Padding::Same) => "same".into(),
            Self::Padding(Padding::Valid) => "valid".into(),
            Self::Shape(dims) => dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
            Self::Choice(index) => index.to_string(),
        }
    }

    /// Reads a text as a value of this one's type.
    ///
    /// # Errors
    /// What is allowed here.
    pub fn parse(&self, text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let list = || -> Option<Vec<usize>> {
            inner.split([',', 'x', ' ']).map(str::trim).filter(|p| !p.is_empty()).map(|p| p.parse().ok()).collect()
        };
        let pair = || match list()?.as_slice() {
            [n] => Some([*n, *n]),
            [a, b] => Some([*a, *b]),
            _ => None,
        };
        let finite = |t: &str| t.trim().parse::<f64>().ok().filter(|v| v.is_finite());
        Ok(match self {
            Self::Count(_) => Self::Count(text.parse().map_err(|_| "expected a whole number, at least 0")?),
            Self::Seed(_) => Self::Seed(text.parse().map_err(|_| "expected a whole number, at least 0")?),
            Self::Number(_) => Self::Number(finite(text).ok_or("expected a number, such as 0.001 or 1e-3")?),
            Self::Numbers(_) => {
                let parts: Option<Vec<f64>> = inner.split(',').map(finite).collect();
                let parts = parts.ok_or("expected two numbers, such as 0.9, 0.999")?;
                Self::Numbers(parts.try_into().map_err(|_| "expected two numbers, such as 0.9, 0.999")?)
            }
            Self::Pair(_) => Self::Pair(pair().ok_or("expected a whole number, or two as h, w")?),
            Self::Padding(_) => Self::Padding(match text {
                "same" => Padding::Same,
                "valid" => Padding::Valid,
                _ => Padding::Fixed(pair().ok_or("expected a whole number, h, w, same or valid")?),
            }),
            Self::Shape(_) => {
                let dims = list().filter(|d| !d.is_empty());
                Self::Shape(dims.ok_or("expected a size, or channels, height, width: 64 or 1, 28, 28")?)
            }
            Self::Text(_) => Self::Text(text.to_owned()),
            Self::Flag(_) | Self::Choice(_) => self.clone(),
        })
    }
}

/// A number in its shortest exact form; small and large ones with an exponent.
fn number_text(value: f64) -> String {
    let small = value != 0.0 && value.abs() < 1e-4;
    if small || value.abs() >= 1e9 { format!("{value:e}") } else { format!("{value}") }
}

struct List {
    owner: Owner,
    fields: Vec<Field>,
}

impl List {
    fn put(&mut self, name: &'static str, label: &'static str, value: FieldValue, help: &'static str) {
        self.fields.push(Field { owner: self.owner.clone(), name, label, value, options: Vec::new(), help });
    }

    fn choose(
        &mut self,
        name: &'static str,
        label: &'static str,
        options: Vec<&'static str>,
        chosen: usize,
        help: &'static str,
    ) {
        self.fields.push(Field {
            owner: self.owner.clone(),
            name,
            label,
            value: FieldValue::Choice(chosen),
            options,
            help,
        });
    }

    fn activation(&mut self, chosen: Option<Activation>) {
        let mut options = vec!["none"];
        options.extend(Activation::ALL.map(Activation::name));
        let index = chosen.and_then(|a| Activation::ALL.iter().position(|b| *b == a)).map_or(0, |i| i + 1);
        self.choose(
            "activation",
            "activation",
            options,
            index,
            "Applied to each output; fused into the product's kernel.",
        );
    }
}

/// The fields of a layer, in the order in which they are shown.
#[must_use]
pub fn layer_fields(path: &LayerPath, layer: &LayerSpec) -> Vec<Field> {
    use FieldValue::{Count, Flag, Number, Pair};
    let mut l = List { owner: Owner::Layer(path.clone()), fields: Vec::new() };
    match layer {
        LayerSpec::Dense(d) => {
            l.put("units", "units", Count(d.units), "Outputs of the layer.");
            l.activation(d.activation);
            l.put("bias", "bias", Flag(d.bias), "Adds a learned offset to each output.");
        }
        LayerSpec::Conv2d(c) => {
            l.put("filters", "filters", Count(c.filters), "Output channels.");
            l.put("kernel", "kernel", Pair(c.kernel), "Height and width of a filter.");
            l.put("stride", "stride", Pair(c.stride), "Pixels between windows.");
            l.put(
                "padding",
                "padding",
                FieldValue::Padding(c.padding),
                "Zeros around the image: a number, h, w, same or valid.",
            );
            l.put("dilation", "dilation", Pair(c.dilation), "Pixels between a filter's taps.");
            l.put("groups", "groups", Count(c.groups), "Channels are divided into this many independent groups.");
            l.activation(c.activation);
            l.put("bias", "bias", Flag(c.bias), "Adds a learned offset to each channel.");
        }
        LayerSpec::BatchNorm(b) => {
            l.put("momentum", "momentum", Number(b.momentum), "Share of the batch's statistics in the running ones.");
            l.put("eps", "eps", Number(b.eps), "Added to the variance.");
        }
        LayerSpec::LayerNorm(n) => l.put("eps", "eps", Number(n.eps), "Added to the variance."),
        LayerSpec::Activation(a) => {
            let index = Activation::ALL.iter().position(|b| *b == a.function).unwrap_or(0);
            l.choose(
                "function",
                "function",
                Activation::ALL.map(Activation::name).into(),
                index,
                "The function of each element.",
            );
        }
        LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p) => {
            l.put("size", "size", Pair(p.size), "Height and width of a window.");
            l.put("stride", "stride", Pair(p.stride), "Pixels between windows.");
            l.put("padding", "padding", Pair(p.padding), "Pixels added on each side.");
        }
        LayerSpec::Dropout(d) => {
            l.put("rate", "rate", Number(d.rate), "Share of elements silenced while training, below 1.")
        }
        LayerSpec::Repeat(r) => {
            l.put("times", "times", Count(r.times), "How often the block is applied, with the same weights.")
        }
        LayerSpec::GlobalAvgPool | LayerSpec::Flatten | LayerSpec::Residual(_) => {}
    }
    l.fields
}

/// Sets a field of a layer; false where it has no such field or the value is of another type.
pub fn set_layer_field(layer: &mut LayerSpec, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Flag, Number, Pair};
    let activation = |index: usize| index.checked_sub(1).and_then(|i| Activation::ALL.get(i)).copied();
    match (layer, name, value) {
        (LayerSpec::Dense(d), "units", Count(n)) => d.units = *n,
        (LayerSpec::Dense(d), "activation", Choice(i)) => d.activation = activation(*i),
        (LayerSpec::Dense(d), "bias", Flag(b)) => d.bias = *b,
        (LayerSpec::Conv2d(c), "filters", Count(n)) => c.filters = *n,
        (LayerSpec::Conv2d(c), "kernel", Pair(p)) => c.kernel = *p,
        (LayerSpec::Conv2d(c), "stride", Pair(p)) => c.stride = *p,
        (LayerSpec::Conv2d(c), "padding", FieldValue::Padding(p)) => c.padding = *p,
        (LayerSpec::Conv2d(c), "dilation", Pair(p)) => c.dilation = *p,
        (LayerSpec::Conv2d(c), "groups", Count(n)) => c.groups = *n,
        (LayerSpec::Conv2d(c), "activation", Choice(i)) => c.activation = activation(*i),
        (LayerSpec::Conv2d(c), "bias", Flag(b)) => c.bias = *b,
        (LayerSpec::BatchNorm(b), "momentum", Number(n)) => b.momentum = *n,
        (LayerSpec::BatchNorm(b), "eps", Number(n)) => b.eps = *n,
        (LayerSpec::LayerNorm(l), "eps", Number(n)) => l.eps = *n,
        (LayerSpec::Activation(a), "function", Choice(i)) => {
            a.function = Activation::ALL.get(*i).copied().unwrap_or(a.function)
        }
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "size", Pair(v)) => {
            // Windows that stand side by side keep doing so when their size changes.
            if p.stride == p.size {
                p.stride = *v;
            }
            p.size = *v;
        }
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "stride", Pair(v)) => p.stride = *v,
        (LayerSpec::MaxPool2d(p) | LayerSpec::AvgPool2d(p), "padding", Pair(v)) => p.padding = *v,
        (LayerSpec::Dropout(d), "rate", Number(n)) => d.rate = *n,
        (LayerSpec::Repeat(r), "times", Count(n)) => r.times = *n,
        _ => return false,
    }
    true
}

const LOSSES: [&str; 2] = ["softmax_cross_entropy", "mse"];
const OPTIMIZERS: [&str; 3] = ["sgd", "adam", "adamw"];
const SOURCES: [&str; 14] = [
    "none",
    "digits",
    "iris",
    "spirals",
    "moons",
    "circles",
    "xor",
    "regression",
    "csv",
    "npz",
    "npy",
    "idx",
    "cifar10",
    "images",
];

/// The length of a run where the preset names none.
const DEFAULT_TRAIN: TrainSpec = TrainSpec { steps: 1000, seed: 0 };

/// The fields outside the layers, by section.
#[must_use]
pub fn preset_fields(preset: &Preset) -> Vec<(&'static str, Vec<Field>)> {
    vec![
        ("Input", input_fields(preset)),
        ("Loss", loss_fields(preset.loss)),
        ("Optimizer", optimizer_fields(&preset.optimizer)),
        ("Data", data_fields(preset.data.as_ref())),
        ("Run", run_fields(preset)),
    ]
}

fn list() -> List {
    List { owner: Owner::Preset, fields: Vec::new() }
}

fn input_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    l.put(
        "input.shape",
        "sample shape",
        FieldValue::Shape(preset.input.shape.0.clone()),
        "One sample: features, or channels, height, width.",
    );
    l.put("input.batch", "batch", FieldValue::Count(preset.input.batch), "Samples a step.");
    let index = Precision::ALL.iter().position(|p| *p == preset.precision).unwrap_or(0);
    l.choose(
        "precision",
        "precision",
        Precision::ALL.map(Precision::name).into(),
        index,
        "Precision of products and activations; the CPU computes f32.",
    );
    l.fields
}

fn loss_fields(loss: LossSpec) -> Vec<Field> {
    let mut l = list();
    let index = usize::from(matches!(loss, LossSpec::Mse));
    l.choose("loss.type", "loss", LOSSES.into(), index, "What training makes small; the mean over the batch.");
    if let LossSpec::SoftmaxCrossEntropy { label_smoothing } = loss {
        l.put(
            "loss.label_smoothing",
            "label smoothing",
            FieldValue::Number(label_smoothing),
            "Share of the target spread over all classes.",
        );
    }
    l.fields
}

fn optimizer_fields(optimizer: &OptimizerSpec) -> Vec<Field> {
    use FieldValue::{Flag, Number, Numbers};
    let mut l = list();
    let index = OPTIMIZERS.iter().position(|o| *o == optimizer.name()).unwrap_or(0);
    l.choose("optimizer.type", "optimizer", OPTIMIZERS.into(), index, "How gradients move the parameters.");
    l.put(
        "optimizer.lr",
        "learning rate",
        Number(optimizer.lr()),
        "Live: it can change while the recorded step is replayed.",
    );
    match *optimizer {
        OptimizerSpec::Sgd { momentum, nesterov, .. } => {
            l.put(
                "optimizer.momentum",
                "momentum",
                Number(momentum),
                "Share of the last step's direction that is kept.",
            );
            l.put("optimizer.nesterov", "nesterov", Flag(nesterov), "Looks ahead along the momentum.");
        }
        OptimizerSpec::Adam { betas, eps, .. } => {
            l.put("optimizer.betas", "betas", Numbers(betas), "Decay of the two moments.");
            l.put("optimizer.eps", "eps", Number(eps), "Added to the root of the second moment.");
        }
    }
    l.put("optimizer.weight_decay", "weight decay", Number(optimizer.weight_decay()), "Pulls parameters towards zero.");
    l.fields
}

fn data_fields(data: Option<&DataSpec>) -> Vec<Field> {
    use FieldValue::{Count, Flag, Number, Text};
    let mut l = list();
    let index = data.and_then(|d| SOURCES.iter().position(|s| *s == d.source.name())).unwrap_or(0);
    l.choose("data.type", "data", SOURCES.into(), index, "Where samples come from.");
    let Some(data) = data else { return l.fields };
    let path = |p: &PathBuf| Text(p.display().to_string());
    match &data.source {
        DataSource::Digits | DataSource::Iris => {}
        DataSource::Spirals { samples, classes, noise } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.classes", "classes", Count(*classes), "Arms of the spiral.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
        }
        DataSource::Moons { samples, noise }
        | DataSource::Xor { samples, noise }
        | DataSource::Regression { samples, noise } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
        }
        DataSource::Circles { samples, noise, factor } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
            l.put("data.factor", "factor", Number(*factor), "Radius of the inner circle over the outer.");
        }
        DataSource::Csv { path: p, header, target, standardize, delimiter } => {
            l.put("data.path", "file", path(p), "A text table, from the preset's folder.");
            l.choose(
                "data.header",
                "header",
                vec!["auto", "yes", "no"],
                *header as usize,
                "Whether the first line holds names.",
            );
            let target = match target {
                TargetColumn::Last => "-1".into(),
                TargetColumn::Index(i) => i.to_string(),
                TargetColumn::Name(n) => n.clone(),
            };
            l.put(
                "data.target",
                "target",
                Text(target),
                "The target's column: a name, a number from 0, or -1 for the last.",
            );
            l.put("data.standardize", "standardize", Flag(*standardize), "Centres and scales each feature.");
            l.put("data.delimiter", "delimiter", Text(delimiter.to_string()), "The character between columns.");
        }
        DataSource::Npz { path: p, x, y } => {
            l.put("data.path", "file", path(p), "An .npz archive.");
            l.put("data.x", "x", Text(x.clone()), "The array of samples.");
            l.put("data.y", "y", Text(y.clone()), "The array of targets.");
        }
        DataSource::Npy { x, y } => {
            l.put("data.x", "x", path(x), "The .npy file of samples.");
            l.put("data.y", "y", path(y), "The .npy file of targets.");
        }
        DataSource::Idx { images, labels } => {
            l.put("data.images", "images", path(images), "The IDX file of images, plain or gzip.");
            l.put("data.labels", "labels", path(labels), "The IDX file of labels.");
        }
        DataSource::Cifar10 { paths } => {
            let joined = paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join("; ");
            l.put("data.paths", "files", Text(joined), "CIFAR-10 binary batches, separated by semicolons.");
        }
        DataSource::Images { path: p } => {
            l.put("data.path", "folder", path(p), "A folder with one subfolder of pictures a class.")
        }
    }
    l.put(
        "data.held_out",
        "held out",
        Number(data.held_out),
        "Kept for evaluation: a share below 1, or a number of samples.",
    );
    l.choose("data.split", "split", vec!["shuffled", "last"], data.split as usize, "Which samples are held out.");
    l.fields
}

fn run_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    let train = preset.train.unwrap_or(DEFAULT_TRAIN);
    l.put("train.steps", "steps", FieldValue::Count(train.steps), "Length of the run.");
    l.put("train.seed", "seed", FieldValue::Seed(train.seed), "Initial weights, shuffles and dropout follow from it.");
    l.put("name", "name", FieldValue::Text(preset.name.clone()), "The preset's name.");
    l.put("about", "about", FieldValue::Text(preset.about.clone()), "What a newcomer reads before pressing Train.");
    l.fields
}

/// Sets a field outside the layers; false where there is none of that name or the value is of another type.
pub fn set_preset_field(preset: &mut Preset, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Number, Seed, Shape, Text};
    match (name, value) {
        ("name", Text(t)) => preset.name.clone_from(t),
        ("about", Text(t)) => preset.about.clone_from(t),
        ("input.shape", Shape(dims)) => preset.input.shape = dims.clone().into(),
        ("input.batch", Count(n)) => preset.input.batch = *n,
        ("precision", Choice(i)) => preset.precision = Precision::ALL.get(*i).copied().unwrap_or_default(),
        ("loss.type", Choice(0)) => preset.loss = LossSpec::SoftmaxCrossEntropy { label_smoothing: 0.0 },
        ("loss.type", Choice(_)) => preset.loss = LossSpec::Mse,
        ("loss.label_smoothing", Number(n)) => preset.loss = LossSpec::SoftmaxCrossEntropy { label_smoothing: *n },
        ("train.steps", Count(n)) => preset.train.get_or_insert(DEFAULT_TRAIN).steps = *n,
        ("train.seed", Seed(n)) => preset.train.get_or_insert(DEFAULT_TRAIN).seed = *n,
        _ => {
            if let Some(rest) = name.strip_prefix("optimizer.") {
                return set_optimizer_field(&mut preset.optimizer, rest, value);
            }
            return name.strip_prefix("data.").is_some_and(|rest| set_data_field(&mut preset.data, rest, value));
        }
    }
    true
}

fn set_optimizer_field(optimizer: &mut OptimizerSpec, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Flag, Number, Numbers};
    let (old_lr, old_decay) = (optimizer.lr(), optimizer.weight_decay());
    match (name, value, optimizer) {
        ("type", Choice(0), o) => {
            *o = OptimizerSpec::Sgd { lr: old_lr, momentum: 0.9, nesterov: false, weight_decay: old_decay }
        }
        ("type", Choice(i), o) => {
            *o = OptimizerSpec::Adam {
                lr: old_lr,
                betas: [0.9, 0.999],
                eps: 1e-8,
                weight_decay: old_decay,
                decoupled: *i == 2,
            };
        }
        ("lr", Number(n), OptimizerSpec::Sgd { lr, .. } | OptimizerSpec::Adam { lr, .. }) => *lr = *n,
        (
            "weight_decay",
            Number(n),
            OptimizerSpec::Sgd { weight_decay, .. } | OptimizerSpec::Adam { weight_decay, .. },
        ) => *weight_decay = *n,
        ("momentum", Number(n), OptimizerSpec::Sgd { momentum, .. }) => *momentum = *n,
        ("nesterov", Flag(b), OptimizerSpec::Sgd { nesterov, .. }) => *nesterov = *b,
        ("betas", Numbers(b), OptimizerSpec::Adam { betas, .. }) => *betas = *b,
        ("eps", Number(n), OptimizerSpec::Adam { eps, .. }) => *eps = *n,
        _ => return false,
    }
    true
}

fn set_data_field(data: &mut Option<DataSpec>, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Flag, Number, Text};
    if let ("type", Choice(index)) = (name, value) {
        *data = example_source(SOURCES.get(*index).copied().unwrap_or_default()).map(|source| match data.take() {
            Some(old) => DataSpec { source, ..old },
            None => DataSpec::of(source),
        });
        return true;
    }
    let Some(spec) = data else { return false };
    match (name, value, &mut spec.source) {
        ("held_out", Number(n), _) => spec.held_out = n.max(0.0),
        ("split", Choice(i), _) => spec.split = if *i == 0 { SplitKind::Shuffled } else { SplitKind::Last },
        (
            "samples",
            Count(n),
            DataSource::Spirals { samples, .. }
            | DataSource::Moons { samples, .. }
            | DataSource::Circles { samples, .. }
            | DataSource::Xor { samples, .. }
            | DataSource::Regression { samples, .. },
        ) => *samples = *n,
        (
            "noise",
            Number(n),
            DataSource::Spirals { noise, .. }
            | DataSource::Moons { noise, .. }
            | DataSource::Circles { noise, .. }
            | DataSource::Xor { noise, .. }
            | DataSource::Regression { noise, .. },
        ) => *noise = *n,
        ("classes", Count(n), DataSource::Spirals { classes, .. }) => *classes = *n,
        ("factor", Number(n), DataSource::Circles { factor, .. }) => *factor = *n,
        (
            "path",
            Text(t),
            DataSource::Csv { path, .. } | DataSource::Npz { path, .. } | DataSource::Images { path },
        ) => *path = t.into(),
        ("header", Choice(i), DataSource::Csv { header, .. }) => {
            *header = [Header::Auto, Header::Yes, Header::No][(*i).min(2)]
        }
        ("target", Text(t), DataSource::Csv { target, .. }) => {
            *target = match t.parse::<usize>() {
                _ if t.is_empty() || t == "-1" => TargetColumn::Last,
                Ok(i) => TargetColumn::Index(i),
                Err(_) => TargetColumn::Name(t.clone()),
            };
        }
        ("standardize", Flag(b), DataSource::Csv { standardize, .. }) => *standardize = *b,
        ("delimiter", Text(t), DataSource::Csv { delimiter, .. }) => *delimiter = t.chars().next().unwrap_or(','),
        ("x", Text(t), DataSource::Npz { x, .. }) => x.clone_from(t),
        ("y", Text(t), DataSource::Npz { y, .. }) => y.clone_from(t),
        ("x", Text(t), DataSource::Npy { x, .. }) => *x = t.into(),
        ("y", Text(t), DataSource::Npy { y, .. }) => *y = t.into(),
        ("images", Text(t), DataSource::Idx { images, .. }) => *images = t.into(),
        ("labels", Text(t), DataSource::Idx { labels, .. }) => *labels = t.into(),
        ("paths", Text(t), DataSource::Cifar10 { paths }) => *paths = t.split(';').map(|p| p.trim().into()).collect(),
        _ => return false,
    }
    true
}

/// A source of this name with sensible fields; `None` for no data.
fn example_source(name: &str) -> Option<DataSource> {
    let (samples, noise) = (2000, 0.1);
    Some(match name {
        "digits" => DataSource::Digits,
        "iris" => DataSource::Iris,
        "spirals" => DataSource::Spirals { samples, classes: 3, noise },
        "moons" => DataSource::Moons { samples, noise },
        "circles" => DataSource::Circles { samples, noise: 0.05, factor: 0.5 },
        "xor" => DataSource::Xor { samples, noise: 0.2 },
        "regression" => DataSource::Regression { samples, noise: 0.05 },
        "csv" => DataSource::Csv {
            path: "data.csv".into(),
            header: Header::Auto,
            target: TargetColumn::Last,
            standardize: true,
            delimiter: ',',
        },
        "npz" => DataSource::Npz { path: "data.npz".into(), x: "x".into(), y: "y".into() },
        "npy" => DataSource::Npy { x: "x.npy".into(), y: "y.npy".into() },
        "idx" => {
            DataSource::Idx { images: "train-images-idx3-ubyte.gz".into(), labels: "train-labels-idx1-ubyte.gz".into() }
        }
        "cifar10" => DataSource::Cifar10 { paths: vec!["data_batch_1.bin".into()] },
        "images" => DataSource::Images { path: "images".into() },
        _ => return None,
    })
}

/// A count with its noun: `3 layers`.
#[must_use]
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", plural(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LayerKind;

    #[test]
    fn every_field_of_every_layer_reads_back_what_it_prints() {
        for kind in LayerKind::ALL {
            let mut layer = kind.example();
            for field in layer_fields(&LayerPath(vec![0]), &layer.clone()) {
                assert_eq!(
                    field.value.parse(&field.value.text()),
                    Ok(field.value.clone()),
                    "{} {}",
                    kind.class,
                    field.name
                );
                let before = layer.clone();
                assert!(set_layer_field(&mut layer, field.name, &field.value), "{} {}", kind.class, field.name);
                assert_eq!(layer, before);
            }
        }
    }

    #[test]
    fn every_data_source_can_be_chosen_and_edited() {
        let mut preset = crate::studio::presets::digits();
        for (index, source) in SOURCES.iter().enumerate() {
            assert!(set_preset_field(&mut preset, "data.type", &FieldValue::Choice(index)));
            assert_eq!(preset.data.as_ref().map_or("none", |d| d.source.name()), *source);
            for (_, fields) in preset_fields(&preset.clone()) {
                for field in fields {
                    assert!(set_preset_field(&mut preset, field.name, &field.value), "{}", field.name);
                }
            }
        }
    }

    #[test]
    fn wrong_texts_say_what_is_allowed() {
        assert_eq!(FieldValue::Count(1).parse("ten"), Err("expected a whole number, at least 0"));
        assert_eq!(FieldValue::Pair([1, 1]).parse("3x5"), Ok(FieldValue::Pair([3, 5])));
        assert!(FieldValue::Padding(Padding::Same).parse("most").is_err());
        assert!(FieldValue::Number(0.0).parse("NaN").is_err());
    }
}
