//! Stepgraph compiles a neural network's training step, records it once, and replays it.
//!
//! The modules are listed in the order of their imports: each imports only from those above it.

pub mod tensor;

pub mod model;

pub mod ir;

pub mod ops;

pub mod lower;

pub mod rewrite;

pub mod select;

pub mod plan;

pub mod compile;

pub mod data;

pub mod exec;

pub mod train;

pub mod cli;

#[cfg(feature = "studio")]
pub mod studio;
