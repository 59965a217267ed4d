//! The studio through its accessibility tree: no display, no GPU.

mod edit;
mod files;
mod memory;
mod robot;
mod run;
mod speed;
mod views;
