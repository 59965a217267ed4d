//! The CPU executor.
//!
//! | file | what it holds |
//! |---|---|
//! | `backend` | the CPU as one of several kinds of devices |
//! | `bounds` | a step on numbers that carry a bound for their error |
//! | `values` | the values of a step in numbers of another type |
//! | `coarse` | a step in emulated coarse arithmetic |
//! | `call` | a kernel with its arguments fixed |
//! | `kernels` | the kernels, one family a file, and their plain-loop references |
//! | `plant` | faults that tests put into steps |
//! | `pool` | the threads that share a step |
//! | `detect` | what this processor can do |
//! | `cores` | the cores that this program may use |
//! | `step` | a plan in memory, run eagerly or replayed |
//! | `ceilings` | the most that the machine does, to hold measured times against |
//! | `ledger` | recorded addresses against planned ones |

mod backend;
mod bounds;
pub mod call;
pub(in crate::exec) mod ceilings;
mod coarse;
mod cores;
mod detect;
pub mod kernels;
mod ledger;
#[doc(hidden)]
pub mod plant;
pub(in crate::exec) mod pool;
mod step;
mod tensors;
mod values;

pub(in crate::exec) use backend::CpuBackend;
pub use bounds::{BoundedStep, Storage};
pub use ceilings::{Ceilings, Floor, Level};
pub use coarse::CoarseStep;
pub use cores::usable_cores;
pub use detect::{
    WrongThreads, asked_threads, cpu_name, default_threads, detect_isa, host_target, isa_variable, threads_variable,
};
pub use ledger::Ledger;
pub use pool::Pool;
