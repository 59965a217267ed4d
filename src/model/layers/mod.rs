//! The layers, one file each: fields, shape rule, diagnostics.

mod activation;
mod block;
mod conv2d;
mod dense;
mod dropout;
mod norm;
mod pool;

pub use activation::ActivationLayer;
pub use block::{Repeat, Residual};
pub use conv2d::{Conv2d, Padding};
pub use dense::Dense;
pub use dropout::Dropout;
pub use norm::{BatchNorm, LayerNorm};
pub use pool::{Pool, window_output};

use super::check::Infer;
use super::mistakes::FieldChecks;
use super::random::Draw;
use super::{Activation, Fields};
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// A layer as a person edits it.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerSpec {
    Dense(Dense),
    Conv2d(Conv2d),
    BatchNorm(BatchNorm),
    LayerNorm(LayerNorm),
    Activation(ActivationLayer),
    MaxPool2d(Pool),
    AvgPool2d(Pool),
    GlobalAvgPool,
    Flatten,
    Dropout(Dropout),
    Residual(Residual),
    Repeat(Repeat),
}

/// What a layer is, without its fields: the palette's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerKind {
    /// The name in presets.
    pub type_name: &'static str,
    /// The name in listings: `Conv2d`.
    pub class: &'static str,
    /// One sentence that says what it does.
    pub about: &'static str,
}

impl LayerKind {
    /// Every layer there is.
    pub const ALL: [Self; 12] = [
        Self {
            type_name: "dense",
            class: "Dense",
            about: "Every output is a weighted sum of every input, plus a bias.",
        },
        Self { type_name: "conv2d", class: "Conv2d", about: "Slides small learned filters over an image." },
        Self {
            type_name: "batch_norm",
            class: "BatchNorm",
            about: "Centres and scales each channel by its statistics over the batch.",
        },
        Self {
            type_name: "layer_norm",
            class: "LayerNorm",
            about: "Centres and scales each sample over its last axis.",
        },
        Self { type_name: "activation", class: "Activation", about: "A nonlinear function of each element." },
        Self { type_name: "max_pool2d", class: "MaxPool2d", about: "Keeps the largest value of each window." },
        Self { type_name: "avg_pool2d", class: "AvgPool2d", about: "Keeps the mean of each window." },
        Self {
            type_name: "global_avg_pool",
            class: "GlobalAvgPool",
            about: "The mean of each channel over the whole image.",
        },
        Self { type_name: "flatten", class: "Flatten", about: "Sees an image as one row of features; moves nothing." },
        Self { type_name: "dropout", class: "Dropout", about: "Silences a random share of elements while training." },
        Self { type_name: "residual", class: "Residual", about: "Adds the block's input to its output." },
        Self {
            type_name: "repeat",
            class: "Repeat",
            about: "Applies the same layers, with the same weights, several times.",
        },
    ];

    /// The kind with this name in presets.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.type_name == name)
    }

    /// A layer of this kind with sensible fields, for the palette.
    #[must_use]
    pub fn example(self) -> LayerSpec {
        match self.type_name {
            "dense" => LayerSpec::Dense(Dense { units: 64, activation: Some(Activation::Relu), bias: true }),
            "conv2d" => LayerSpec::Conv2d(Conv2d::same(16, 3, Some(Activation::Relu))),
            "batch_norm" => LayerSpec::BatchNorm(BatchNorm::default()),
            "layer_norm" => LayerSpec::LayerNorm(LayerNorm::default()),
            "activation" => LayerSpec::Activation(ActivationLayer { function: Activation::Relu }),
            "max_pool2d" => LayerSpec::MaxPool2d(Pool::square(2)),
            "avg_pool2d" => LayerSpec::AvgPool2d(Pool::square(2)),
            "global_avg_pool" => LayerSpec::GlobalAvgPool,
            "flatten" => LayerSpec::Flatten,
            "dropout" => LayerSpec::Dropout(Dropout { rate: 0.1 }),
            "residual" => LayerSpec::Residual(Residual { layers: Vec::new() }),
            _ => LayerSpec::Repeat(Repeat { times: 2, layers: Vec::new() }),
        }
    }

    /// A layer of this kind with random fields, of which most take `input`; blocks are empty.
    #[must_use]
    pub fn drawn(self, draw: &mut Draw, input: &Shape) -> LayerSpec {
        self.example().drawn(draw, input)
    }
}

impl LayerSpec {
    /// What the layer is.
    #[must_use]
    pub fn kind(&self) -> LayerKind {
        let index = match self {
            Self::Dense(_) => 0,
            Self::Conv2d(_) => 1,
            Self::BatchNorm(_) => 2,
            Self::LayerNorm(_) => 3,
            Self::Activation(_) => 4,
            Self::MaxPool2d(_) => 5,
            Self::AvgPool2d(_) => 6,
            Self::GlobalAvgPool => 7,
            Self::Flatten => 8,
            Self::Dropout(_) => 9,
            Self::Residual(_) => 10,
            Self::Repeat(_) => 11,
        };
        LayerKind::ALL[index]
    }

    /// The layers inside a block.
    #[must_use]
    pub fn children(&self) -> &[LayerSpec] {
        match self {
            Self::Residual(r) => &r.layers,
            Self::Repeat(r) => &r.layers,
            _ => &[],
        }
    }

    /// The layers inside a block, to edit.
    pub fn children_mut(&mut self) -> Option<&mut Vec<LayerSpec>> {
        match self {
            Self::Residual(r) => Some(&mut r.layers),
            Self::Repeat(r) => Some(&mut r.layers),
            _ => None,
        }
    }

    /// Sets the fields that decide the output's shape so that it is the input's, where the layer can do that.
    pub fn keep_shape(&mut self, input: &Shape) {
        match self {
            Self::Dense(l) => l.units = input.0.last().copied().unwrap_or(l.units),
            Self::Conv2d(l) => {
                let [channels, _, _] = input.0[..] else { return };
                (l.filters, l.stride) = (channels, [1, 1]);
                l.kernel = l.kernel.map(|k| k | 1);
                l.padding = Padding::Same;
                if !channels.is_multiple_of(l.groups.max(1)) {
                    l.groups = 1;
                }
            }
            Self::MaxPool2d(l) | Self::AvgPool2d(l) => {
                let size = l.size.map(|s| s | 1);
                *l = Pool { size, stride: [1, 1], padding: size.map(|s| s / 2) };
            }
            _ => {}
        }
    }

    /// The activation that the layer applies, of its own or as the layer it is.
    #[must_use]
    pub fn activation(&self) -> Option<Activation> {
        match self {
            Self::Dense(d) => d.activation,
            Self::Conv2d(c) => c.activation,
            Self::Activation(a) => Some(a.function),
            _ => None,
        }
    }

    /// Reads the fields of a layer of `kind`; nested layers are read by `nested`.
    pub(super) fn read(
        kind: LayerKind,
        f: &mut Fields<'_>,
        nested: impl FnOnce(&mut Fields<'_>) -> Vec<LayerSpec>,
    ) -> Self {
        match kind.type_name {
            "dense" => Self::Dense(Dense::read(f)),
            "conv2d" => Self::Conv2d(Conv2d::read(f)),
            "batch_norm" => Self::BatchNorm(BatchNorm::read(f)),
            "layer_norm" => Self::LayerNorm(LayerNorm::read(f)),
            "activation" => Self::Activation(ActivationLayer::read(f)),
            "max_pool2d" => Self::MaxPool2d(Pool::read(f)),
            "avg_pool2d" => Self::AvgPool2d(Pool::read(f)),
            "global_avg_pool" => Self::GlobalAvgPool,
            "flatten" => Self::Flatten,
            "dropout" => Self::Dropout(Dropout::read(f)),
            "residual" => Self::Residual(Residual { layers: nested(f) }),
            _ => {
                let times = f.count("times", None);
                Self::Repeat(Repeat { times, layers: nested(f) })
            }
        }
    }

    /// The fields that differ from their defaults, and the type, as in a preset file.
    pub fn write(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("type".into(), self.kind().type_name.into());
        match self {
            Self::Dense(l) => l.write(&mut map),
            Self::Conv2d(l) => l.write(&mut map),
            Self::BatchNorm(l) => l.write(&mut map),
            Self::LayerNorm(l) => l.write(&mut map),
            Self::Activation(l) => l.write(&mut map),
            Self::MaxPool2d(l) | Self::AvgPool2d(l) => l.write(&mut map),
            Self::GlobalAvgPool | Self::Flatten => {}
            Self::Dropout(l) => l.write(&mut map),
            Self::Residual(l) => l.write(&mut map),
            Self::Repeat(l) => l.write(&mut map),
        }
        map
    }

    /// A layer of the same kind with random fields.
    fn drawn(&self, draw: &mut Draw, input: &Shape) -> Self {
        match self {
            Self::Dense(_) => Self::Dense(Dense::drawn(draw, input)),
            Self::Conv2d(_) => Self::Conv2d(Conv2d::drawn(draw, input)),
            Self::BatchNorm(_) => Self::BatchNorm(BatchNorm::drawn(draw)),
            Self::LayerNorm(_) => Self::LayerNorm(LayerNorm::drawn(draw)),
            Self::Activation(_) => Self::Activation(ActivationLayer::drawn(draw)),
            Self::MaxPool2d(_) => Self::MaxPool2d(Pool::drawn(draw)),
            Self::AvgPool2d(_) => Self::AvgPool2d(Pool::drawn(draw)),
            Self::GlobalAvgPool => Self::GlobalAvgPool,
            Self::Flatten => Self::Flatten,
            Self::Dropout(_) => Self::Dropout(Dropout::drawn(draw)),
            Self::Residual(_) => Self::Residual(Residual { layers: Vec::new() }),
            Self::Repeat(_) => Self::Repeat(Repeat::drawn(draw)),
        }
    }

    /// Checks what each field may be whatever the input is.
    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        match self {
            Self::Dense(l) => l.check_fields(fields),
            Self::Conv2d(l) => l.check_fields(fields),
            Self::BatchNorm(l) => l.check_fields(fields),
            Self::LayerNorm(l) => l.check_fields(fields),
            Self::MaxPool2d(l) | Self::AvgPool2d(l) => l.check_fields(fields),
            Self::Dropout(l) => l.check_fields(fields),
            Self::Activation(_) | Self::GlobalAvgPool | Self::Flatten | Self::Residual(_) | Self::Repeat(_) => {}
        }
    }

    /// The output shape of a sample, with the parameters and mistakes reported to `cx`; `None` where it cannot be
    /// known.
    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        match self {
            Self::Dense(l) => l.infer(cx),
            Self::Conv2d(l) => l.infer(cx),
            Self::BatchNorm(l) => l.infer(cx),
            Self::LayerNorm(l) => l.infer(cx),
            Self::Activation(_) | Self::Dropout(_) => Some(cx.input.clone()),
            Self::MaxPool2d(l) | Self::AvgPool2d(l) => l.infer(cx),
            Self::GlobalAvgPool => pool::infer_global(cx),
            Self::Flatten => Some(Shape::from([cx.input.len()])),
            Self::Residual(_) | Self::Repeat(_) => unreachable!("blocks are walked by the checker"),
        }
    }
}

/// An optional activation field: absent and `none` are the same.
fn read_activation(f: &mut Fields<'_>) -> Option<Activation> {
    let mut options: Vec<(&str, Option<Activation>)> = vec![("none", None), ("", None)];
    options.extend(Activation::ALL.map(|a| (a.name(), Some(a))));
    f.choice("activation", &options, false).flatten()
}

fn write_activation(map: &mut Map<String, Value>, activation: Option<Activation>) {
    if let Some(a) = activation {
        map.insert("activation".into(), a.name().into());
    }
}

/// `n` for `[n, n]`, otherwise `[h, w]`.
fn pair_value(pair: [usize; 2]) -> Value {
    if pair[0] == pair[1] { pair[0].into() } else { vec![pair[0], pair[1]].into() }
}
