//! Tests of the kernels: each against its reference, and against known values.

mod attention;
mod classifier;
mod fast;
mod harness;
mod parity;
mod products;
mod recurrence;
mod values;
