//! Pieces that several panels are made of.

pub mod arena_map;
pub mod button;
pub mod compare;
pub mod field;
pub mod plot;
pub mod series;
