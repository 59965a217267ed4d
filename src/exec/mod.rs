//! Running a plan: memory that is allocated once and sealed, an eager executor, and a recording that is replayed.
//!
//! Everything before this module is data. Here a plan meets a machine. The type of a recorder has no way to allocate: it is given a
//! [`SealedEnv`], which offers addresses and nothing else.

mod accuracy;
pub mod cpu;
pub mod cuda;
mod env;
mod error;
mod function;
mod memory;
mod readback;
mod step;
mod stream;
mod streamed;

pub use accuracy::{Accuracy, Survey, Unit};
pub use env::{EnvBuilder, SealedEnv};
pub use error::ExecError;
pub use function::Function;
pub use memory::{available_bytes, peak_bytes};
pub use readback::{Fault, GraphRead, Undo};
pub(crate) use step::samples_to_stored;
pub use step::{Executor, Recording, Step};
pub use stream::StepRecord;

// The names under which the code for GPUs and CPUs imports them.
pub use crate::data::{BatchPlace, BatchTargets};
pub(crate) use crate::tensor::{advise, copied, room, zero_bytes};
