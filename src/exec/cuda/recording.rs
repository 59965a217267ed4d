//! The launches that a step was recorded as, alone and in graphs of several steps.

use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::horizontal_fusion::fuse;
use super::launch::Launch;
use super::multi_step::MultiStep;
use super::pdl::set_flags;
use crate::ir::Mode;

/// Which of a step's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One step.
    One,
    /// This many steps in a row, on one batch.
    Several(usize),
    /// This many steps that gather their own batches.
    Fed(usize),
}

impl Role {
    /// What the graph does, as text.
    pub(super) fn name(self, mode: Mode) -> String {
        match (self, mode) {
            (Self::One, Mode::Train) => "one step".into(),
            (Self::One, Mode::Eval) => "one evaluation".into(),
            (Self::Several(steps), _) => format!("{steps} steps in a row"),
            (Self::Fed(steps), _) => format!("{steps} steps with their batches"),
        }
    }
}

/// The launches of one step, and the differences if several are in one graph.
pub(super) struct Recording {
    launches: Vec<Launch>,
    pub(super) multi_step: MultiStep,
}

impl Recording {
    /// Decides which operations share launches, and which launches start early.
    pub(super) fn new(ops: &BoundOps) -> Self {
        let mut launches = fuse(ops);
        set_flags(ops, &mut launches);
        let multi_step = MultiStep::new(ops, &mut launches);
        Self { launches, multi_step }
    }

    /// The launches of one step.
    pub(super) fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// The launches of a graph's steps, in order.
    pub(super) fn of(&self, role: Role) -> Vec<&Launch> {
        match role {
            Role::One => self.launches.iter().collect(),
            Role::Several(steps) => self.multi_step.steps(&self.launches, steps),
            Role::Fed(steps) => self.multi_step.fed(&self.launches).repeat(steps),
        }
    }

    /// The number of calls of the driver and of libraries in one step.
    pub(super) fn calls(&self, ops: &BoundOps) -> usize {
        let count = self.launches.iter().map(|l| match l {
            Launch::Single { op, .. } => ops.calls[*op].iter().map(BoundCall::launches).sum(),
            Launch::Fused { kernel, .. } => kernel.phases.len(),
        });
        count.sum()
    }
}
