//! What survives a step, by typed keys.

use crate::ir::{Mode, Role};
use crate::lower::{LValueId, Program};
use crate::model::OptimizerSpec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of thing survives a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// The trained parameters, in one flat vector.
    Params,
    /// Their copy in half precision, which products read.
    Half,
    /// What the optimizer keeps for every parameter.
    Moment,
    /// The sum of the gradients of the batches of a step, where there are several.
    Gradient,
    /// A running statistic of a layer.
    Statistic,
    /// The seed and the number of steps made, or of batches seen, which random numbers are drawn by.
    Counter,
    /// Learning rate and weight decay, which the host may change between steps.
    Hyper,
    /// The factors that correct moments in the first steps.
    BiasCorrection,
    /// The loss scale, and what adapts it.
    Scaler,
    /// How many blocks of a kernel are done.
    Ticket,
    /// Samples or targets, which the host writes before a step.
    Batch,
    /// What the host reads after a step.
    Metric,
    /// Anything else that survives a step.
    Other,
}

impl StateKind {
    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::Half => "half",
            Self::Moment => "moment",
            Self::Gradient => "gradient",
            Self::Statistic => "statistic",
            Self::Counter => "counter",
            Self::Hyper => "hyper",
            Self::BiasCorrection => "bias_correction",
            Self::Scaler => "scaler",
            Self::Ticket => "ticket",
            Self::Batch => "batch",
            Self::Metric => "metric",
            Self::Other => "other",
        }
    }

    /// Whether a step may have one of its own where the store has none of this size: what the host writes before a step
    /// and reads after it belongs to that step alone.
    #[must_use]
    pub const fn may_be_own(self) -> bool {
        matches!(self, Self::Batch | Self::Metric)
    }
}

/// Names one thing that survives a step. Prints the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateKey {
    pub kind: StateKind,
    /// Which one, where there are several of a kind: the statistic, the state of the optimizer, the operation.
    pub of: String,
}

impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.of.is_empty() { Ok(()) } else { write!(f, " {}", self.of) }
    }
}

impl StateKey {
    /// The key of a value that is there before a step or read after it, and has memory of its own. This is the only
    /// place that goes by names: everything behind it compares keys. `None` in an evaluation for its batch and output,
    /// which no other step has.
    pub(super) fn of_root(program: &Program, id: LValueId) -> Option<Self> {
        let value = program.value(id);
        let name = value.name.as_str();
        let key = |kind, of: &str| Some(Self { kind, of: of.to_owned() });
        if !value.persistent || value.alias.is_some() {
            return None;
        }
        match (value.role, value.param) {
            (Role::Param, None) => key(StateKind::Params, ""),
            (Role::Param, Some(_)) => key(StateKind::Params, name),
            (Role::State, Some(_)) => key(StateKind::Statistic, name),
            (Role::State, None) if OptimizerSpec::all_states().contains(&name) => key(StateKind::Moment, name),
            (Role::State, None) => match (name, name.split_once('.')) {
                ("counter", _) => key(StateKind::Counter, ""),
                ("batches", _) => key(StateKind::Counter, "batches"),
                ("counters", _) => key(StateKind::Counter, "groups"),
                ("corrs", _) => key(StateKind::BiasCorrection, "groups"),
                ("hyper", _) => key(StateKind::Hyper, ""),
                ("corr", _) => key(StateKind::BiasCorrection, ""),
                ("scaler", _) => key(StateKind::Scaler, ""),
                (_, Some(("ticket", op))) => key(StateKind::Ticket, op),
                (_, Some(("params", half))) => key(StateKind::Half, half),
                _ => key(StateKind::Other, name),
            },
            (Role::Grad, None) => key(StateKind::Gradient, name.strip_prefix("grads.").unwrap_or_default()),
            _ if program.mode == Mode::Eval => None,
            (Role::Input, _) => key(StateKind::Batch, name),
            (Role::Metric, _) => key(StateKind::Metric, name),
            _ => key(StateKind::Other, name),
        }
    }
}
