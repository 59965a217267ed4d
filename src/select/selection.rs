//! The result of choosing kernels.

use super::cuda;
use crate::lower::Program;
use crate::select::target::Target;
use crate::select::variant::Variant;
use crate::tensor::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which kernels may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The cheapest one that accepts the shape, with fused operations.
    #[default]
    Fast,
    /// The plain-loop reference of every operation, without fusion.
    Reference,
}

/// A kernel that could run an operation, and the result of considering it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub kernel: String,
    /// Estimated or measured time; `None` if it was refused.
    pub cost_us: Option<f64>,
    /// Why it was not chosen; empty for the chosen one.
    pub lost: String,
}

/// The kernel of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub kernel: String,
    pub variant: Variant,
    /// Whether threads may share the call; false if one thread alone was measured to be faster.
    pub shared: bool,
    pub cost_us: f64,
    pub workspace_bytes: u64,
    pub flops: u64,
    /// The least number of floating-point operations of any kernel; a fused multiply-add counts as two.
    #[serde(default)]
    pub least_flops: u64,
    /// The least number of bytes that must be read and written.
    pub bytes: u64,
    pub candidates: Vec<Candidate>,
}

/// The rewritten program with a kernel for each operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    pub target: Target,
    pub program: Program,
    /// One for each operation of the program.
    pub choices: Vec<Choice>,
    /// The type of products and activations.
    pub real: cuda::Real,
    /// The group of each operation by horizontal fusion, ascending: members of one may run at the same time. Empty if
    /// every operation runs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

/// Why no kernels could be chosen.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectError {
    #[error("op {op} ({name}): no kernel for {target}; {reasons}")]
    NoKernel { op: usize, name: &'static str, target: String, reasons: String },
    #[error("its parameters alone take {needed}, and {target} has {memory} of memory; use fewer units")]
    TooLarge { needed: Bytes, target: String, memory: Bytes },
    #[error("{0} runs f32, tf32, bf16 and f16 steps; plan f64 steps for the CPU")]
    Real(String),
}

impl Selection {
    /// The sum of the operations' estimated times, in microseconds.
    #[must_use]
    pub fn cost_us(&self) -> f64 {
        self.choices.iter().map(|c| c.cost_us).sum()
    }

    /// The least time of the step in microseconds, by `floor` of arithmetic and bytes: members of a group run at the
    /// same time and share a launch.
    pub fn floor_us(&self, floor: impl Fn(u64, u64) -> f64) -> f64 {
        let numbers: Vec<usize> = (0..self.choices.len()).collect();
        let together = |a: &usize, b: &usize| !self.groups.is_empty() && self.groups[*a] == self.groups[*b];
        let of = |ops: &[usize]| {
            let sum = |get: fn(&Choice) -> u64| ops.iter().map(|i| get(&self.choices[*i])).sum::<u64>();
            floor(sum(|c| c.least_flops), sum(|c| c.bytes))
        };
        numbers.chunk_by(together).map(of).sum()
    }

    /// Floating-point operations of a step.
    #[must_use]
    pub fn flops(&self) -> u64 {
        self.choices.iter().map(|c| c.flops).sum()
    }
}
