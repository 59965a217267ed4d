//! The CUDA executor, and the only code that uses CUDA.
//!
//! Libraries are loaded when they are first needed, so that one binary runs on machines with and without a GPU. Files
//! import those above them in this table.
//!
//! | file | what it holds |
//! |---|---|
//! | `error` | a call that failed, with its code and message |
//! | `shared_library` | the driver and NVIDIA's libraries, loaded once |
//! | `kernel_cache` | compiled kernels on disk, within a limit |
//! | `known_libraries` | what earlier starts found out about libraries |
//! | `probe` | which libraries and devices there are, and how to get what is missing |
//! | `memory` | device and pinned memory, events |
//! | `stream` | the stream of each thread |
//! | `plant` | a fault that tests put into the kernels' text |
//! | `source` | the text of kernels, from what selection says of them |
//! | `compiler` | the run-time compiler |
//! | `compile_thread` | the thread of this process that compiles in advance |
//! | `compile_workers` | processes that compile for this one |
//! | `kernel_store` | the loaded kernels of a GPU |
//! | `cublaslt`, `cudnn` | products, convolutions and attention of the libraries |
//! | `libraries` | the libraries of a GPU, and the plans that they have made |
//! | `gpu` | one device: its context, its kernels and libraries |
//! | `arguments` | the arguments of kernels, and where their addresses come from |
//! | `bound_call` | a call of the driver or of a library with everything fixed |
//! | `draft` | which calls carry out an operation |
//! | `bind` | their addresses |
//! | `graph_nodes` | the nodes of a graph |
//! | `clear_nodes` | kernels that zero memory in place of the copy engine |
//! | `launch` | one launch of a recording |
//! | `general_members` | the geometry of kernels that read their sizes |
//! | `wider_kernels` | kernels for wider classes, in place of those that are not compiled |
//! | `bound_ops` | the operations of a step, bound to its memory |
//! | `extents` | the bytes that operations read and write |
//! | `horizontal_fusion` | operations that share a launch |
//! | `pdl` | launches that start before the one in front has ended |
//! | `multi_step` | steps one after the other in one graph |
//! | `recording` | the launches of a step |
//! | `planned_launch` | kernel nodes that were read, against planned launches |
//! | `library_nodes` | the addresses in the nodes of libraries |
//! | `captured_graph` | a graph that is ready to be launched |
//! | `feed_launch` | the launches of the data feed |
//! | `ledger` | what can have changed since the graphs were read, at every launch |
//! | `graph_reader` | reading the nodes of graphs, at capture and again |
//! | `capture` | capture, and reading what was captured |
//! | `graphs` | which graphs a step has |
//! | `feed_memory` | the data set, the places and the records that a data feed works on |
//! | `device_feed` | steps that fetch their own batches from a data set on the device |
//! | `half_parameters` | the half-precision copy of the parameters |
//! | `transfers` | copies between the host and a step's memory |
//! | `step` | a plan in device memory, run op by op or replayed |
//! | `timing` | how long operations take, and the host's part |
//! | `faults` | changes that show that reading and checking find them |
//! | `ceilings` | what the device can do at best |
//! | `functions` | functions by themselves, to measure how exact they are |
//! | `reference_bounds`, `_values`, `_updates`, `_run`, `_check` | every kernel against plain loops |
//! | `op_results` | the results of one operation on random inputs, to compare candidates |
//! | `backend` | the GPU as one of several kinds of devices |

mod any_feed;
mod arguments;
mod backend;
mod bind;
mod bound_call;
mod bound_ops;
mod capture;
mod captured_graph;
mod ceilings;
mod clear_nodes;
mod compile_thread;
mod compile_workers;
mod compiler;
mod crew;
mod cublaslt;
mod cudnn;
mod device_block;
mod device_feed;
mod draft;
pub(in crate::exec) mod error;
mod extents;
mod faults;
mod feed_launch;
mod feed_memory;
mod functions;
mod general_members;
mod gpu;
mod graph_nodes;
mod graph_reader;
mod graphs;
mod half_parameters;
mod horizontal_fusion;
mod kernel_cache;
mod kernel_store;
mod known_libraries;
mod launch;
mod ledger;
mod libraries;
mod library_nodes;
mod memory;
mod multi_step;
mod op_results;
mod pdl;
mod planned_launch;
#[doc(hidden)]
pub mod plant;
mod probe;
mod recording;
mod reference_bounds;
mod reference_check;
mod reference_run;
mod reference_updates;
mod reference_values;
mod shared_library;
mod source;
mod step;
mod stream;
mod timing;
mod transfers;
mod wider_kernels;

pub(in crate::exec) use backend::CudaBackend;
pub use bound_ops::{compile_ahead, compile_for, prefetch};
pub use ceilings::GpuCeilings;
pub use compile_workers::{compile_for_another, may_start_compilers, start_compilers_from};
pub use compiler::{Arch, compile_source};
pub use draft::{KernelForAnySize, kernels_for_any_size};
pub use error::CudaError;
pub(in crate::exec) use functions::GpuFunctions;
pub use gpu::{Gpu, gpu, kernels_variable, usable};
pub use kernel_cache::{CacheUsage, KernelCache, cache_folder, limit_variable};
pub use op_results::SlotValue;
pub use probe::{DeviceInfo, Library, Probe, absent_gpu, hide_variable, probe, probe_again};
pub use source::{KernelSource, source_hash, sources};
pub use timing::OpTimer;
