//! The view model of each panel, borrowed from the state of the window for a frame.

pub mod arena;
pub mod capture;
pub mod data;
pub mod help;
pub mod inspector;
pub mod modals;
pub mod network;
pub mod plan;
pub mod predictions;
pub mod recordings;
pub mod runs;
pub mod status;
pub mod top_bar;
pub mod tour;
pub mod train;
pub mod values;
pub mod verify;
