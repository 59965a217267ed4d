//! The proofs by name, the result of a check, and the location of a failure.

use crate::model::LayerPath;
use crate::plan::BufferId;
use serde::Serialize;

/// The proofs of a step; each has one or several checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    Plan,
    Gradients,
    EagerAgainstReplay,
    PointerLedger,
    Determinism,
    TrainingRun,
}

impl Proof {
    /// Every proof, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Plan,
        Self::Gradients,
        Self::EagerAgainstReplay,
        Self::PointerLedger,
        Self::Determinism,
        Self::TrainingRun,
    ];

    /// The name on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Gradients => "Gradient check",
            Self::EagerAgainstReplay => "Eager against replay",
            Self::PointerLedger => "Pointer ledger",
            Self::Determinism => "Determinism",
            Self::TrainingRun => "Training run",
        }
    }

    /// What is compared, in a sentence without its full stop.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Plan => "Compiles the step; every verifier and referee looks at its stages",
            Self::Gradients => {
                "Holds gradients against central differences in f64, and fast kernels against plain loops"
            }
            Self::EagerAgainstReplay => {
                "Runs the same steps op by op and replayed, and compares every buffer bit for bit"
            }
            Self::PointerLedger => {
                "Reads the recorded addresses, a GPU's from the nodes of its graphs, and compares them with the \
                 plan's; then \
                 changes one of every call and expects it to be named"
            }
            Self::Determinism => "Replays the run twice, and on one thread and several: the bits must be equal",
            Self::TrainingRun => {
                "Trains some steps as a run does, with its data, log, evaluation and a checkpoint, and compares each \
                 with what \
                 the host computes"
            }
        }
    }
}

/// Where a failure is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// An operation of the training step, by its place in it.
    Op(usize),
    Layer(LayerPath),
}

/// One buffer after the same steps, eager and replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub buffer: BufferId,
    pub name: String,
    pub bytes: u64,
    /// Bytes that differ.
    pub different: u64,
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub name: String,
    /// `None` where the check does not apply, which `figures` explains.
    pub passed: Option<bool>,
    /// The figures in one line.
    pub figures: String,
    /// The largest error as a share of its bound, of checks that have bounds; infinite where a value is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// A description of the failure.
    pub detail: Vec<String>,
    /// Where each line of `detail` points to, as far as that is known.
    #[serde(skip)]
    pub culprits: Vec<Option<Culprit>>,
    /// Every buffer that was compared; empty for checks that compare none.
    #[serde(skip)]
    pub compared: Vec<Compared>,
}

impl Check {
    pub(super) fn new(name: &str, passed: bool, figures: String) -> Self {
        let (detail, culprits, compared) = (Vec::new(), Vec::new(), Vec::new());
        Self { name: name.into(), passed: Some(passed), figures, ratio: None, detail, culprits, compared }
    }

    pub(super) fn skipped(name: &str, why: &str) -> Self {
        Self { passed: None, ..Self::new(name, false, format!("skipped: {why}")) }
    }

    /// The check with its largest error as a share of its bound.
    pub(super) const fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// The check with lines that say what failed, each with its place.
    pub(super) fn detail(mut self, lines: Vec<(String, Option<Culprit>)>) -> Self {
        (self.detail, self.culprits) = lines.into_iter().unzip();
        self
    }
}

/// What a verification reports while it runs.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// This check of a proof begins.
    Begins(Proof, &'static str),
    Done(Proof, &'a Check),
}
