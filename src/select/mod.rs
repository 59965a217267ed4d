//! Which kernel runs each operation, and why the other candidates were not chosen.
//!
//! [`select`] gets from the [`catalogue`] every kernel that could run each operation of a rewritten program on the
//! [`Target`], and chooses the fastest that accepts the shape: by measured times if a [`Tuning`] has them, otherwise by
//! estimates. For a GPU it then determines which operations may run at the same time.

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
