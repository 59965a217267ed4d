//! The run that is trained, and the runs that are kept.

pub mod kept;
pub mod predictions;
pub mod rates;
pub mod samples;
pub mod training;
