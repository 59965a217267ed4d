//! Products with weights: dense layers and convolutions, and their gradients.

use super::node_type::{NodeType, Shapes, elements, must, same};
use super::window::{Over, Window, image_dims};
use serde::{Deserialize, Serialize};

/// `x, w, [b] -> y`; `w` is `[in, out]`, or `[out, in]` if it is the table of an embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    pub bias: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tied: bool,
}

/// `x, w, [b] -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv2d {
    pub window: Window,
    pub groups: usize,
    pub bias: bool,
}

/// `dy, x, w, [dw], [db] -> dw, [db], [dx]`; gradients among the inputs are added to. That of a shared table may exist
/// before the first one of the bias, which belongs to this layer only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearBwd {
    pub bias: bool,
    pub input_grad: bool,
    pub accumulate: bool,
    /// As in [`Linear`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tied: bool,
    /// Outputs, from the first up to the second, whose effect does not change by an offset that all positions share, so
    /// that the gradient of their bias is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeros: Option<[usize; 2]>,
}

/// As [`LinearBwd`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv2dBwd {
    pub window: Window,
    pub groups: usize,
    pub bias: bool,
    pub input_grad: bool,
    pub accumulate: bool,
}

impl NodeType for Linear {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let (x, w, y) = (at.input(0), at.input(1), at.output(0));
        let (Some((k, rows)), Some((n, out_rows))) = (x.split_last(), y.split_last()) else {
            return Err("a scalar has no last axis".into());
        };
        let weight = if self.tied { [*n, *k] } else { [*k, *n] };
        must(w == weight && rows == out_rows, format!("{x:?} by {w:?} cannot give {y:?}"))
    }
}

impl NodeType for Conv2d {
    fn name(&self) -> Option<&'static str> {
        (self.window.over != Over::Image).then_some("Conv1d")
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let dims = (image_dims(at.input(0)), image_dims(at.output(0)), filter_dims(at.input(1)));
        let (Some(x), Some(y), Some([f, c, kh, kw])) = dims else { return Err("expected images".into()) };
        let window = &self.window;
        let sides = if window.over == Over::Causal { 1 } else { 2 };
        let spatial = (2..4).all(|a| {
            let (i, k) = (a - 2, [kh, kw][a - 2]);
            k == window.size[i]
                && x[a] + sides * window.padding[i] > (y[a] - 1) * window.stride[i] + window.dilation[i] * (k - 1)
                && x[a] + sides * window.padding[i] < y[a] * window.stride[i] + window.dilation[i] * (k - 1) + 1
        });
        let is_whole = x[0] == y[0] && f == y[1] && c * self.groups == x[1] && spatial;
        must(is_whole, format!("{:?} by {:?} cannot give {:?}", at.input(0), at.input(1), at.output(0)))
    }
}

/// The dimensions `[f, c, kh, kw]` of filters, or of those over sequences, `[f, c, k]`, as filters of one row.
fn filter_dims(dims: &[usize]) -> Option<[usize; 4]> {
    match *dims {
        [f, c, kh, kw] => Some([f, c, kh, kw]),
        [f, c, k] => Some([f, c, 1, k]),
        _ => None,
    }
}

impl NodeType for LinearBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let outputs = at.input(0).last().copied().unwrap_or(0);
        gradients(at, self.bias.then_some(outputs), self.input_grad)
    }
}

impl NodeType for Conv2dBwd {
    fn name(&self) -> Option<&'static str> {
        (self.window.over != Over::Image).then_some("Conv1dBwd")
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let outputs = image_dims(at.input(0)).map_or(0, |dims| dims[1]);
        gradients(at, self.bias.then_some(outputs), self.input_grad)
    }
}

/// `outputs`: the number of outputs that have a bias, if there are biases.
fn gradients(at: &Shapes<'_>, outputs: Option<usize>, input_grad: bool) -> Result<(), String> {
    same(at.input(2), at.output(0))?;
    if let Some(outputs) = outputs {
        must(elements(at.output(1)) == outputs, "one bias gradient an output")?;
    }
    if input_grad { same(at.input(1), at.output(1 + usize::from(outputs.is_some()))) } else { Ok(()) }
}
