//! The parts of the window. Each draws a view model and pushes commands to a queue; none computes, locks or waits.

pub mod arena;
pub mod arena_numbers;
pub mod byte_owners;
pub mod capture;
pub mod curves;
pub mod data;
pub mod help;
pub mod inspector;
pub mod jobs;
pub mod layer_card;
pub mod modals;
pub mod network;
pub mod palette;
pub mod plan_changes;
pub mod plan_state;
pub mod predictions;
pub mod run_tools;
pub mod runs;
pub mod status;
pub mod step_graph;
pub mod top_bar;
pub mod tour;
pub mod train;
pub mod trash;
pub mod values;
pub mod verify;
