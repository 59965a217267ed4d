//! Curves of any length in bounded memory, each with its smoothed copy.

pub mod smoothed;
pub mod values;
