//! Running a plan: memory that is allocated once and sealed, an eager executor, and a recording that is replayed.
//!
//! Everything before this module is data. Here a plan is executed on a machine. The type of a recorder cannot allocate:
//! it only receives addresses. Values that survive a step are in a [`ParamStore`], which the steps of a network share;
//! the others are in a [`StepArena`], which is lent to the steps.

mod accuracy;
mod backend;
mod block;
pub mod cpu;
pub mod cuda;
mod env;
mod error;
mod fed;
mod function;
mod graph_key;
mod layout;
mod location;
mod memory;
mod pool_notes;
mod pool_report;
mod pool_state;
mod readback;
mod ready_times;
mod recording_pool;
mod step;
mod step_tensors;
mod store;
mod stream;
mod streamed;
#[cfg(test)]
mod tests;
mod turns;

pub use accuracy::{Accuracy, Survey, Unit};
pub use backend::{
    Backend, BatchFeed, Capabilities, Fault, GraphRead, MemoryOf, RecordedAs, RecordedGraphs, Recording,
    ReferenceCheck, StepBackend, Undo, Ways,
};
pub use error::ExecError;
pub use function::Function;
pub use graph_key::{GraphKey, GraphSignature, InputSignature, StepVariant};
pub(crate) use layout::samples_to_stored;
pub use memory::{available_bytes, peak_bytes, resident_bytes, return_free_memory};
pub use pool_report::{EagerSteps, KnownKey, PoolCounts, PoolEvent, PoolEventKind, PoolReport, RecordingFacts};
pub use pool_state::RecordingId;
pub use ready_times::{ReadyStage, ReadyTimes};
pub use recording_pool::{Allowance, LentStep, Presence, RecordingPool};
pub use step::{Executor, Step};
pub use store::{ParamStore, StepArena, StepImage, Turn};
pub use stream::{DataSet, HeldData, StepRecord};
