//! Sequences: tables by token, positions, and the selection of one position.

use super::node_type::{NodeType, Shapes, must, same};
use serde::{Deserialize, Serialize};

/// `tokens, weight -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {}

/// `tokens, dy, [dweight] -> dweight`; a gradient among the inputs is added to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingBwd {
    pub accumulate: bool,
}

/// `x, weight -> x + weight`, the same for every sample; if the table has more rows than a sample has positions, the
/// first ones are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddPositions {}

/// `dy, [dweight] -> dweight`; a gradient among the inputs is added to. That of rows that were not used is zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddPositionsBwd {
    pub accumulate: bool,
}

/// `x -> x +` sines in even columns and cosines in odd ones
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddSinusoids {}

/// `x -> y`: one position of each sample
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Take {
    pub at: usize,
}

/// `dy -> dx`: zero at all other positions
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeBwd {
    pub at: usize,
}

impl NodeType for Embedding {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        table(at.input(0), at.input(1), at.output(0))
    }
}

impl NodeType for EmbeddingBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.inputs.len() == 2 + usize::from(self.accumulate), "a gradient that is added to exists")?;
        table(at.input(0), at.output(0), at.input(1))
    }
}

/// A row of the table `weight` for each token.
fn table(tokens: &[usize], weight: &[usize], rows: &[usize]) -> Result<(), String> {
    let fits = rows.split_last().is_some_and(|(units, front)| front == tokens && weight.last() == Some(units));
    must(fits && weight.len() == 2, format!("{tokens:?} in {weight:?} cannot give {rows:?}"))
}

impl NodeType for AddPositions {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        same(at.input(0), at.output(0))?;
        has_rows(at.input(1), at.input(0))
    }
}

impl NodeType for AddPositionsBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.inputs.len() == 1 + usize::from(self.accumulate), "a gradient that is added to exists")?;
        has_rows(at.output(0), at.input(0))
    }
}

/// The table has a row for each position of the samples.
fn has_rows(table: &[usize], samples: &[usize]) -> Result<(), String> {
    let fits = match (table, samples) {
        ([rows, cols], [_, positions, features]) => rows >= positions && cols == features,
        _ => false,
    };
    must(fits, format!("a table {table:?} has no row for each position of {samples:?}"))
}

impl NodeType for AddSinusoids {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        must(at.input(0).len() == 3, "sinusoids are added to sequences")?;
        same(at.input(0), at.output(0))
    }
}

impl NodeType for Take {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        position(self.at, at.input(0), at.output(0))
    }
}

impl NodeType for TakeBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        position(self.at, at.output(0), at.input(0))
    }
}

/// `y` is one position of `x`.
fn position(at: usize, x: &[usize], y: &[usize]) -> Result<(), String> {
    let [n, positions, cols] = *x else { return Err("a position is taken of a sequence".into()) };
    must(at < positions && y == [n, cols], format!("position {at} of {x:?} cannot be {y:?}"))
}
