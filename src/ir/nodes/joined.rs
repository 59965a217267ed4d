//! Concatenated values, parts of them, and elementwise products.

use super::node_type::{NodeType, Shapes, must, same};
use serde::{Deserialize, Serialize};

/// The largest number of values that one node concatenates.
pub const MOST_JOINED: usize = 8;

/// `x.. -> y`, concatenated along an axis of the shape with the batch
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    pub axis: usize,
}

/// `dy -> dx`: the part of a gradient along an axis, from this position on
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConcatBwd {
    pub axis: usize,
    pub from: usize,
}

/// `a, b -> y`, the elementwise product
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multiply {}

/// The axis along which values of this rank, including the batch, are concatenated: the channels of images, and
/// otherwise the last.
#[must_use]
pub const fn joined_axis(rank: usize) -> usize {
    if rank == 4 { 1 } else { rank.saturating_sub(1) }
}

/// Whether shapes are equal except for one axis.
fn agree(a: &[usize], b: &[usize], axis: usize) -> Result<(), String> {
    let others = |dims: &[usize]| -> Vec<usize> {
        dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, size)| *size).collect()
    };
    must(a.len() == b.len() && axis < a.len(), format!("{a:?} and {b:?} should have an axis {axis}"))?;
    same(&others(a), &others(b))
}

impl NodeType for Concat {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let count = at.inputs.len();
        must((1..=MOST_JOINED).contains(&count), "there should be one to eight inputs")?;
        must(self.axis == joined_axis(at.output(0).len()), "the axis should be that of the output's rank")?;
        let mut size = 0;
        for input in 0..count {
            agree(at.input(input), at.output(0), self.axis)?;
            size += at.input(input)[self.axis];
        }
        must(size == at.output(0)[self.axis], "the output should be as long as its inputs together")
    }
}

impl NodeType for ConcatBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        agree(at.input(0), at.output(0), self.axis)?;
        let end = self.from + at.output(0)[self.axis];
        must(end <= at.input(0)[self.axis], "a part should end within the gradient")
    }
}

impl NodeType for Multiply {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    }
}
