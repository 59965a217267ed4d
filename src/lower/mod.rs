//! From the semantic graph to operations: the step as a flat list with every dimension and layout written out.
//!
//! Lowering chooses how images and weights lie in memory (`[N, H, W, C]`, weights `[kh, kw, C, F]`), puts parameters,
//! gradients and moments side by side in flat vectors so that one operation updates all, and copies nothing: a flatten
//! is a view, what backward needs is kept, not moved. Fusion and kernels come later, in [`crate::select`].

mod build;
mod flat;
mod geometry;
mod layers;
mod lowerer;
mod op;
mod print;
mod program;
mod slots;
mod verify;

pub use build::{lower, lower_for};
pub use flat::{FLAT_ALIGN, FilterOrder, ParamOrder};
pub use geometry::{ConvGeometry, Epilogue, Gemm, PoolGeometry, Scalar, Segment, Trans, dropout_threshold};
pub use op::OpKind;
pub(crate) use op::{PARTS_ALIGN, SCALER};
pub(crate) use print::dims;
pub use program::{Alias, LValue, LValueId, Layout, Moment, Op, ParamSlot, Program};
pub use slots::{Dir, Slot};
pub use verify::{ProgramError, verify};
