//! The definition of a pass, and the goals of rewriting.

use super::history::PassRun;
use super::rewriter::Rewriter;
use crate::lower::Program;
use crate::model::Precision;
use crate::tensor::DType;

/// The kind of machine that a program will run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    Cpu,
    Gpu,
}

/// The goal of rewriting, on which the conditions of passes depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    pub machine: Machine,
    /// The type of products and activations on a GPU; a CPU computes in the program's own type.
    pub precision: Precision,
    /// False if every operation must remain one that a reference kernel can compute.
    pub fuses: bool,
}

impl Goal {
    /// The fastest program for a CPU.
    #[must_use]
    pub const fn cpu() -> Self {
        Self { machine: Machine::Cpu, precision: Precision::F32, fuses: true }
    }

    /// The fastest program for a GPU.
    #[must_use]
    pub const fn gpu(precision: Precision) -> Self {
        Self { machine: Machine::Gpu, precision, fuses: true }
    }

    /// The type of activations on a GPU, if it is half as wide as `f32`.
    #[must_use]
    pub const fn half(&self) -> Option<DType> {
        match (self.machine, self.precision) {
            (Machine::Gpu, Precision::Bf16) => Some(DType::Bf16),
            (Machine::Gpu, Precision::F16) => Some(DType::F16),
            _ => None,
        }
    }

    /// Whether the gradients of this step are multiplied by the scale of the loss.
    #[must_use]
    pub const fn scales_loss(&self) -> bool {
        matches!((self.machine, self.precision), (Machine::Gpu, Precision::F16))
    }

    /// Whether neighbouring operations are fused. A GPU has no kernels for some operations that are not fused.
    pub(super) fn fuses(&self) -> bool {
        self.fuses || self.machine == Machine::Gpu
    }

    /// Whether the program is for a GPU.
    pub(super) fn is_gpu(&self) -> bool {
        self.machine == Machine::Gpu
    }
}

/// One rewriting of a program.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// The name, in listings and errors.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The condition as text.
    pub when: &'static str,
    /// Whether the pass runs for a goal.
    pub(super) applies: fn(&Goal) -> bool,
    /// Finds the operations that the pass applies to, and changes them.
    pub(super) run: fn(&mut Rewriter, &Goal),
}

/// A condition of a pass: as text, and as a function of a goal.
pub(super) type When = (&'static str, fn(&Goal) -> bool);

impl Pass {
    pub(super) const fn new(
        name: &'static str,
        (when, applies): When,
        about: &'static str,
        run: fn(&mut Rewriter, &Goal),
    ) -> Self {
        Self { name, about, when, applies, run }
    }

    /// The program after the pass, and what the pass changed.
    #[must_use]
    pub fn apply(&self, program: Program, goal: &Goal) -> (Program, PassRun) {
        let mut rewriter = Rewriter::new(program);
        (self.run)(&mut rewriter, goal);
        rewriter.finish(self.name)
    }
}
