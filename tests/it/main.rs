//! Integration tests, with one module for each subject.

mod attention;
mod candidates;
mod change_over;
mod cli;
mod cuda;
mod cudnn;
mod edits;
mod emulation;
mod faults;
mod gathered;
mod golden;
mod half_precision;
mod kernel_text;

mod members;
mod nets;
mod numerics;
mod paths;
mod plans;
mod proofs;
mod recording_memory;
mod recurrent;
mod rewrites;
mod shared_memory;
mod stages;
mod tidy;
mod training;
