//! Normalisations and their gradients.

use super::node_type::{NodeType, Shapes, must, same, shape_rules};
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

/// `x, gamma, [beta] -> y, [mean], rstd`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    pub eps: f64,
    /// Whether each row is divided by its root mean square; then there is neither a mean nor a shift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rms: bool,
}

/// `dy, x, gamma, [mean], rstd, [dgamma], [dbeta] -> dx, dgamma, [dbeta]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNormBwd {
    pub accumulate: bool,
    /// As in [`LayerNorm`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rms: bool,
}

shape_rules! {
    BatchNorm, BatchNormEval: |at| one_value_a_channel(at);
    BatchNormBwd: |at| gradients(at, 2);
}

impl NodeType for LayerNorm {
    fn name(&self) -> Option<&'static str> {
        self.rms.then_some("RmsNorm")
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))?;
        let absent = usize::from(self.rms);
        let is_complete = (at.inputs.len(), at.outputs.len()) == (3 - absent, 3 - absent);
        must(is_complete, "a shift and a mean belong to rows that are centred, and to no others")
    }
}

impl NodeType for LayerNormBwd {
    fn name(&self) -> Option<&'static str> {
        self.rms.then_some("RmsNormBwd")
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let parameters = if self.rms { 1 } else { 2 };
        let inputs = 3 + parameters + if self.accumulate { parameters } else { 0 };
        must(at.inputs.len() == inputs, format!("{} inputs should be {inputs}", at.inputs.len()))?;
        gradients(at, parameters)
    }
}

fn one_value_a_channel(at: &Shapes<'_>) -> Result<(), String> {
    same(at.input(0), at.output(0))?;
    (1..5).try_for_each(|i| {
        must(at.input(i) == [at.input(0)[1]], format!("{:?} is not one value a channel", at.input(i)))
    })
}

/// The gradients of the input and of this many parameters.
fn gradients(at: &Shapes<'_>, parameters: usize) -> Result<(), String> {
    same(at.input(0), at.output(0))?;
    same(at.input(1), at.output(0))?;
    (1..=parameters).try_for_each(|i| same(at.input(2), at.output(i)))
}
