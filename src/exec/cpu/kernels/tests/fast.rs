//! The check that every fast kernel must pass.

use super::harness::{How, Values, assert_close, assert_same, run};
use crate::ops::OpKind;

/// Runs an operation's kernel, and asserts that its results agree with the expected ones to `tolerance` and do not
/// depend on the number of parts; returns them.
pub fn checked(op: &OpKind, values: &Values, how: &How, expected: &Values, tolerance: f64) -> Values {
    let what = format!("{op:?} {:?}", how.variant);
    let found = run(op, values, how);
    assert_close(&what, &found, expected, tolerance);
    for parts in [2, 3, 5] {
        let again = run(op, values, &How { parts, ..how.clone() });
        assert_same(&format!("{what}, {parts} parts"), &again, &found);
    }
    found
}
