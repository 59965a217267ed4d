//! What the panels show, as plain data: made away from the interface thread where it is large, and tested as text.

pub mod arena;
pub mod capture;
pub mod capture_rows;
pub mod changes;
pub mod compare;
pub mod data;
pub mod format;
pub mod hints;
pub mod inspector;
pub mod levels;
pub mod network;
pub mod plan;
pub mod predictions;
mod relations;
pub mod runs;
pub mod status;
pub mod step_graph;
pub mod tenancy;

pub use plan::PlanView;
