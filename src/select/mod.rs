//! Which kernel runs each operation, what was fused into it, and why the other candidates lost.
//!
//! [`select`] first fuses (visibly: every fused operation lists what it stands for), then asks the [`catalogue`] for every kernel that could do each
//! operation on the [`Target`], and keeps the cheapest that accepts the shape: by measured times where a [`Tuning`] has them, else by estimate.

pub mod catalogue;
pub mod cpu_conv;
pub mod cpu_gemm;
pub mod cpu_rest;
pub mod cuda;
mod fuse;
pub mod least;
mod print;
mod selection;
mod target;
mod threads;
mod tuning;
mod variant;

pub use fuse::fuse;
pub use selection::{Candidate, Choice, Measured, Policy, SelectError, Selection, select, select_tuned};
pub use target::{CpuFacts, CudaFacts, Device, Isa, Target};
pub use threads::{MOST_THREADS, Threads, ThreadsBy, Work, choose_threads, step_us, thread_counts, work_of};
pub use tuning::{Timing, TunedDevice, Tuning};
pub use variant::Variant;
