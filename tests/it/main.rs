//! Tests of the whole, one module a subject.

mod golden;
