//! The window's state of runs: the one that is being trained, and those that are kept on disk.

pub mod kept;
pub mod predictions;
pub mod rates;
pub mod samples;
pub mod training;
