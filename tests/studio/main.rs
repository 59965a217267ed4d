//! The studio through its accessibility tree: no display, no GPU.

mod edit;
mod files;
mod robot;
mod run;
mod runs;
mod speed;
mod views;
