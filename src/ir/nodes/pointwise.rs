//! Elementwise functions, sums, views, and values kept for the backward pass.

use super::node_type::{elements, must, same, shape_rules};
use crate::model::Activation as Function;
use serde::{Deserialize, Serialize};

/// `x -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    pub func: Function,
}

/// `dy, saved -> dx`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActivationBwd {
    pub func: Function,
}

/// `x, counter -> y, mask`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    pub rate: f64,
    pub stream: u32,
}

/// `dy, mask -> dx`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropoutBwd {
    pub rate: f64,
}

/// `x -> y`, a view
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flatten {}

/// `dy -> dx`, a view
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlattenBwd {}

/// `a, b -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Add {}

/// `x -> factor x`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    pub factor: f64,
}

/// `a, b -> a + b`, for a value with two readers
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradAdd {}

/// `x -> x`: kept for the backward pass; moves nothing, extends the value's live range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Save {}

shape_rules! {
    Activation, Dropout, DropoutBwd, Scale, Save: |at| same(at.input(0), at.output(0));
    ActivationBwd, Add, GradAdd: |at| {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    };
    Flatten, FlattenBwd: |at| {
        must(elements(at.input(0)) == elements(at.output(0)), "a view keeps the number of elements")
    };
}
