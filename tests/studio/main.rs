//! The studio through its accessibility tree: no display, no GPU.

mod continued;
mod devices;
mod edit;
mod edits_in_a_row;
mod facts;
mod files;
mod keys;
mod memory;
mod readable;
mod recordings;
mod robot;
mod rooms;
mod run;
mod runs;
mod sequences;
mod small;
mod speed;
mod views;
