//! The memory plan: the role, live range and address of every buffer of a selected program.
//!
//! [`bind`] decides which values share memory (views, slices of flat vectors, updates in place), [`arena`] places the
//! others, and [`referee`] checks the result: it traverses the step and checks for every read that the bytes are still
//! those that were written. What survives a step has a [`StateKey`], by which the steps of a network find it in their
//! common [`StoreLayout`].

pub mod arena;
mod binding_plan;
mod bindings;
mod capture;
mod inplace;
pub mod referee;
mod state;
mod store_layout;
mod svg;

pub use binding_plan::{BindingPlan, Buffer, BufferId, Constant, EXTERNAL, Part, Place};
pub use bindings::{PlanError, bind};
pub use capture::{CapturePlan, LossBufs, PerLayerBufs, TensorRef};
pub use state::{StateKey, StateKind};
pub use store_layout::{Home, Homes, LayoutError, StoreLayout, StoreSlot};
pub use svg::{RoleColor, arena_svg};

/// Every buffer starts at a multiple of this many bytes.
pub const ALIGN: u64 = 256;
