//! Which recording a step is: by its inputs, its path through the network, and what it is for.

use crate::compile::Compiled;
use crate::ir::{Metrics, Mode, Share};
use crate::lower::Layout;
use crate::tensor::{DType, Fnv};
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a recording is for, where that changes its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepVariant {
    /// Training, with these metrics.
    Training(Metrics),
    /// One of the batches that make a training step together.
    Batch(Share, Metrics),
    Evaluation,
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
        }
    }
}

/// Names a recording among those of one network: the shapes, types and layouts of its inputs, the precision, the path
/// and the variant. Prints the same in every run.
#[derive(Clone)]
pub struct StepKey {
    text: Arc<str>,
    /// A checksum over the text, so that a look-up reads it once.
    sum: u64,
    variant: StepVariant,
}

impl StepKey {
    /// The key of a compiled step that takes this path through the network; `whole` is all of it.
    #[must_use]
    pub fn of(compiled: &Compiled, path: &str) -> Self {
        let program = &compiled.plan.program;
        let variant = match program.mode {
            Mode::Eval => StepVariant::Evaluation,
            Mode::Train => {
                let metrics = compiled.graph.metrics;
                compiled.graph.share.map_or(StepVariant::Training(metrics), |share| StepVariant::Batch(share, metrics))
            }
        };
        let mut text = String::new();
        for input in &program.inputs.0 {
            let value = program.value(input.value);
            // Writing to a text cannot fail.
            let _ = write!(text, "{} {}{}", input.name, value.dtype, value.shape);
            if value.layout != Layout::Plain {
                text.push_str(" channels last");
            }
            text.push_str(", ");
        }
        let (real, precision) = (program.real, compiled.model.precision.name());
        let precision = if real == DType::F32 { precision } else { real.name() };
        let _ = write!(text, "{precision}, path {path}, {variant}");
        let mut sum = Fnv::new();
        sum.add(text.as_bytes());
        Self { text: text.into(), sum: sum.sum(), variant }
    }
}

impl StepKey {
    /// What the recording is for.
    #[must_use]
    pub const fn variant(&self) -> StepVariant {
        self.variant
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for StepKey {
    fn eq(&self, other: &Self) -> bool {
        self.sum == other.sum && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for StepKey {}

impl Hash for StepKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sum);
    }
}
