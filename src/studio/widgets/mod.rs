//! Pieces that several panels are made of.

pub mod arena_map;
pub mod button;
pub mod field;
pub mod level_table;
pub mod look;
pub mod plot;
pub mod series;
