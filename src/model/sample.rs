//! Small networks for tests.

use super::{Checked, check, read_preset};

/// A checked network with these fields of its input, these layers and this loss.
pub(crate) fn checked_network(input: &str, layers: &str, loss: &str) -> Checked {
    let text = format!(
        r#"{{"version": 1, "name": "t", "input": {{{input}}}, "layers": [{layers}],
        "loss": {{"type": "{loss}"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
    );
    check(&read_preset(&text).unwrap())
}
