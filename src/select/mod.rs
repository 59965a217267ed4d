//! Which kernel runs each operation, and why the other candidates lost.
//!
//! [`select`] asks the [`catalogue`] for every kernel that could do each operation of a rewritten program on the
//! [`Target`], and keeps the cheapest that accepts the shape: by measured times where a [`Tuning`] has them, else by
//! estimate. On a GPU it then says which operations may run side by side.

pub mod catalogue;
mod choose;
pub mod cpu_attention;
pub mod cpu_classifier;
pub mod cpu_conv;
pub mod cpu_gemm;
pub mod cpu_recurrence;
pub mod cpu_rest;
pub mod cuda;
pub mod least;
mod measured;
mod on_cpu;
mod on_gpu;
mod print;
mod selection;
mod target;
mod threads;
mod tuning;
mod variant;

pub use choose::select;
pub use measured::Measured;
pub use selection::{Candidate, Choice, Policy, SelectError, Selection};
pub use target::{CpuFacts, CudaFacts, Device, Isa, Kernels, Target};
pub use threads::{MOST_THREADS, Threads, ThreadsBy, Work, choose_threads, step_us, thread_counts, work_of};
pub use tuning::{Timing, TunedDevice, Tuning};
pub use variant::Variant;
