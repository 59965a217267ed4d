//! Normalisations and their gradients.

use super::{NodeType, Shapes, must, same};
use serde::{Deserialize, Serialize};

/// `x, gamma, beta, running_mean, running_var -> y, mean, rstd, running_mean, running_var`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNorm {
    pub eps: f64,
    pub momentum: f64,
}

/// `x, gamma, beta, running_mean, running_var -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormEval {
    pub eps: f64,
}

/// `dy, x, gamma, mean, rstd, [dgamma, dbeta] -> dx, dgamma, dbeta`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormBwd {
    pub accumulate: bool,
}

/// `x, gamma, beta -> y, mean, rstd`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    pub eps: f64,
}

/// As [`BatchNormBwd`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNormBwd {
    pub accumulate: bool,
}

impl NodeType for BatchNorm {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        one_value_a_channel(at)
    }
}

impl NodeType for BatchNormEval {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        one_value_a_channel(at)
    }
}

impl NodeType for BatchNormBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        gradients(at)
    }
}

impl NodeType for LayerNorm {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))
    }
}

impl NodeType for LayerNormBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        gradients(at)
    }
}

fn one_value_a_channel(at: &Shapes<'_>) -> Result<(), String> {
    same(at.input(0), at.output(0))?;
    (1..5).try_for_each(|i| {
        must(at.input(i) == [at.input(0)[1]], format!("{:?} is not one value a channel", at.input(i)))
    })
}

fn gradients(at: &Shapes<'_>) -> Result<(), String> {
    same(at.input(0), at.output(0))?;
    same(at.input(1), at.output(0))?;
    (1..3).try_for_each(|i| same(at.input(2), at.output(i)))
}
