//! Measured times of the operations of a plan.

use crate::train::OpTimes;

/// Measured times of a plan.
#[derive(Clone, Debug)]
pub struct Measured {
    pub revision: u64,
    pub times: OpTimes,
    /// The start of each operation if they run one after the other, in microseconds, and the end of the last.
    pub edges_us: Vec<f64>,
}

impl Measured {
    /// The times of the plan with this revision.
    #[must_use]
    pub fn new(revision: u64, times: OpTimes) -> Self {
        let mut edges_us = vec![0.0];
        for us in &times.op_us {
            edges_us.push(edges_us.last().copied().unwrap_or(0.0) + us.max(1e-3));
        }
        Self { revision, times, edges_us }
    }

    /// The measured time of an operation, in microseconds.
    #[must_use]
    pub fn op_us(&self, op: usize) -> Option<f64> {
        self.times.op_us.get(op).copied()
    }

    /// The same with a kernel that is compiled for its sizes, if the plan's kernels work for any size.
    #[must_use]
    pub fn own_sizes_us(&self, op: usize) -> Option<f64> {
        self.times.own_sizes_us.as_ref()?.get(op).copied()
    }

    /// The least time of an operation, in microseconds, and what determines it.
    #[must_use]
    pub fn floor(&self, op: usize) -> Option<crate::exec::cpu::Floor> {
        self.times.floors.get(op).copied()
    }

    /// The ratio of an operation's least time to its measured time: at most 1, because no operation is faster than its
    /// floor.
    #[must_use]
    pub fn roofline(&self, op: usize) -> Option<f64> {
        Some(self.floor(op)?.us / self.op_us(op)?.max(1e-3))
    }
}
