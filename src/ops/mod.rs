//! The operations of a lowered program: what each computes, its dimensions and its arguments.
//!
//! An operation says *what* is done, with every dimension written out; selection decides which kernel does it. Images
//! are `[N, H, W, C]`.
//!
//! A file contains a family: a table for each operation, with its type, its slots, and its properties as an
//! [`Operation`]. A new operation is a table in its family's file and a name in the list of `kind.rs`. An optimizer is
//! a type with its tables and its formula ([`Rule`]), and two more lines of `kind.rs`.

mod activation;
mod attention;
mod batch_norm;
pub mod chunks;
mod classifier;
mod counter;
mod dropout;
mod elementwise;
mod geometry;
mod gradient_step;
#[cfg(test)]
mod header;
mod joined;
mod kind;
mod layer_norm;
mod loss;
mod metrics;
mod operation;
mod optimizer;
mod point_loss;
mod pool;
mod product;
mod rates;
mod recurrence;
mod row_product;
mod sequence;
pub mod slots;
mod softmax;
#[cfg(test)]
mod tests;
mod update;
mod windows;

pub use attention::{AttentionGeometry, DROPOUT_GROUP, MOST_HEAD_DIM};
pub use batch_norm::BATCH_NORM_MOMENTS;
pub use counter::SCALER;
pub use dropout::dropout_threshold;
pub use geometry::{ConvGeometry, Epilogue, PoolGeometry, RecurrenceGeometry, Scalar, Segment, Trans};
pub use gradient_step::{GradientStep, PARTS_ALIGN};
pub(crate) use kind::with_rule;
pub use kind::*;
pub use layer_norm::GradientPart;
pub use operation::Operation;
pub use product::Product;
pub use row_product::ROW_PRODUCT_COLUMNS;
pub use slots::{Dir, Slot};
pub use update::{FlatUpdate, MOST_STATES, Number, Rates, Rule, RuleText, StepOptions, UpdateSlots};
