//! Running a plan: memory that is allocated once and sealed, an eager executor, and a recording that is replayed.
//!
//! Everything before this module is data. Here a plan meets a machine. The type of a recorder has no way to allocate:
//! it is given a [`SealedEnv`], which offers addresses and nothing else.

mod accuracy;
mod backend;
pub mod cpu;
pub mod cuda;
mod env;
mod error;
mod fed;
mod function;
mod layout;
mod location;
mod memory;
mod readback;
mod step;
mod stream;
mod streamed;

pub use accuracy::{Accuracy, Survey, Unit};
pub use backend::{
    Backend, BatchFeed, Capabilities, Fault, GraphRead, MemoryOf, RecordedAs, RecordedGraphs, Recording,
    ReferenceCheck, StepBackend, Undo,
};
pub use env::{EnvBuilder, SealedEnv};
pub use error::ExecError;
pub use function::Function;
pub(crate) use layout::samples_to_stored;
pub use memory::{available_bytes, peak_bytes};
pub use step::{Executor, Step};
use stream::MAX_WATCHED;
pub use stream::{DataSet, StepRecord};

// The names under which the code for GPUs and CPUs imports them.
pub use crate::data::{BatchPlace, BatchTargets};
pub(crate) use crate::tensor::{advise, copied, room, zero_bytes};
