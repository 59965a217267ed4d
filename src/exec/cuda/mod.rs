//! The CUDA executor, and the only place that speaks CUDA.
//!
//! Libraries are loaded when they are first needed, so that one binary runs on machines with and without a GPU.
//!
//! | file | what it holds |
//! |---|---|
//! | `probe` | which libraries and devices there are, and how to get what is missing |
//! | `gpu` | one device: its context, its stream, its kernels and libraries |
//! | `compiler` | kernels from source, by the run-time compiler, kept on disk |
//! | `workers` | processes that compile for this one |
//! | `memory` | device and pinned memory, events |
//! | `cublaslt`, `cudnn` | products and convolutions of the libraries |
//! | `bind` | an operation's kernels with all arguments fixed |
//! | `graph` | a captured step |
//! | `capture` | which graphs a step has, and their capture |
//! | `nodes` | kernel nodes that were read, against planned launches |
//! | `library_nodes` | the addresses in the nodes of libraries |
//! | `readback` | reading the nodes of graphs, at capture and again |
//! | `faults` | changes that show that reading and checking find them |
//! | `chain` | steps one after the other in one graph |
//! | `group` | operations that share a launch |
//! | `intake` | steps that fetch their own batches from a data set on the device |
//! | `ledger` | what can have changed since the graphs were read, at every launch |
//! | `shadow` | the half-width copy of the parameters |
//! | `plant` | a fault that tests put into the kernels' text |
//! | `step` | a plan in device memory, run op by op or replayed |
//! | `timing` | how long operations take, and the host's part |
//! | `tensors` | reading and writing its values |
//! | `ceilings` | what the device can do at best |
//! | `functions` | functions by themselves, to measure how exact they are |
//! | `twin` | every kernel against its plain-loop reference |
//! | `judge` | the bounds of such a comparison |

mod bind;
mod capture;
mod ceilings;
mod chain;
mod compiler;
mod cublaslt;
mod cudnn;
mod faults;
mod functions;
mod gpu;
mod graph;
mod group;
mod intake;
mod judge;
mod ledger;
mod library_nodes;
mod memory;
mod nodes;
mod overlap;
#[doc(hidden)]
pub mod plant;
mod probe;
mod readback;
mod shadow;
mod step;
mod stepped;
mod tensors;
mod timing;
mod twin;
mod workers;

pub use ceilings::GpuCeilings;
pub use compiler::{Arch, cache_folder, compile_unit, source_hash, sources, unit};
pub use faults::Undo;
pub(in crate::exec) use functions::GpuFunctions;
pub use gpu::{Gpu, gpu, usable};
pub(in crate::exec) use intake::MAX_WATCHED;
pub use probe::{DeviceInfo, Library, Probe, probe};
pub use step::Step;
pub use twin::Twin;
pub use workers::{compile_for_another, may_start_compilers};

use cudarc::driver::result::DriverError;

/// A driver call that failed, in words.
pub(crate) fn failed(call: &str, error: DriverError) -> String {
    let name = error.error_name().ok().and_then(|n| n.to_str().ok()).unwrap_or("an unknown error");
    let text = error.error_string().ok().and_then(|n| n.to_str().ok()).unwrap_or("no description");
    format!("{call}: {name} ({text})")
}
