//! Identifies the recording of a step: by its inputs, its path through the network, and its purpose.

use crate::compile::Compiled;
use crate::ir::{Metrics, Mode, Share};
use crate::lower::Layout;
use crate::tensor::{DType, Fnv, Shape};
use serde::{Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The purpose of a recording, as far as it changes its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepVariant {
    /// Training, with these metrics.
    Training(Metrics),
    /// One of the batches that make up a training step.
    Batch(Share, Metrics),
    Evaluation,
    /// Answers to queries, with no more samples than were requested.
    Inference,
}

impl StepVariant {
    /// Whether it trains.
    #[must_use]
    pub const fn trains(self) -> bool {
        matches!(self, Self::Training(_) | Self::Batch(..))
    }

    /// Whether it updates the parameters.
    #[must_use]
    pub const fn updates(self) -> bool {
        matches!(self, Self::Training(_) | Self::Batch(Share::Last, _))
    }
}

impl fmt::Display for StepVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Training(Metrics { accuracy: true, updates: true }) => f.write_str("training"),
            Self::Training(Metrics { accuracy: false, updates: true }) => f.write_str("training without accuracy"),
            Self::Training(Metrics { accuracy: true, updates: false }) => {
                f.write_str("training without update metrics")
            }
            Self::Training(Metrics { accuracy: false, updates: false }) => f.write_str("training without metrics"),
            Self::Batch(share, metrics) => write!(f, "{}, {} batch of a step", Self::Training(*metrics), share.name()),
            Self::Evaluation => f.write_str("evaluation"),
            Self::Inference => f.write_str("inference"),
        }
    }
}

/// One input of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputSignature {
    pub name: String,
    pub dtype: DType,
    /// The shape, including the batch.
    pub shape: Shape,
    pub layout: Layout,
}

impl fmt::Display for InputSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.name, self.dtype, self.shape)?;
        if self.layout == Layout::Plain { Ok(()) } else { f.write_str(" channels last") }
    }
}

/// The input of a recording: the type, shape and layout of each input, and the precision of its products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GraphSignature {
    /// In the order of the step's program; targets come last.
    pub inputs: Vec<InputSignature>,
    pub precision: &'static str,
}

impl GraphSignature {
    /// The signature of a compiled step.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let program = &compiled.plan.program;
        let inputs = program.inputs.0.iter().map(|input| {
            let value = program.value(input.value);
            let (dtype, shape, layout) = (value.dtype, value.shape.clone(), value.layout);
            InputSignature { name: input.name.clone(), dtype, shape, layout }
        });
        let real = program.real;
        let precision = if real == DType::F32 { compiled.model.precision.name() } else { real.name() };
        Self { inputs: inputs.collect(), precision }
    }
}

impl fmt::Display for GraphSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inputs.iter().try_for_each(|input| write!(f, "{input}, "))?;
        f.write_str(self.precision)
    }
}

/// Identifies a recording among those of one network. It prints the same text in every run, and keys with the same text
/// are equal.
#[derive(Clone)]
pub struct GraphKey {
    parts: Arc<Parts>,
    /// A checksum of the text, so that a look-up reads the text only once.
    sum: u64,
}

#[derive(PartialEq, Eq)]
struct Parts {
    signature: GraphSignature,
    path: String,
    variant: StepVariant,
}

impl GraphKey {
    /// The key of a compiled step.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let variant = match compiled.plan.program.mode {
            Mode::Eval => StepVariant::Evaluation,
            Mode::Train => {
                let metrics = compiled.graph.metrics;
                compiled.graph.share.map_or(StepVariant::Training(metrics), |share| StepVariant::Batch(share, metrics))
            }
        };
        Self::new(GraphSignature::of(compiled), &compiled.model.path().to_string(), variant)
    }

    /// The key of an evaluation that answers queries.
    #[must_use]
    pub fn of_inference(compiled: &Compiled) -> Self {
        Self::new(GraphSignature::of(compiled), &compiled.model.path().to_string(), StepVariant::Inference)
    }

    fn new(signature: GraphSignature, path: &str, variant: StepVariant) -> Self {
        let parts = Parts { signature, path: path.to_owned(), variant };
        let sum = Fnv::of(parts.to_string().as_bytes());
        Self { parts: Arc::new(parts), sum }
    }

    /// The key of the same variant with inputs of another size, on another path.
    #[must_use]
    pub fn resized(&self, inputs: Vec<InputSignature>, path: &str) -> Self {
        let precision = self.parts.signature.precision;
        Self::new(GraphSignature { inputs, precision }, path, self.parts.variant)
    }

    /// A short name of the key for logs: a checksum over its text, the same in every run.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:016x}", self.sum)
    }

    /// What the recording takes.
    #[must_use]
    pub fn signature(&self) -> &GraphSignature {
        &self.parts.signature
    }

    /// Its path through the network.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.parts.path
    }

    /// The purpose of the recording.
    #[must_use]
    pub fn variant(&self) -> StepVariant {
        self.parts.variant
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, path {}, {}", self.signature, self.path, self.variant)
    }
}

impl fmt::Display for GraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.parts, f)
    }
}

impl fmt::Debug for GraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.parts, f)
    }
}

impl PartialEq for GraphKey {
    fn eq(&self, other: &Self) -> bool {
        self.sum == other.sum && (Arc::ptr_eq(&self.parts, &other.parts) || self.parts == other.parts)
    }
}

impl Eq for GraphKey {}

impl Hash for GraphKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sum);
    }
}

/// As text.
impl Serialize for GraphKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
