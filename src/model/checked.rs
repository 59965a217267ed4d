//! The result of a check: a model without mistakes, and, in any case, information about each layer.

use super::chosen_path::Path;
use super::diagnostic::Diagnostic;
use super::input::{Content, NamedInput, sample_len, single};
use super::layers::{LayerKind, LayerSpec};
use super::losses::LossSpec;
use super::optimizers::OptimizerSpec;
use super::param::{LayerId, Param, ParamId};
use super::path::LayerPath;
use super::preset::Precision;
use super::update::UpdateSpec;
use crate::tensor::Shape;
use std::sync::Arc;

/// A layer of a checked model.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub path: LayerPath,
    pub spec: LayerSpec,
    /// One sample's shape before and after.
    pub input: Shape,
    pub output: Shape,
    /// The kind of its input's elements.
    pub content: Content,
    pub params: Vec<ParamId>,
    /// The layers inside a block, list by list.
    pub lists: Vec<Vec<LayerId>>,
}

impl Layer {
    /// The name in listings: `L1.0:Conv2d`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("L{}:{}", self.path.number(), self.spec.kind().class)
    }

    /// The layers directly inside a block, in order.
    pub fn children(&self) -> impl Iterator<Item = LayerId> {
        self.lists.iter().flatten().copied()
    }
}

/// One of the paths of a network whose layers choose.
#[derive(Clone, Debug, PartialEq)]
pub struct PathOf {
    pub path: Path,
    /// The whole network.
    pub whole: Arc<Model>,
}

/// A network without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    /// At least one input; if there are several, the branches of the first layer take them by name.
    pub inputs: Vec<NamedInput>,
    pub batch: usize,
    /// Every layer, blocks before their children.
    pub layers: Vec<Layer>,
    /// The outermost layers in order.
    pub roots: Vec<LayerId>,
    pub params: Vec<Param>,
    /// The path whose layers only `roots` and lists contain; `None` if they contain all layers.
    pub of_path: Option<PathOf>,
    /// One sample's output.
    pub output: Shape,
    pub loss: LossSpec,
    pub optimizer: OptimizerSpec,
    /// Further settings of the update.
    pub update: UpdateSpec,
    pub precision: Precision,
    /// The number of batches whose mean gradient makes a step.
    pub accumulate: usize,
}

impl Model {
    #[must_use]
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.0 as usize]
    }

    #[must_use]
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// The input of this name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&NamedInput> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// The only input of the network.
    #[must_use]
    pub fn single_input(&self) -> Option<&NamedInput> {
        single(&self.inputs)
    }

    /// The values of one sample over all inputs.
    #[must_use]
    pub fn sample_len(&self) -> usize {
        sample_len(&self.inputs)
    }

    /// The labels of one sample if the loss takes classes: one, or one for each position of an output `[T, classes]`.
    #[must_use]
    pub fn labels(&self) -> Shape {
        Shape::from(self.output.0[..self.output.rank().saturating_sub(1)].to_vec())
    }

    /// The classes that a label distinguishes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.output.0.last().copied().unwrap_or(1)
    }

    /// The number of trained values.
    #[must_use]
    pub fn trained_len(&self) -> usize {
        self.params.iter().filter(|p| p.kind.is_trained()).map(|p| p.shape.len()).sum()
    }

    /// The number of samples in a step.
    #[must_use]
    pub const fn samples_a_step(&self) -> usize {
        self.batch * self.accumulate
    }
}

/// Information about one layer of a document, with or without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFacts {
    pub path: LayerPath,
    pub kind: LayerKind,
    pub input: Option<Shape>,
    pub output: Option<Shape>,
    /// The number of trained values.
    pub params: usize,
}

/// A checked document.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The model, if there are no mistakes.
    pub model: Option<Model>,
    /// Every layer in document order, blocks before their children.
    pub facts: Vec<LayerFacts>,
    pub diagnostics: Vec<Diagnostic>,
}
