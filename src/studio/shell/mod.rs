//! The window: its state, all commands and requests, and what it remembers.

pub mod actions;
pub mod app;
mod continue_run;
mod dialogs;
mod enabled;
mod job_list;
mod measuring;
pub mod motion;
mod notices;
pub mod panel_state;
mod plan_views;
mod recording_on_screen;
mod reopen;
mod run_actions;
mod run_views;
mod saving;
pub mod selection_history;
mod selection_in_plan;
pub mod settings;
mod shortcuts;
pub mod state;
pub mod tour;
pub mod window;
