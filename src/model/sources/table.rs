//! The table of all sources.

use super::form;
use crate::model::field_value::FieldValue;
use crate::model::preset::{DataSource, Header, TargetColumn, Tokens};
use crate::model::schema::{FieldSpec, Lens, Own, Range};
use std::ops::Bound;

/// The properties of a source that are known before reading.
pub(super) struct SourceKind {
    /// The name in presets.
    pub(super) name: &'static str,
    /// Whether a source is of this kind.
    pub(super) is: fn(&DataSource) -> bool,
    /// An example with sensible fields, which are the defaults of fields that are missing in a preset.
    pub(super) example: fn() -> DataSource,
    /// The fields in the order in which they are read, written and shown.
    pub(super) fields: &'static [FieldSpec<DataSource>],
    /// Whether samples are drawn from the run's seed.
    pub(super) is_drawn: bool,
    /// Whether samples follow one another in a text or in time.
    pub(super) is_ordered: bool,
    /// Whether samples are tokens.
    pub(super) gives_tokens: bool,
}

impl SourceKind {
    const fn drawn(self) -> Self {
        Self { is_drawn: true, ..self }
    }

    const fn ordered(self) -> Self {
        Self { is_ordered: true, ..self }
    }

    const fn of_tokens(self) -> Self {
        Self { gives_tokens: true, ..self }
    }
}

/// A kind of source: its name, an example, and its fields.
macro_rules! kind {
    ($name:literal: $Kind:ident { $($field:ident: $value:expr),* $(,)? } [$($spec:expr),* $(,)?]) => {
        SourceKind {
            name: $name,
            is: |source| matches!(source, DataSource::$Kind { .. }),
            example: || DataSource::$Kind { $($field: $value),* },
            fields: &[$($spec),*],
            is_drawn: false,
            is_ordered: false,
            gives_tokens: false,
        }
    };
}

/// The value of a field of a kind of source.
macro_rules! part {
    ($source:ident, $Kind:ident.$field:ident) => {
        match $source {
            DataSource::$Kind { $field, .. } => $field,
            _ => unreachable!("a source is asked for its own fields"),
        }
    };
}

/// The lens of a field of a kind of source.
macro_rules! lens {
    ($Kind:ident.$field:ident) => {
        Lens {
            get: |source: &DataSource| Clone::clone(part!(source, $Kind.$field)),
            set: |source: &mut DataSource, value| *part!(source, $Kind.$field) = value,
        }
    };
}

/// A field whose default is its value in the example: `left_out!(count Number "data.noise": Moons.noise)`.
macro_rules! left_out {
    ($make:ident $Value:ident $name:literal: $Kind:ident.$field:ident) => {
        FieldSpec::<DataSource>::$make($name, lens!($Kind.$field))
            .default(|source| FieldValue::$Value(Clone::clone(part!(source, $Kind.$field))))
    };
}

/// A field with its own format.
macro_rules! own {
    ($name:literal: $Kind:ident.$field:ident as $FORM:ident) => {
        FieldSpec::<DataSource>::own(
            $name,
            Own {
                get: |source| (form::$FORM.show)(part!(source, $Kind.$field)),
                set: |source, value| {
                    let edited = (form::$FORM.edited)(value);
                    edited.map(|edited| *part!(source, $Kind.$field) = edited).is_some()
                },
                read: |source, f, name| *part!(source, $Kind.$field) = (form::$FORM.read)(f, name),
                json: |source| (form::$FORM.json)(part!(source, $Kind.$field)),
                options: form::$FORM.options,
            },
        )
    };
}

/// Synthetic sets are small; more samples than this would only fill memory.
const SAMPLES: Range =
    Range::Whole { least: 4, most: 10_000_000, help: Some("expected a whole number from 4 to 10000000") };
const CLASSES: Range = Range::Whole { least: 2, most: 100, help: Some("expected a whole number from 2 to 100") };
const NOISE: Range = Range::Real { from: Bound::Included(0.0), to: Bound::Included(10.0), help: "from 0 to 10" };

macro_rules! samples {
    ($Kind:ident) => {
        left_out!(count Count "data.samples": $Kind.samples).within(SAMPLES).label("samples").help("Samples drawn.")
    };
}

macro_rules! noise {
    ($Kind:ident) => {
        left_out!(real Number "data.noise": $Kind.noise)
            .within(NOISE)
            .label("noise")
            .help("Standard deviation of the noise.")
    };
}

/// Every source, in the order in which they are offered.
pub(super) const KINDS: &[SourceKind] = &[
    kind!("digits": Digits {} []),
    kind!("iris": Iris {} []),
    kind!("spirals": Spirals { samples: 2000, classes: 3, noise: 0.1 } [
        samples!(Spirals),
        left_out!(count Count "data.classes": Spirals.classes)
            .within(CLASSES)
            .label("classes")
            .help("Arms of the spiral."),
        noise!(Spirals),
    ])
    .drawn(),
    kind!("moons": Moons { samples: 2000, noise: 0.1 } [samples!(Moons), noise!(Moons)]).drawn(),
    kind!("circles": Circles { samples: 2000, noise: 0.05, factor: 0.5 } [
        samples!(Circles),
        noise!(Circles),
        left_out!(real Number "data.factor": Circles.factor)
            .within(Range::SHARE)
            .label("factor")
            .help("Radius of the inner circle divided by that of the outer one."),
    ])
    .drawn(),
    kind!("xor": Xor { samples: 2000, noise: 0.2 } [samples!(Xor), noise!(Xor)]).drawn(),
    kind!("regression": Regression { samples: 2000, noise: 0.05 } [samples!(Regression), noise!(Regression)]).drawn(),
    kind!("csv": Csv {
        path: "data.csv".into(),
        header: Header::Auto,
        target: TargetColumn::Last,
        columns: Vec::new(),
        standardize: true,
        delimiter: ',',
    } [
        own!("data.path": Csv.path as PATH).label("file").help("A text table, from the preset's folder."),
        own!("data.header": Csv.header as HEADER).label("header").help("Whether the first line holds names."),
        own!("data.target": Csv.target as TARGET)
            .label("target")
            .help("The target's column: a name, a number from 0, or -1 for the last."),
        own!("data.columns": Csv.columns as RANGES)
            .label("columns")
            .help("The features, by name or number from 0; 3..8 are six columns. Empty for all but the target."),
        left_out!(flag Flag "data.standardize": Csv.standardize)
            .label("standardize")
            .help("Centres and scales each feature."),
        own!("data.delimiter": Csv.delimiter as DELIMITER).label("delimiter").help("The character between columns."),
    ]),
    kind!("npz": Npz { path: "data.npz".into(), x: "x".into(), y: "y".into() } [
        own!("data.path": Npz.path as PATH).label("file").help("An .npz archive."),
        left_out!(text Text "data.x": Npz.x).label("x").help("The array of samples."),
        left_out!(text Text "data.y": Npz.y).label("y").help("The array of targets."),
    ]),
    kind!("npy": Npy { x: "x.npy".into(), y: "y.npy".into() } [
        own!("data.x": Npy.x as PATH).label("x").help("The .npy file of samples."),
        own!("data.y": Npy.y as PATH).label("y").help("The .npy file of targets."),
    ]),
    kind!("idx": Idx { images: "train-images-idx3-ubyte.gz".into(), labels: "train-labels-idx1-ubyte.gz".into() } [
        own!("data.images": Idx.images as PATH).label("images").help("The IDX file of images, plain or gzip."),
        own!("data.labels": Idx.labels as PATH).label("labels").help("The IDX file of labels."),
    ]),
    kind!("cifar10": Cifar10 { paths: vec!["data_batch_1.bin".into()] } [
        own!("data.paths": Cifar10.paths as PATHS)
            .label("files")
            .help("CIFAR-10 binary batches, separated by semicolons."),
    ]),
    kind!("images": Images { path: "images".into() } [
        own!("data.path": Images.path as PATH)
            .label("folder")
            .help("A folder with one subfolder of pictures for each class."),
    ]),
    kind!("text": Text { path: "text.txt".into(), tokens: Tokens::Bytes } [
        own!("data.path": Text.path as PATH).label("file").help("A text, from the preset's folder."),
        own!("data.tokens": Text.tokens as TOKENS)
            .label("tokens")
            .help("What the tokens of the text are: bytes, chars, or the path of a tokenizer.json."),
    ])
    .ordered()
    .of_tokens(),
    kind!("source": SourceCode {} []).ordered().of_tokens(),
    kind!("sums": Sums { samples: 20_000 } [samples!(Sums).help("Additions drawn.")]).drawn().of_tokens(),
    kind!("waves": Waves { samples: 2000, noise: 0.1 } [samples!(Waves), noise!(Waves)]).drawn(),
    kind!("series": Series {
        path: "series.csv".into(),
        columns: vec![TargetColumn::Index(0)],
        window: 48,
        horizon: 12,
    } [
        own!("data.path": Series.path as PATH)
            .label("file")
            .help("A table with a line for each point in time, from the preset's folder."),
        own!("data.columns": Series.columns as COLUMNS)
            .label("columns")
            .help("The columns, by name or number from 0, with commas between."),
        FieldSpec::<DataSource>::count("data.window", lens!(Series.window))
            .label("window")
            .help("The number of lines in one sample."),
        FieldSpec::<DataSource>::count("data.horizon", lens!(Series.horizon))
            .default(|_| FieldValue::Count(1))
            .label("horizon")
            .help("The number of following lines that the network predicts."),
    ])
    .ordered(),
    kind!("digit_sums": DigitSums {} []),
    kind!("joined": Joined { inputs: Vec::new(), target: String::new() } [
        FieldSpec::<DataSource>::text("data.target", lens!(Joined.target))
            .required()
            .label("target")
            .help("The input whose source has the targets, by its name."),
    ]),
];
