//! Stepgraph compiles a neural network's training step, records it once, and replays it.
//!
//! The layers stand in the order in which they may import each other.

pub mod tensor;

pub mod model;

pub mod ir;

pub mod ops;

pub mod lower;

pub mod select;

pub mod plan;

pub mod compile;

pub mod exec;

pub mod data;

pub mod train;

pub mod cli;

#[cfg(feature = "studio")]
pub mod studio;
