//! Widgets that several panels use.

pub mod arena_map;
pub mod axis;
pub mod button;
pub mod classes;
pub mod compare;
mod compare_spec;
mod compare_values;
pub mod confusion;
pub mod field;
pub mod frozen_columns;
pub mod heat_map;
pub mod histogram;
pub mod keyboard;
mod layer_curves;
pub mod level_table;
pub mod pictures;
pub mod plane;
pub mod plot;
mod plot_head;
mod plot_spec;
pub mod recording_strip;
pub mod segments;
mod smoothing;
pub mod tensor_values;
