//! From the semantic graph to operations: the step as a flat list with every dimension and layout written out.
//!
//! Lowering chooses how images and weights are laid out in memory (`[N, H, W, C]`, weights `[kh, kw, C, F]`), and
//! stores parameters, gradients and moments contiguously in flat vectors so that one operation updates all of them. It
//! copies nothing: a flatten is a view, and values that the backward pass needs are kept in place. Fusion comes later,
//! in [`crate::rewrite`], and kernels in [`crate::select`].

mod build;
mod flat;
mod layers;
mod lowerer;
mod print;
mod program;
mod verify;

pub use build::{lower, lower_for, lower_in_order};
pub use flat::{FLAT_ALIGN, FilterOrder, ParamOrder};
pub(crate) use lowerer::ALL_GRADIENTS;
pub(crate) use print::dims;
pub use program::{Alias, LValue, LValueId, Layout, Moment, Op, ParamSlot, Program};
pub use verify::{ProgramError, verify};
