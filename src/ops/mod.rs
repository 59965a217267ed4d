//! The operations of a lowered program: what each computes, its dimensions and its arguments.
//!
//! An operation says *what* is done, with every dimension written out; selection decides which kernel does it. Images
//! are `[N, H, W, C]`.
//!
//! A file holds a family: the type of each operation, its table of slots, and what it answers as an [`Operation`]. A
//! new operation is a type in its family's file and a name in the list of `kind.rs`.

mod activation;
mod batch_norm;
pub mod chunks;
mod counter;
mod dropout;
mod elementwise;
mod geometry;
#[cfg(test)]
mod header;
mod kind;
mod layer_norm;
mod loss;
mod metrics;
mod operation;
mod optimizer;
mod pool;
mod product;
pub mod slots;
mod softmax;
#[cfg(test)]
mod tests;
mod windows;

pub use batch_norm::BATCH_NORM_MOMENTS;
pub use counter::SCALER;
pub use dropout::dropout_threshold;
pub use geometry::{ConvGeometry, Epilogue, PoolGeometry, Scalar, Segment, Trans};
pub use kind::*;
pub use operation::Operation;
pub use optimizer::{GradientStep, PARTS_ALIGN, UpdateSlots};
pub use product::Product;
pub use slots::{Dir, Slot};
