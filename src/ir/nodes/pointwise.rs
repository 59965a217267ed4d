//! Functions of each element, sums, views, and what is kept for the backward pass.

use super::node_type::{NodeType, Shapes, elements, must, same};
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

/// `a, b -> a + b`, where a value has two readers
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradAdd {}

/// `x -> x`: kept for the backward pass; moves nothing, lengthens the value's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Save {}

impl NodeType for Activation {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for ActivationBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    }
}

impl NodeType for Dropout {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for DropoutBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for Flatten {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(elements(at.input(0)) == elements(at.output(0)), "a view keeps the number of elements")
    }
}

impl NodeType for FlattenBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(elements(at.input(0)) == elements(at.output(0)), "a view keeps the number of elements")
    }
}

impl NodeType for Add {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    }
}

impl NodeType for Scale {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for GradAdd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    }
}

impl NodeType for Save {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}
