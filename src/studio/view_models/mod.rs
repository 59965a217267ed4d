//! What the panels show, as plain data: computed on other threads where it is large, and tested as text.

pub mod arena;
pub mod byte_owners;
pub mod capture;
pub mod capture_rows;
pub mod changes;
pub mod compare;
mod compiler_pages;
pub mod curves;
pub mod data;
pub mod folded_layers;
pub mod format;
pub mod hints;
pub mod inspector;
pub mod inspector_page;
pub mod job;
pub mod levels;
pub mod list_head;
pub mod loaded_run;
pub mod measured;
pub mod network;
pub mod notice;
pub mod panels;
pub mod plan;
pub mod predictions;
pub mod proofs;
pub mod readiness;
pub mod related;
pub mod runs;
pub mod series;
pub mod status;
pub mod step_graph;
pub mod tour;
pub mod transport;
pub mod values;

pub use plan::PlanView;
