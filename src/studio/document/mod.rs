//! The document: the edited preset, its fields, its history, and its files.

pub mod back_forward;
pub mod dialog;
pub mod edit;
pub mod fields;
pub mod files;
pub mod history;
pub mod job_queue;
pub mod last_opened;
pub mod presets;
pub mod recovery;
