//! Small networks for the tests of passes.

use super::pass::Goal;
use super::pipeline::rewrite;
use crate::ir::{Metrics, Mode, build};
use crate::lower::{FilterOrder, Program, lower_for, verify};
use crate::model::{Model, Precision, check, read_preset};
use crate::tensor::DType;

/// A network of 64 features and 10 classes.
pub(super) fn classifier(layers: &str, optimizer: &str) -> Model {
    network(layers, optimizer, 64)
}

/// The same for a batch.
pub(super) fn network(layers: &str, optimizer: &str, batch: usize) -> Model {
    let text = format!(
        r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": {batch}}}, "layers": [
        {layers}, {{"type": "dense", "units": 10}}], "loss": {{"type": "softmax_cross_entropy"}},
        "optimizer": {{"type": "{optimizer}", "lr": 0.001}}}}"#
    );
    check(&read_preset(&text).unwrap()).model.unwrap()
}

/// A network of tokens with a vocabulary of 20,000, for a batch of samples with this number of positions.
pub(super) fn of_tokens(layers: &str, optimizer: &str, [batch, positions]: [usize; 2]) -> Model {
    let text = format!(
        r#"{{"name": "v", "input": {{"type": "tokens", "shape": [{positions}], "vocab": 20000, "batch": {batch}}},
        "layers": [{{"type": "embedding", "units": 24}}, {layers}], "loss": {{"type": "softmax_cross_entropy"}},
        "optimizer": {{"type": "{optimizer}", "lr": 0.1}}}}"#
    );
    check(&read_preset(&text).unwrap()).model.unwrap()
}

/// The training step of a network with all metrics.
pub(super) fn lowered(model: &Model, filters: FilterOrder) -> Program {
    lower_for(&build(model, Mode::Train, Metrics::default(), DType::F32), model, filters)
}

/// That step as a GPU runs it.
pub(super) fn on_gpu(model: &Model, precision: Precision) -> Program {
    let program = rewrite(&lowered(model, FilterOrder::Ohwi), &Goal::gpu(precision)).unwrap().program;
    assert_eq!(verify(&program), Ok(()));
    program
}
