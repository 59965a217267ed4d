//! What survives a step, by typed keys.

use crate::ir::{Mode, Role};
use crate::lower::{LValueId, Program};
use crate::model::OptimizerSpec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a value that survives a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// The trained parameters, in one flat vector.
    Params,
    /// Their copy in half precision, which products read.
    Half,
    /// A state vector of the optimizer.
    Moment,
    /// The sum of the gradients of the batches of a step, if there are several.
    Gradient,
    /// A running statistic of a layer.
    Statistic,
    /// The seed and the number of steps made, or of batches used, which determine random numbers.
    Counter,
    /// Learning rate and weight decay, which the host may change between steps.
    Hyper,
    /// The factors that correct moments in the first steps.
    BiasCorrection,
    /// The loss scale, and the values that adapt it.
    Scaler,
    /// A counter of finished blocks of a kernel.
    Ticket,
    /// Samples or targets, which the host writes before a step.
    Batch,
    /// Values that the host reads after a step.
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

    /// Whether a step may have its own one if the store has none of this size: values that the host writes before a
    /// step and reads after it belong to that step only.
    #[must_use]
    pub const fn may_be_own(self) -> bool {
        matches!(self, Self::Batch | Self::Metric)
    }
}

/// Identifies one value that survives a step. Prints the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateKey {
    pub kind: StateKind,
    /// Which one, if there are several of a kind: the statistic, the state of the optimizer, the operation.
    pub of: String,
}

impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.of.is_empty() { Ok(()) } else { write!(f, " {}", self.of) }
    }
}

impl StateKey {
    /// The key of a value that exists before a step or is read after it, and is not an alias. Only this function uses
    /// names; all later code compares keys. `None` in an evaluation for its batch and output, which no other step has.
    #[must_use]
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

    /// The values of these kinds that survive a step of the program, in its order.
    pub fn values_of(program: &Program, kinds: &[StateKind]) -> impl Iterator<Item = LValueId> {
        let ids = (0..program.values.len() as u32).map(LValueId);
        ids.filter(|id| Self::of_root(program, *id).is_some_and(|key| kinds.contains(&key.kind)))
    }
}
