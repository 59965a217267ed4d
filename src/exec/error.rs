//! Errors of preparing or running a step.

use super::cuda::error::CudaError;
use crate::compile::Compiled;
use crate::plan::LayoutError;
use crate::tensor::Bytes;
use thiserror::Error;

/// A failure of execution, with the operation and layer if it has one.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ExecError {
    #[error("the step needs {needed} of memory, and {available} are free; use a smaller batch or fewer units")]
    OutOfMemory { needed: Bytes, available: Bytes },
    #[error("the system refused {0} of memory; use a smaller batch or fewer units")]
    AllocationRefused(Bytes),
    #[error("the step needs {needed} of transient memory, and was lent {found}")]
    SmallArena { needed: Bytes, found: Bytes },
    #[error("the step {0} is already in use")]
    StepLent(String),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("op {op}: the kernel {kernel} is planned but not built in")]
    MissingKernel { op: usize, kernel: String },
    #[error(
        "op {op} ({kernel}, {layer}): argument {slot} was recorded at {found:#x}, but the plan has it at \
         {expected:#x}; \
         nothing was run"
    )]
    Ledger { op: usize, kernel: String, layer: String, slot: &'static str, expected: usize, found: usize },
    #[error("the arena was recorded at {recorded:#x} and is at {found:#x} now; nothing was run")]
    ArenaMoved { recorded: usize, found: usize },
    #[error("the graph of {graph}: {why}; nothing was run")]
    Graph { graph: String, why: String },
    #[error("{name} holds {expected} elements, {found} were given")]
    Size { name: String, expected: usize, found: usize },
    #[error("there is no {0} in this step")]
    NoValue(String),
    #[error("thread {name} could not be started: {why}")]
    Thread { name: String, why: String },
    #[error("op {op} ({kernel}, {layer}): {why}")]
    Device { op: usize, kernel: String, layer: String, why: CudaError },
    #[error("GPU: {0}")]
    Gpu(CudaError),
    #[error("step {step}: the loss is {}; {origin}", crate::tensor::figure(*loss, 4))]
    NonFinite { step: u64, loss: f64, origin: String },
}

impl From<CudaError> for ExecError {
    fn from(error: CudaError) -> Self {
        Self::Gpu(error)
    }
}

impl ExecError {
    /// A failure on a GPU, with the operation that it belongs to.
    #[must_use]
    pub(super) fn device(compiled: &Compiled, index: usize, why: CudaError) -> Self {
        let kernel = compiled.selection.choices[index].kernel.clone();
        Self::Device { op: index, kernel, layer: compiled.owner(index), why }
    }

    /// The error of memory (the store's or the arena's) whose address differs from that at recording.
    #[cold]
    #[must_use]
    pub(super) fn moved(recorded: [u64; 2], found: [u64; 2]) -> Self {
        let differs = usize::from(recorded[0] == found[0]);
        Self::ArenaMoved { recorded: recorded[differs] as usize, found: found[differs] as usize }
    }

    /// The error of a recorded argument of operation `index` that differs from the planned one.
    #[must_use]
    pub(super) fn ledger(compiled: &Compiled, index: usize, slot: usize, expected: usize, found: usize) -> Self {
        let slots = compiled.plan.program.ops[index].kind.slots();
        Self::Ledger {
            op: index,
            kernel: compiled.selection.choices[index].kernel.clone(),
            layer: compiled.owner(index),
            slot: slots.get(slot).map_or("?", |s| s.name),
            expected,
            found,
        }
    }
}
