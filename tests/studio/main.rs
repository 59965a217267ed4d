//! The studio through its accessibility tree: no display, no GPU.

mod continued;
mod devices;
mod edit;
mod facts;
mod files;
mod keys;
mod layout;
mod memory;
mod readable;
mod robot;
mod rooms;
mod run;
mod runs;
mod small;
mod speed;
mod views;
